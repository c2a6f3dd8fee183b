//! Redacts keys and hosts from an upstream's text before a caller sees it.
//!
//! Works word by word: a word that looks like a credential, a URL or an address is replaced. Everything else is kept, so
//! that an "unsupported parameter" text arrives intact.

/// Maximum length in characters.
const MAX_CHARS: usize = 2_000;

/// Prefixes of credentials.
const KEY_PREFIXES: [&str; 14] =
    ["sk-", "sk_", "pk-", "pk_", "rk-", "gsk_", "AIza", "ya29.", "xai-", "key-", "tga-", "hf_", "ghp_", "eyJ"];

/// Prefixes of identifiers, which are long and mixed like credentials: callers need them to repair their requests.
const ID_PREFIXES: [&str; 14] = [
    "toolu_",
    "srvtoolu_",
    "mcptoolu_",
    "call_",
    "fc_",
    "ctc_",
    "rs_",
    "msg_",
    "resp_",
    "req_",
    "file_",
    "file-",
    "vs_",
    "chatcmpl-",
];
/// Longest word, and longest word with a number at one end, in a name, in bytes.
const MAX_WORD: usize = 16;
const MAX_NUMBERED_WORD: usize = 12;
/// Maximum number of capitals after the first letter of such a word: enough for `FP8` and `GPT`, too few for a part of
/// a key.
const CAPITALS_OF_A_WORD: usize = 3;
/// Longest identifier of a part of the conversation, in bytes.
const MAX_ID: usize = 80;

/// The text without keys and hosts, truncated. Control characters become spaces.
pub(crate) fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_CHARS));
    let mut word = String::new();
    for (count, c) in text.chars().enumerate() {
        if count >= MAX_CHARS {
            flush(&mut word, &mut out);
            out.push('…');
            return out;
        }
        if is_word(c) {
            word.push(c);
        } else {
            flush(&mut word, &mut out);
            out.push(if c.is_control() { ' ' } else { c });
        }
    }
    flush(&mut word, &mut out);
    out
}

/// [`redact`] for a text that may quote known secrets, which are removed in any form.
pub(crate) fn redact_secrets<'a>(text: &str, secrets: impl Iterator<Item = &'a str>) -> String {
    let whole =
        secrets.filter(|secret| !secret.is_empty()).fold(text.to_owned(), |text, secret| text.replace(secret, "[key removed]"));
    redact(&whole)
}

/// Characters of credentials, URLs and host names.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/' | '+' | '=' | '%' | '~' | '*' | '@' | '&' | '?' | '#')
}

fn flush(word: &mut String, out: &mut String) {
    if word.is_empty() {
        return;
    }
    let bare = word.trim_end_matches(['.', ':', '?', '/']);
    let tail = &word[bare.len()..];
    if is_url(bare) || is_host(bare) {
        out.push_str("[address removed]");
        out.push_str(tail);
    } else if is_credential(bare) {
        out.push_str("[key removed]");
        out.push_str(tail);
    } else {
        out.push_str(word);
    }
    word.clear();
}

fn is_url(word: &str) -> bool {
    word.contains("://")
}

/// An IP address, `localhost`, or a name with a port or a well-known suffix.
fn is_host(word: &str) -> bool {
    let host = word.split(['/', '?']).next().unwrap_or(word);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => (name, true),
        Some(_) | None => (host, false),
    };
    if name.parse::<std::net::Ipv4Addr>().is_ok() || name == "localhost" {
        return true;
    }
    if host.matches(':').count() >= 2 && host.parse::<std::net::Ipv6Addr>().is_ok() {
        return true;
    }
    let labels = name.split('.').collect::<Vec<_>>();
    let named = labels.len() >= 2
        && labels.iter().all(|label| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
        && labels.last().is_some_and(|last| last.len() >= 2 && last.bytes().all(|b| b.is_ascii_alphabetic()));
    const ENDS: [&str; 14] = ["com", "net", "org", "io", "ai", "dev", "cloud", "app", "local", "internal", "lan", "cn", "eu", "co"];
    named && (port || labels.last().is_some_and(|last| ENDS.contains(last)))
}

