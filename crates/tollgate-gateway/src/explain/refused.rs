//! How a request would be refused.

use serde::Serialize;
use tollgate_core::{NoRoute, NotOffered};
use tollgate_protocol::Protocol;

use crate::refusal::Refusal;

/// A refusal to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Error id.
    pub error: &'static str,
    /// Machine-readable cause, as in `x-tollgate-cause`.
    pub cause: Option<&'static str>,
    /// Whether waiting helps of itself.
    pub retryable: bool,
    /// The same for people.
    pub text: String,
    /// What would change it, where that is not said of the accounts.
    pub remedy: Option<String>,
}

/// The key does not authenticate.
pub(super) fn not_let_in(refusal: &Refusal, from: Protocol) -> Refused {
    let text = if let Refusal::KeyExpired(at) = refusal {
        format!("the key expired at {at}")
    } else if matches!(refusal, Refusal::KeyDisabled) {
        "the key is off by hand, or revoked".to_owned()
    } else {
        "the member behind the key is suspended".to_owned()
    };
    Refused { error: refusal.id(from), cause: None, retryable: false, text, remedy: None }
}

/// No account is usable.
pub(super) fn none_usable(none: &NoRoute<'_>) -> Refused {
    if let Some(fields) = none.fewest_unsupported_fields() {
        let text = format!("no channel takes {}", fields.join(", "));
        return Refused { error: "E17", cause: None, retryable: false, text, remedy: None };
    }
    if let Some(supports) = none.other_protocol_methods() {
        let text = format!("the model is offered for {} only", supports.join(", "));
        return Refused { error: "E15", cause: None, retryable: false, text, remedy: None };
    }
    let cause = none.cause();
    let error = if none.price_limit_alone() { "E41" } else { "E40" };
    let text = format!("no account is usable: {}", cause.as_str());
    Refused { error, cause: Some(cause.as_str()), retryable: cause.retryable(), text, remedy: None }
}

/// The model is not there, or not for this caller or request.
pub(super) fn not_offered(reason: &NotOffered) -> Refused {
    let (error, text) = match reason {
        NotOffered::Unknown => ("E13", "no channel serves a model of this name".to_owned()),
        NotOffered::OutsideGroup => ("E14", "the model exists, but in no group of this key, or the key may not use it".to_owned()),
        NotOffered::Method { supports } => ("E15", format!("the model is offered for {} only", supports.join(", "))),
        NotOffered::Unsupported { fields } => ("E17", format!("unsupported fields: {}", fields.join(", "))),
    };
    Refused { error, cause: None, retryable: false, text, remedy: None }
}
