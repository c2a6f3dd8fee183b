//! Simulation of a request with given token counts: its price for a caller, line by line, its cost on each account, and the
//! accounts that price limits exclude.
//!
//! The caller's offer, the exclusions and the lines are computed by the functions that serve and settle requests. All accounts are
//! taken as healthy and free, because prices do not depend on that.

use std::sync::Arc;

use tollgate_protocol::{Method, Protocol, RequestExtras, RequestSummary};

use crate::{
    Account, AttemptHistory, BelowCost, Caller, Catalog, Channel, ExcludedCandidate, Group, Key, LimitLevel, Multiplier, NanoUsd,
    NoRouteCause, NotOffered, Offer, Price, PriceLimit, PriceLines, Revision, RouteInput, Timestamp, Tokens, UnlimitedView,
    amount_margin, below_cost, extras_at, price_effect::plain_key, price_lines, rank_all, replay::AllHealthy, resolve,
    route::cost_with_extras,
};

/// A request to be simulated.
#[derive(Clone, Debug)]
pub struct SimulatedRequest {
    pub caller: SimulatedCaller,
    /// Model name as sent by a caller.
    pub model: String,
    pub protocol: Protocol,
    pub tokens: Tokens,
    /// Service tier, and tools that the provider runs.
    pub extras: RequestExtras,
    /// Value of `x-tollgate-max-price`.
    pub limit: Option<PriceLimit>,
}

/// The caller of a simulated request.
#[derive(Clone, Debug)]
pub enum SimulatedCaller {
    Key(Arc<Key>),
    /// Any key of this group without limits of its own.
    Group(Arc<Group>),
}

/// The prices of a simulated request.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The group that serves it.
    pub group: Arc<Group>,
    pub revision: Revision,
    /// The sale price for the caller; `None`: not priced.
    pub sale: Option<PriceLines>,
    /// Why no account would serve it; `None` if one would.
    pub refused: Option<NoRouteCause>,
    /// Accounts that would serve it, in the order of their priority.
    pub accounts: Vec<SimulatedAccount>,
    pub excluded: Vec<SimulatedExclusion>,
}

/// An account that could serve the request.
#[derive(Clone, Debug)]
pub struct SimulatedAccount {
    pub channel: String,
    pub account: String,
    /// Model name of the provider.
    pub upstream: String,
    pub protocol: Protocol,
    /// The provider's charge; `None`: unknown.
    pub cost: Option<PriceLines>,
    /// Sale minus cost, and its share of the sale in millionths; `None` where one of them is not known.
    pub margin: Option<(NanoUsd, Option<i64>)>,
    /// The first kind of token that would be sold below its cost.
    pub below_cost: Option<BelowCost>,
}

/// An account or a channel that would not serve the request.
#[derive(Clone, Debug)]
pub struct SimulatedExclusion {
    pub channel: String,
    /// `None`: every account of the channel.
    pub account: Option<String>,
    /// Code of the exclusion.
    pub code: &'static str,
    /// Figures of the exclusion.
    pub detail: Option<String>,
    /// True if a price limit or a missing price is the reason.
    pub by_price: bool,
    /// The price limit that excludes it, for a ceiling.
    pub limit_of: Option<LimitLevel>,
}

/// Simulates a request.
pub fn simulate(catalog: &Catalog, request: &SimulatedRequest, now: Timestamp) -> Result<Simulation, NotOffered> {
    let key = match &request.caller {
        SimulatedCaller::Key(key) => Arc::clone(key),
        SimulatedCaller::Group(group) => Arc::new(plain_key(vec![group.id], now)),
    };
    let caller = Caller::of(catalog, key);
    let (summary, offer) = offer(catalog, &caller, request, now)?;
    let sale = offer.sale.as_deref().map(|price| (price, offer.sale_multiplier));
    let input = RouteInput {
        catalog,
        latest_catalog: None,
        caller: &caller,
        offer: &offer,
        summary: &summary,
        from: request.protocol,
        health: &AllHealthy,
        candidate_view: &UnlimitedView,
        now,
        request_limit: request.limit,
        translates: true,
        history: &AttemptHistory::default(),
    };
    let (accounts, excluded, refused) = match rank_all(&input, &mut || u32::MAX / 2) {
        Ok(plan) => {
            let accounts = plan.attempts().map(|attempt| {
                let cost = cost_with_extras(&attempt.channel, attempt.mapping_index, now, (request.protocol, request.extras));
                simulated(
                    request,
                    sale,
                    (&attempt.channel, &attempt.account, attempt.mapping_index),
                    cost.as_ref().map(|price| &***price),
                    attempt.protocol,
                )
            });
            (accounts.collect(), plan.excluded.iter().map(exclusion).collect(), None)
        }
        Err(none) => (Vec::new(), none.excluded.iter().map(exclusion).collect(), Some(none.cause())),
    };
    let sale = sale.map(|(price, multiplier)| price_lines(&request.tokens, price, multiplier));
    Ok(Simulation { group: Arc::clone(&offer.group), revision: offer.revision, sale, refused, accounts, excluded })
}

