//! Distinguishes errors of model servers from those of intermediaries (web servers, proxies, firewalls, frameworks without
//! such a path), which say nothing about the request.

use serde_json::Value;

use super::UpstreamErrorBody;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorBodyForm {
    ErrorObject,
    /// Text, alone or in a member, or an unreadable body.
    Text,
}

/// Texts of web servers and frameworks for an unknown path, in lower case without digits and punctuation.
const WEB_SERVER_PHRASES: &[&str] = &[
    "",
    "bad request",
    "not found",
    "page not found",
    "resource not found",
    "route not found",
    "path not found",
    "no route matched with those values",
    "method not allowed",
    "not acceptable",
    "gone",
    "unsupported media type",
    "unprocessable entity",
    "unprocessable content",
    "misdirected request",
    "default backend",
    "request entity too large",
    "payload too large",
    "content too large",
    "error",
];
/// Texts of model servers for an unknown path.
const UNKNOWN_PATH_PHRASES: &[&str] = &["invalid url", "unknown url", "unknown request url", "unrecognized request url"];
const ACCOUNT_WORDS: &[&str] = &[
    "key",
    "token",
    "credential",
    "authoriz",
    "authoris",
    "authentic",
    "permission",
    "account",
    "subscri",
    "billing",
    "balance",
    "quota",
    "project",
    "organi",
    "suspend",
];

impl UpstreamErrorBody {
    /// Whether a 4xx with this body comes from an intermediary. Never for 401, 402, 408 and 429, which count against the
    /// account in any case; for a 403 if a firewall sent it.
    pub(super) fn is_from_intermediary(&self, status: u16) -> bool {
        if !(400..500).contains(&status) || matches!(status, 401 | 402 | 408 | 429) {
            return false;
        }
        if status == 403 {
            return self.is_from_firewall();
        }
        let phrase = self.is_phrase();
        // Model servers accept POST on every path we use.
        if status == 405 {
            return true;
        }
        let about_path = status == 404;
        match self.form {
            ErrorBodyForm::ErrorObject if about_path => {
                phrase || self.mentions(status, UNKNOWN_PATH_PHRASES) || self.is(&["unknown_url"])
            }
            ErrorBodyForm::ErrorObject => !self.is_error_object,
            // Texts about an unknown path vary; a text about an unknown model contains the word.
            ErrorBodyForm::Text if about_path => phrase || !self.mentions(status, &["model"]),
            ErrorBodyForm::Text => phrase,
        }
    }

    /// Whether a 403 comes from a firewall: a page, an empty body, JSON without an error, Cloudflare's JSON, or a text that
    /// does not mention an account. Any other error in JSON counts against the account, even `{"message":"Forbidden"}`,
    /// which Amazon API Gateway sends for a wrong key.
    fn is_from_firewall(&self) -> bool {
        let Some(object) = self.object.as_object() else { return !self.mentions(403, ACCOUNT_WORDS) };
        let has_error = self.is_error_object || !self.message.is_empty();
        !has_error || object.get("cloudflare_error").is_some_and(|it| it == &Value::Bool(true))
    }

