//! Health of accounts as tables show it.

use std::collections::HashMap;

use serde_json::Value;

use crate::{
    admin::{Admin, ApiPath},
    failure::Failure,
};

/// The state of every account, by account id.
pub(crate) async fn account_states(admin: &Admin) -> Result<HashMap<String, String>, Failure> {
    let health = admin.all(&ApiPath::of(&["health"])).await?;
    Ok(health.iter().filter_map(|account| Some((account["id"].as_str()?.to_owned(), account_state(account)))).collect())
}

/// The state of an account as shown in tables, such as `cooling until … (rate limited)`.
pub(crate) fn account_state(account: &Value) -> String {
    let reason = || account["reason"].as_str().unwrap_or("unknown").replace('_', " ");
    match (account["status"].as_str(), account["state"].as_str(), account["until"].as_str()) {
        (Some("off"), ..) => "off by hand".to_owned(),
        (_, Some("due"), _) => "usable (next request is the probe)".to_owned(),
        (_, Some("probing"), _) => "a request is trying it".to_owned(),
        (_, Some("cooling"), Some(until)) => format!("cooling until {until} ({})", reason()),
        (_, Some("resting"), Some(until)) => format!("resting until {until} ({})", reason()),
        (_, Some("resting"), None) => format!("resting until a test passes ({})", reason()),
        (_, state, _) => state.unwrap_or("usable").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_are_readable() {
        let of = |status: &str, state_word: &str, reason: Option<&str>, until: Option<&str>| {
            account_state(&json!({"status": status, "state": state_word, "reason": reason, "until": until}))
        };
        assert_eq!(of("on", "usable", None, None), "usable");
        assert_eq!(of("off", "cooling", Some("rate_limited"), Some("T")), "off by hand");
        assert_eq!(of("on", "cooling", Some("rate_limited"), Some("T")), "cooling until T (rate limited)");
        assert_eq!(of("on", "resting", Some("account_refused"), None), "resting until a test passes (account refused)");
        assert_eq!(of("on", "due", None, None), "usable (next request is the probe)");
    }
}
