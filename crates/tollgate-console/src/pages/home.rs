//! The home page of signed-in members: the address for requests, the first steps, the rest of budgets, usage, and the state of the
//! models that they use.

mod usage;
mod view;

use std::{collections::HashSet, net::SocketAddr, sync::Arc};

use askama::Template;
use serde::Deserialize;
use tollgate_core::{Catalog, Channel, Provider};
use tollgate_protocol::Protocol;
use tollgate_store::AdminScope;

use self::{
    usage::{DAYS, DaySum, Measure, TodayTile, chart, day_text, models, tiles},
    view::{
        AllowanceView, BudgetEntry, KeyEntry, KeyView, NewsEntry, NoticeEntry, Steps, UsedModel, blocking_first, news, used_models,
    },
};
use super::{
    bars::Chart,
    clients,
    format::{self, TimeText},
    inline::{self, Linked},
    layout::{Layout, Script},
    locale::Locale,
    models::document_for,
    money::{self, Amount},
    operations,
    overview::sums::WITHOUT_TIMES,
    protocols,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get, path_of},
    route::{PageRoute, SeenBy, page},
    spent_budget,
};
use crate::{api_error::ApiError, dispatch::ApiCall};

/// Maximum number of keys listed, and of those whose budgets are read.
const MAX_KEYS: usize = 20;
const MAX_ALLOWANCES: usize = 3;
/// Number of requests whose times to the first content give the median.
const TIMED: &str = "100";

pub(super) static ROUTES: &[PageRoute] =
    &[PageRoute::get("/", SeenBy::Anyone, page!(enter)), PageRoute::get("/console", SeenBy::Role(AdminScope::Member), page!(show))];

#[derive(Debug, Template)]
#[template(path = "home.html")]
struct HomePage {
    layout: Layout,
    t: Locale,
    bases: Vec<Base>,
    steps: Option<Steps>,
    /// Address at which new records are announced.
    live: String,
    keys: Vec<KeyEntry>,
    balance: Option<Amount>,
    budgets: Vec<BudgetEntry>,
    /// Thresholds of the profile that are reached.
    notices: Vec<NoticeEntry>,
    gateway_renewals: Vec<Option<TimeText>>,
    tiles: Vec<TodayTile>,
    chart: Chart,
    measures: Vec<(&'static str, &'static str, bool)>,
    models: Vec<UsedModel>,
    news: Vec<NewsEntry>,
    may_make_keys: bool,
    /// The operator's text for members.
    text: Option<String>,
}

impl HomePage {
    fn text_pieces(&self) -> Vec<Linked<'_>> {
        self.text.as_deref().map(inline::linked).unwrap_or_default()
    }
}

/// Base URL for clients of a protocol.
#[derive(Debug)]
struct Base {
    protocol: &'static str,
    clients: &'static str,
    url: String,
}

