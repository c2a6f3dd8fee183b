//! Refusals of the key.

use tollgate_core::Timestamp;
use tollgate_protocol::ErrorStyle;

use super::{INVALID_REQUEST, RefusalRow};
use crate::{
    refusal::text::{masked, time},
    request::Head,
};

/// E1.
pub(super) fn missing() -> RefusalRow {
    unauthenticated(
        "missing_api_key",
        "API_KEY_MISSING",
        "No API key was sent. Put it in the header 'Authorization: Bearer <API_KEY>' (native protocol: 'x-native-api-key: \
         <API_KEY>')."
            .to_owned(),
    )
}

/// E2.
pub(super) fn invalid(head: &Head) -> RefusalRow {
    let shown = shown(head);
    // LiteLLM as a client tells a wrong key from other bad requests by these words.
    let message = match head.from.spec().error_style {
        ErrorStyle::OpenAi => format!("Incorrect API key provided: {shown}. Send the complete service key."),
        ErrorStyle::Gemini => format!("The API key {shown} is not valid. Send the complete service key."),
    };
    unauthenticated("invalid_api_key", "API_KEY_INVALID", message)
}

/// E3.
pub(super) fn expired(at: Timestamp, head: &Head) -> RefusalRow {
    let message = format!("The API key {} expired on {}. Create a new one in the console.", shown(head), time(at));
    unauthenticated("api_key_expired", "API_KEY_EXPIRED", message)
}

/// E4.
pub(super) fn disabled(head: &Head) -> RefusalRow {
    unauthenticated("api_key_disabled", "API_KEY_DISABLED", format!("The API key {} is disabled.", shown(head)))
}

/// E5.
pub(super) fn address(head: &Head) -> RefusalRow {
    let message = match head.peer {
        Some(peer) => format!("This API key may not be used from address {peer}."),
        None => "This API key may not be used from an unknown address: the proxy before the gateway names none.".to_owned(),
    };
    denied("ip_not_allowed", "API_KEY_IP_ADDRESS_BLOCKED", message)
}

/// E6.
pub(super) fn suspended() -> RefusalRow {
    denied("account_suspended", "CONSUMER_SUSPENDED", "The account of this API key is suspended.".to_owned())
}

fn shown(head: &Head) -> String {
    masked(head.presented_key.as_ref())
}

fn unauthenticated(code: &str, reason: &str, message: String) -> RefusalRow {
    RefusalRow::new(401, INVALID_REQUEST, Some(code), "UNAUTHENTICATED", reason, message)
}

fn denied(code: &str, reason: &str, message: String) -> RefusalRow {
    RefusalRow::new(403, "permission_error", Some(code), "PERMISSION_DENIED", reason, message)
}
