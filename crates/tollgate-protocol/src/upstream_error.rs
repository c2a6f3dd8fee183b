//! Lenient parsing of upstream error bodies, shared by all protocols because compatible servers mix their formats.

mod context;
mod google;
mod origin;
mod output_limit;

use serde_json::Value;

use crate::UpstreamProblem;

pub use context::{CONTEXT_EXCEEDED, names_context_limit};
use origin::ErrorBodyForm;
pub use output_limit::RefusedOutputLimit;

/// Largest error body that is parsed, in bytes.
const BODY_LIMIT: usize = 1024 * 1024;
/// Longest message stored, in bytes.
const MESSAGE_LIMIT: usize = 4096;

#[derive(Debug)]
pub(crate) struct UpstreamErrorBody {
    /// The error object; `Null` if the body has none.
    pub object: Value,
    /// The upstream's text; empty for HTML and unreadable bodies.
    pub message: String,
    pub is_error_object: bool,
    form: ErrorBodyForm,
}

/// Finds the error object in a body: `{"error":{…}}`, the same in an array, `{"error":"text"}`, the flat `{"object":"error",…}`
/// and `{"type":"error",…}`, and the `{"detail":…}` and `{"message":…}` of web frameworks.
pub(crate) fn find(body: &[u8]) -> UpstreamErrorBody {
    let unread = |message| UpstreamErrorBody { object: Value::Null, message, is_error_object: false, form: ErrorBodyForm::Text };
    if body.len() > BODY_LIMIT {
        return unread(String::new());
    }
    let text = String::from_utf8_lossy(body);
    let Ok(mut value) = serde_json::from_str::<Value>(&text) else {
        let plain = text.trim();
        let readable = !plain.starts_with(['<', '{', '[']) && !plain.contains('\0');
        return unread(if readable { shortened(plain) } else { String::new() });
    };
    if let Value::Array(list) = &mut value {
        value = if list.is_empty() { Value::Null } else { list.swap_remove(0) };
    }
    let flat = ["object", "type"].iter().any(|name| value.get(*name).is_some_and(|kind| kind == "error"));
    let (object, form) = match value.get_mut("error").map(Value::take) {
        Some(Value::String(text)) => {
            return UpstreamErrorBody {
                object: value,
                message: shortened(&text),
                is_error_object: true,
                form: ErrorBodyForm::Text,
            };
        }
        Some(object @ Value::Object(_)) => (object, ErrorBodyForm::ErrorObject),
        _ => (value, if flat { ErrorBodyForm::ErrorObject } else { ErrorBodyForm::Text }),
    };
    let message = ["message", "detail", "error_description", "msg"].iter().find_map(|name| message_in(object.get(*name)?));
    let named = ["type", "code", "status"].iter().any(|name| object.get(*name).is_some_and(|value| !value.is_null()));
    let is_error_object = object.get("message").is_some_and(Value::is_string) || (object.is_object() && named);
    UpstreamErrorBody { message: message.as_deref().map(shortened).unwrap_or_default(), is_error_object, object, form }
}

/// A text, or the first text of a list of errors (`{"detail":[{"msg":…}]}`).
fn message_in(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => list.first()?.get("msg")?.as_str().map(str::to_owned),
        Value::Object(object) => object.get("message")?.as_str().map(str::to_owned),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MESSAGE_LIMIT)].to_owned()
}

impl UpstreamErrorBody {
    /// A member as text; numbers too, because some gateways send numeric codes.
    pub(crate) fn text_field(&self, name: &str) -> Option<String> {
        let value = self.object.get(name)?;
        match value.as_str() {
            Some(text) => (!text.is_empty()).then(|| shortened(text)),
            None => value.is_number().then(|| value.to_string()),
        }
    }

    /// The status: that of the answer, or inside a 200 the one the object names, else 500.
    pub(crate) fn status(&self, answered: u16) -> u16 {
        if answered >= 400 {
            return answered;
        }
        let numeric = |name| {
            let value = self.object.get(name)?;
            value.as_u64().or_else(|| value.as_str()?.parse().ok())
        };
        ["code", "status", "status_code"]
            .into_iter()
            .filter_map(numeric)
            .find_map(|code| u16::try_from(code).ok().filter(|code| (400..600).contains(code)))
            .or_else(|| ["type", "status", "code"].into_iter().find_map(|name| status_of(self.object.get(name)?.as_str()?)))
            .unwrap_or(500)
    }

    /// Whether the upstream's text contains one of `needles`, which are lower case; case is ignored. In statuses that reject the
    /// request, text after a quotation mark is ignored: it may quote the caller, and no caller may make an account look refused.
    pub(crate) fn mentions(&self, answered: u16, needles: &[&str]) -> bool {
        let own = if matches!(self.status(answered), 400 | 404 | 409 | 413 | 415 | 422) {
            unquoted(&self.message)
        } else {
            &self.message
        };
        let text = own.to_ascii_lowercase();
        needles.iter().any(|needle| text.contains(needle))
    }

    pub(crate) fn is(&self, words: &[&str]) -> bool {
        ["type", "code", "status"]
            .iter()
            .any(|name| self.object.get(*name).and_then(Value::as_str).is_some_and(|word| words.contains(&word)))
    }

