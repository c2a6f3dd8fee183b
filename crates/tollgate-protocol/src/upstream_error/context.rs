//! Recognises the refusal of a request that is longer than the model's context. Few upstreams have a code for it, so it is
//! recognised by its words. If an upstream repeats a caller's text, that can at most change how the refusal is written for that
//! caller.

use super::UpstreamErrorBody;

/// Code of the refusal in OpenAI's APIs.
pub const CONTEXT_EXCEEDED: &str = "context_length_exceeded";

/// Codes and types with this meaning: OpenAI and most that follow it, llama.cpp, LiteLLM.
const CODES: &[&str] = &[CONTEXT_EXCEEDED, "exceed_context_size_error", "ContextWindowExceededError"];

/// Words by which coding agents recognise the refusal in the message alone, in lower case.
const KNOWN_TO_CLIENTS: &[&str] = &[
    // Anthropic, Fireworks.
    "prompt is too long",
    // Amazon Bedrock.
    "input is too long for requested model",
    // OpenAI, Azure, vLLM, DeepSeek, Mistral, OpenRouter.
    "maximum context length",
    "exceeds the context window",
    "input tokens exceed the configured limit",
    "reduce the length of the messages",
    // Gemini, Vertex AI.
    "exceeds the maximum number of tokens allowed",
    "but model only supports up to",
    // xAI.
    "maximum prompt length",
    // llama.cpp.
    "exceeds the available context size",
    // vLLM.
    "longer than the maximum model length",
    // Moonshot.
    "exceeded model token limit",
    // Qwen.
    "range of input length should be",
    // MiniMax.
    "context window exceeds limit",
    // Z.ai.
    "prompt exceeds max length",
    // Text Generation Inference.
    "`inputs` tokens + `max_new_tokens` must be",
];

/// Texts with the same meaning that clients do not recognise.
const OTHERS: &[&str] = &[
    // Anthropic: input and output together.
    "exceed context limit",
    // Ollama.
    "exceeded max context length",
    // LM Studio.
    "greater than the context length",
    "with context length of only",
    // Zhipu.
    "prompt 超长",
    // Proxies that put the whole error of their upstream into the message.
    "context_length_exceeded",
    "contextwindowexceedederror",
];

/// Whether clients recognise the refusal by this message.
pub fn names_context_limit(message: &str) -> bool {
    has_any(message, KNOWN_TO_CLIENTS)
}

fn has_any(message: &str, phrases: &[&str]) -> bool {
    let text = message.to_lowercase();
    phrases.iter().any(|phrase| text.contains(phrase))
}

impl UpstreamErrorBody {
    /// Whether the request was refused because it is longer than the model's context. `status` is that of the problem.
    pub(super) fn context_exceeded(&self, status: u16) -> bool {
        if !matches!(status, 400 | 413 | 422) || self.is_from_intermediary(status) {
            return false;
        }
        self.is(CODES) || has_any(&self.message, KNOWN_TO_CLIENTS) || has_any(&self.message, OTHERS)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Protocol, codec};

    const ALL: [Protocol; 4] = [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic, Protocol::Responses];

    fn is_exceeded(protocol: Protocol, status: u16, body: &str) -> bool {
        codec(protocol).decode_problem(status, body.as_bytes()).context_exceeded
    }

    #[test]
    fn context_length_messages_are_recognised_in_every_protocol() {
        for (message, known) in [
            ("prompt is too long: 210000 tokens > 200000 maximum", true),
            ("input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length", false),
            ("This model's maximum context length is 128000 tokens. However, your messages resulted in 210000 tokens.", true),
            ("Your input exceeds the context window of this model. Please adjust your input and try again.", true),
            ("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.", true),
            ("Please reduce the length of the messages or completion.", true),
            ("The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).", true),
            ("Unable to submit request because the input token count is 40000 but model only supports up to 32768.", true),
            ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", true),
            ("the request exceeds the available context size, try increasing it", true),
            ("Invalid request: Your request exceeded model token limit: 8192", true),
            ("Range of input length should be [1, 30720]", true),
            ("Input is too long for requested model.", true),
            ("prompt too long; exceeded max context length by 4 tokens", false),
            ("Prompt 超长", false),
        ] {
            for protocol in ALL {
                let body = json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
                assert!(is_exceeded(protocol, 400, &body), "{protocol:?} {message}");
            }
            assert_eq!(names_context_limit(message), known, "{message}");
        }
    }

    #[test]
    fn context_length_codes_are_recognised_regardless_of_the_message() {
        for body in [
            r#"{"error":{"message":"no","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            r#"{"error":{"message":"no","code":400,"type":"exceed_context_size_error"}}"#,
            r#"{"object":"error","message":"no","type":"ContextWindowExceededError"}"#,
        ] {
            assert!(is_exceeded(Protocol::OpenAi, 400, body), "{body}");
        }
        let failed = r#"{"type":"response.failed","response":{"error":{"code":"context_length_exceeded","message":"no"}}}"#;
        assert!(is_exceeded(Protocol::Responses, 200, failed));
    }

    #[test]
    fn other_errors_are_not_context_length_errors() {
        let error = |message: &str| json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
        for message in [
            "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for m",
            "Invalid 'input': string too long. Expected a string with maximum length 10485760, but got 10485761 instead.",
            "messages: too long",
        ] {
            assert!(!is_exceeded(Protocol::OpenAi, 400, &error(message)), "{message}");
        }
        let too_long = error("prompt is too long: 210000 tokens > 200000 maximum");
        for status in [401, 404, 429, 500] {
            assert!(!is_exceeded(Protocol::Anthropic, status, &too_long), "{status}");
        }
        assert!(!is_exceeded(Protocol::OpenAi, 400, "<html>prompt is too long</html>"));
    }
}
