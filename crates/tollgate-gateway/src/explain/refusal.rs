//! How an explained request would be refused.

use serde::Serialize;
use tollgate_core::{Key, NoRoute, NotOffered};
use tollgate_protocol::Protocol;

use crate::refusal::Refusal;

/// The refusal that a request would get, in the form of `explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedRefusal {
    pub error: &'static str,
    /// Machine-readable cause, as in `x-tollgate-cause`.
    pub cause: Option<&'static str>,
    /// Whether the request may succeed later without a change.
    pub retryable: bool,
    pub text: String,
    /// How to remove the cause, when it is not listed with the accounts.
    pub remedy: Option<String>,
}

/// The key is expired, disabled, or its member is suspended.
pub(super) fn unauthenticated(refusal: &Refusal, from: Protocol) -> ExplainedRefusal {
    let text = if let Refusal::KeyExpired(at) = refusal {
        format!("the key expired at {at}")
    } else if matches!(refusal, Refusal::KeyDisabled) {
        "the key is disabled or revoked".to_owned()
    } else {
        "the key's member is suspended".to_owned()
    };
    permanent(refusal.id(from), text)
}

/// The key may be used with other protocols only.
pub(super) fn protocol_blocked(key: &Key, from: Protocol) -> ExplainedRefusal {
    let allowed: Vec<&str> = key.protocols.iter().map(|protocol| protocol.as_str()).collect();
    permanent(Refusal::protocol_blocked(key).id(from), format!("the key may be used with {} only", allowed.join(", ")))
}

fn permanent(error: &'static str, text: String) -> ExplainedRefusal {
    ExplainedRefusal { error, cause: None, retryable: false, text, remedy: None }
}

pub(super) fn no_route(none: &NoRoute<'_>) -> ExplainedRefusal {
    if let Some(fields) = none.fewest_unsupported_fields() {
        return permanent("E17", format!("no channel takes {}", fields.join(", ")));
    }
    if let Some(supports) = none.other_protocol_methods() {
        return permanent("E15", format!("the model is offered for {} only", supports.join(", ")));
    }
    let cause = none.cause();
    let text = format!("no account is usable: {}", cause.as_str());
    ExplainedRefusal { error: cause.error_id(), cause: Some(cause.as_str()), retryable: cause.retryable(), text, remedy: None }
}

/// The model does not exist, or is not offered for this caller or request.
pub(super) fn not_offered(reason: &NotOffered) -> ExplainedRefusal {
    let (error, text) = match reason {
        NotOffered::Unknown => ("E13", "no channel serves a model of this name".to_owned()),
        NotOffered::OutsideGroup => ("E14", "the model exists, but in no group of this key, or the key may not use it".to_owned()),
        NotOffered::Method { supports } => ("E15", format!("the model is offered for {} only", supports.join(", "))),
        NotOffered::Unsupported { fields } => ("E17", format!("unsupported fields: {}", fields.join(", "))),
        NotOffered::Unpriced { fields } => {
            ("E17", format!("the price of the model does not include, or its context does not bound: {}", fields.join(", ")))
        }
    };
    permanent(error, text)
}
