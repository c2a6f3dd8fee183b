//! Errors in both directions: what we tell a caller, and what an upstream told us.

/// An error answer, ready to be written in either caller protocol. The gateway decides its members; the codecs
/// only write them down (`Codec::encode_problem`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status; `error.code` on native.
    pub status: u16,
    /// One or two sentences: the fact, then what to do.
    pub message: String,
    /// Our request id as shown (`req_…`); goes into native metadata.
    pub request_id: String,
    /// Chat completions members.
    pub openai: OpenAiErrorFields,
    /// Native members.
    pub native: GeminiErrorFields,
    /// `Retry-After` in whole seconds, 1 or more; the same figure becomes native `RetryInfo`.
    pub retry_after: Option<u32>,
    /// `x-should-retry: false`: repeating cannot help, so the SDKs' own retries are stopped.
    pub stop: bool,
}

/// Members of the chat completions error object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenAiErrorFields {
    /// `error.type`.
    pub kind: String,
    /// `error.code`; `null` when `None`.
    pub code: Option<String>,
    /// `error.param`; `null` when `None`.
    pub param: Option<String>,
}

/// Members of the native error object.
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
    /// Details of a native upstream's own error, passed on as they are (raw JSON objects). When set they stand
    /// beside our `ErrorInfo`.
    pub upstream_details: Vec<String>,
}

/// One entry of `QuotaFailure`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaViolation {
    /// What is limited, such as `key` or `group`.
    pub subject: String,
    /// One sentence.
    pub description: String,
}

/// How long a spent quota is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaWindow {
    /// Google's days, which end at midnight in Pacific time.
    Day,
    /// Google's months, which end with such a day.
    Month,
    /// Until a point in time, in seconds since the epoch.
    Until(i64),
}

/// An error answer (or an error inside a 200, or an error event) of an upstream, as far as it could be read.
/// Texts are the upstream's own: redact before showing them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamProblem {
    /// HTTP status, or the status the error object names inside a 200; 500 when it names none.
    pub status: u16,
    /// The upstream's text.
    pub message: String,
    /// `error.type` (openai, anthropic) or canonical `status` (gemini).
    pub kind: Option<String>,
    /// `error.code` as text.
    pub code: Option<String>,
    /// `error.param`.
    pub param: Option<String>,
    /// Whether the body had the shape of the protocol's error object.
    pub is_error_object: bool,
    /// A 4xx whose body is no model server's word about the request: a page, a proxy's answer, a bare `Not Found`, a
    /// firewall's 403.
    pub from_intermediary: bool,
    /// Native `details`, each a raw JSON object.
    pub details: Vec<String>,
    /// Seconds to wait that the body names (`RetryInfo.retryDelay`), rounded up.
    pub retry_after: Option<u32>,
    /// Fields the upstream calls unsupported, where it says so in a way we recognise.
    pub unsupported: Vec<String>,
    /// The text says that our account's money is spent (insufficient quota, spend limit, credit balance).
    pub quota_exhausted: bool,
    /// Where something is spent: when it comes back, as far as the body says.
    pub window: Option<QuotaWindow>,
    /// The text says that our account is refused or on hold although the status does not.
    pub account_refused: bool,
}
