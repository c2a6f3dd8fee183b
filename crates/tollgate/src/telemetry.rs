//! The export of traces and metrics, from the settings of the section `telemetry`.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use tollgate_console::EffectiveSetting;
use tollgate_gateway::{
    background::telemetry::{Telemetry, TelemetrySettings},
    state::trace_queue::{Sampler, TraceQueue},
};

use crate::{
    config::{self, Config},
    failure::Failure,
};

/// Headers that the exporter sets itself.
const RESERVED: [&str; 7] =
    ["connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding", "user-agent"];

/// The queue and its exporter; without an endpoint, nothing is traced and there is no exporter. `node` names this one.
pub(crate) fn of(config: &Config, node: &str) -> Result<(TraceQueue, Option<Telemetry>), Failure> {
    let Some(endpoint) = config.otlp_endpoint.clone() else { return Ok((TraceQueue::default(), None)) };
    let headers = match config.text("telemetry.headers") {
        "" => Ok(Vec::new()),
        text => config::reference(text).and_then(|text| headers_of(&text)),
    };
    let interval = config.millis("telemetry.metrics_interval_ms");
    let is_endpoint = |setting: &EffectiveSetting| setting.name == "telemetry.otlp_endpoint";
    if let Some(setting) = config.effective().into_iter().find(is_endpoint) {
        let set_by = if setting.source == "environment" { setting.variable } else { setting.source.to_owned() };
        tracing::info!(%endpoint, set_by, "traces and metrics are exported");
    }
    let (queue, telemetry) = Telemetry::to(TelemetrySettings {
        endpoint,
        headers: headers.map_err(|fault| Failure::invalid(format!("telemetry.headers: {fault}")))?,
        service_name: config.text("telemetry.service_name").to_owned(),
        instance: node.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sampler: Sampler {
            ratio: config.share("telemetry.sample_ratio"),
            follows_parent: config.text("telemetry.sampling") == "parent",
        },
        metrics_interval: Some(interval).filter(|interval| *interval > Duration::ZERO),
        private_network: config.flag("telemetry.private_network"),
    });
    Ok((queue, Some(telemetry)))
}

/// Parses `NAME=VALUE, NAME=VALUE`. As in `OTEL_EXPORTER_OTLP_HEADERS`, values may be percent-encoded, so that they can contain commas. A
/// fault names the entry and not its text, which is secret.
fn headers_of(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let entries = text.split(',').map(str::trim).zip(1..).filter(|(entry, _)| !entry.is_empty());
    entries.map(|(entry, number)| header_of(entry).map_err(|fault| format!("entry {number} {fault}"))).collect()
}

fn header_of(entry: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = entry.split_once('=').ok_or("is not NAME=VALUE")?;
    let name: HeaderName = name.trim().parse().map_err(|_| "has a name that is not a header name")?;
    if RESERVED.contains(&name.as_str()) {
        return Err(format!("sets {name}, which the gateway sets itself"));
    }
    let value: Vec<u8> = percent_decode_str(value.trim()).collect();
    let value = HeaderValue::try_from(value).map_err(|_| "has a value that is not allowed in a header")?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_names_and_values() {
        let read = headers_of("authorization=Bearer a=b%2Cc, x-team = one,,\n").unwrap();
        let shown: Vec<_> = read.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(shown, [("authorization", "Bearer a=b,c"), ("x-team", "one")]);
    }

    #[test]
    fn faults_do_not_show_the_secret() {
        for (text, fault) in [
            ("a=1, secret", "entry 2 is not NAME=VALUE"),
            ("se cret=1", "entry 1 has a name that is not a header name"),
            ("a=secret%0A", "entry 1 has a value that is not allowed in a header"),
            ("Host=secret", "entry 1 sets host, which the gateway sets itself"),
        ] {
            assert_eq!(headers_of(text).unwrap_err(), fault);
        }
    }
}
