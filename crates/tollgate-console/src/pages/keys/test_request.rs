//! The test of a key on its page: the browser sends one small request with it to the gateway, as a client would, over the protocol whose
//! lines are shown. The secret is typed, or still shown on the page; neither it nor the answer reaches the console.

use tollgate_protocol::Protocol;

use crate::pages::{clients, locale::Locale, playground::ProtocolChoice, request::PageRequest};

/// What the script needs to send a request.
#[derive(Debug)]
pub(super) struct KeyTest {
    /// What it does, in words.
    pub(super) about: String,
    pub(super) requests: Vec<TestRequest>,
}

/// The request of a protocol.
#[derive(Debug)]
pub(super) struct TestRequest {
    pub(super) protocol: ProtocolChoice,
    pub(super) address: String,
    pub(super) body: String,
}

impl KeyTest {
    /// `send`: the address of model requests for pages.
    pub(super) fn of(request: &PageRequest, send: &str, model: &str, offered: impl Fn(Protocol) -> bool) -> Self {
        let t = request.t();
        let about = t.say_with("keys.test_about", &[("model", model)]);
        Self { about, requests: requests(t, send, model, offered) }
    }
}

fn requests(t: Locale, send: &str, model: &str, offered: impl Fn(Protocol) -> bool) -> Vec<TestRequest> {
    let of = |protocol: Protocol| {
        let (address, body) = clients::smallest_request(send, protocol, model);
        TestRequest { protocol: ProtocolChoice::of(t, protocol), address, body }
    };
    clients::offered(offered).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_of_the_key_has_a_request_for_the_model() {
        let all = requests(Locale::EN, "https://gate.example", "acme/a b", |_| true);
        assert!(all.iter().all(|test| test.address.starts_with("https://gate.example/v1")), "{all:?}");
        let of = |word: &str| all.iter().find(|test| test.protocol.word == word).unwrap();
        assert_eq!(of("openai").address, "https://gate.example/v1/chat/completions");
        assert!(of("openai").body.contains("\"acme/a b\""), "{all:?}");
        assert!(of("gemini").address.ends_with("/v1beta/models/acme/a%20b:generateContent"), "{all:?}");
        let one = requests(Locale::EN, "", "m", |protocol| protocol == Protocol::Anthropic);
        assert_eq!(one.iter().map(|test| test.protocol.word).collect::<Vec<_>>(), ["anthropic"]);
    }
}
