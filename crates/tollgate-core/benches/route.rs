//! Cost of routing among 1,000 accounts, with health in a plain map and no limits; the target is 20 µs. The gateway has the same
//! benchmark with its own health registry and account limiter.

mod rows;

use std::{collections::HashMap, hint::black_box};

use criterion::{Criterion, criterion_group, criterion_main};
use tollgate_core::{
    AccountHealth, AccountId, AttemptHistory, Caller, CandidateView, Catalog, Channel, CoolingReason, HealthState, HealthStatus,
    HealthView, IdHash, ModelMapping, RouteInput, Timestamp, UnlimitedView, resolve, route,
};
use tollgate_protocol::{FieldPath, Framing, Method, Protocol, Target, TranslateOptions, decode_request, encode_request};

use rows::{NOW, account, catalog, channel, key, random, summary};

/// A minimal health registry: a map of the accounts that are not fully healthy.
#[derive(Default)]
struct HealthMap(HashMap<AccountId, AccountHealth, IdHash>);

impl HealthView for HealthMap {
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus {
        self.0.get(&account).map_or(HealthStatus::HEALTHY, |health| health.status(now))
    }
}

fn measure(c: &mut Criterion, name: &str, catalog: &Catalog, health: &HealthMap, affinity: Option<u64>) {
    let summary = summary(affinity);
    let key = key();
    let mut state = 1u32;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    c.bench_function(name, |bencher| {
        bencher.iter(|| {
            let caller = Caller::of(catalog, key.clone());
            let offer = resolve(catalog, &caller, &summary, Protocol::OpenAi, NOW).expect("the model is offered");
            let input = RouteInput {
                catalog,
                latest_catalog: None,
                caller: &caller,
                offer: &offer,
                summary: &summary,
                from: Protocol::OpenAi,
                health,
                candidate_view: &UnlimitedView,
                now: NOW,
                request_limit: None,
                translates: false,
                history: &AttemptHistory::default(),
            };
            black_box(route(&input, &mut random).is_ok())
        });
    });
}

/// A view that decodes and re-encodes a 4 KiB request for every translatability check.
struct FullTranslation {
    body: String,
    target: Target,
}

impl FullTranslation {
    fn new() -> Self {
        let turn = |role: &str| format!(r#"{{"role":"{role}","content":"{}"}}"#, "No one counts the cups of tea. ".repeat(12));
        let turns: Vec<String> = (0..10).map(|n| turn(if n % 2 == 0 { "user" } else { "assistant" })).collect();
        let body = format!(r#"{{"model":"m","temperature":0.5,"max_tokens":100,"messages":[{}]}}"#, turns.join(","));
        Self { body, target: Target { method: Method::Chat, model: None, framing: Framing::Sse } }
    }
}

impl CandidateView for FullTranslation {
    fn untranslatable_fields(&self, channel: &Channel, mapping: &ModelMapping) -> Vec<FieldPath> {
        let request = decode_request(Protocol::OpenAi, &self.target, self.body.as_bytes()).expect("a sound request");
        let encoded =
            encode_request(channel.spec.protocol, &request, &mapping.upstream, &mapping.profile, &TranslateOptions::default());
        black_box(&encoded);
        Vec::new()
    }
}

/// A model with a channel of the caller's protocol and one of another, in either order.
fn measure_mixed(c: &mut Criterion) {
    let translation = FullTranslation::new();
    for (name, other_priority) in [("mixed, the caller's protocol first", 1), ("mixed, another protocol first", -1)] {
        let (own, mut other) = (channel(0, vec![account(0)]), channel(1, vec![account(1)]));
        (other.spec.protocol, other.spec.priority) = (Protocol::Gemini, other_priority);
        let (catalog, summary, health) = (catalog(vec![own, other]), summary(None), HealthMap::default());
        let caller = Caller::of(&catalog, key());
        let offer = resolve(&catalog, &caller, &summary, Protocol::OpenAi, NOW).expect("the model is offered");
        let input = RouteInput {
            catalog: &catalog,
            latest_catalog: None,
            caller: &caller,
            offer: &offer,
            summary: &summary,
            from: Protocol::OpenAi,
            health: &health,
            candidate_view: &translation,
            now: NOW,
            request_limit: None,
            translates: true,
            history: &AttemptHistory::default(),
        };
        c.bench_function(name, |bencher| bencher.iter(|| black_box(route(&input, &mut || 0).is_ok())));
    }
}

fn benches(c: &mut Criterion) {
    measure_mixed(c);
    let one = catalog(vec![channel(0, (0..1_000).map(account).collect())]);
    let many = catalog((0..1_000).map(|n| channel(n, vec![account(n)])).collect());
    let few = catalog(vec![channel(0, vec![account(0), account(1)])]);
    let healthy = HealthMap::default();
    let cooling = HealthState::Cooling { until: NOW.plus_ms(1_000), why: CoolingReason::RateLimited, since: NOW };
    let cooling = AccountHealth { state: cooling, ..AccountHealth::default() };
    let ids = || (0..1_000).map(|n| AccountId::from_parts(NOW, random(n)));
    let tenth = HealthMap(ids().step_by(10).map(|id| (id, cooling)).collect());
    let all = HealthMap(ids().map(|id| (id, cooling)).collect());

    measure(c, "2 accounts", &few, &healthy, None);
    measure(c, "1 channel of 1000 accounts, random", &one, &healthy, None);
    measure(c, "1 channel of 1000 accounts, affinity", &one, &healthy, Some(7));
    measure(c, "1000 channels of 1 account, random", &many, &healthy, None);
    measure(c, "1000 channels of 1 account, affinity", &many, &healthy, Some(7));
    measure(c, "1000 channels, a tenth cooling", &many, &tenth, None);
    measure(c, "1000 channels, all cooling", &many, &all, None);
}

criterion_group!(route_benches, benches);
criterion_main!(route_benches);
