//! The simulator: the price of a request for a key or group, its cost on each account, and the accounts that price limits exclude.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Section, group_names, history::model_names, tabs, view::percent};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        channels::{explain, explain_detail},
        control::{self, Control, FaultPlace, Tab},
        docs,
        form::{FormData, FormState},
        format,
        layout::Layout,
        locale::Locale,
        operations, price_text, protocols,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
    },
};

const TOKENS: [&str; 7] = ["input", "output", "cache_read", "cache_write", "thinking", "image", "audio"];
const FLAGS: [&str; 3] = ["web_search", "server_tools", "output_media"];
/// Keys of one name that are offered.
const MAX_NAMESAKES: &str = "50";
const PLACES: &[FaultPlace] = &[
    ("model", "model", ""),
    ("key", "key", ""),
    ("group", "group", ""),
    ("protocol", "protocol", ""),
    ("max_price", "max_price", ""),
];

#[derive(Debug, Template)]
#[template(path = "pricing_simulate.html")]
struct SimulatePage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    banner: Option<String>,
    main: Vec<Control>,
    tokens: Vec<Control>,
    more: Vec<Control>,
    found: Option<Found>,
}

#[derive(Debug)]
struct Found {
    group: String,
    sale: Option<Lines>,
    refused: Option<String>,
    accounts: Vec<AccountRow>,
    excluded: Vec<ExcludedRow>,
}

#[derive(Debug)]
struct Lines {
    amount: String,
    /// There is no amount because it would be too large.
    is_too_large: bool,
    multiplier: String,
    tier: Option<String>,
    rows: Vec<LineRow>,
}

#[derive(Debug)]
struct LineRow {
    kind: String,
    count: String,
    unit_price: String,
    amount: String,
}

#[derive(Debug)]
struct AccountRow {
    channel: String,
    account: String,
    upstream: String,
    cost: Option<String>,
    is_too_large: bool,
    margin: Option<String>,
    share: Option<String>,
    is_negative: bool,
    below_cost: Option<String>,
}

#[derive(Debug)]
struct ExcludedRow {
    name: String,
    /// Why, in words.
    word: String,
    /// The figures, or how to remove the cause.
    detail: String,
    by_price: bool,
    limit_of: Option<&'static str>,
}

/// One of several keys of a name.
#[derive(Debug, Deserialize)]
struct KeyObject {
    id: String,
    name: String,
    member: String,
    suffix: String,
}

impl KeyObject {
    /// Name, member and end.
    fn label(&self) -> String {
        format!("{} · {} · …{}", self.name, self.member, self.suffix)
    }
}

#[derive(Debug, Deserialize)]
struct SimulationAnswer {
    group: String,
    sale: Option<LinesObject>,
    refused: Option<String>,
    accounts: Vec<AccountObject>,
    excluded: Vec<ExcludedObject>,
}

#[derive(Debug, Deserialize)]
struct LinesObject {
    amount: Option<String>,
    no_amount: Option<String>,
    multiplier: String,
    tier: Option<u64>,
    lines: Vec<LineObject>,
}

#[derive(Debug, Deserialize)]
struct LineObject {
    kind: String,
    count: u64,
    unit_price: String,
    amount: Option<String>,
}

#[derive(Debug, Deserialize)]
struct AccountObject {
    channel: String,
    account: String,
    upstream: String,
    cost: Option<LinesObject>,
    margin: Option<String>,
    margin_share: Option<String>,
    below_cost: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ExcludedObject {
    channel: String,
    account: Option<String>,
    code: String,
    detail: Option<String>,
    by_price: bool,
    limit_of: Option<String>,
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, query) = (request.t(), &request.query);
    let query = &of_key(query);
    let mut state = FormState::of(if query.has("input") { query.clone() } else { defaults(query) });
    let (mut found, mut namesakes) = (None, Vec::new());
    // Without a caller the form was not filled in yet.
    if query.filled("model").is_some() && (query.filled("group").is_some() || query.filled("key").is_some()) {
        let sent = match body(query) {
            Ok(body) => request.read(operations::SIMULATE_PRICE, ApiCall { body, ..ApiCall::default() }).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(answer) => found = Some(Found::of(t, answer)),
            Err(error) => {
                if error.param() == Some("key") {
                    namesakes = keys_named(&request, query.value("key")).await?;
                }
                let error = if namesakes.is_empty() { error } else { error.because("several_keys") };
                state = refused(t, query, error)?;
            }
        }
    }
    let groups = group_names(&request).await?;
    let models = model_names(&request).await?;
    let template = SimulatePage {
        layout: request.layout(t.say("nav.pricing")),
        t,
        tabs: tabs(&request, Section::Simulate),
        banner: state.banner(),
        main: main_controls(t, &state, groups, models, &namesakes),
        tokens: TOKENS.iter().map(|kind| state.number(*kind, price_text::label(t, kind))).collect(),
        more: more_controls(t, &state),
        found,
    };
    PageReply::ok(&template)
}