/// The offer of the model for generation, or for embeddings if it is offered for these.
fn offer(
    catalog: &Catalog,
    caller: &Caller,
    request: &SimulatedRequest,
    now: Timestamp,
) -> Result<(RequestSummary, Offer), NotOffered> {
    let embedding = if request.protocol == Protocol::Gemini { Method::EmbedContent } else { Method::Embeddings };
    let resolved = |method: Method| {
        let summary = RequestSummary {
            turns: 0,
            // The estimate for this many bytes is this many tokens.
            text_bytes: request.tokens.prompt().saturating_mul(2),
            max_output: Some(request.tokens.completion().max(1)),
            extras: request.extras,
            ..RequestSummary::minimal(&request.model, method)
        };
        resolve(catalog, caller, &summary, request.protocol, now).map(|offer| (summary, offer))
    };
    match resolved(request.protocol.spec().generate_method) {
        Err(NotOffered::Method { .. }) => resolved(embedding),
        result => result,
    }
}

fn simulated(
    request: &SimulatedRequest,
    sale: Option<(&Price, Multiplier)>,
    (channel, account, mapping): (&Channel, &Account, usize),
    cost: Option<&Price>,
    protocol: Protocol,
) -> SimulatedAccount {
    let extras = extras_at(channel, request.protocol, request.extras);
    let cost = cost.map(|price| (price, account.spec.cost_multiplier));
    let lines = |(price, multiplier): (&Price, Multiplier)| price_lines(&request.tokens, price, multiplier);
    let (sale_lines, cost_lines) = (sale.map(lines), cost.map(lines));
    let amounts = sale_lines.and_then(|lines| lines.total()).zip(cost_lines.and_then(|lines| lines.total()));
    SimulatedAccount {
        channel: channel.spec.name.clone(),
        account: account.spec.name.clone(),
        upstream: channel.spec.serves.get(mapping).map(|mapping| mapping.upstream.clone()).unwrap_or_default(),
        protocol,
        cost: cost_lines,
        margin: amounts.and_then(|(sale, cost)| Some((sale.checked_sub(cost)?, amount_margin(sale, cost)))),
        below_cost: sale.zip(cost).and_then(|(sale, cost)| below_cost(sale, cost, request.tokens.prompt(), extras.web_search)),
    }
}

