//! The protocols of callers as pages name them, from the table of protocols.

use tollgate_protocol::{CallerSurface, Protocol};

use super::locale::Locale;

/// The protocols of callers, with the endpoints of each.
pub(crate) fn of_callers() -> impl Iterator<Item = (Protocol, CallerSurface)> {
    Protocol::ALL.into_iter().filter_map(|protocol| Some((protocol, protocol.spec().caller?)))
}

/// The name of a protocol by its word in records and documents.
pub(crate) fn label(t: Locale, word: &str) -> &'static str {
    match Protocol::parse(word) {
        Some(Protocol::OpenAi) => t.say("protocol.openai"),
        Some(Protocol::Gemini) => t.say("protocol.gemini"),
        Some(Protocol::Anthropic) => t.say("protocol.anthropic"),
        Some(Protocol::Responses) => t.say("protocol.responses"),
        None => t.say("protocol.other"),
    }
}

/// The class of the colour of its badge.
pub(crate) fn tone(word: &str) -> &'static str {
    match Protocol::parse(word) {
        Some(Protocol::OpenAi | Protocol::Responses) => "info",
        Some(Protocol::Gemini) => "alt",
        Some(Protocol::Anthropic) => "ok",
        None => "",
    }
}

/// Base URL for clients of a protocol, at the address of model requests.
pub(crate) fn client_base(protocol: Protocol, address: &str) -> String {
    match protocol {
        // OpenAI's clients add the path without its version.
        Protocol::OpenAi | Protocol::Responses => format!("{address}/v1"),
        Protocol::Gemini | Protocol::Anthropic => address.to_owned(),
    }
}

/// Label for the clients of the protocol.
pub(crate) fn clients(t: Locale, protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::OpenAi => t.say("home.openai"),
        Protocol::Gemini => t.say("home.gemini"),
        Protocol::Anthropic => t.say("home.anthropic"),
        Protocol::Responses => t.say("home.responses"),
    }
}
