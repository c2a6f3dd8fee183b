//! What the operator decides about a translation, what was fetched for it, and why it cannot be.

use std::{collections::HashMap, sync::Arc};

use crate::{FieldPath, Malformed};

/// Why a request cannot be put into an upstream's protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranslateError {
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

/// Media a fetcher downloaded for a remote address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadedMedia {
    /// Mime type, parameters allowed.
    pub mime: String,
    /// Base64, either alphabet.
    pub data: String,
}

/// What a fetcher has of remote addresses, or why it has nothing, for the parenthesis of the message.
pub type FetchedMedia = HashMap<String, Result<Arc<DownloadedMedia>, &'static str>>;

/// What becomes of remote addresses that an upstream does not read itself ([`pending_media`]).
#[derive(Clone, Copy, Debug, Default)]
pub enum RemoteMedia<'a> {
    /// They are refused by name.
    #[default]
    Refused,
    /// They will be fetched when an attempt needs them. Until then something empty stands for them in what is written,
    /// which shows whether all the rest can be expressed and must not be sent.
    Deferred,
    /// This was fetched; what is missing here is refused by name.
    Fetched(&'a FetchedMedia),
}

/// What an operator decides about translation, and what was fetched for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct TranslateOptions<'a> {
    /// Drop every parameter that would be refused, as a group (`translation = "lenient"`) or a model
    /// (`on_unsupported = "drop"`) says.
    pub lenient: bool,
    /// Move later system texts to the beginning (channel switch); they stay in place otherwise.
    pub hoist: bool,
    /// The channel allows tools the provider runs itself (web search).
    pub server_tools: bool,
    /// The channel allows the id of the person behind the caller to travel (`metadata.user_id`).
    pub pass_user: bool,
    /// What becomes of remote addresses that the upstream does not read itself.
    pub media: RemoteMedia<'a>,
}
