//! What choosing costs among 1,000 accounts, with health in a plain map and nothing that bounds anybody: the aim is 20 µs.
//! The gateway has the same bench with its own board and rooms.

mod rows;

use std::{collections::HashMap, hint::black_box};

use criterion::{Criterion, criterion_group, criterion_main};
use tollgate_core::{
    AccountHealth, AccountId, AttemptHistory, Caller, CandidateView, Catalog, Channel, CoolingReason, HealthState, HealthStatus,
    HealthView, IdHash, ModelMapping, RouteInput, Timestamp, UnlimitedView, resolve, route,
};
use tollgate_protocol::{FieldPath, Framing, Method, Protocol, Target, TranslateOptions, decode_request, encode_request};

use rows::{NOW, account, catalog, channel, key, random, summary};

/// What a health board keeps: a map of accounts that are not plainly well.
#[derive(Default)]
struct Board(HashMap<AccountId, AccountHealth, IdHash>);

impl HealthView for Board {
    fn status(&self, account: AccountId, now: Timestamp) -> HealthStatus {
        self.0.get(&account).map_or(HealthStatus::HEALTHY, |health| health.status(now))
    }
}

fn measure(c: &mut Criterion, name: &str, catalog: &Catalog, board: &Board, affinity: Option<u64>) {
    let summary = summary(affinity);
    let key = key();
    let mut state = 1u32;
    let mut dice = move || {
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
                health: board,
                candidate_view: &UnlimitedView,
                now: NOW,
                request_limit: None,
                translates: false,
                history: &AttemptHistory::default(),
            };
            black_box(route(&input, &mut dice).is_ok())
        });
    });
}

/// A request of 4 KiB that is read and written whole whenever a channel of another protocol is asked about it.
struct Whole {
    body: String,
    target: Target,
}

impl Whole {
    fn new() -> Self {
        let turn = |role: &str| format!(r#"{{"role":"{role}","content":"{}"}}"#, "Nobody counts the cups of tea. ".repeat(12));
        let turns: Vec<String> = (0..10).map(|n| turn(if n % 2 == 0 { "user" } else { "assistant" })).collect();
        let body = format!(r#"{{"model":"m","temperature":0.5,"max_tokens":100,"messages":[{}]}}"#, turns.join(","));
        Self { body, target: Target { method: Method::Chat, model: None, framing: Framing::Sse } }
    }
}

impl CandidateView for Whole {
    fn untranslatable_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        let request = decode_request(Protocol::OpenAi, &self.target, self.body.as_bytes()).expect("a sound request");
        let written = encode_request(channel.protocol, &request, &serves.upstream, &serves.profile, &TranslateOptions::default());
        black_box(&written);
        Vec::new()
    }
}

/// A model with a channel of the caller's protocol and one of another, the latter first or second.
fn measure_mixed(c: &mut Criterion) {
    let whole = Whole::new();
    for (name, foreign_at) in [("mixed, the caller's protocol first", 1), ("mixed, another protocol first", -1)] {
        let (own, mut other) = (channel(0, vec![account(0)]), channel(1, vec![account(1)]));
        (other.protocol, other.priority) = (Protocol::Gemini, foreign_at);
        let (catalog, summary, board) = (catalog(vec![own, other]), summary(None), Board::default());
        let caller = Caller::of(&catalog, key());
        let offer = resolve(&catalog, &caller, &summary, Protocol::OpenAi, NOW).expect("the model is offered");
        let input = RouteInput {
            catalog: &catalog,
            latest_catalog: None,
            caller: &caller,
            offer: &offer,
            summary: &summary,
            from: Protocol::OpenAi,
            health: &board,
            candidate_view: &whole,
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
    let well = Board::default();
    let cooling = HealthState::Cooling { until: NOW.plus_ms(1_000), why: CoolingReason::RateLimited, since: NOW };
    let cooling = AccountHealth { state: cooling, ..AccountHealth::default() };
    let ids = || (0..1_000).map(|n| AccountId::from_parts(NOW, random(n)));
    let tenth = Board(ids().step_by(10).map(|id| (id, cooling)).collect());
    let all = Board(ids().map(|id| (id, cooling)).collect());

    measure(c, "2 accounts", &few, &well, None);
    measure(c, "1 channel of 1000 accounts, dice", &one, &well, None);
    measure(c, "1 channel of 1000 accounts, affinity", &one, &well, Some(7));
    measure(c, "1000 channels of 1 account, dice", &many, &well, None);
    measure(c, "1000 channels of 1 account, affinity", &many, &well, Some(7));
    measure(c, "1000 channels, a tenth cooling", &many, &tenth, None);
    measure(c, "1000 channels, all cooling", &many, &all, None);
}

criterion_group!(route_benches, benches);
criterion_main!(route_benches);
