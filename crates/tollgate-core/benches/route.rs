//! What choosing costs among 1,000 accounts: the aim is 20 µs.

use std::{
    collections::{HashMap, HashSet},
    hint::black_box,
    sync::Arc,
};

use criterion::{Criterion, criterion_group, criterion_main};
use tollgate_core::{
    Account, AccountHealth, AccountId, Billing, Caller, CandidateView, Catalog, Channel, ChannelId, CoolingReason, Group, GroupId,
    HealthState, HealthView, IdHash, Key, KeyId, KeyStatus, Limits, Member, MemberId, MemberStatus, Multiplier, Owner, Past,
    Provider, Revision, Role, RouteInput, Routing, Serves, StreamBreak, Timeouts, Timestamp, TranslationPolicy,
    TranslationSwitches, Unloaded, Visibility, resolve, route,
};
use tollgate_protocol::{
    FieldPath, Framing, Method, Outline, Profile, Protocol, SplicePoints, Target, TranslateOptions, decode_request, encode_request,
};

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

/// Ten bytes that differ with every number, outside the bits that a uuid's version and variant take.
fn random(n: usize) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[3..7].copy_from_slice(&u32::try_from(n).expect("a small number").to_le_bytes());
    bytes
}

fn account(n: usize) -> Arc<Account> {
    Arc::new(Account {
        id: AccountId::from_parts(NOW, random(n)),
        name: format!("a{n}"),
        credential: None,
        on: true,
        concurrency: 0,
        rpm: 0,
        tpm: 0,
        cost_multiplier: Multiplier::ONE,
    })
}

fn channel(n: usize, accounts: Vec<Arc<Account>>) -> Channel {
    Channel {
        id: ChannelId::from_parts(NOW, random(n)),
        name: format!("c{n:04}"),
        owner: Owner::Database,
        provider: Provider::OpenAi,
        protocol: Protocol::OpenAi,
        base_url: "https://upstream.invalid/v1".to_owned(),
        on: true,
        cooling: true,
        learn_unsupported: true,
        translation: TranslationSwitches::default(),
        private_network: false,
        priority: 0,
        weight: 1 + u32::try_from(n % 3).unwrap_or(0),
        timeouts: Timeouts::default(),
        retry_uncertain: true,
        probe_interval_s: 0,
        headers: Vec::new(),
        proxy: None,
        ca_file: None,
        budgets: Vec::new(),
        accounts,
        serves: vec![Serves { model: "m".to_owned(), upstream: "m".to_owned(), cost: None, profile: Profile::default() }],
    }
}

fn catalog(channels: Vec<Channel>) -> Catalog {
    let group = Group {
        id: GroupId::from_parts(NOW, random(1)),
        name: "default".to_owned(),
        owner: Owner::Database,
        visibility: Visibility::Public,
        channels: channels.iter().map(|it| it.id).collect(),
        models: Vec::new(),
        sale_multiplier: Multiplier::ONE,
        translation: TranslationPolicy::Strict,
        signatures_in_ids: true,
        stream_break: StreamBreak::Delivered,
        price_limit: None,
        routing: Routing::Weighted,
        hedge: None,
        trace: false,
        limits: Limits::default(),
        budgets: Vec::new(),
    };
    let accounts: HashSet<AccountId> = channels.iter().flat_map(|it| &it.accounts).map(|it| it.id).collect();
    assert_eq!(accounts.len(), channels.iter().map(|it| it.accounts.len()).sum::<usize>(), "every account is its own");
    Catalog::from_parts(Revision(1), channels, vec![group], Vec::new())
}

fn key() -> Arc<Key> {
    Arc::new(Key {
        id: KeyId::from_parts(NOW, random(1)),
        name: "bench".to_owned(),
        owner: Owner::Database,
        prefix: String::new(),
        suffix: String::new(),
        status: KeyStatus::Active,
        expires_at: None,
        groups: Vec::new(),
        models: Vec::new(),
        ip_allow: Vec::new(),
        limits: Limits::default(),
        budgets: Vec::new(),
        price_limit: None,
        signatures_in_ids: None,
        created_at: NOW,
        member: Member {
            id: MemberId::from_parts(NOW, random(1)),
            name: "bench".to_owned(),
            role: Role::Member,
            status: MemberStatus::Active,
            granted: Vec::new(),
            default_group: None,
            billing: Billing::Postpaid,
            limits: Limits::default(),
            budgets: Vec::new(),
        },
    })
}

fn outline(affinity: Option<u64>) -> Outline {
    Outline {
        model: "m".to_owned(),
        method: Method::Chat,
        stream: false,
        include_usage: false,
        max_output: None,
        candidates: 1,
        fields: vec!["temperature".to_owned(), "max_tokens".to_owned()],
        text_bytes: 400,
        turns: 0,
        images: 0,
        audio_bytes: 0,
        document_bytes: 0,
        tools: 0,
        affinity,
        splices: SplicePoints::default(),
    }
}

/// What a health board keeps: a map of accounts that are not plainly well.
#[derive(Default)]
struct Board(HashMap<AccountId, AccountHealth, IdHash>);

impl HealthView for Board {
    fn of(&self, account: AccountId) -> AccountHealth {
        if self.0.is_empty() { AccountHealth::default() } else { self.0.get(&account).copied().unwrap_or_default() }
    }
}

fn measure(c: &mut Criterion, name: &str, catalog: &Catalog, board: &Board, affinity: Option<u64>) {
    let outline = outline(affinity);
    let key = key();
    let mut state = 1u32;
    let mut dice = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    c.bench_function(name, |bencher| {
        bencher.iter(|| {
            let caller = Caller::of(catalog, key.clone());
            let offer = resolve(catalog, &caller, &outline, Protocol::OpenAi, NOW).expect("the model is offered");
            let input = RouteInput {
                catalog,
                newer: None,
                caller: &caller,
                offer: &offer,
                outline: &outline,
                from: Protocol::OpenAi,
                health: board,
                view: &Unloaded,
                now: NOW,
                request_limit: None,
                translates: false,
                past: &Past::default(),
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
    fn untranslatable(&self, channel: &Channel, serves: &Serves) -> Vec<FieldPath> {
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
        let (catalog, outline, board) = (catalog(vec![own, other]), outline(None), Board::default());
        let caller = Caller::of(&catalog, key());
        let offer = resolve(&catalog, &caller, &outline, Protocol::OpenAi, NOW).expect("the model is offered");
        let input = RouteInput {
            catalog: &catalog,
            newer: None,
            caller: &caller,
            offer: &offer,
            outline: &outline,
            from: Protocol::OpenAi,
            health: &board,
            view: &whole,
            now: NOW,
            request_limit: None,
            translates: true,
            past: &Past::default(),
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
