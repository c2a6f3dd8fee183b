//! Errors of docs/errors.md in the reader's language: their names, and advice for operators.

use super::locale::Locale;

/// Name of an error. Other codes are shown with the name of the outcome.
pub(crate) fn name(t: Locale, reason: &str) -> Option<&'static str> {
    Some(match reason {
        "E1" | "E2" => t.say("reason.wrong_key"),
        "E3" => t.say("reason.key_expired"),
        "E4" => t.say("reason.key_off"),
        "E5" => t.say("reason.address"),
        "E6" => t.say("reason.suspended"),
        "E7" => t.say("reason.protocol"),
        "E10" | "E11" | "E12" | "E70" => t.say("reason.path"),
        "E13" | "E14" => t.say("reason.no_model"),
        "E15" => t.say("reason.endpoint"),
        "E17" => t.say("reason.parameter"),
        "E16" | "E18" | "E19" | "E20" | "E21" | "E23" => t.say("reason.body"),
        "E22" | "E66" => t.say("reason.too_large"),
        "E31" => t.say("reason.rate"),
        "E32" | "E33" => t.say("reason.money"),
        "E40" => t.say("reason.no_accounts"),
        "E41" => t.say("reason.price_limit"),
        "E42" => t.say("reason.no_price"),
        "E50" => t.say("reason.unreachable"),
        "E51" | "E57" => t.say("reason.timeout"),
        "E52" => t.say("reason.rejected"),
        "E53" => t.say("reason.account"),
        "E54" => t.say("reason.upstream_rate"),
        "E55" | "E56" => t.say("reason.upstream_error"),
        "E58" => t.say("reason.bad_answer"),
        "E59" | "E60" => t.say("reason.broke"),
        "E61" => t.say("reason.stopping"),
        "E62" => t.say("reason.internal"),
        "E63" => t.say("reason.overloaded"),
        "E64" => t.say("reason.left"),
        "E65" => t.say("reason.slow"),
        "E67" => t.say("reason.content"),
        "E68" => t.say("reason.key_check"),
        "E69" => t.say("reason.not_stored"),
        _ => return None,
    })
}

/// Advice for operators about a request whose last attempt was answered with the status `upstream`.
pub(super) fn advice_of_request(t: Locale, reason: &str, outcome: &str, upstream: Option<u16>) -> &'static str {
    match (reason, upstream) {
        // Providers answer 404 for a model that they do not have, and for a path that follows from a wrong base URL.
        ("E52" | "E55", Some(404)) => t.say("advice.not_found"),
        _ => advice(t, reason, outcome),
    }
}

/// Advice for operators about an error. It follows from the outcome if the code is unknown.
pub(crate) fn advice(t: Locale, reason: &str, outcome: &str) -> &'static str {
    match reason {
        "E3" | "E4" | "E5" | "E6" | "E7" => t.say("advice.key"),
        "E13" | "E14" | "E15" => t.say("advice.model"),
        "E17" => t.say("advice.parameter"),
        "E69" => t.say("advice.not_stored"),
        "E22" | "E66" => t.say("advice.too_large"),
        "E31" => t.say("advice.rate"),
        "E32" | "E33" => t.say("advice.money"),
        "E40" => t.say("advice.no_accounts"),
        "E41" => t.say("advice.price_limit"),
        "E42" => t.say("advice.no_price"),
        "E50" => t.say("advice.unreachable"),
        "E51" | "E57" | "E60" => t.say("advice.timeout"),
        "E52" => t.say("advice.rejected"),
        "E53" => t.say("advice.account"),
        "E54" => t.say("advice.upstream_rate"),
        "E55" | "E56" | "E58" | "E59" => t.say("advice.upstream_error"),
        "E61" | "E62" => t.say("advice.internal"),
        "E63" => t.say("advice.overloaded"),
        "E68" => t.say("advice.key_check"),
        _ if outcome == "upstream_broke" => t.say("advice.upstream_error"),
        _ if outcome == "gateway_stopped" => t.say("advice.internal"),
        _ => t.say("advice.caller"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_error_has_a_name() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md")).unwrap();
        let ids: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()).collect();
        let ids: Vec<&str> =
            ids.into_iter().filter(|id| id.strip_prefix('E').is_some_and(|rest| rest.parse::<u8>().is_ok())).collect();
        assert!(ids.len() > 40, "{ids:?}");
        for id in ids {
            assert!(name(Locale::EN, id).is_some(), "{id} has no name");
        }
    }

    #[test]
    fn upstream_404_is_a_fault_of_the_channel() {
        let of = |reason, upstream| advice_of_request(Locale::EN, reason, "refused", upstream);
        for reason in ["E52", "E55"] {
            assert_eq!(of(reason, Some(404)), Locale::EN.say("advice.not_found"));
            assert_eq!(of(reason, Some(400)), advice(Locale::EN, reason, "refused"));
        }
        assert_eq!(of("E13", None), Locale::EN.say("advice.model"));
    }
}