/// `/`: the page that fits the reader.
async fn enter(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let to = match (&request.signed_in, request.state.gateway.is_square_public()) {
        (Some(_), _) if request.is_operator() => "/overview",
        (Some(_), _) => "/console",
        (None, true) => "/models",
        (None, false) => "/sign-in",
    };
    Ok(PageReply::redirect(&request.url(to)))
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, now) = (request.t(), request.state.gateway.now());
    let measure = Measure::read(request.query.value("by"));
    let keys = own_keys(&request).await?;
    let Budgets { balance, models: own, entries: budgets, notices, gateway_renewals } = budgets(&request, &keys).await?;
    let sums = usage(&request).await?;
    let may_make_keys = !super::playground::groups_for_keys(&request).await?.is_empty();
    let base = model_url(&request);
    let document = document_for(&request, None, None).await?;
    // Without a working key, shows the models that the member sees.
    let shown = document.data.iter().map(|model| model.id.as_str()).filter(|_| own.is_empty());
    let first_model = first_model(&request, own.iter().map(String::as_str).chain(shown)).await?.unwrap_or("MODEL");
    let member = request.signed_in.as_ref().map(|signed_in| signed_in.member.id.to_string()).unwrap_or_default();
    let name = request.signed_in.as_ref().map(|signed_in| signed_in.member.name.as_str()).unwrap_or_default();
    let link = |since: &str, until: &str| request.url(&log_query(&member, since, until));
    let mut tiles = tiles(t, &sums, now);
    tiles.extend(first_content(&request).await?);
    let template = HomePage {
        layout: request.layout(t.say_with("home.hello", &[("name", name)])).with(Script::Home),
        t,
        steps: steps(&request, &keys, (&base, first_model)).await?,
        live: request.url(&format!("/admin/v1/usage/tail?member={member}")),
        bases: bases(t, &base),
        keys: keys.iter().map(|key| KeyEntry::of(t, key)).collect(),
        balance: balance.map(|balance| money::rounded(t, &balance)),
        budgets,
        notices,
        gateway_renewals,
        tiles,
        chart: chart(t, &sums, measure, now, link),
        measures: Measure::ALL.map(|known| (known.word(), known.label(t), known == measure)).to_vec(),
        models: used_models(t, &document, &models(&sums, Measure::Requests)),
        news: news(t, &document, now),
        may_make_keys,
        text: request.appearance.home_text.clone(),
    };
    PageReply::ok(&template)
}

fn log_query(member: &str, since: &str, until: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::from("/log?"));
    query.append_pair("since", since).append_pair("until", until).append_pair("member", member).finish()
}

fn bases(t: Locale, base: &str) -> Vec<Base> {
    let of = |protocol: Protocol| Base {
        protocol: protocols::label(t, protocol.as_str()),
        clients: protocols::clients(t, protocol),
        url: protocols::client_base(protocol, base),
    };
    protocols::of_callers().map(|(protocol, _)| of(protocol)).collect()
}

/// The address to which callers send requests, from the settings or as the console knows it.
pub(super) fn model_url(request: &PageRequest) -> String {
    let settings = request.state.gateway.settings();
    let set = settings.iter().find(|setting| setting.name == "console.api_url").and_then(|setting| setting.value.as_deref());
    match set.filter(|text| !text.is_empty()) {
        Some(text) => text.trim_end_matches('/').to_owned(),
        None => own_model_url(request),
    }
}

/// The address at which this process accepts model requests: the console's address, or the model address if the console has its own.
pub(super) fn own_model_url(request: &PageRequest) -> String {
    let settings = request.state.gateway.settings();
    let value = |name: &str| settings.iter().find(|setting| setting.name == name).and_then(|setting| setting.value.clone());
    let filled = |name: &str| value(name).filter(|text| !text.is_empty());
    let console = &request.state.identity.settings.url;
    match (filled("console.listen"), value("server.listen").and_then(|listen| listen.parse::<SocketAddr>().ok())) {
        (Some(_), Some(listen)) => {
            let scheme = if filled("server.tls_cert").is_some() { "https" } else { "http" };
            // A process that listens on every address of the machine is reached under the host of the console.
            let host = console.host_str().filter(|_| listen.ip().is_unspecified());
            host.map_or_else(|| format!("{scheme}://{listen}"), |host| format!("{scheme}://{host}:{}", listen.port()))
        }
        _ => console.as_str().trim_end_matches('/').to_owned(),
    }
}

/// The model in the lines to copy: the first that a provider's channel serves, else the first of all, which may be that of the built-in
/// channel.
pub(super) async fn first_model<'a>(
    request: &PageRequest,
    models: impl Iterator<Item = &'a str> + Clone,
) -> Result<Option<&'a str>, ApiError> {
    let catalog = request.state.gateway.catalog().await?;
    let mut all = models.clone();
    Ok(of_a_provider(&catalog, models).or_else(|| all.next()))
}