/// A known prefix with enough characters after it, or a long run that mixes letters and digits.
fn is_credential(word: &str) -> bool {
    let core = word.rsplit(['=', ':', '/']).find(|piece| !piece.is_empty()).unwrap_or(word);
    if KEY_PREFIXES.iter().any(|prefix| core.starts_with(prefix) && core.len() >= prefix.len() + 8) {
        return true;
    }
    if is_id(core) || is_name(core) {
        return false;
    }
    let long = core.len() >= 32 && core.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'+' | b'*'));
    long && core.bytes().any(|b| b.is_ascii_digit()) && core.bytes().any(|b| b.is_ascii_alphabetic())
}

/// An identifier that a provider or this gateway gave to a part of the conversation.
fn is_id(word: &str) -> bool {
    word.len() <= MAX_ID && ID_PREFIXES.iter().any(|prefix| word.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()))
}

/// A readable name, such as that of a model, a tool (`mcp__calendar__list_events_v2`) or a beta feature
/// (`mid-conversation-tool-changes-2026-07-01`): short pieces, each a word, a number, or a word with a number.
fn is_name(word: &str) -> bool {
    let mut pieces = word.split(['-', '_']).filter(|piece| !piece.is_empty());
    pieces.all(|piece| {
        let bytes = piece.as_bytes();
        let changes = bytes.windows(2).filter(|pair| pair[0].is_ascii_digit() != pair[1].is_ascii_digit()).count();
        if bytes.iter().skip(1).filter(|byte| byte.is_ascii_uppercase()).count() > CAPITALS_OF_A_WORD {
            return false;
        }
        match changes {
            0 => bytes.len() <= MAX_WORD,
            1 => bytes.len() <= MAX_NUMBERED_WORD,
            // Sizes of models, such as `A22B`.
            2 => bytes.len() <= 5,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn harmless_text_is_unchanged() {
        for text in [
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "Invalid JSON payload received. Unknown name \"x\" at 'generation_config.top_k': Cannot find field.",
            "messages[2].content[0].type: must be one of text, image_url",
            "models/gemini-2.5-flash-preview is not found for API version v1beta",
            "claude-3.5-sonnet accepts at most 200000 tokens (e.g. 0.5 of that)",
            "messages.2: unexpected `tool_use_id` found in `tool_result` blocks: srvtoolu_01A09q90qw90lq917835lq9abcdefgh",
            "No tool output found for function call call_01m7q5cqg0ew3re1r70w3ge1r7_0.",
            "tools.3.name: mcp__claude_ai_Google_Calendar__list_events_v2 is used twice",
            "Qwen3-235B-A22B-Instruct-2507-FP8-Throughput is overloaded; mid-conversation-tool-changes-2026-07-01 is unknown",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn keys_and_hosts_are_redacted() {
        for (text, gone) in [
            ("Incorrect API key provided: sk-abcdef0123456789abcd.", "sk-abcdef"),
            ("The key ABCDEFGH-12345678-IJKLMNOP-87654321 is wrong.", "ABCDEFGH"),
            ("key AIzaSyA0123456789abcdefghijklmnopqrstuv is bad", "AIza"),
            ("Authorization=Bearer:0123456789abcdef0123456789abcdef", "0123456789abcdef"),
            ("connect to http://10.0.0.7:8080/v1/chat failed", "10.0.0.7"),
            ("no route to 192.168.1.4:9000", "192.168.1.4"),
            ("upstream api.internal.example.com said no", "example.com"),
            ("dial localhost:11434: refused", "localhost"),
            ("host ::1 is closed", "::1"),
            ("project 550e8400-e29b-41d4-a716-446655440000 is unknown", "550e8400"),
            ("token mcp_Zk3x9Qw7Lr2Tn8Vb5Yc1Hd6Jf4Gs0Pm is bad", "Zk3x9"),
            ("use sk-proj-file_0123456789abcdef instead", "0123456789"),
        ] {
            let shown = redact(text);
            assert!(!shown.contains(gone), "{shown}");
            assert!(shown.contains("removed]"), "{shown}");
        }
    }

    #[test]
    fn sent_secret_is_removed_whatever_its_format() {
        let shown = super::redact_secrets(
            "the key 'correct horse' is wrong, and sk-abcdef0123456789 too",
            ["correct horse", ""].into_iter(),
        );
        assert_eq!(shown, "the key '[key removed]' is wrong, and [key removed] too");
    }

    #[test]
    fn length_and_control_characters_are_bounded() {
        let shown = redact(&"a b\r\n".repeat(2_000));
        assert!(shown.chars().count() <= 2_001 && shown.ends_with('…'));
        assert!(!shown.contains(char::is_control));
    }
}