fn exclusion(it: &ExcludedCandidate<'_>) -> SimulatedExclusion {
    SimulatedExclusion {
        channel: it.channel.spec.name.clone(),
        account: it.account().map(|account| account.spec.name.clone()),
        code: it.why.code(),
        detail: it.why.detail(),
        by_price: it.why.cause().is_some_and(NoRouteCause::is_price),
        limit_of: it.why.figures().map(|figures| figures.level),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Glob, PriceLimitMode, PriceLimitOn, PriceTier, SaleMultipliers, parse_max_price,
        samples::{NOW, always, catalog, channel, group, key, model, price},
    };

    fn priced(name: &str, input: &str, output: &str) -> Channel {
        let mut row = channel(name, &["m"]);
        row.spec.serves[0].cost = Some(always(price(input, output)));
        row
    }

    fn request(caller: SimulatedCaller) -> SimulatedRequest {
        SimulatedRequest {
            caller,
            model: "m".to_owned(),
            protocol: Protocol::OpenAi,
            tokens: Tokens { input: 1_000_000, output: 100_000, ..Tokens::default() },
            extras: RequestExtras::default(),
            limit: None,
        }
    }

    fn names(simulation: &Simulation) -> (Vec<&str>, Vec<&str>) {
        (
            simulation.accounts.iter().map(|it| it.channel.as_str()).collect(),
            simulation.excluded.iter().map(|it| it.channel.as_str()).collect(),
        )
    }

    #[test]
    fn simulated_price_cost_and_margin_equal_those_of_settlement() {
        let mut group = group("default", &["cheap", "dear"]);
        group.multipliers = Multiplier(1_500_000).into();
        let mut dear = priced("dear", "4", "4");
        dear.accounts = vec![Arc::new(Account {
            spec: crate::AccountSpec { cost_multiplier: Multiplier(2_000_000), ..dear.accounts[0].spec.clone() },
            ..Account::clone(&dear.accounts[0])
        })];
        let catalog = catalog(vec![priced("cheap", "0.5", "1"), dear], vec![group], vec![model("m")]);
        let caller = SimulatedCaller::Group(Arc::clone(&catalog.groups[0]));
        let found = simulate(&catalog, &request(caller), NOW).unwrap();
        // 1 USD in and 0.2 USD out, times 1.5.
        assert_eq!(found.sale.unwrap().total(), Some(NanoUsd(1_800_000_000)));
        let of = |name: &str| found.accounts.iter().find(|it| it.channel == name).unwrap();
        assert_eq!(of("cheap").cost.unwrap().total(), Some(NanoUsd(600_000_000)));
        assert_eq!(of("cheap").margin, Some((NanoUsd(1_200_000_000), Some(666_666))));
        assert!(of("cheap").below_cost.is_none() && of("dear").below_cost.is_some());
        assert_eq!(of("dear").margin, Some((NanoUsd(-7_000_000_000), Some(-3_888_889))));
        assert_eq!(found.refused, None);
    }

    #[test]
    fn simulation_uses_the_factor_of_the_model() {
        let mut group = group("default", &["cheap"]);
        group.multipliers = SaleMultipliers::new(Multiplier(1_500_000), [(Glob("m".to_owned()), Multiplier(2_000_000))]);
        let catalog = catalog(vec![priced("cheap", "0.5", "1")], vec![group], vec![model("m")]);
        let found = simulate(&catalog, &request(SimulatedCaller::Group(Arc::clone(&catalog.groups[0]))), NOW).unwrap();
        let sale = found.sale.unwrap();
        assert_eq!((sale.multiplier, sale.total()), (Multiplier(2_000_000), Some(NanoUsd(2_400_000_000))));
    }

    #[test]
    fn limits_of_group_key_and_request_exclude_accounts() {
        let limit = |max: i64| PriceLimit {
            mode: PriceLimitMode::Ceiling { max_input: Some(max), max_output: None },
            on: PriceLimitOn::Cost,
        };
        let mut limited = group("default", &["cheap", "mid", "dear"]);
        limited.price_limit = Some(limit(3_000_000_000));
        let channels = vec![priced("cheap", "0.5", "1"), priced("mid", "2", "2"), priced("dear", "4", "4")];
        let catalog = catalog(channels, vec![limited], vec![model("m")]);
        let mut narrow = key(&["default"]);
        narrow.price_limit = Some(limit(1_000_000_000));
        let by_group = simulate(&catalog, &request(SimulatedCaller::Group(Arc::clone(&catalog.groups[0]))), NOW).unwrap();
        assert_eq!(names(&by_group), (vec!["cheap", "mid"], vec!["dear"]));
        assert_eq!(by_group.excluded[0].limit_of, Some(LimitLevel::Group));
        let mut asked = request(SimulatedCaller::Key(Arc::new(narrow)));
        let by_key = simulate(&catalog, &asked, NOW).unwrap();
        assert_eq!(names(&by_key).0, ["cheap"]);
        assert!(by_key.excluded.iter().any(|it| it.limit_of == Some(LimitLevel::Key) && it.channel == "mid" && it.by_price));
        asked.limit = Some(parse_max_price("input:0.4").unwrap());
        let by_request = simulate(&catalog, &asked, NOW).unwrap();
        assert_eq!((names(&by_request).0, by_request.refused), (vec![], Some(NoRouteCause::PriceLimit)));
        assert!(by_request.excluded.iter().all(|it| it.limit_of == Some(LimitLevel::Request)));
    }

    #[test]
    fn tier_of_the_prompt_decides_price_and_limits() {
        let mut tiered = priced("cheap", "1", "1");
        let long = PriceTier { above: 200_000, price: price("5", "5") };
        tiered.spec.serves[0].cost = Some(always(Price { tiers: vec![long], ..price("1", "1") }));
        let mut limited = group("default", &["cheap"]);
        let mode = PriceLimitMode::Ceiling { max_input: Some(2_000_000_000), max_output: None };
        limited.price_limit = Some(PriceLimit { mode, on: PriceLimitOn::Cost });
        let catalog = catalog(vec![tiered], vec![limited], vec![model("m")]);
        let mut asked = request(SimulatedCaller::Group(Arc::clone(&catalog.groups[0])));
        assert_eq!(names(&simulate(&catalog, &asked, NOW).unwrap()).1, ["cheap"]);
        asked.tokens.input = 200_000;
        let short = simulate(&catalog, &asked, NOW).unwrap();
        assert_eq!(short.accounts[0].cost.unwrap().tier, None);
    }

    #[test]
    fn simulation_reports_unpriced_and_not_offered_models() {
        let mut unpriced = model("m");
        unpriced.spec.price = None;
        let catalog = catalog(vec![priced("cheap", "1", "1")], vec![group("default", &["cheap"])], vec![unpriced]);
        let mut asked = request(SimulatedCaller::Group(Arc::clone(&catalog.groups[0])));
        let found = simulate(&catalog, &asked, NOW).unwrap();
        assert!(found.sale.is_none() && found.accounts[0].margin.is_none() && found.accounts[0].cost.is_some());
        asked.model = "other".to_owned();
        assert_eq!(simulate(&catalog, &asked, NOW).unwrap_err(), NotOffered::Unknown);
    }
}
