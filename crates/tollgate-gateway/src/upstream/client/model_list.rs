//! The models that a provider lists for an account's credential.

use std::{sync::Arc, time::Duration};

use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use tollgate_core::{Account, Channel};
use tollgate_protocol::{Protocol, codec};

use super::{
    Client,
    probe::{ProbeFault, in_time},
    tls::Trust,
};
use crate::{
    clock::Clock,
    refusal::redact_secrets,
    upstream::{
        call::{Upstream as _, UpstreamCall, UpstreamError},
        credentials::secrets_of,
    },
};

/// Maximum size of a list; the longest known one has a tenth of it.
const MAX_LIST_BYTES: usize = 8 << 20;
/// Names that are returned.
const MAX_NAMES: usize = 5_000;

/// The lists of all protocols: `data` with ids, or `models` with names.
#[derive(Debug, Deserialize)]
struct List {
    #[serde(default)]
    data: Vec<Entry>,
    #[serde(default)]
    models: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    id: Option<String>,
    name: Option<String>,
}

/// Asks the provider of a channel for its models, with the credential of an account. The names are those that requests need, sorted.
/// The channel's timeouts apply, and `longest`, the longest time of a request.
pub async fn list_models(
    channel: &Arc<Channel>,
    account: &Arc<Account>,
    (trust, longest): (Arc<Trust>, Duration),
    clock: &Arc<dyn Clock>,
) -> Result<Vec<String>, ProbeFault> {
    let timeouts = &channel.spec.timeouts;
    let limit = timeouts.total_within(longest).min(Duration::from_millis(timeouts.first_byte_ms));
    in_time(limit, ask(channel, account, trust, clock)).await
}

async fn ask(
    channel: &Arc<Channel>,
    account: &Arc<Account>,
    trust: Arc<Trust>,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<String>, ProbeFault> {
    let call = UpstreamCall::of_gateway(channel, account, whole_list(channel.spec.protocol).to_owned());
    let answer = Client::new(trust, Arc::clone(clock)).call(call).await.map_err(|error| match error {
        UpstreamError::NotSent(fault) => ProbeFault::Connect(fault),
        UpstreamError::Lost | UpstreamError::Unreadable(_) => ProbeFault::Broken(error.to_string()),
    })?;
    let status = answer.status;
    let body = Limited::new(answer.body, MAX_LIST_BYTES).collect().await;
    let bytes = body.map_err(|fault| ProbeFault::Broken(fault.to_string()))?.to_bytes();
    if !(200..300).contains(&status) {
        let problem = codec(channel.spec.protocol).decode_problem(status, &bytes);
        // An upstream may quote what it was sent; operators see the text and not the credential.
        return Err(ProbeFault::Refused { status, message: redact_secrets(&problem.message, secrets_of(channel, account)) });
    }
    names(&bytes).map_err(|_| ProbeFault::Unreadable("it is not a list of models".to_owned()))
}

/// The path of the list with as many models as fit: probes ask for one.
const fn whole_list(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::OpenAi | Protocol::Responses => "/models",
        Protocol::Gemini => "/models?pageSize=1000",
        Protocol::Anthropic => "/models?limit=1000",
    }
}

fn names(body: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let List { data, models } = serde_json::from_slice(body)?;
    let name = |entry: Entry| {
        let name = entry.id.or(entry.name)?;
        Some(name.strip_prefix("models/").map_or_else(|| name.clone(), str::to_owned))
    };
    let mut names: Vec<String> = data.into_iter().chain(models).filter_map(name).filter(|name| !name.is_empty()).collect();
    names.sort();
    names.dedup();
    names.truncate(MAX_NAMES);
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::SystemClock,
        testing::{self, raw_upstream::RawUpstream},
    };

    #[test]
    fn model_names_are_read_in_every_protocol() {
        let of = |body: &str| names(body.as_bytes()).unwrap();
        assert_eq!(of(r#"{"object":"list","data":[{"id":"b","object":"model"},{"id":"a"},{"id":"a"}]}"#), ["a", "b"]);
        assert_eq!(of(r#"{"models":[{"name":"models/gemini-2.5-flash","version":"1"}]}"#), ["gemini-2.5-flash"]);
        assert_eq!(of(r#"{"data":[{"type":"model","id":"claude"}],"has_more":false}"#), ["claude"]);
        assert!(of("{}").is_empty());
        assert!(names(b"<html>").is_err());
    }

    async fn ask(status: &str, body: &str) -> Result<Vec<String>, ProbeFault> {
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        let upstream = RawUpstream::answering(format!("{head}{body}")).await;
        let channel = Arc::new(testing::channel(&upstream.url));
        let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
        list_models(&channel, &Arc::new(testing::account(1)), (Arc::default(), Duration::from_mins(10)), &clock).await
    }

    #[tokio::test]
    async fn model_list_is_requested_and_a_refusal_is_reported() {
        assert_eq!(ask("200 OK", r#"{"data":[{"id":"m"}]}"#).await.unwrap(), ["m"]);
        let refused = ask("401 Unauthorized", r#"{"error":{"message":"no such key"}}"#).await.unwrap_err();
        assert!(refused.to_string().contains("no such key"), "{refused}");
        assert!(matches!(ask("200 OK", "<html>").await, Err(ProbeFault::Unreadable(_))));
    }
}
