//! What an entry of the audit log did, in words.

use serde_json::Value;

use super::locale::Locale;

/// `detail` has the row before and after the change, if it changed one.
pub(crate) fn word(t: Locale, action: &str, detail: &Value) -> String {
    let word = match action {
        "put" if is_new(detail) => t.say("audit.made"),
        "put" | "set_email" | "set_subject" | "set_preferences" => t.say("audit.edited"),
        "make" => t.say("audit.made"),
        "remove" => t.say("audit.removed"),
        "revoke" => t.say("audit.revoked"),
        "switch" => t.say("audit.switched"),
        "sign_in" => t.say("audit.signed_in"),
        "end" => t.say("audit.ended"),
        "accept" => t.say("audit.accepted"),
        "make_link" => t.say("audit.link_made"),
        "use_link" => t.say("audit.link_used"),
        "set_password" => t.say("audit.password_set"),
        "top_up" => t.say("audit.topped_up"),
        "adjust" => t.say("audit.adjusted"),
        "start" => t.say("audit.started"),
        "cancel" => t.say("audit.cancelled"),
        "rotate_master_key" => t.say("audit.rotated"),
        _ => return action.replace('_', " "),
    };
    word.to_owned()
}

/// Whether the entry is about a row that was not there before.
pub(crate) fn is_new(detail: &Value) -> bool {
    let is_there = |side: &str| detail.get(side).is_some_and(|spec| !spec.is_null());
    !is_there("before") && is_there("after")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_new_row_is_created_and_a_known_one_changed() {
        let of = |detail| word(Locale::EN, "put", &detail);
        assert_eq!(of(json!({"before": null, "after": {"name": "a"}})), "Created");
        assert_eq!(of(json!({"before": {"name": "a"}, "after": {"name": "b"}})), "Changed");
        assert_eq!(word(Locale::EN, "rotate_master_key", &json!({})), "Rotated");
    }
}
