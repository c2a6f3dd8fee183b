//! Options, downloaded media and errors of a translation.

use std::{collections::HashMap, sync::Arc};

use crate::{FieldPath, Malformed};

/// Why a request cannot be translated to an upstream's protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranslateError {
    /// The body is malformed (E16, E18, E20, E21).
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// All fields that the upstream's protocol or model cannot express (E17), in the caller's spelling.
    #[error("unsupported: {}", fields.join(", "))]
    Unsupported {
        /// The paths, in the order found; never empty.
        fields: Vec<FieldPath>,
        /// Reason, shown in parentheses in the message; `None` where the fields have different reasons.
        reason: Option<String>,
    },
    /// A token count for an upstream protocol without a counter: the gateway answers with its own estimate.
    #[error("the upstream protocol has no token counter")]
    NoCounter,
}

/// Remote media as the gateway has downloaded it, for upstreams that take it inline only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadedMedia {
    /// MIME type, parameters allowed.
    pub mime: String,
    /// Base64, either alphabet.
    pub data: String,
}

/// Downloads by URL. Errors are reasons shown in parentheses in the error message.
pub type FetchedMedia = HashMap<String, Result<Arc<DownloadedMedia>, &'static str>>;

/// Treatment of remote media that the upstream does not fetch itself ([`pending_media`](crate::pending_media)).
#[derive(Clone, Copy, Debug, Default)]
pub enum RemoteMedia<'a> {
    #[default]
    Refused,
    /// Downloaded when an attempt needs it. Until then an empty placeholder is encoded: the body shows whether everything
    /// else can be expressed, and must not be sent.
    Deferred,
    /// Downloaded; URLs that are missing here are refused by name.
    Fetched(&'a FetchedMedia),
}

/// The operator's translation settings, and downloaded media.
#[derive(Clone, Copy, Debug, Default)]
pub struct TranslateOptions<'a> {
    /// Drop parameters that would be refused: group setting `translation = "lenient"` or model setting
    /// `on_unsupported = "drop"`.
    pub lenient: bool,
    /// Move later system texts to the beginning (channel setting); otherwise they stay in place.
    pub hoist: bool,
    /// The channel allows server tools such as web search.
    pub server_tools: bool,
    /// The channel allows forwarding the end-user id (`metadata.user_id`).
    pub pass_user: bool,
    /// Treatment of remote media that the upstream does not fetch itself.
    pub media: RemoteMedia<'a>,
}