    /// Whether the text is only the name of its status.
    fn is_phrase(&self) -> bool {
        let text = self.message.to_ascii_lowercase();
        let words: Vec<_> = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect();
        // The longest phrase has six words, and all are ASCII.
        words.len() <= 6 && text.is_ascii() && WEB_SERVER_PHRASES.contains(&words.join(" ").as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::find;

    fn from_intermediary(status: u16, body: &str) -> bool {
        find(body.as_bytes()).into_problem(status).from_intermediary
    }

    #[test]
    fn pages_and_status_phrases_are_from_intermediaries() {
        for body in [
            "",
            "<html><h1>404 Not Found</h1><hr>nginx</html>",
            "<!doctype html><pre>Cannot POST /v1/chat/completions</pre>",
            "{\"cut",
            "{}",
            "404 page not found\n",
            "Bad Request",
            "default backend - 404",
            r#"{"message":"Not Found"}"#,
            r#"{"detail":"Not Found"}"#,
            r#"{"detail":"Method Not Allowed"}"#,
            r#"{"message":"no Route matched with those values"}"#,
            r#"{"timestamp":"2026-11-21T12:00:00Z","status":404,"error":"Not Found","path":"/chat/completions"}"#,
        ] {
            for status in [400, 404, 405, 415, 422] {
                assert!(from_intermediary(status, body), "{status} {body}");
            }
        }
        for body in [
            r#"{"error":{"message":"Not Found","type":"x","code":null,"param":null}}"#,
            r#"{"error":{"message":"Invalid URL (POST /v1/v1/chat/completions)","type":"invalid_request_error"}}"#,
            r#"{"error":{"message":"Unknown path POST /chat.","type":"invalid_request_error","code":"unknown_url"}}"#,
            r#"{"message":"The requested endpoint does not exist."}"#,
        ] {
            assert!(from_intermediary(404, body), "{body}");
        }
        assert!(from_intermediary(
            405,
            r#"{"error":{"message":"no","type":"invalid_request_error","code":"method_not_supported"}}"#
        ));
    }

    #[test]
    fn errors_of_model_servers_are_not_from_intermediaries() {
        for (status, body) in [
            (400, r#"{"error":{"message":"m","type":"invalid_request_error","param":null,"code":null}}"#),
            (400, r#"{"error":{"message":"Bad Request","type":"invalid_request_error"}}"#),
            (400, r#"[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]"#),
            (400, r#"{"error":"temperature must be below 2"}"#),
            (400, r#"{"object":"error","message":"This model's maximum context length is 8","type":"BadRequestError","code":400}"#),
            (400, r#"{"message":"invalid request: temperature must be below 2"}"#),
            (422, r#"{"detail":[{"loc":["body"],"msg":"Field required"}]}"#),
            (422, "Failed to deserialize the JSON body into the target type: missing field `messages`"),
            (404, r#"{"error":{"message":"The model 'm' does not exist","code":"model_not_found"}}"#),
            (404, r#"{"error":{"code":404,"message":"models/x is not found for API version v1beta","status":"NOT_FOUND"}}"#),
            (404, r#"{"error":{"message":"No such File object: file-1","type":"invalid_request_error"}}"#),
            (404, r#"{"error":"model 'x' not found, try pulling it first"}"#),
            (404, r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"}}"#),
            (404, r#"{"detail":"Model not found"}"#),
            (413, r#"{"error":{"message":"no"}}"#),
        ] {
            assert!(!from_intermediary(status, body), "{status} {body}");
        }
    }

    #[test]
    fn auth_payment_and_rate_statuses_count_against_the_account() {
        for status in [200, 401, 402, 408, 429, 500, 503] {
            assert!(!from_intermediary(status, "<html>"), "{status}");
        }
    }

    #[test]
    fn forbidden_without_an_api_error_is_from_a_firewall() {
        for body in [
            "",
            "<!DOCTYPE html><title>Attention Required! | Cloudflare</title>Sorry, you have been blocked",
            "<html><head><title>403 Forbidden</title></head></html>",
            "error code: 1020",
            "Forbidden",
            "RBAC: access denied",
            "{}",
            "{\"cut",
            "null",
            r#"{"url":"https://geo.example.com/captcha/?cid=1"}"#,
            r#"{"type":"https://developers.cloudflare.com/x/","title":"Error 1020: Access denied","status":403,"detail":"The site owner has blocked you","cloudflare_error":true}"#,
        ] {
            assert!(from_intermediary(403, body), "{body}");
        }
        for body in [
            r#"{"error":{"message":"no","type":"permission_error"}}"#,
            r#"{"error":{"code":"unsupported_country_region_territory","message":"Country not supported","type":"request_forbidden"}}"#,
            r#"[{"error":{"code":403,"message":"m","status":"PERMISSION_DENIED"}}]"#,
            r#"{"error":"Forbidden"}"#,
            r#"{"message":"Forbidden"}"#,
            r#"{"detail":"Not authenticated"}"#,
            r#"{"type":"error","error":{"type":"permission_error","message":"m"}}"#,
            "Invalid API key",
            "Your account has been suspended",
        ] {
            assert!(!from_intermediary(403, body), "{body}");
        }
    }
}
