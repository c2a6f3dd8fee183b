//! Fields of rows and events in the words of the forms.

use super::locale::Locale;

/// The label of a field of a row or event of this kind. An item of a list follows the field's name. An unknown field keeps its name.
pub(crate) fn of(t: Locale, kind: &str, field: &str) -> String {
    let (name, item) = field.split_once(' ').map_or((field, None), |(name, item)| (name, Some(item)));
    match (name, item) {
        ("serves", Some(item)) => format!("{} {item}", t.say("models.name")),
        (_, Some(item)) => format!("{} {item}", word(t, kind, name).unwrap_or(name)),
        (_, None) => word(t, kind, name).unwrap_or(name).to_owned(),
    }
}

/// A value of a fixed set in the words of the forms; `None` for any other value.
pub(crate) fn value(t: Locale, kind: &str, field: &str, word: &str) -> Option<&'static str> {
    Some(match (kind, field, word) {
        ("session", "method", "password") => t.say("profile.method.password"),
        ("session", "method", "link") => t.say("profile.method.link"),
        ("session", "method", "oidc") => t.say("profile.method.oidc"),
        ("session", "method", "passkey") => t.say("profile.method.passkey"),
        ("session", "second_factor", "none") => t.say("audit.factor_none"),
        ("session", "second_factor", "totp") => t.say("sign_in.code_title"),
        ("session", "second_factor", "recovery_code") => t.say("audit.factor_recovery"),
        ("login", "kind", "set_up") => t.say("set_up.title"),
        ("login", "kind", "reset") => t.say("reset.title"),
        ("member" | "invite" | "admin_key", "role" | "scope", "admin") => t.say("role.admin"),
        ("member" | "invite" | "admin_key", "role" | "scope", "operator") => t.say("role.operator"),
        ("member" | "invite" | "admin_key", "role" | "scope", "member") => t.say("role.member"),
        ("member", "status", "suspended") => t.say("members.suspended"),
        ("member", "billing", "postpaid") => t.say("members.postpaid"),
        ("member", "billing", "prepaid") => t.say("members.prepaid"),
        (_, "status", "active") => t.say("key.active"),
        (_, "status", "disabled") => t.say("key.disabled"),
        (_, "status", "revoked") => t.say("key.revoked"),
        (_, "status", "on") => t.say("codes.on"),
        (_, "status", "off") => t.say("codes.off"),
        ("group", "visibility", "public") => t.say("groups.public"),
        ("group", "visibility", "private") => t.say("groups.private"),
        ("group", "routing", "weighted") => t.say("groups.weighted"),
        ("group", "routing", "cheapest") => t.say("groups.cheapest"),
        ("group", "routing", "fastest") => t.say("groups.fastest"),
        ("group", "translation", "lenient") => t.say("groups.lenient"),
        ("group", "translation", "strict") => t.say("groups.strict"),
        ("group", "stream_break", "provider_usage") => t.say("groups.break_usage"),
        ("group", "stream_break", "delivered") => t.say("groups.break_delivered"),
        ("group", "stream_break", "none_if_empty") => t.say("groups.break_none"),
        _ => return None,
    })
}

fn word(t: Locale, kind: &str, field: &str) -> Option<&'static str> {
    let own = match kind {
        "channel" => of_channel(t, field),
        "model" => of_model(t, field),
        "group" => of_group(t, field),
        "member" | "invite" => of_member(t, field),
        "key" | "admin_key" => of_key(t, field),
        "alert_destination" => of_destination(t, field),
        "login" | "session" => of_login(t, field),
        "setting" if field == "value" => Some(t.say("settings.value")),
        "ledger" => of_posting(t, field),
        _ => None,
    };
    own.or_else(|| common(t, field))
}

/// Fields that several kinds have.
fn common(t: Locale, field: &str) -> Option<&'static str> {
    Some(match field {
        "name" => t.say("audit.name"),
        "status" => t.say("models.state"),
        "budget" => t.say("home.budgets"),
        "rpm" => t.say("keys.rpm"),
        "tpm" => t.say("keys.tpm"),
        "concurrency" => t.say("keys.concurrency"),
        "cost_multiplier" => t.say("channels.multiplier"),
        "credential" => t.say("channels.credential"),
        "models" => t.say("groups.models"),
        "price_limit" => t.say("groups.price_limit"),
        "signatures_in_ids" => t.say("keys.signatures"),
        "log_contents" => t.say("contents.title"),
        "private_network" => t.say("channels.private_network"),
        "note" => t.say("ledger.note"),
        _ => return None,
    })
}

