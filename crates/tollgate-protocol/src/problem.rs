//! Errors sent to callers and received from upstreams.

/// An error for a caller, independent of the protocol. The gateway sets the fields; `Codec::encode_problem` encodes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status; Gemini `error.code`.
    pub status: u16,
    pub message: String,
    /// Our request id (`req_…`); Gemini `ErrorInfo.metadata.requestId`.
    pub request_id: String,
    /// Chat completions members.
    pub openai: OpenAiErrorFields,
    pub native: GeminiErrorFields,
    pub anthropic: AnthropicErrorFields,
    /// `Retry-After` and Gemini `RetryInfo`, in whole seconds, at least 1.
    pub retry_after: Option<u32>,
    /// Send `x-should-retry: false`, which stops the retries of the SDKs: repeating the request cannot help.
    pub stop: bool,
}

/// `type`, `code` and `param` of OpenAI's error object (OpenAI API reference, "Error codes").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenAiErrorFields {
    pub kind: String,
    pub code: Option<String>,
    pub param: Option<String>,
}

/// Status and details of Google's error object (google.rpc `Status`, <https://cloud.google.com/apis/design/errors>).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeminiErrorFields {
    /// Canonical name, such as `INVALID_ARGUMENT`.
    pub status: &'static str,
    /// `ErrorInfo.reason`, such as `MODEL_NOT_FOUND`.
    pub reason: String,
    /// `ErrorInfo.metadata` besides `requestId`, in order.
    pub metadata: Vec<(&'static str, String)>,
    /// `BadRequest.fieldViolations`.
    pub violations: Vec<crate::FieldViolation>,
    /// `QuotaFailure.violations`.
    pub quota: Vec<QuotaViolation>,
    /// `ResourceInfo` (type, name).
    pub resource: Option<(&'static str, String)>,
    /// Details of a Gemini upstream's error, raw JSON objects passed on besides our `ErrorInfo`.
    pub upstream_details: Vec<String>,
}

/// Members of Anthropic's error object: those of an Anthropic upstream, which are passed on, and those that Anthropic's clients check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnthropicErrorFields {
    /// `error.type`; `None`: that of the status.
    pub kind: Option<String>,
    /// `error.details`, a raw JSON object.
    pub details: Option<String>,
}

/// An entry of google.rpc `QuotaFailure.violations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaViolation {
    /// The limited entity, such as `key` or `group`.
    pub subject: String,
    pub description: String,
}

/// The time at which an exhausted quota renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaWindow {
    /// At midnight in Pacific time, when Google's daily quotas reset.
    Day,
    /// At the end of the month in Pacific time.
    Month,
    /// At a point in time, in seconds since the Unix epoch.
    Until(i64),
}

/// An upstream's error: an error reply, an error object in a 200, or an error event. Texts are the upstream's own; redact
/// them before they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamProblem {
    /// HTTP status; for an error in a 200 the status the object names, else 500.
    pub status: u16,
    pub message: String,
    /// `error.type` (openai, anthropic) or canonical `status` (gemini).
    pub kind: Option<String>,
    pub code: Option<String>,
    pub param: Option<String>,
    pub is_error_object: bool,
    /// A 4xx that did not come from a model server: an HTML page, a proxy's reply, a bare `Not Found`, a firewall's 403. It
    /// is not evidence about the request or the account.
    pub from_intermediary: bool,
    /// `details`, each a raw JSON object: several of Gemini, one of Anthropic.
    pub details: Vec<String>,
    /// Delay in the body (`RetryInfo.retryDelay`), in seconds, rounded up.
    pub retry_after: Option<u32>,
    pub unsupported: Vec<String>,
    /// The account's quota or credit is exhausted (insufficient quota, spend limit, credit balance).
    pub quota_exhausted: bool,
    /// Only the message says that the quota is exhausted, and the status is not 429. A message may repeat what the caller sent.
    pub quota_in_text: bool,
    /// When the exhausted quota is renewed, if the body states it.
    pub window: Option<QuotaWindow>,
    /// The body states that the account is refused or suspended, although the status does not.
    pub account_refused: bool,
    /// A 429 for a request that alone asks for more tokens than the account's limit per minute.
    pub over_minute_limit: bool,
    /// Sealed thoughts in the request belong to another account, or the model cannot use them. The request may succeed without them
    /// (Responses).
    pub seals_refused: bool,
    /// The request continues a stored answer or conversation that the service does not find. Another account may have it.
    pub kept_elsewhere: bool,
    /// The request is refused because it is longer than the model's context.
    pub context_exceeded: bool,
}
