//! `proxy list|set|test`: the proxies of channels.

use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::{self, Admin, AdminRequest, ApiPath},
    cli::{self, Common},
    command::resource::{Column, print_list},
    config,
    failure::Failure,
    output,
};

const COLUMNS: &[Column] = &[("proxy", "proxy"), ("method", "method"), ("channels", "channels")];

pub(crate) fn run(common: &Common, subcommand: &cli::Proxy) -> Result<(), Failure> {
    admin::run(common, async |admin| match subcommand {
        cli::Proxy::List => {
            let (items, _) = admin.page(&ApiPath::of(&["proxies"])).await?;
            print_list(common, COLUMNS, &items);
            Ok(())
        }
        cli::Proxy::Set { proxies } => set(common, admin, proxies).await,
        cli::Proxy::Test { channel } => test(common, admin, channel).await,
    })
}

async fn set(common: &Common, admin: &Admin, proxies: &[String]) -> Result<(), Failure> {
    let channels = proxies.iter().map(|word| channel_proxy(word)).collect::<Result<Vec<Value>, Failure>>()?;
    let body = json!({"channels": channels});
    let listed = admin.send(AdminRequest::of(Method::PUT, &ApiPath::of(&["proxies"]), &body)).await?.body;
    output::result(common, &listed["items"], &format!("set the proxies of {} channel(s)", channels.len()));
    Ok(())
}

/// `CHANNEL=PROXY`; without an address the channel gets none.
fn channel_proxy(word: &str) -> Result<Value, Failure> {
    let (channel, proxy) = word
        .split_once('=')
        .ok_or_else(|| Failure::Usage(format!("'{word}' is not CHANNEL=PROXY, such as main=socks5://10.0.0.5:1080")))?;
    if proxy.is_empty() {
        return Ok(json!({"channel": channel, "proxy": null}));
    }
    let proxy = config::reference(proxy).map_err(|fault| Failure::invalid(format!("{channel}: {fault}")))?;
    Ok(json!({"channel": channel, "proxy": proxy}))
}

async fn test(common: &Common, admin: &Admin, channel: &str) -> Result<(), Failure> {
    let target = ApiPath::of(&["channels", channel, "test-proxy"]);
    let tested = admin.send(AdminRequest::of(Method::POST, &target, &json!({}))).await?.body;
    if common.json {
        output::json(&tested);
    } else {
        let text = |value: &Value, member: &str| value[member].as_str().unwrap_or_default().to_owned();
        output::line(&format!("{} over {}", text(&tested, "channel"), text(&tested, "proxy")));
        for step in tested["steps"].as_array().into_iter().flatten() {
            let took = step["took_ms"].as_f64().unwrap_or_default();
            output::line(&format!("  ok    {:<12}{took:>8.1} ms  {}", text(step, "step"), text(step, "detail")));
        }
        if let Some(fault) = tested["error"].as_str() {
            output::line(&format!("  FAIL  {fault}"));
        }
    }
    if tested["passed"] == true { Ok(()) } else { Err(Failure::Machine(format!("the proxy of {channel} failed the test"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_names_a_channel_and_its_proxy() {
        assert_eq!(channel_proxy("a=http://p:1").unwrap(), json!({"channel": "a", "proxy": "http://p:1"}));
        assert_eq!(channel_proxy("a=").unwrap(), json!({"channel": "a", "proxy": null}));
        assert_eq!(channel_proxy("a").unwrap_err().code(), 2);
        assert_eq!(channel_proxy("a=env:NO_SUCH_NAME_HERE").unwrap_err().code(), 3);
    }
}