    pub(crate) fn into_problem(self, answered: u16) -> UpstreamProblem {
        let status = self.status(answered);
        UpstreamProblem {
            status,
            from_intermediary: self.is_from_intermediary(status),
            code: self.text_field("code"),
            param: self.text_field("param"),
            is_error_object: self.is_error_object,
            context_exceeded: self.context_exceeded(status),
            details: self.details(),
            retry_after: self.retry_delay(),
            unsupported: if matches!(status, 400 | 422) { self.unsupported() } else { Vec::new() },
            message: self.message,
            ..UpstreamProblem::default()
        }
    }

    /// Fields the upstream reports as unsupported. A field with an unsupported *value* is not included.
    fn unsupported(&self) -> Vec<String> {
        let text = self.message.as_str();
        let lower = text.to_ascii_lowercase();
        let after = |needle: &str| lower.find(needle).map(|at| &text[at + needle.len()..]);
        if let Some(rest) = after("unsupported parameter").or_else(|| after("unknown parameter")) {
            let list = rest.split_once(" is ").or_else(|| rest.split_once(" are ")).map_or(rest, |(list, _)| list);
            let named = quoted(list);
            if !named.is_empty() {
                return named;
            }
        }
        if self.is(&["unsupported_parameter", "unknown_parameter"])
            && let Some(param) = self.text_field("param")
        {
            return vec![param];
        }
        if let Some(rest) =
            after("unrecognized request argument supplied:").or_else(|| after("unrecognized request arguments supplied:"))
        {
            return rest.split(',').map(|name| name.trim().trim_end_matches('.').to_owned()).filter(|name| is_path(name)).collect();
        }
        if lower.contains("extra inputs are not permitted")
            && let Some((field, _)) = text.split_once(':')
            && is_path(field.trim())
        {
            return vec![field.trim().to_owned()];
        }
        let unknown = unknown_names(text);
        if !unknown.is_empty() {
            return unknown;
        }
        for phrase in [
            " is unsupported",
            " is not supported for this model",
            " is not supported with this model",
            " is not supported by this model",
        ] {
            if let Some(at) = lower.find(phrase) {
                return quoted(&text[..at]).pop().into_iter().collect();
            }
        }
        Vec::new()
    }
}

/// The text before the first quotation mark; an apostrophe inside a word does not count.
fn unquoted(text: &str) -> &str {
    let bytes = text.as_bytes();
    let opens = |at: &usize| match bytes[*at] {
        b'"' | b'`' => true,
        b'\'' => !(*at > 0 && bytes[at - 1].is_ascii_alphanumeric()),
        _ => false,
    };
    (0..bytes.len()).find(opens).map_or(text, |at| &text[..at])
}

/// Texts between quotation marks that look like a field's path.
fn quoted(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find(['\'', '"', '`']) {
        let mark = &rest[open..=open];
        let Some(close) = rest[open + 1..].find(mark) else { break };
        let inside = &rest[open + 1..open + 1 + close];
        if is_path(inside) {
            found.push(inside.to_owned());
        }
        rest = &rest[open + close + 2..];
    }
    found
}

/// Fields in Google's `Unknown name "x" at 'path': Cannot find field.`, one per line.
fn unknown_names(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((_, rest)) = line.split_once("Unknown name \"") else { continue };
        let Some((name, rest)) = rest.split_once('"') else { continue };
        let at = rest.strip_prefix(" at '").and_then(|rest| rest.split_once('\'')).map_or("", |(at, _)| at);
        let path = if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        if is_path(&path) {
            found.push(path);
        }
    }
    found
}

fn is_path(text: &str) -> bool {
    (1..=200).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.[]$".contains(&byte))
}

/// Whole seconds, rounded up, 1 or more.
pub(crate) fn whole_seconds(seconds: f64) -> Option<u32> {
    if !(0.0..=4_000_000_000.0).contains(&seconds) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was just checked")]
    let whole = seconds.ceil() as u32;
    Some(whole.max(1))
}

/// The status equivalent to a type, code or canonical name.
fn status_of(word: &str) -> Option<u16> {
    Some(match word {
        "INVALID_ARGUMENT"
        | "FAILED_PRECONDITION"
        | "OUT_OF_RANGE"
        | "invalid_request_error"
        | "BadRequestError"
        | "context_length_exceeded"
        | "content_filter"
        | "unsupported_parameter"
        | "invalid_request" => 400,
        "UNAUTHENTICATED" | "authentication_error" | "invalid_api_key" | "AuthenticationError" => 401,
        "billing_error" => 402,
        "PERMISSION_DENIED" | "permission_error" | "permission_denied" => 403,
        "NOT_FOUND" | "not_found_error" | "model_not_found" | "NotFoundError" => 404,
        "ALREADY_EXISTS" | "ABORTED" | "conflict_error" => 409,
        "request_too_large" => 413,
        "RESOURCE_EXHAUSTED"
        | "rate_limit_error"
        | "rate_limit_exceeded"
        | "insufficient_quota"
        | "requests"
        | "tokens"
        | "RateLimitError" => 429,
        "CANCELLED" => 499,
        "UNIMPLEMENTED" => 501,
        "UNAVAILABLE" | "service_unavailable_error" | "server_is_overloaded" | "ServiceUnavailableError" => 503,
        "DEADLINE_EXCEEDED" | "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
