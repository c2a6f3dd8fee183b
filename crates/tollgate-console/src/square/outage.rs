//! Why a request for a model would be refused with 503 now: the causes of E40 to E42 with counts and times, never names. They come
//! from the explanation of a request, so they agree with the refusal of a request.

use serde::Deserialize;
use serde_json::Value;
use tollgate_core::{Key, KeyId, plain_key};
use tollgate_protocol::Protocol;

use crate::{api_error::ApiError, gateway_handle::ExplainRequest, state::ConsoleState};

/// No account can serve.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Outage {
    /// The cause that is reported comes first.
    pub(crate) causes: Vec<OutageCause>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct OutageCause {
    /// As in `x-tollgate-cause`.
    pub(crate) cause: String,
    /// How many accounts.
    pub(crate) accounts: u64,
    /// When the first of them is available again, if that is known.
    pub(crate) until: Option<String>,
}

/// The outage of a model for callers of a group that have no limits of their own. The viewer must see the group.
pub(crate) async fn of_group(
    state: &ConsoleState,
    group: &str,
    model: &str,
    protocol: Protocol,
) -> Result<Option<Outage>, ApiError> {
    let catalog = state.gateway.catalog().await?;
    let Some(group) = catalog.group_by_name(group) else { return Ok(None) };
    of(state, plain_key(vec![group.id], state.gateway.now()), model, protocol).await
}

/// The outage of a model for a key, which must belong to the reader.
pub(crate) async fn of_key(state: &ConsoleState, key: KeyId, model: &str, protocol: Protocol) -> Result<Option<Outage>, ApiError> {
    match state.store.listing.key(key).await? {
        Some(key) => of(state, key, model, protocol).await,
        None => Ok(None),
    }
}

async fn of(state: &ConsoleState, key: Key, model: &str, protocol: Protocol) -> Result<Option<Outage>, ApiError> {
    let request = ExplainRequest {
        key,
        model: model.to_owned(),
        protocol,
        fields: Vec::new(),
        max_price: None,
        input_tokens: None,
        output_tokens: None,
    };
    Ok(state.gateway.explain(&request).await?.ok().and_then(outage))
}

/// The outage according to an explanation; `None` if an account would be tried, or the request is refused for another
/// reason.
fn outage(explained: Value) -> Option<Outage> {
    let is_planned = explained["planned"].as_array().is_none_or(|planned| !planned.is_empty());
    let outage: Outage = serde_json::from_value(explained).ok()?;
    (!is_planned && !outage.causes.is_empty()).then_some(outage)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outage_has_causes_without_names_and_only_if_nothing_is_planned() {
        let cause = json!({"cause": "cooldown", "accounts": 2, "until": "2026-11-29T14:03:00Z"});
        let explained = |planned: Value, causes: Value| {
            outage(json!({"planned": planned, "causes": causes, "excluded": [{"channel": "secret", "code": "cooling"}]}))
        };
        let found = explained(json!([]), json!([cause])).unwrap();
        let until = Some("2026-11-29T14:03:00Z".to_owned());
        assert_eq!(found.causes, [OutageCause { cause: "cooldown".to_owned(), accounts: 2, until }]);
        assert_eq!(explained(json!([{"channel": "secret"}]), json!([cause])), None, "another account serves it");
        assert_eq!(explained(json!([]), json!([])), None, "it is refused for another reason");
    }
}