fn of_a_provider<'a>(catalog: &Catalog, mut models: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_of_provider = |channel: &Arc<Channel>| channel.spec.on && channel.spec.provider != Provider::Echo;
    models.find(|model| {
        let mut mappings = catalog.mappings_by_model.get(*model).into_iter().flatten();
        mappings.any(|mapping| catalog.channel_at(mapping.channel).is_some_and(is_of_provider))
    })
}

/// A request to copy, for a reader who has sent none.
pub(super) async fn first_request(request: &PageRequest) -> Result<String, ApiError> {
    let document = document_for(request, None, None).await?;
    let model = first_model(request, document.data.iter().map(|model| model.id.as_str())).await?;
    Ok(clients::curl(&model_url(request), model.unwrap_or("MODEL")))
}

fn of_member(request: &PageRequest, pairs: &[(&str, &str)]) -> Result<ApiCall, ApiError> {
    let signed_in = request.signed_in.as_ref().ok_or_else(ApiError::no_session)?;
    let member = signed_in.member.id.to_string();
    let mut filter = vec![("member", member.as_str())];
    filter.extend(pairs);
    Ok(get(&filter))
}

async fn own_keys(request: &PageRequest) -> Result<Vec<KeyView>, ApiError> {
    let call = of_member(request, &[("limit", &MAX_KEYS.to_string())])?;
    Ok(request.read::<ApiPage<KeyView>>(operations::LIST_KEYS, call).await?.items)
}

struct Budgets {
    balance: Option<String>,
    /// The models that the first active key may use; examples name one of them.
    models: Vec<String>,
    /// The budgets of the member, of the first active keys and of their groups.
    entries: Vec<BudgetEntry>,
    /// Thresholds of the profile that the member's own budgets and the balance have reached.
    notices: Vec<NoticeEntry>,
    /// When each budget of the whole gateway that is spent renews; `None`: never.
    gateway_renewals: Vec<Option<TimeText>>,
}

async fn budgets(request: &PageRequest, keys: &[KeyView]) -> Result<Budgets, ApiError> {
    let (t, now, mut balance, mut entries) = (request.t(), request.state.gateway.now(), None, Vec::new());
    let (mut gateway_renewals, mut models) = (Vec::new(), Vec::new());
    let (mut groups, mut notices) = (HashSet::new(), Vec::new());
    let preferences = request.kept_preferences().cloned().unwrap_or_default();
    let active = keys.iter().filter(|key| matches!(key.state.as_str(), "active" | "exhausted")).take(MAX_ALLOWANCES);
    for (index, key) in active.enumerate() {
        let call = ApiCall { path: path_of(&[("key", &key.id)]), ..ApiCall::default() };
        let allowance: AllowanceView = request.read(operations::GET_KEY_ALLOWANCE, call).await?;
        balance = balance.or(allowance.balance);
        if index == 0 {
            models = allowance.models;
            let of_member = allowance.budgets.iter().filter(|budget| budget.is_of_member());
            notices.extend(of_member.filter_map(|budget| budget.notice(t, preferences.effective_percents())));
        }
        gateway_renewals = spent_budget::renewals(t, &allowance.spent_gateway_budgets);
        // The member's budgets are the same for every key, those of a group for all that are in it.
        let mut groups_of_key = Vec::new();
        let budgets = allowance.budgets.iter().filter(|budget| match &budget.group {
            None => index == 0 || budget.of == "key",
            Some(group) => {
                groups_of_key.push(group.clone());
                !groups.contains(group)
            }
        });
        entries.extend(budgets.map(|budget| BudgetEntry::of(t, budget, (&allowance.name, request.is_operator()), now)));
        groups.extend(groups_of_key);
    }
    let of_balance = balance.as_deref().and_then(|balance| NoticeEntry::of_balance(t, balance, preferences.effective_balance()));
    notices.extend(of_balance);
    Ok(Budgets { balance, models, entries: blocking_first(entries), notices, gateway_renewals })
}

async fn usage(request: &PageRequest) -> Result<Vec<DaySum>, ApiError> {
    let since = format!("{}T00:00:00Z", day_text(request.state.gateway.now(), DAYS - 1));
    let call = of_member(request, &[("by", "day,model"), ("since", &since), WITHOUT_TIMES])?;
    Ok(request.read::<ApiPage<DaySum>>(operations::SUM_USAGE, call).await?.items)
}

