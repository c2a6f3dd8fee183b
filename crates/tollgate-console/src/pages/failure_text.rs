//! Translates the gateway's English reasons for failed connections into the reader's language.

use tollgate_core::UnlistedAddress;

use super::locale::{Language, Locale};

/// The text of a failed attempt or test. Text without a translation stays in English.
pub(super) fn say(t: Locale, text: &str) -> String {
    let unlisted = UnlistedAddress::ALL.into_iter().find(|why| text.contains(why.as_str()));
    let (Some(why), Language::ZhCn) = (unlisted, t.language) else { return text.to_owned() };
    let said = of_address(t, why);
    if !text.ends_with(why.remedy()) {
        return said.to_owned();
    }
    let remedy = match why {
        UnlistedAddress::Denied => t.say("failure.remove_network"),
        UnlistedAddress::NotAllowed => t.say("failure.add_network"),
    };
    format!("{said}{}{remedy}", t.say("list.separator"))
}

/// The text for an address list that blocks a connection.
pub(super) fn of_address(t: Locale, why: UnlistedAddress) -> &'static str {
    match why {
        UnlistedAddress::Denied => t.say("failure.address_denied"),
        UnlistedAddress::NotAllowed => t.say("failure.address_not_allowed"),
    }
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
        assert_eq!(say(Locale::ZH_CN, "status 401: no"), "status 401: no");
    }
}
