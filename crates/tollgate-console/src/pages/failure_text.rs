//! Translates the gateway's English reasons for failed attempts and tests into the reader's language. Texts of providers are not translated.

use tollgate_core::UnlistedAddress;

use super::{
    locale::{Language, Locale},
    sentences::{translated, translated_with},
};

/// The text of a failed attempt or test. Text without a translation stays in English.
pub(super) fn say(t: Locale, text: &str) -> String {
    if t.language == Language::En {
        return text.to_owned();
    }
    let said = translated_with(t, text, failures, |name, value| part(t, name, value));
    said.or_else(|| connect_fault(t, text)).unwrap_or_else(|| text.to_owned())
}

/// A value of a sentence that is a sentence itself.
fn part(t: Locale, name: &str, value: &str) -> Option<String> {
    match name {
        "fault" => connect_fault(t, value),
        "tls" => translated(t, value, tls_faults),
        "what" => translated(t, value, bad_answers),
        _ => None,
    }
}

/// Why a connection was not made.
fn connect_fault(t: Locale, text: &str) -> Option<String> {
    address(t, text).or_else(|| translated_with(t, text, connect_faults, |name, value| part(t, name, value)))
}

/// The same for an address list that blocks it, with the remedy if the text has it.
fn address(t: Locale, text: &str) -> Option<String> {
    let why = UnlistedAddress::ALL.into_iter().find(|why| text.contains(why.as_str()))?;
    let said = of_address(t, why);
    if !text.ends_with(why.remedy()) {
        return Some(said.to_owned());
    }
    let remedy = match why {
        UnlistedAddress::Denied => t.say("failure.remove_network"),
        UnlistedAddress::NotAllowed => t.say("failure.add_network"),
    };
    Some(format!("{said}{}{remedy}", t.say("list.separator")))
}

/// The text for an address list that blocks a connection.
pub(super) fn of_address(t: Locale, why: UnlistedAddress) -> &'static str {
    match why {
        UnlistedAddress::Denied => t.say("failure.address_denied"),
        UnlistedAddress::NotAllowed => t.say("failure.address_not_allowed"),
    }
}

/// Failures of attempts, and those of tests.
fn failures(t: Locale) -> Vec<&'static str> {
    vec![
        t.say("failure.not_sent"),
        t.say("failure.lost"),
        t.say("failure.lost_within"),
        t.say("failure.bad_framing"),
        t.say("failure.unreadable_head"),
        t.say("failure.timed_out"),
        t.say("failure.out_of_time"),
        t.say("failure.bad_answer"),
        t.say("failure.unexpected_status"),
        t.say("failure.no_memory"),
        t.say("failure.refused"),
        t.say("failure.no_answer"),
        t.say("failure.status"),
        t.say("failure.unreadable"),
        t.say("failure.not_json"),
        t.say("failure.no_model_list"),
        t.say("failure.proxy_unreachable"),
        t.say("failure.proxy_refused"),
    ]
}

/// The faults of connections, but for those of address lists.
fn connect_faults(t: Locale) -> Vec<&'static str> {
    vec![
        t.say("failure.bad_url"),
        t.say("failure.not_resolved"),
        t.say("failure.denied"),
        t.say("failure.unreachable"),
        t.say("failure.tls"),
        t.say("failure.ca_file"),
        t.say("failure.client_certificate"),
        t.say("failure.proxy"),
        t.say("failure.not_in_time"),
        t.say("failure.bad_header"),
        t.say("failure.no_descriptor"),
        t.say("failure.all_taken"),
        t.say("failure.closed"),
    ]
}

/// Why a TLS handshake failed.
fn tls_faults(t: Locale) -> Vec<&'static str> {
    vec![
        t.say("failure.cert_expired"),
        t.say("failure.cert_not_yet"),
        t.say("failure.cert_name"),
        t.say("failure.cert_issuer"),
        t.say("failure.cert_unacceptable"),
        t.say("failure.tls_client_refused"),
        t.say("failure.tls_refused"),
        t.say("failure.no_tls"),
        t.say("failure.tls_lost"),
    ]
}

/// What is wrong with an answer. Faults of a protocol's fields stay in English.
fn bad_answers(t: Locale) -> Vec<&'static str> {
    vec![
        t.say("failure.head_too_large"),
        t.say("failure.not_http"),
        t.say("failure.content_encoding"),
        t.say("failure.no_content"),
        t.say("failure.cut_short"),
        t.say("failure.too_large"),
        t.say("failure.empty"),
        t.say("failure.empty_body"),
        t.say("failure.html"),
        t.say("failure.not_object"),
        t.say("failure.stream_without_content"),
        t.say("failure.too_long_without_content"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_list_refusals_are_translated() {
        for why in UnlistedAddress::ALL {
            let name = why.as_str().rsplit(' ').next().unwrap();
            for text in [format!("not sent: {why}"), format!("{why}; {}", why.remedy())] {
                assert_eq!(say(Locale::EN, &text), text);
                let said = say(Locale::ZH_CN, &text);
                assert!(said.contains(name) && !said.contains("address ") && !said.contains("network"), "{said}");
            }
            assert_eq!(of_address(Locale::EN, why), why.as_str());
        }
    }

    #[test]
    fn words_of_providers_stay_as_they_are() {
        for (text, expected) in [
            ("status 401: no such key", "状态码 401：no such key"),
            ("The model is overloaded", "The model is overloaded"),
            ("bad answer: no member 'totalTokens'", "响应有误：no member 'totalTokens'"),
            ("bad answer: cut short", "响应有误：响应不完整"),
            ("timed out after 300 ms", "300 毫秒后超时"),
        ] {
            assert_eq!((say(Locale::ZH_CN, text).as_str(), say(Locale::EN, text).as_str()), (expected, text));
        }
    }

    /// The gateway is no dependency of this crate, so its errors are read from its source.
    #[test]
    fn every_fault_of_a_connection_is_translated() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tollgate-gateway/src/upstream/call.rs");
        let source = std::fs::read_to_string(source).unwrap();
        let faults: Vec<&str> =
            source.lines().filter_map(|line| line.trim().strip_prefix("#[error(\"")?.strip_suffix("\")]")).collect();
        assert!(faults.len() > 20, "{faults:?}");
        let is_chinese = |text: &str| {
            let said = say(Locale::ZH_CN, text);
            let is_english = |word: &str| word.len() > 3 && !matches!(word, "HTTP" | "JSON");
            !said.split(|c: char| !c.is_ascii_alphabetic()).any(is_english)
        };
        for fault in faults {
            let text = fault.replace("{0}", "1");
            assert!(is_chinese(&text) || is_chinese(&format!("TLS handshake failed: {text}")), "{fault}");
        }
    }
}