/// A record of the member.
#[derive(Debug, Deserialize)]
struct RecordView {
    id: String,
    outcome: String,
    status: u16,
    detail: Option<String>,
    ttft_us: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct RecordsAnswer {
    items: Vec<RecordView>,
}

/// The median of the times to the first content of the last requests of today.
async fn first_content(request: &PageRequest) -> Result<Option<TodayTile>, ApiError> {
    let t = request.t();
    let since = format!("{}T00:00:00Z", day_text(request.state.gateway.now(), 0));
    let call = of_member(request, &[("limit", TIMED), ("since", &since), ("outcome", "completed")])?;
    let records: RecordsAnswer = request.read(operations::LIST_USAGE, call).await?;
    let mut times: Vec<u64> = records.items.iter().filter_map(|record| record.ttft_us).collect();
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
    let (Some(median), Some(p95)) = (at(50), at(95)) else { return Ok(None) };
    Ok(Some(TodayTile {
        label: t.say("home.first_content"),
        value: format::micros(t, *median),
        exact: t.say_count("home.timed_one", "home.timed", u64::try_from(times.len()).unwrap_or(u64::MAX)),
        context: t.say_with("home.p95", &[("time", &format::micros(t, *p95))]),
        line: String::new(),
        area: String::new(),
    }))
}

/// The first steps, until a request was answered.
async fn steps(request: &PageRequest, keys: &[KeyView], (base, model): (&str, &str)) -> Result<Option<Steps>, ApiError> {
    let call = of_member(request, &[("limit", "1"), ("outcome", "completed")])?;
    let answered: RecordsAnswer = request.read(operations::LIST_USAGE, call).await?;
    if !answered.items.is_empty() {
        return Ok(None);
    }
    let call = of_member(request, &[("limit", "1")])?;
    let last = request.read::<RecordsAnswer>(operations::LIST_USAGE, call).await?.items.pop();
    let fault = last.map(|record| {
        let text = record.detail.unwrap_or(record.outcome);
        (record.id, request.t().say_with("home.last_failed", &[("status", &record.status.to_string()), ("text", &text)]))
    });
    let key = keys.iter().find(|key| key.state == "active").map(|key| key.name.clone());
    Ok(Some(Steps::of(key, fault, base, model)))
}

#[cfg(test)]
mod tests {
    use tollgate_core::{ChannelId, ChannelSpec, ModelMapping, Owner, Revision, Timestamp};

    use super::*;

    fn channel(number: u8, provider: Provider, on: bool, model: &str) -> Channel {
        let mapping = ModelMapping { model: model.to_owned(), upstream: model.to_owned(), ..ModelMapping::default() };
        let spec = ChannelSpec { name: number.to_string(), provider, on, serves: vec![mapping], ..ChannelSpec::default() };
        Channel {
            id: ChannelId::from_parts(Timestamp(0), [number; 10]),
            owner: Owner::Database,
            spec,
            proxy: None,
            client_key: None,
            needs_private_network: false,
            accounts: Vec::new(),
        }
    }

    #[test]
    fn copied_lines_name_a_model_of_a_provider() {
        let models = ["echo", "off-1", "scripted-1"];
        let found = |channels: Vec<Channel>| {
            let catalog = Catalog::from_parts(Revision(1), channels, Vec::new(), Vec::new());
            of_a_provider(&catalog, models.into_iter())
        };
        let echo = || channel(1, Provider::Echo, true, "echo");
        let [off, own] = [channel(2, Provider::OpenAi, false, "off-1"), channel(3, Provider::Compatible, true, "scripted-1")];
        assert_eq!(found(vec![echo(), off, own]), Some("scripted-1"));
        assert_eq!(found(vec![echo()]), None);
        assert_eq!(found(Vec::new()), None);
    }
}