fn of_channel(t: Locale, field: &str) -> Option<&'static str> {
    Some(match field {
        "provider" => t.say("channels.provider"),
        "protocol" => t.say("facet.protocol"),
        "base_url" => t.say("channels.base_url"),
        "tags" => t.say("channels.tags"),
        "priority" => t.say("channels.priority"),
        "weight" => t.say("channels.weight"),
        "cooling" => t.say("channels.cooling"),
        "learn_unsupported" => t.say("channels.learn"),
        "hoist" => t.say("channels.hoist"),
        "server_tools" => t.say("channels.server_tools"),
        "pass_user" => t.say("channels.pass_user"),
        "fetch_media" => t.say("channels.fetch_media"),
        "parameter_edits" => t.say("channels.parameter_edits"),
        "retry_uncertain" => t.say("channels.retry"),
        "failures_to_cool" => t.say("channels.failures_to_cool"),
        "cool_down_s" => t.say("channels.cool_down"),
        "pausing_statuses" => t.say("channels.pausing_statuses"),
        "empty_answer_is_failure" => t.say("channels.empty_answer"),
        "test_model" => t.say("channels.test_model"),
        "probe_interval_s" => t.say("channels.probe_interval"),
        "connect_timeout_ms" => t.say("channels.connect_timeout"),
        "first_byte_timeout_ms" => t.say("channels.first_byte_timeout"),
        "idle_timeout_ms" => t.say("channels.idle_timeout"),
        "total_timeout_ms" => t.say("channels.total_timeout"),
        "headers" => t.say("channels.headers"),
        "proxy" => t.say("channels.proxy"),
        "ca_file" => t.say("channels.ca_file"),
        "client_certificate" => t.say("channels.client_certificate"),
        "client_key" => t.say("channels.client_key"),
        "serves" => t.say("channels.served"),
        "groups" => t.say("channels.groups"),
        _ => return None,
    })
}

fn of_model(t: Locale, field: &str) -> Option<&'static str> {
    Some(match field {
        "price" => t.say("pricing.sale"),
        "context" => t.say("facts.context"),
        "max_output" => t.say("facts.max_output"),
        "supported_parameters" => t.say("facts.rule_only"),
        "unsupported_parameters" => t.say("facts.rule_except"),
        "on_unsupported" => t.say("facts.on_unsupported"),
        "visible" => t.say("facts.visible"),
        "description" => t.say("facts.description"),
        "embeddings" => t.say("facts.embeddings"),
        "display_name" => t.say("facts.display_name"),
        "vendor" => t.say("facts.vendor"),
        "input_modalities" => t.say("facts.reads"),
        "output_modalities" => t.say("facts.writes"),
        "badge" => t.say("facts.badge"),
        _ => return None,
    })
}

fn of_group(t: Locale, field: &str) -> Option<&'static str> {
    Some(match field {
        "description" => t.say("groups.description"),
        "visibility" => t.say("groups.visibility"),
        "channels" => t.say("groups.channels"),
        "sale_multiplier" => t.say("groups.multiplier"),
        "model_multipliers" => t.say("groups.model_multipliers"),
        "translation" => t.say("groups.translation"),
        "stream_break" => t.say("groups.stream_break"),
        "never_below_cost" => t.say("groups.never_below_cost"),
        "routing" => t.say("groups.routing"),
        "hedge" => t.say("groups.hedge"),
        "trace" => t.say("groups.trace"),
        "log_contents" => t.say("groups.log_contents"),
        "self_service" => t.say("groups.self_service"),
        _ => return None,
    })
}

fn of_member(t: Locale, field: &str) -> Option<&'static str> {
    Some(match field {
        "role" => t.say("members.role"),
        "groups" => t.say("members.groups"),
        "default_group" => t.say("members.default_group"),
        "billing" => t.say("members.billing"),
        "note" => t.say("members.invite_note"),
        _ => return None,
    })
}

fn of_key(t: Locale, field: &str) -> Option<&'static str> {
    Some(match field {
        "member" => t.say("keys.member"),
        "scope" => t.say("admin_keys.scope"),
        "expires_at" => t.say("keys.expires"),
        "groups" => t.say("keys.groups"),
        "models_deny" => t.say("keys.models_deny"),
        "protocols" => t.say("keys.protocols"),
        "ip_allow" => t.say("keys.ip_allow"),
        "tags" => t.say("keys.tags"),
        _ => return None,
    })
}

fn of_destination(t: Locale, field: &str) -> Option<&'static str> {
    Some(match field {
        "kind" => t.say("alerts.kind"),
        "url" => t.say("alerts.url"),
        "secret" => t.say("alerts.secret"),
        "status" => t.say("alerts.is_on"),
        "rules" => t.say("alerts.rules"),
        "from" => t.say("alerts.from"),
        "to" => t.say("alerts.to"),
        _ => return None,
    })
}

fn of_login(t: Locale, field: &str) -> Option<&'static str> {
    Some(match field {
        "method" => t.say("profile.method"),
        "address" => t.say("audit.address"),
        "second_factor" => t.say("audit.second_factor"),
        "kind" => t.say("profile.method.link"),
        "passkey" => t.say("profile.method.passkey"),
        "notice_percents" => t.say("notices.percents"),
        "notice_balance" => t.say("notices.balance_below"),
        "notice_mail" => t.say("notices.by_mail"),
        _ => return None,
    })
}

fn of_posting(t: Locale, field: &str) -> Option<&'static str> {
    Some(match field {
        "amount" => t.say("ledger.amount_usd"),
        "balance" => t.say("ledger.balance_after"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_of_an_admin_key_is_named_as_in_its_form() {
        assert_eq!(of(Locale::EN, "admin_key", "scope"), "Scope");
        assert_eq!(value(Locale::EN, "admin_key", "scope", "operator"), Some("Operator"));
    }
}
