//! Whose words an error answer is: a model server's, or those of whatever else answers at an address that is wrong (a web
//! server's page, a proxy's, a framework that knows no such path). The latter say nothing of the request.

use super::Complaint;

/// How a body puts its complaint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// An error object as model servers have it.
    ErrorObject,
    /// A mere text, alone or in a member, or nothing that could be read.
    Words,
}

/// What web servers and frameworks say of a path they do not know, in lower case without figures and marks.
const PHRASES: &[&str] = &[
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
/// What model servers say of a path they do not know.
const NO_SUCH_PATH: &[&str] = &["invalid url", "unknown url", "unknown request url", "unrecognized request url"];

impl Complaint {
    /// Whether a 4xx with this body is no model server's word about the request. Never for what is about keys, money and
    /// pace (401, 402, 403, 408, 429), whoever says it.
    pub(super) fn is_foreign(&self, status: u16) -> bool {
        if !(400..500).contains(&status) || matches!(status, 401 | 402 | 403 | 408 | 429) {
            return false;
        }
        let phrase = self.is_phrase();
        // All that is ever asked is to post to a path that every model server has.
        if status == 405 {
            return true;
        }
        let about_path = status == 404;
        match self.shape {
            Shape::ErrorObject if about_path => phrase || self.says(status, NO_SUCH_PATH) || self.is(&["unknown_url"]),
            Shape::ErrorObject => !self.recognised,
            // A path that is not there is told in words of all kinds; a model that is not there is called one.
            Shape::Words if about_path => phrase || !self.says(status, &["model"]),
            Shape::Words => phrase,
        }
    }

    /// Whether the text is nothing but what its status is called.
    fn is_phrase(&self) -> bool {
        let text = self.message.to_ascii_lowercase();
        let words: Vec<_> = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect();
        // Nothing longer can be one; text in other letters is somebody's own.
        words.len() <= 6 && text.is_ascii() && PHRASES.contains(&words.join(" ").as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::find;

    fn foreign(status: u16, body: &str) -> bool {
        find(body.as_bytes()).into_problem(status).foreign
    }

    #[test]
    fn pages_and_bare_phrases_are_foreign() {
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
                assert!(foreign(status, body), "{status} {body}");
            }
        }
        for body in [
            r#"{"error":{"message":"Not Found","type":"x","code":null,"param":null}}"#,
            r#"{"error":{"message":"Invalid URL (POST /v1/v1/chat/completions)","type":"invalid_request_error"}}"#,
            r#"{"error":{"message":"Unknown path POST /chat.","type":"invalid_request_error","code":"unknown_url"}}"#,
            r#"{"message":"The requested endpoint does not exist."}"#,
        ] {
            assert!(foreign(404, body), "{body}");
        }
        assert!(foreign(405, r#"{"error":{"message":"no","type":"invalid_request_error","code":"method_not_supported"}}"#));
    }

    #[test]
    fn what_a_model_server_says_of_the_request_is_not() {
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
            assert!(!foreign(status, body), "{status} {body}");
        }
    }

    #[test]
    fn keys_money_and_pace_are_nobodys_path() {
        for status in [200, 401, 402, 403, 408, 429, 500, 503] {
            assert!(!foreign(status, "<html>"), "{status}");
        }
    }
}
