//! The `details` of Google's errors (google.rpc). Google's OpenAI-compatible endpoint and resellers send the same details in
//! the errors of other protocols.

use serde_json::Value;

use super::{UpstreamErrorBody, whole_seconds};
use crate::QuotaWindow;

const DETAILS: (usize, usize) = (20, 8192);
/// Values of `ErrorInfo.reason` for a refused account, sent with a 400.
const ACCOUNT_REFUSED_REASONS: &[&str] =
    &["API_KEY_INVALID", "API_KEY_EXPIRED", "CONSUMER_SUSPENDED", "BILLING_DISABLED", "SERVICE_DISABLED"];
const ACCOUNT_REFUSED_PHRASES: &[&str] =
    &["api key not valid", "api key expired", "user location is not supported", "enable billing"];

impl UpstreamErrorBody {
    /// Google's `details`, each a raw JSON object.
    pub(crate) fn details(&self) -> Vec<String> {
        let list = self.object.get("details").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list.iter()
            .filter(|detail| {
                detail.get("@type").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("type.googleapis.com/"))
            })
            .map(Value::to_string)
            .filter(|detail| detail.len() <= DETAILS.1)
            .take(DETAILS.0)
            .collect()
    }

    /// A detail by the last part of its type, such as `RetryInfo`.
    pub(crate) fn detail(&self, kind: &str) -> Option<&Value> {
        self.object
            .get("details")?
            .as_array()?
            .iter()
            .find(|detail| detail.get("@type").and_then(Value::as_str).is_some_and(|name| name.rsplit('.').next() == Some(kind)))
    }

    /// Whole seconds of `RetryInfo.retryDelay`, rounded up, 1 or more.
    pub(crate) fn retry_delay(&self) -> Option<u32> {
        let delay = self.detail("RetryInfo")?.get("retryDelay")?;
        let seconds = match delay {
            Value::String(text) => text.strip_suffix('s')?.parse::<f64>().ok()?,
            Value::Object(parts) => parts.get("seconds")?.as_f64()?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
        };
        whole_seconds(seconds)
    }

    /// Whether Google refused the account, in an answer with this status.
    pub(crate) fn refused_by_google(&self, answered: u16) -> bool {
        let reason = self.detail("ErrorInfo").and_then(|info| info.get("reason")).and_then(Value::as_str).unwrap_or_default();
        ACCOUNT_REFUSED_REASONS.contains(&reason) || self.mentions(answered, ACCOUNT_REFUSED_PHRASES)
    }

    /// Whether a quota is exhausted for longer than a rate limit, and its window. `QuotaFailure` names the quotas: one per day
    /// or month is exhausted, one per minute is a rate limit. Without it, the text "exceeded your current quota" counts unless
    /// `RetryInfo` is present. With a daily quota `RetryInfo` also names seconds, but the quota's window decides.
    pub(crate) fn quota_spent(&self, answered: u16) -> (bool, Option<QuotaWindow>) {
        let Some(failure) = self.detail("QuotaFailure") else {
            let plain = self.mentions(answered, &["exceeded your current quota"]) && self.detail("RetryInfo").is_none();
            return (plain, None);
        };
        let violations = failure.get("violations").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let names = |word| {
            let quotas = violations.iter().filter_map(|violation| violation.get("quotaId").and_then(Value::as_str));
            quotas.into_iter().any(|id| id.contains(word))
        };
        let window = match (names("PerMonth"), names("PerDay")) {
            (true, _) => Some(QuotaWindow::Month),
            (false, true) => Some(QuotaWindow::Day),
            (false, false) => None,
        };
        (window.is_some(), window)
    }
}
