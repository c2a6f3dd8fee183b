//! Errors as callers receive them, with what to do. A test compares the rows with `docs/errors.md`.

use super::super::{locale::Locale, reasons};

/// Origin of an error. Each origin has a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Key,
    Request,
    Accounts,
    Upstream,
    Gateway,
}

/// An error: its id, its status, and its code for callers of chat completions and Responses, of the native protocol and of Messages.
type Row = (&'static str, Origin, &'static str, [&'static str; 3]);

/// If the code differs within a protocol, only the first is shown.
const ROWS: &[Row] = {
    use Origin::{Accounts, Gateway, Key, Request, Upstream};
    &[
        ("E1", Key, "401", ["missing_api_key", "API_KEY_MISSING", "authentication_error"]),
        ("E2", Key, "401", ["invalid_api_key", "API_KEY_INVALID", "authentication_error"]),
        ("E3", Key, "401", ["api_key_expired", "API_KEY_EXPIRED", "authentication_error"]),
        ("E4", Key, "401", ["api_key_disabled", "API_KEY_DISABLED", "authentication_error"]),
        ("E5", Key, "403", ["ip_not_allowed", "API_KEY_IP_ADDRESS_BLOCKED", "permission_error"]),
        ("E6", Key, "403", ["account_suspended", "CONSUMER_SUSPENDED", "permission_error"]),
        ("E7", Key, "403", ["protocol_not_allowed", "API_KEY_SERVICE_BLOCKED", "permission_error"]),
        ("E31", Key, "429", ["rate_limit_exceeded", "RATE_LIMIT_EXCEEDED", "rate_limit_error"]),
        ("E32", Key, "429", ["insufficient_quota", "RESOURCE_QUOTA_EXCEEDED", "billing_error"]),
        ("E33", Key, "429", ["insufficient_quota", "RESOURCE_QUOTA_EXCEEDED", "billing_error"]),
        ("E68", Key, "503", ["key_check_unavailable", "KEY_CHECK_UNAVAILABLE", "overloaded_error"]),
        ("E10", Request, "404", ["unknown_url", "UNKNOWN_PATH", "not_found_error"]),
        ("E11", Request, "405", ["method_not_supported", "METHOD_NOT_ALLOWED", "invalid_request_error"]),
        ("E12", Request, "404", ["", "UNKNOWN_METHOD", ""]),
        ("E13", Request, "404", ["model_not_found", "MODEL_NOT_FOUND", "not_found_error"]),
        ("E15", Request, "404", ["model_not_supported_on_endpoint", "MODEL_METHOD_UNSUPPORTED", "not_found_error"]),
        ("E16", Request, "400", ["missing_required_parameter", "", "invalid_request_error"]),
        ("E17", Request, "400", ["unsupported_parameter", "UNSUPPORTED_PARAMETER", "invalid_request_error"]),
        ("E18", Request, "400", ["invalid_json", "INVALID_JSON", "invalid_request_error"]),
        ("E19", Request, "415", ["unsupported_media_type", "UNSUPPORTED_MEDIA_TYPE", "invalid_request_error"]),
        ("E20", Request, "400", ["", "INVALID_BODY", ""]),
        ("E21", Request, "400", ["invalid_value", "", "invalid_request_error"]),
        ("E22", Request, "413", ["request_too_large", "REQUEST_TOO_LARGE", "request_too_large"]),
        ("E23", Request, "415", ["unsupported_media_type", "UNSUPPORTED_MEDIA_TYPE", "invalid_request_error"]),
        ("E65", Request, "408", ["request_timeout", "REQUEST_TIMEOUT", "timeout_error"]),
        ("E66", Request, "431", ["header_too_large", "HEADER_TOO_LARGE", "invalid_request_error"]),
        ("E67", Request, "400", ["content_policy_violation", "blockReason", "invalid_request_error"]),
        ("E69", Request, "404", ["response_not_found", "RESPONSE_NOT_FOUND", "not_found_error"]),
        ("E70", Request, "426", ["upgrade_required", "UPGRADE_REQUIRED", "invalid_request_error"]),
        ("E40", Accounts, "503", ["no_available_accounts", "NO_AVAILABLE_ACCOUNTS", "overloaded_error"]),
        ("E41", Accounts, "503", ["no_available_accounts", "NO_AVAILABLE_ACCOUNTS", "api_error"]),
        ("E42", Accounts, "503", ["no_available_accounts", "NO_AVAILABLE_ACCOUNTS", "api_error"]),
        ("E50", Upstream, "502", ["upstream_unreachable", "UPSTREAM_UNREACHABLE", "api_error"]),
        ("E51", Upstream, "504", ["upstream_timeout", "UPSTREAM_TIMEOUT", "timeout_error"]),
        ("E52", Upstream, "", ["", "UPSTREAM_REJECTED", ""]),
        ("E53", Upstream, "502", ["upstream_account_error", "UPSTREAM_ACCOUNT_ERROR", "api_error"]),
        ("E54", Upstream, "429", ["upstream_rate_limited", "UPSTREAM_RATE_LIMITED", "rate_limit_error"]),
        ("E55", Upstream, "502", ["upstream_error", "UPSTREAM_ERROR", "api_error"]),
        ("E56", Upstream, "503", ["upstream_overloaded", "UPSTREAM_OVERLOADED", "overloaded_error"]),
        ("E57", Upstream, "504", ["upstream_timeout", "UPSTREAM_TIMEOUT", "timeout_error"]),
        ("E58", Upstream, "502", ["upstream_bad_response", "UPSTREAM_BAD_RESPONSE", "api_error"]),
        ("E59", Upstream, "200", ["upstream_stream_interrupted", "UPSTREAM_STREAM_INTERRUPTED", "api_error"]),
        ("E60", Upstream, "200", ["upstream_timeout", "UPSTREAM_TIMEOUT", "timeout_error"]),
        ("E61", Gateway, "503", ["shutting_down", "SHUTTING_DOWN", "overloaded_error"]),
        ("E62", Gateway, "500", ["internal_error", "INTERNAL", "api_error"]),
        ("E63", Gateway, "503", ["server_overloaded", "SERVER_OVERLOADED", "overloaded_error"]),
    ]
};

/// Errors of one origin.
#[derive(Debug)]
pub(super) struct ErrorTable {
    pub(super) title: &'static str,
    pub(super) anchor: &'static str,
    pub(super) rows: Vec<ErrorRow>,
}

#[derive(Debug)]
pub(super) struct ErrorRow {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    /// Empty: that of the provider.
    pub(super) status: &'static str,
    /// The codes of the protocols, without duplicates.
    pub(super) codes: Vec<&'static str>,
    pub(super) fix: &'static str,
}

/// Whether the page has a row for an error.
pub(crate) fn is_explained(id: &str) -> bool {
    ROWS.iter().any(|(known, ..)| *known == id)
}

/// All errors by origin.
pub(super) fn tables(t: Locale) -> Vec<ErrorTable> {
    let titles = [
        (Origin::Key, "errors-key", t.say("docs.errors_key")),
        (Origin::Request, "errors-request", t.say("docs.errors_request")),
        (Origin::Accounts, "errors-accounts", t.say("docs.errors_accounts")),
        (Origin::Upstream, "errors-upstream", t.say("docs.errors_upstream")),
        (Origin::Gateway, "errors-gateway", t.say("docs.errors_gateway")),
    ];
    let row = |(id, _, status, codes): &Row| {
        let mut shown: Vec<&'static str> = Vec::new();
        for code in codes.iter().filter(|code| !code.is_empty()) {
            if !shown.contains(code) {
                shown.push(code);
            }
        }
        let name = reasons::name(t, id).unwrap_or_default();
        ErrorRow { id, name, status, codes: shown, fix: fix(t, id) }
    };
    let of = |(origin, anchor, title): (Origin, &'static str, &'static str)| ErrorTable {
        title,
        anchor,
        rows: ROWS.iter().filter(|(_, known, ..)| *known == origin).map(row).collect(),
    };
    titles.map(of).into()
}

/// Advice for callers about an error.
fn fix(t: Locale, id: &str) -> &'static str {
    match id {
        "E1" => t.say("fix.no_key"),
        "E2" => t.say("fix.wrong_key"),
        "E3" => t.say("fix.key_expired"),
        "E4" => t.say("fix.key_off"),
        "E5" => t.say("fix.address"),
        "E6" => t.say("fix.suspended"),
        "E7" => t.say("fix.protocol"),
        "E10" => t.say("fix.path"),
        "E11" => t.say("fix.method"),
        "E12" => t.say("fix.verb"),
        "E13" => t.say("fix.no_model"),
        "E15" => t.say("fix.endpoint"),
        "E16" => t.say("fix.send_model"),
        "E17" => t.say("fix.parameter"),
        "E18" => t.say("fix.json"),
        "E19" => t.say("fix.content_type"),
        "E20" | "E21" => t.say("fix.body"),
        "E22" => t.say("fix.body_size"),
        "E23" => t.say("fix.encoding"),
        "E31" => t.say("fix.rate"),
        "E32" => t.say("fix.money"),
        "E33" => t.say("fix.too_expensive"),
        "E40" => t.say("fix.no_accounts"),
        "E41" => t.say("fix.price_limit"),
        "E42" => t.say("fix.no_price"),
        "E50" | "E55" | "E56" | "E58" => t.say("fix.upstream"),
        "E51" | "E57" => t.say("fix.timeout"),
        "E52" => t.say("fix.rejected"),
        "E53" => t.say("fix.account"),
        "E54" => t.say("fix.upstream_rate"),
        "E59" | "E60" => t.say("fix.broke"),
        "E61" => t.say("fix.stopping"),
        "E63" => t.say("fix.overloaded"),
        "E65" => t.say("fix.slow"),
        "E66" => t.say("fix.head_size"),
        "E67" => t.say("fix.content"),
        "E68" => t.say("fix.key_check"),
        "E69" => t.say("fix.not_stored"),
        "E70" => t.say("fix.websocket"),
        _ => t.say("fix.internal"),
    }
}

/// Why no account can serve a request: the causes that E40 to E42 name in `x-tollgate-cause`.
#[derive(Debug)]
pub(super) struct CauseRow {
    pub(super) word: &'static str,
    pub(super) meaning: &'static str,
    /// Whether waiting helps.
    pub(super) waits: &'static str,
}

pub(super) fn causes(t: Locale) -> Vec<CauseRow> {
    let (yes, no) = (t.say("settings.yes"), t.say("settings.no"));
    let rows = [
        ("none_configured", t.say("docs.cause_none"), no),
        ("disabled", t.say("docs.cause_disabled"), no),
        ("credential", t.say("docs.cause_credential"), no),
        ("cooldown", t.say("docs.cause_cooldown"), yes),
        ("concurrency", t.say("docs.cause_concurrency"), yes),
        ("upstream_rate_limited", t.say("docs.cause_rate"), yes),
        ("upstream_quota", t.say("docs.cause_quota"), t.say("docs.cause_quota_waits")),
        ("price_limit", t.say("docs.cause_price_limit"), no),
        ("no_price", t.say("docs.cause_no_price"), no),
    ];
    rows.map(|(word, meaning, waits)| CauseRow { word, meaning, waits }).into()
}

/// What a cause means.
pub(crate) fn cause(t: Locale, word: &str) -> Option<&'static str> {
    causes(t).into_iter().find(|row| row.word == word).map(|row| row.meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors without a row of their own: they are answered like another error, or no caller receives them.
    const LEFT_OUT: [&str; 2] = ["E14", "E64"];

    fn documented() -> Vec<Vec<String>> {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md")).unwrap();
        let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let rows = page.lines().filter(|line| line.starts_with("| ")).map(cells);
        rows.filter(|cells| cells[0].strip_prefix('E').is_some_and(|rest| rest.parse::<u8>().is_ok())).collect()
    }

    #[test]
    fn page_has_each_documented_error_with_its_status_and_codes() {
        let documented = documented();
        assert!(documented.len() > 40);
        for cells in &documented {
            let Some((id, _, status, codes)) = ROWS.iter().find(|(id, ..)| *id == cells[0]) else {
                assert!(LEFT_OUT.contains(&cells[0].as_str()), "{} is missing", cells[0]);
                continue;
            };
            assert!(cells[1].starts_with(status), "{id}: {}", cells[1]);
            assert_eq!(status.is_empty(), cells[1].starts_with("as "), "{id}: {}", cells[1]);
            for (code, cell) in codes.iter().zip(&cells[2..5]) {
                assert!(code.is_empty() || cell.contains(&format!("`{code}`")), "{id}: {code} is not in {cell}");
                assert_eq!(code.is_empty(), !cell.contains('`'), "{id}: {cell}");
            }
        }
        assert_eq!(documented.len(), ROWS.len() + LEFT_OUT.len());
    }

    #[test]
    fn page_has_each_documented_cause() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md")).unwrap();
        let table = page.split("The causes of E40").nth(1).and_then(|rest| rest.split("To see the same").next()).unwrap();
        let words: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(causes(Locale::EN).iter().map(|row| row.word).collect::<Vec<_>>(), words);
    }

    #[test]
    fn each_error_is_explained_once() {
        let tables = tables(Locale::EN);
        let shown: Vec<&str> = tables.iter().flat_map(|table| &table.rows).map(|row| row.id).collect();
        assert_eq!(shown.len(), ROWS.len());
        assert!(tables.iter().flat_map(|table| &table.rows).all(|row| !row.fix.is_empty() && !row.name.is_empty()));
        assert!(is_explained("E40") && !is_explained("E64") && !is_explained("E999"));
    }
}
