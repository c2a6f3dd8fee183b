//! From one protocol to another, through [`neutral`]: the request on its way to the upstream, the answer on its way back.

mod relay;
mod reply;

use std::collections::HashMap;

use crate::{FieldPath, Malformed, Profile, Protocol, Target, neutral};

pub use relay::translating_relay;
pub use reply::{translate_problem, translate_reply};

/// Why a request cannot be put into an upstream's protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// The body itself is wrong (E16, E18, E20, E21).
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Fields the upstream's protocol or model cannot express (E17), all of them, in the caller's spelling.
    #[error("unsupported: {}", fields.join(", "))]
    Unsupported {
        /// The paths, in the order found; never empty.
        fields: Vec<FieldPath>,
        /// Why, for the parenthesis of the message; `None` where the fields have different reasons.
        reason: Option<String>,
    },
    /// Tokens are to be counted and the upstream's protocol has no counter: the gateway answers with its own estimate.
    #[error("the upstream protocol has no token counter")]
    NoCounter,
}

/// Media a fetcher brought for a remote address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Mime type, parameters allowed.
    pub mime: String,
    /// Base64, either alphabet.
    pub data: String,
}

/// What an operator decides about translation, and what was fetched for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct TranslateOptions<'a> {
    /// Drop every parameter that would be refused (group setting `translation = "lenient"`).
    pub lenient: bool,
    /// Drop these parameters where they would be refused (model setting), in the caller's spelling.
    pub droppable: &'a [FieldPath],
    /// Move later system texts to the beginning (channel switch); they stay in place otherwise.
    pub hoist: bool,
    /// The channel allows tools the provider runs itself (web search).
    pub server_tools: bool,
    /// The channel allows the id of the person behind the caller to travel (`metadata.user_id`).
    pub pass_user: bool,
    /// What was fetched for the addresses that [`pending_media`] named.
    pub fetched: Option<&'a HashMap<String, Fetched>>,
}

/// Reads a caller's request.
///
/// # Errors
/// A body that is not what the protocol allows.
pub fn decode_request(from: Protocol, target: &Target, body: &[u8]) -> Result<neutral::Request, Untranslatable> {
    let _ = (from, target, body);
    Err(Untranslatable::NoCounter)
}

/// Writes a request for an upstream that knows the model as `upstream_model`.
///
/// # Errors
/// What the upstream cannot express, everything at once.
pub fn encode_request(
    to: Protocol,
    request: &neutral::Request,
    upstream_model: &str,
    profile: &Profile,
    options: &TranslateOptions<'_>,
) -> Result<neutral::Encoded, Untranslatable> {
    let _ = (to, request, upstream_model, profile, options);
    Err(Untranslatable::NoCounter)
}

/// The remote addresses whose bytes an upstream of protocol `to` would need inline. A gateway that may fetch them does
/// so and passes the result in [`TranslateOptions::fetched`]; what is missing there is refused by name.
#[must_use]
pub fn pending_media<'a>(to: Protocol, request: &'a neutral::Request, profile: &Profile) -> Vec<&'a str> {
    let _ = (to, request, profile);
    Vec::new()
}

/// Whose answers are read and written how.
fn answers(protocol: Protocol) -> &'static dyn neutral::Answers {
    match protocol {
        Protocol::OpenAi => &crate::openai::OpenAi,
        Protocol::Gemini => &crate::gemini::Gemini,
        Protocol::Anthropic => &crate::anthropic::Anthropic,
    }
}
