//! Members as the admin API answers them, and as pages show them.

use serde::Deserialize;
use serde_json::Value;
use tollgate_core::{NanoUsd, Timestamp};

use crate::pages::{
    form::FormState,
    format::{self, TimeText},
    locale::Locale,
    mark::Mark,
    money::{self, Amount},
};

/// A member of the admin API.
#[derive(Debug, Deserialize)]
pub(super) struct MemberObject {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) revision: u64,
    pub(super) created_at: String,
    pub(super) role: String,
    pub(super) status: String,
    pub(super) groups: Vec<String>,
    pub(super) default_group: Option<String>,
    pub(super) billing: String,
    pub(super) rpm: u64,
    pub(super) tpm: u64,
    pub(super) concurrency: u64,
    pub(super) budget: Value,
    /// Only in the list.
    #[serde(default)]
    pub(super) last_used_at: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BalanceObject {
    pub(super) member: String,
    pub(super) balance: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct MemberSpent {
    pub(super) of: String,
    pub(super) requests: u64,
    pub(super) sale: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct LoginObject {
    email: Option<String>,
    password: bool,
    pub(super) totp: bool,
    pub(super) passkeys: u64,
    pub(super) oidc: bool,
    signed_in_at: Option<String>,
}

pub(super) fn role(t: Locale, role: &str) -> &'static str {
    match role {
        "admin" => t.say("role.admin"),
        "operator" => t.say("role.operator"),
        _ => t.say("role.member"),
    }
}

pub(super) fn status(t: Locale, status: &str) -> Mark {
    match status {
        "active" => Mark::new("ok", "okc", t.say("key.active")),
        _ => Mark::new("warn", "pause", t.say("members.suspended")),
    }
}

/// Whether a balance is used up.
fn is_spent(balance: &str) -> bool {
    NanoUsd::parse(balance).is_ok_and(|balance| balance.0 <= 0)
}

fn billing(t: Locale, billing: &str) -> &'static str {
    if billing == "prepaid" { t.say("members.prepaid") } else { t.say("members.postpaid") }
}

#[derive(Debug)]
pub(super) struct MemberRow {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) role: &'static str,
    /// Tone of the badge of the role.
    pub(super) role_tone: &'static str,
    pub(super) mark: Mark,
    pub(super) groups: String,
    pub(super) billing: &'static str,
    pub(super) balance: Option<Amount>,
    pub(super) is_overdrawn: bool,
    pub(super) requests: String,
    pub(super) spent: Amount,
    /// The time of the last request, and how long ago it was.
    pub(super) last_used: Option<(TimeText, String)>,
    pub(super) created: Option<TimeText>,
}

impl MemberRow {
    pub(super) fn of(
        (t, now): (Locale, Timestamp),
        member: &MemberObject,
        spent: Option<&MemberSpent>,
        balance: Option<&String>,
    ) -> Self {
        let sale = spent.map_or("0", |spent| spent.sale.as_str());
        Self {
            id: member.id.clone(),
            name: member.name.clone(),
            role: role(t, &member.role),
            role_tone: match member.role.as_str() {
                "admin" => "alt",
                "operator" => "info",
                _ => "",
            },
            mark: status(t, &member.status),
            groups: member.groups.join(t.say("list.separator")),
            billing: billing(t, &member.billing),
            // A postpaid member normally has a negative balance.
            is_overdrawn: member.billing == "prepaid" && balance.is_some_and(|balance| is_spent(balance)),
            balance: balance.map(|balance| money::cents(t, balance)),
            requests: format::integer(spent.map_or(0, |spent| spent.requests)),
            spent: money::cents(t, sale),
            last_used: member.last_used_at.as_deref().and_then(|at| Some((format::time(t, at)?, format::ago(t, at, now)))),
            created: format::time(t, &member.created_at),
        }
    }
}

/// The facts beside the forms of a member.
#[derive(Debug)]
pub(super) struct MemberDetail {
    pub(super) id: String,
    pub(super) is_of_file: bool,
    pub(super) role: &'static str,
    pub(super) mark: Mark,
    pub(super) groups: String,
    pub(super) billing: &'static str,
    pub(super) balance: Option<Amount>,
    pub(super) requests: String,
    pub(super) spent: Amount,
    pub(super) created: Option<TimeText>,
    pub(super) login: Option<LoginView>,
}

#[derive(Debug)]
pub(super) struct LoginView {
    /// The typed value, if it was refused.
    pub(super) email: String,
    pub(super) email_fault: Option<String>,
    pub(super) has_password: bool,
    pub(super) has_codes: bool,
    pub(super) passkeys: u64,
    pub(super) is_linked: bool,
    pub(super) signed_in: Option<TimeText>,
}

impl MemberDetail {
    pub(super) fn of(t: Locale, member: &MemberObject, spent: Option<&MemberSpent>) -> Self {
        let sale = spent.map_or("0", |spent| spent.sale.as_str());
        Self {
            id: member.id.clone(),
            is_of_file: member.owner == "file",
            role: role(t, &member.role),
            mark: status(t, &member.status),
            groups: member.groups.join(t.say("list.separator")),
            billing: billing(t, &member.billing),
            balance: None,
            requests: format::integer(spent.map_or(0, |spent| spent.requests)),
            spent: money::cents(t, sale),
            created: format::time(t, &member.created_at),
            login: None,
        }
    }

    pub(super) fn add_login(&mut self, t: Locale, login: &LoginObject, state: &FormState) {
        let email = if state.has("email") { Some(state.value("email")) } else { login.email.as_deref() };
        self.login = Some(LoginView {
            email: email.unwrap_or_default().to_owned(),
            email_fault: state.fault("email").map(str::to_owned),
            has_password: login.password,
            has_codes: login.totp,
            passkeys: login.passkeys,
            is_linked: login.oidc,
            signed_in: login.signed_in_at.as_deref().and_then(|at| format::time(t, at)),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn row_names_role_state_and_balance() {
        let member: MemberObject = serde_json::from_value(json!({
            "id": "mbr_1", "name": "ann", "owner": "database", "revision": 1, "created_at": "2026-11-01T00:00:00Z", "role": "operator",
            "status": "suspended", "groups": ["a", "b"], "default_group": null, "billing": "prepaid", "rpm": 0, "tpm": 0,
            "concurrency": 0, "budget": null,
        }))
        .unwrap();
        let row = MemberRow::of((Locale::EN, Timestamp(0)), &member, None, Some(&"-2.5".to_owned()));
        assert_eq!(
            (row.role, row.mark.tone, row.groups.as_str(), row.balance.as_ref().map(|balance| balance.text.as_str())),
            ("Operator", "warn", "a, b", Some("−$2.50"))
        );
        assert!(row.is_overdrawn);
        let owes = MemberObject { billing: "postpaid".to_owned(), ..member };
        assert!(!MemberRow::of((Locale::EN, Timestamp(0)), &owes, None, Some(&"-2.5".to_owned())).is_overdrawn);
    }
}
