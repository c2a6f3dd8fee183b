//! Descriptions of the actions in the audit log.

use serde_json::Value;

use super::locale::Locale;

/// `kind`: of the row. `detail` has it before and after the change, if it changed one.
pub(crate) fn word(t: Locale, action: &str, kind: &str, detail: &Value) -> String {
    let word = match action {
        // A setting has its default before a value is stored.
        "put" if kind != "setting" && is_new(detail) => t.say("audit.made"),
        "put" | "set_email" | "set_subject" | "set_preferences" => t.say("audit.edited"),
        "make" => t.say("audit.made"),
        "remove" if kind == "setting" => t.say("audit.unset"),
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
        "register" => t.say("audit.registered"),
        "read" => t.say("audit.read"),
        "start" => t.say("audit.started"),
        "cancel" => t.say("audit.cancelled"),
        "rotate_master_key" => t.say("audit.rotated"),
        "price" => t.say("audit.price_set"),
        "serve" => t.say("audit.model_added"),
        "unserve" => t.say("audit.model_removed"),
        "budgets" => t.say("audit.budgets_set"),
        "status" => t.say("audit.status_set"),
        "rotate" => t.say("audit.secret_replaced"),
        "release" => t.say("audit.released"),
        "enable_totp" => t.say("audit.codes_on"),
        "disable_totp" => t.say("audit.codes_off"),
        "replace_recovery_codes" => t.say("audit.codes_replaced"),
        "add_passkey" => t.say("audit.passkey_added"),
        "rename_passkey" => t.say("audit.passkey_renamed"),
        "remove_passkey" => t.say("audit.passkey_removed"),
        "refuse_passkey" => t.say("audit.passkey_refused"),
        _ => return action.replace('_', " "),
    };
    word.to_owned()
}

/// The name of an author, without the id of its admin key or member, which follows in parentheses.
pub(crate) fn author(actor: &str) -> &str {
    actor.split(" (").next().unwrap_or_default()
}

/// The same in words: changes of commands without an admin key have no author.
pub(crate) fn shown_author(t: Locale, actor: &str) -> &str {
    match author(actor) {
        "command line" => t.say("audit.by_command"),
        author => author,
    }
}

/// The interface that a change came through. An unknown interface keeps its word.
pub(crate) fn origin(t: Locale, word: &str) -> &str {
    match word {
        "file" => t.say("system.catalog"),
        "cli" => t.say("audit.by_command"),
        "console" => t.say("audit.by_console"),
        "api" => t.say("audit.by_api"),
        "gateway" => t.say("audit.by_gateway"),
        _ => word,
    }
}

/// Whether the entry is about a row that was not there before.
pub(crate) fn is_new(detail: &Value) -> bool {
    let is_there = |side: &str| detail.get(side).is_some_and(|spec| !spec.is_null());
    !is_there("before") && is_there("after")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_store::AuditAction;

    use super::*;

    #[test]
    fn put_without_a_previous_value_is_shown_as_created_and_otherwise_as_changed() {
        let of = |detail| word(Locale::EN, "put", "group", &detail);
        assert_eq!(of(json!({"before": null, "after": {"name": "a"}})), "Created");
        assert_eq!(of(json!({"before": {"name": "a"}, "after": {"name": "b"}})), "Changed");
        assert_eq!(word(Locale::EN, "rotate_master_key", "", &json!({})), "Rotated");
        assert_eq!([author("mira (mbr_1)"), author("cli")], ["mira", "cli"]);
        let stored = json!({"before": null, "after": {"value": "1"}});
        assert_eq!(word(Locale::EN, "put", "setting", &stored), "Changed");
        assert_eq!(word(Locale::EN, "remove", "setting", &json!({})), "Back to default");
    }

    #[test]
    fn author_and_origin_are_in_the_language_of_the_page() {
        assert_eq!([origin(Locale::ZH_CN, "cli"), origin(Locale::ZH_CN, "console")], ["命令行", "控制台"]);
        assert_eq!([origin(Locale::EN, "cli"), origin(Locale::EN, "soon")], ["Command line", "soon"]);
        assert_eq!([shown_author(Locale::ZH_CN, "command line"), shown_author(Locale::ZH_CN, "mira (mbr_1)")], ["命令行", "mira"]);
    }

    #[test]
    fn every_audit_action_has_a_label() {
        for action in AuditAction::ALL.map(AuditAction::as_str) {
            assert_ne!(word(Locale::EN, action, "", &json!({})), action.replace('_', " "), "{action}");
        }
    }
}