/// Keys of this name, if there are several.
async fn keys_named(request: &PageRequest, name: &str) -> Result<Vec<KeyObject>, ApiError> {
    let query = get(&[("name", name.trim()), ("limit", MAX_NAMESAKES)]);
    let mut keys = request.read::<ApiPage<KeyObject>>(operations::LIST_KEYS, query).await?.items;
    if keys.len() < 2 {
        keys.clear();
    }
    Ok(keys)
}

/// The form without the group if a key is named, because the key determines the groups.
fn of_key(query: &FormData) -> FormData {
    let has_key = query.filled("key").is_some();
    let pairs = query.pairs().map(|(name, value)| {
        let value = if has_key && name == "group" { "" } else { value };
        (name.to_owned(), value.to_owned())
    });
    FormData::of_pairs(pairs.collect())
}

fn defaults(query: &FormData) -> FormData {
    let given = query.pairs().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let group = (!query.has("group") && query.filled("key").is_none()).then(|| ("group".to_owned(), "default".to_owned()));
    let tokens = [("input", "1000"), ("output", "500")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    FormData::of_pairs(given.chain(group).chain(tokens).collect())
}

fn main_controls(t: Locale, state: &FormState, groups: Vec<String>, models: Vec<String>, namesakes: &[KeyObject]) -> Vec<Control> {
    let none = (String::new(), "–".to_owned());
    let groups = std::iter::once(none).chain(groups.into_iter().map(|name| (name.clone(), name)));
    let protocols = protocols::of_callers().map(|(protocol, _)| (protocol.as_str(), protocols::label(t, protocol.as_str())));
    let key = if namesakes.is_empty() {
        state.text("key", t.say("pricing.or_key")).hint(t.say("pricing.key_hint"))
    } else {
        state.choice("key", t.say("pricing.or_key"), namesakes.iter().map(|key| (key.id.clone(), key.label()))).focus()
    };
    vec![
        state.suggest("model", t.say("models.name"), models).required().max(256),
        state.choice("group", t.say("groups.group"), groups),
        key,
        state.choice("protocol", t.say("facet.protocol"), protocols),
    ]
}

fn more_controls(t: Locale, state: &FormState) -> Vec<Control> {
    let tiers = [("", t.say("pricing.standard")), ("priority", t.say("pricing.priority")), ("flex", t.say("pricing.flex"))];
    vec![
        state.choice("service_tier", t.say("pricing.service_tiers"), tiers),
        state.text("max_price", t.say("pricing.max_price")).hint("x-tollgate-max-price"),
        state.check("web_search", t.say("price.web_search")),
        state.check("server_tools", t.say("price.server_tools")),
        state.check("output_media", t.say("pricing.output_media")),
    ]
}

fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    // Show an unknown key or group as a fault of its field.
    let error = if error.status == http::StatusCode::NOT_FOUND {
        let field = if form.filled("key").is_some() { "key" } else { "group" };
        let reason = if field == "key" { "unknown_key" } else { "unknown_group" };
        ApiError::value(field, "there is none of this name").because(reason)
    } else {
        error
    };
    control::refused(t, form, error, PLACES)
}

fn body(form: &FormData) -> Result<Map<String, Value>, ApiError> {
    let mut body = Map::new();
    body.insert("model".to_owned(), form.value("model").trim().into());
    // A key decides its groups.
    match form.filled("key") {
        Some(key) => body.insert("key".to_owned(), key.into()),
        None => body.insert("group".to_owned(), form.value("group").into()),
    };
    for word in ["protocol", "service_tier", "max_price"] {
        body.extend(form.filled(word).map(|value| (word.to_owned(), value.into())));
    }
    for kind in TOKENS {
        body.insert(kind.to_owned(), control::whole_number(form, kind)?.into());
    }
    for flag in FLAGS {
        body.insert(flag.to_owned(), (form.value(flag) == "true").into());
    }
    Ok(body)
}

