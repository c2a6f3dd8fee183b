//! Why requests for a model get 503 now, in words: for the group whose offer is shown, and for keys of the reader that a limit of their
//! own excludes.

use serde::Deserialize;
use tollgate_core::KeyId;
use tollgate_protocol::Protocol;

use super::ModelOffer;
use crate::{
    api_error::ApiError,
    pages::{
        format::{self, TimeText},
        locale::Locale,
        operations,
        request::{ApiPage, PageRequest, get},
    },
    square::outage::{self, Outage},
};

/// Maximum number of the reader's keys that are checked.
const MAX_KEYS: &str = "5";

/// An outage: the keys or the group that it concerns, and its causes.
#[derive(Debug)]
pub(super) struct OutagePart {
    pub(super) title: String,
    /// The error that a caller gets, which the API page explains.
    pub(super) error: &'static str,
    /// Count and cause, and when the first account is available again.
    pub(super) causes: Vec<(String, Option<TimeText>)>,
}

#[derive(Debug, Deserialize)]
struct OwnKey {
    id: String,
    name: String,
}

/// The outages of a model. The reader sees the group of the offer.
pub(super) async fn load(request: &PageRequest, model: &str, offer: &ModelOffer) -> Result<Vec<OutagePart>, ApiError> {
    let t = request.t();
    let protocol = Protocol::ALL.into_iter().find(|protocol| offer.has_protocol(protocol.as_str()));
    // An explanation is for a request that generates text.
    let Some(protocol) = protocol.filter(|_| offer.kind != "embedding") else { return Ok(Vec::new()) };
    if let Some(found) = outage::of_group(&request.state, &offer.group, model, protocol).await? {
        return Ok(vec![part(t, t.say_with("outage.of_group", &[("group", &offer.group)]), &found)]);
    }
    let mut parts = Vec::new();
    for own in own_keys(request).await? {
        let Some(id) = KeyId::parse(&own.id) else { continue };
        if let Some(found) = outage::of_key(&request.state, id, model, protocol).await? {
            parts.push(part(t, t.say_with("outage.of_key", &[("key", &own.name)]), &found));
        }
    }
    Ok(parts)
}

/// Active keys of the reader.
async fn own_keys(request: &PageRequest) -> Result<Vec<OwnKey>, ApiError> {
    let Some(signed_in) = request.signed_in.as_ref() else { return Ok(Vec::new()) };
    let member = signed_in.member.id.to_string();
    let call = get(&[("member", &member), ("state", "active"), ("limit", MAX_KEYS)]);
    Ok(request.read::<ApiPage<OwnKey>>(operations::LIST_KEYS, call).await?.items)
}

fn part(t: Locale, title: String, found: &Outage) -> OutagePart {
    let causes = found.causes.iter().map(|it| {
        let until = it.until.as_deref().and_then(|at| format::time(t, at));
        (said(t, &it.cause, it.accounts), until)
    });
    let error = match found.causes.first().map(|it| it.cause.as_str()) {
        Some("price_limit") => "E41",
        Some("no_price") => "E42",
        Some(_) | None => "E40",
    };
    OutagePart { title, error, causes: causes.collect() }
}

/// A cause with how many accounts it concerns.
fn said(t: Locale, cause: &str, accounts: u64) -> String {
    let accounts = t.say_count("outage.account", "outage.accounts", accounts);
    let values = [("accounts", accounts.as_str())];
    match cause {
        "concurrency" => t.say_with("outage.concurrency", &values),
        "cooldown" => t.say_with("outage.cooldown", &values),
        "upstream_rate_limited" => t.say_with("outage.rate", &values),
        "upstream_quota" => t.say_with("outage.quota", &values),
        "price_limit" => t.say_with("outage.price_limit", &values),
        "no_price" => t.say_with("outage.no_price", &values),
        "credential" => t.say_with("outage.credential", &values),
        "disabled" => t.say_with("outage.disabled", &values),
        _ => t.say_with("outage.none", &values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::square::outage::OutageCause;

    #[test]
    fn causes_are_said_with_counts_and_the_error_of_the_first_one() {
        let cause = |cause: &str, accounts, until: Option<&str>| OutageCause {
            cause: cause.to_owned(),
            accounts,
            until: until.map(str::to_owned),
        };
        let found = Outage { causes: vec![cause("cooldown", 2, Some("2026-11-29T14:03:00Z")), cause("price_limit", 1, None)] };
        let shown = part(Locale::EN, "x".to_owned(), &found);
        assert_eq!(shown.error, "E40");
        assert_eq!(shown.causes[0].0, "2 channel accounts cooling down after failures");
        assert_eq!(said(Locale::EN, "disabled", 1), "1 channel account switched off");
        assert_eq!(said(Locale::ZH_CN, "disabled", 2), "2 个渠道账号已停用");
        assert!(shown.causes[0].1.is_some() && shown.causes[1].1.is_none());
        let priced = part(Locale::ZH_CN, "x".to_owned(), &Outage { causes: vec![cause("price_limit", 1, None)] });
        assert_eq!((priced.error, priced.causes.len()), ("E41", 1));
        // Each cause that the documentation of errors lists has its own words.
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md")).unwrap();
        let other = said(Locale::EN, "none_configured", 3);
        let causes = ["concurrency", "cooldown", "upstream_rate_limited", "upstream_quota", "price_limit", "no_price"];
        for cause in causes.into_iter().chain(["credential", "disabled"]) {
            assert!(page.contains(&format!("`{cause}`")) && said(Locale::EN, cause, 3) != other, "{cause}");
        }
    }
}
