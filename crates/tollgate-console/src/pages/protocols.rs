//! The protocols of callers as pages name them, out of the table of protocols.

use tollgate_protocol::Protocol;

use super::locale::Locale;

/// The words of the protocols that callers may speak, as records and documents have them.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    Protocol::ALL.into_iter().filter(|protocol| protocol.spec().caller.is_some()).map(Protocol::as_str)
}

/// The name of a protocol by its word.
pub(crate) fn label(t: Locale, word: &str) -> &'static str {
    match Protocol::parse(word) {
        Some(Protocol::OpenAi) => t.say("protocol.openai"),
        Some(Protocol::Gemini) => t.say("protocol.gemini"),
        Some(Protocol::Anthropic) => t.say("protocol.anthropic"),
        None => t.say("protocol.other"),
    }
}

/// The class of the colour of its badge.
pub(crate) fn tone(word: &str) -> &'static str {
    match Protocol::parse(word) {
        Some(Protocol::OpenAi) => "info",
        Some(Protocol::Gemini) => "alt",
        Some(Protocol::Anthropic) => "ok",
        None => "",
    }
}