impl Lines {
    fn of(t: Locale, lines: &LinesObject) -> Self {
        let amount = |amount: &Option<String>| amount.as_deref().map_or_else(|| "–".to_owned(), format::usd);
        let line = |line: &LineObject| LineRow {
            kind: price_text::label(t, &line.kind).to_owned(),
            count: format::integer(line.count),
            unit_price: format::usd(&line.unit_price),
            amount: amount(&line.amount),
        };
        Self {
            amount: amount(&lines.amount),
            is_too_large: lines.no_amount.is_some(),
            multiplier: lines.multiplier.clone(),
            tier: lines.tier.map(format::integer),
            rows: lines.lines.iter().map(line).collect(),
        }
    }
}

impl Found {
    fn of(t: Locale, answer: SimulationAnswer) -> Self {
        let account = |it: AccountObject| AccountRow {
            channel: it.channel,
            account: it.account,
            upstream: it.upstream,
            cost: it.cost.as_ref().and_then(|cost| cost.amount.as_deref()).map(format::usd),
            is_too_large: it.cost.as_ref().is_some_and(|cost| cost.no_amount.is_some()),
            is_negative: it.margin.as_deref().is_some_and(|margin| margin.starts_with('-')),
            margin: it.margin.as_deref().map(format::usd),
            share: it.margin_share.as_deref().map(percent),
            below_cost: it.below_cost.as_deref().and_then(|detail| explain_detail::say(t, "below_cost", detail)),
        };
        let excluded = |it: ExcludedObject| ExcludedRow {
            name: it.account.map_or_else(|| it.channel.clone(), |account| format!("{} / {account}", it.channel)),
            word: explain::word(t, &it.code),
            detail: it
                .detail
                .as_deref()
                .and_then(|detail| explain_detail::say(t, &it.code, detail))
                .or_else(|| explain::remedy(t, &it.code, false).map(str::to_owned))
                .unwrap_or_default(),
            by_price: it.by_price,
            limit_of: it.limit_of.as_deref().map(|level| match level {
                "group" => t.say("pricing.limit_of_group"),
                "key" => t.say("pricing.limit_of_key"),
                _ => t.say("pricing.limit_of_request"),
            }),
        };
        Self {
            group: answer.group,
            sale: answer.sale.as_ref().map(|sale| Lines::of(t, sale)),
            refused: answer.refused.map(|cause| docs::cause(t, &cause).map_or_else(|| cause.clone(), str::to_owned)),
            accounts: answer.accounts.into_iter().map(account).collect(),
            excluded: answer.excluded.into_iter().map(excluded).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn chinese_page_has_no_codes_and_no_english() {
        let answer: SimulationAnswer = serde_json::from_value(json!({
            "group": "default", "sale": null, "refused": "price_limit", "accounts": [],
            "excluded": [
                {"channel": "c", "account": "a", "code": "price_above_limit", "by_price": true, "limit_of": "group",
                    "detail": "sale output 9.50 above the group's 6.00 USD per 1M tokens"},
                {"channel": "c", "account": null, "code": "unpriced", "by_price": true, "limit_of": null,
                    "detail": "the sale price is missing"},
            ],
        }))
        .unwrap();
        let found = Found::of(Locale::ZH_CN, answer);
        let texts = found.refused.iter().chain(found.excluded.iter().flat_map(|row| [&row.word, &row.detail]));
        for text in texts {
            let is_english = text.split(|c: char| !c.is_ascii_alphabetic()).any(|word| word.len() > 3 && word != "token");
            assert!(!is_english && !text.is_empty(), "{text}");
        }
    }

    #[test]
    fn key_takes_precedence_over_the_group() {
        let form = FormData::parse(b"model=m&key=ci&group=default&input=1,000&output=&web_search=true&service_tier=");
        let body = body(&form).unwrap();
        assert_eq!(
            (&body["key"], body.get("group"), &body["input"], &body["output"]),
            (&json!("ci"), None, &json!(1_000), &json!(0))
        );
        assert_eq!((of_key(&form).value("group"), of_key(&form).value("key")), ("", "ci"));
        assert_eq!(of_key(&FormData::parse(b"group=default&key=")).value("group"), "default");
        assert!(body["web_search"] == true && !body.contains_key("service_tier"));
    }
}
