//! Evaluation of an OpenID provider's claims: whether a person is admitted, and with which role and groups.

use serde_json::{Map, Value};
use tollgate_core::Role;
use tollgate_store::{MemberSpec, fields::check_row};

use super::OidcSettings;

/// A person as the provider describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identified {
    /// Issuer and subject, separated by a blank.
    pub(crate) subject: String,
    /// Names for a new member, the best first.
    pub(crate) names: Vec<String>,
    /// Verified, in lower case.
    pub(crate) email: Option<String>,
    /// `None`: the role is kept here.
    pub(crate) role: Option<Role>,
    /// Groups that are governed by claims, and whether the claims grant them.
    pub(crate) groups: Vec<(String, bool)>,
}

/// Why a person that the provider knows is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// No verified e-mail address of an allowed domain.
    Domain,
    /// No value of the role claim admits.
    Role,
}

/// Reads the claims.
pub(crate) fn identify(settings: &OidcSettings, claims: &Map<String, Value>) -> Result<Identified, NotAdmitted> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let is_verified = matches!(claims.get("email_verified"), Some(Value::Bool(true))) || text("email_verified") == Some("true");
    let address = text("email").filter(|_| is_verified);
    let email = address.map(str::to_lowercase);
    if !settings.domains.is_empty() {
        let domain = email.as_deref().and_then(|email| email.rsplit_once('@')).map(|(_, domain)| domain);
        if !domain.is_some_and(|domain| settings.domains.iter().any(|allowed| allowed.eq_ignore_ascii_case(domain))) {
            return Err(NotAdmitted::Domain);
        }
    }
    let role = match &settings.role_claim {
        None => None,
        Some(claim) => Some(role_of(settings, &values(claims, claim)).ok_or(NotAdmitted::Role)?),
    };
    let granted = settings.group_claim.as_ref().map(|claim| values(claims, claim)).unwrap_or_default();
    let mut groups: Vec<(String, bool)> = Vec::new();
    for (value, group) in &settings.groups {
        let grants = granted.contains(&value.as_str());
        match groups.iter_mut().find(|(known, _)| known == group) {
            Some((_, granted)) => *granted |= grants,
            None => groups.push((group.clone(), grants)),
        }
    }
    let subject = text("sub").unwrap_or_default();
    let names = [text("preferred_username"), address, text("name"), Some(subject)];
    let names = names.into_iter().flatten().filter_map(member_name).collect();
    Ok(Identified { subject: format!("{} {subject}", settings.issuer), names, email, role, groups })
}

/// The widest role that a value grants.
fn role_of(settings: &OidcSettings, values: &[&str]) -> Option<Role> {
    let has = |wanted: &[String]| wanted.iter().any(|wanted| values.contains(&wanted.as_str()));
    if has(&settings.admins) {
        Some(Role::Admin)
    } else if has(&settings.operators) {
        Some(Role::Operator)
    } else if settings.members.is_empty() || has(&settings.members) {
        Some(Role::Member)
    } else {
        None
    }
}

/// The texts of the claim with this name, or at this path of names, such as `realm_access.roles`.
fn values<'a>(claims: &'a Map<String, Value>, claim: &str) -> Vec<&'a str> {
    let by_path = || {
        let (first, rest) = claim.split_once('.')?;
        rest.split('.').try_fold(claims.get(first)?, |value, name| value.get(name))
    };
    match claims.get(claim).or_else(by_path) {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    }
}

/// A text as the name of a member, if it can be one.
fn member_name(text: &str) -> Option<String> {
    let spec = MemberSpec { name: text.trim().to_owned(), ..MemberSpec::default() };
    check_row(&spec).is_empty().then_some(spec.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings() -> OidcSettings {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        OidcSettings {
            name: "id".to_owned(),
            issuer: "https://id.example.com".to_owned(),
            client_id: "tollgate".to_owned(),
            client_secret: None,
            scopes: "openid".to_owned(),
            role_claim: Some("realm_access.roles".to_owned()),
            admins: list(&["gateway-admins"]),
            operators: list(&["gateway-ops"]),
            members: list(&["staff"]),
            group_claim: Some("groups".to_owned()),
            groups: vec![
                ("team-a".to_owned(), "alpha".to_owned()),
                ("team-b".to_owned(), "alpha".to_owned()),
                ("team-c".to_owned(), "gamma".to_owned()),
            ],
            domains: list(&["example.com"]),
            create_members: true,
        }
    }

    fn read(claims: &Value) -> Result<Identified, NotAdmitted> {
        identify(&settings(), claims.as_object().unwrap())
    }

    #[test]
    fn claims_decide_role_and_groups() {
        let with = |roles: &[&str]| {
            json!({
                "sub": "1", "email": "Ann@Example.com", "email_verified": true, "preferred_username": " ann ",
                "realm_access": {"roles": roles}, "groups": ["team-b", "other"],
            })
        };
        let ann = read(&with(&["staff", "gateway-ops"])).unwrap();
        assert_eq!(ann.role, Some(Role::Operator));
        assert_eq!(ann.groups, [("alpha".to_owned(), true), ("gamma".to_owned(), false)]);
        assert_eq!((ann.subject.as_str(), ann.email.as_deref()), ("https://id.example.com 1", Some("ann@example.com")));
        assert_eq!(ann.names, ["ann", "Ann@Example.com", "1"]);
        assert_eq!(read(&with(&["gateway-admins", "staff"])).unwrap().role, Some(Role::Admin));
        assert_eq!(read(&with(&["staff"])).unwrap().role, Some(Role::Member));
        assert_eq!(read(&with(&["guests"])), Err(NotAdmitted::Role));
        assert_eq!(read(&with(&[])), Err(NotAdmitted::Role));
    }

    #[test]
    fn only_verified_addresses_of_allowed_domains_are_admitted() {
        let with = |email: Value, verified: Value| {
            read(&json!({"sub": "1", "email": email, "email_verified": verified, "realm_access": {"roles": ["staff"]}}))
        };
        assert!(with(json!("a@example.com"), json!(true)).is_ok() && with(json!("a@EXAMPLE.com"), json!("true")).is_ok());
        for (email, verified) in [
            (json!("a@example.com"), json!(false)),
            (json!("a@example.com"), Value::Null),
            (json!("a@example.com.evil.org"), json!(true)),
            (json!("a@sub.example.com"), json!(true)),
            (json!("example.com"), json!(true)),
            (Value::Null, json!(true)),
        ] {
            assert_eq!(with(email.clone(), verified), Err(NotAdmitted::Domain), "{email}");
        }
    }

    #[test]
    fn without_a_role_claim_everyone_is_admitted_and_roles_are_unchanged() {
        let settings = OidcSettings { role_claim: None, group_claim: None, groups: Vec::new(), domains: Vec::new(), ..settings() };
        let id = format!("mbr_{}", "0".repeat(26));
        let claims = json!({"sub": "1", "preferred_username": id, "name": "x\u{0}y", "email": "another@example.com"});
        let read = identify(&settings, claims.as_object().unwrap()).unwrap();
        assert_eq!((read.role, read.groups.len()), (None, 0));
        assert_eq!(read.names, ["1"], "neither the id of a member, nor what no name can be, nor an address that is not verified");
    }
}
