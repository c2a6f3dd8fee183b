//! Cost of routing among 1,000 accounts with the health registry and limiters of a running gateway. Target: 20 µs.

#[path = "../../tollgate-core/benches/rows/mod.rs"]
mod rows;

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use tollgate_core::{
    Account, AccountSpec, AttemptHistory, Availability, Caller, CandidateView as _, Catalog, CoolingRules, HealthView as _,
    LatencySample, Observation, RouteInput, resolve, route,
};
use tollgate_gateway::{
    clock::{Clock, SystemClock},
    state::{capacity_limiter::Permit, health_registry::HealthRegistry, traffic::Traffic},
};
use tollgate_protocol::Protocol;

use rows::{NOW, account, catalog, channel, key, summary};

const ACCOUNTS: usize = 1_000;

/// A gateway's routing state for a catalog.
struct Gateway {
    catalog: Catalog,
    registry: HealthRegistry,
    traffic: Traffic,
    /// Permits held during the measurement.
    permits: Vec<Permit>,
}

impl Gateway {
    /// Every account answered recently; one in seven failed once.
    fn over(catalog: Catalog) -> Self {
        let registry = HealthRegistry::default();
        registry.configure(catalog.accounts().map(|account| &**account));
        for (at, account) in catalog.accounts().enumerate() {
            registry.observe(
                account.id,
                &Observation::Success { latency: Some(LatencySample::FirstToken(200_000)) },
                CoolingRules::default(),
                NOW,
            );
            if at % 7 == 0 {
                registry.observe(account.id, &Observation::ServerError, CoolingRules::default(), NOW);
            }
        }
        let traffic = Traffic::new(Arc::new(SystemClock) as Arc<dyn Clock>, Arc::default());
        traffic.configure(catalog.channels.values().map(|channel| &**channel));
        Self { catalog, registry, traffic, permits: Vec::new() }
    }

    /// Every `step`th account cools after a 429.
    fn cooling(self, step: usize) -> Self {
        let until = Some(NOW.plus_ms(60_000));
        for account in self.catalog.accounts().step_by(step) {
            self.registry.observe(account.id, &Observation::RateLimited { until }, CoolingRules::default(), NOW);
        }
        self
    }

    /// Every `step`th account is at its concurrency limit.
    fn busy(mut self, step: usize) -> Self {
        let accounts =
            self.catalog.channels.values().flat_map(|channel| channel.accounts.iter().map(move |account| (channel, account)));
        let permits = accounts.step_by(step).filter_map(|(channel, account)| self.traffic.try_acquire(channel, account, 100));
        self.permits = permits.collect();
        self
    }

    fn measure(&self, c: &mut Criterion, name: &str, affinity: Option<u64>) {
        let (summary, key, past) = (summary(affinity), key(), AttemptHistory::default());
        let mut state = 1u32;
        let mut dice = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state
        };
        c.bench_function(name, |bencher| {
            bencher.iter(|| {
                let caller = Caller::of(&self.catalog, key.clone());
                let offer = resolve(&self.catalog, &caller, &summary, Protocol::OpenAi, NOW).expect("the model is offered");
                let (health, view) = (
                    self.registry.snapshot_for(key.requester()),
                    self.traffic.view(&summary, Protocol::OpenAi, key.requester(), 500, NOW),
                );
                let input = RouteInput {
                    catalog: &self.catalog,
                    latest_catalog: None,
                    caller: &caller,
                    offer: &offer,
                    summary: &summary,
                    from: Protocol::OpenAi,
                    health: &health,
                    candidate_view: &view,
                    now: NOW,
                    request_limit: None,
                    translates: true,
                    history: &past,
                };
                black_box(route(&input, &mut dice).is_ok())
            });
        });
    }
}

/// An account limited to one concurrent request, 1,000 requests and 1,000,000 tokens per minute.
fn bounded(n: usize) -> Arc<Account> {
    Arc::new(Account {
        spec: AccountSpec { concurrency: 1, rpm: 1_000, tpm: 1_000_000, ..Account::clone(&account(n)).spec },
        ..Account::clone(&account(n))
    })
}

fn benches(c: &mut Criterion) {
    let one = || catalog(vec![channel(0, (0..ACCOUNTS).map(account).collect())]);
    let many = || catalog((0..ACCOUNTS).map(|n| channel(n, vec![account(n)])).collect());
    let limited = || catalog((0..ACCOUNTS).map(|n| channel(n, vec![bounded(n)])).collect());
    let sound = Gateway::over(one());
    let first = sound.catalog.accounts().next().expect("there are accounts").id;
    assert!(
        sound.registry.snapshot().status(first, NOW).availability == Availability::Usable,
        "one failure does not cool an account"
    );
    sound.measure(c, "gateway, 1 channel of 1000 accounts, dice", None);
    sound.measure(c, "gateway, 1 channel of 1000 accounts, affinity", Some(7));
    let sound = Gateway::over(many());
    sound.measure(c, "gateway, 1000 channels of 1 account, dice", None);
    sound.measure(c, "gateway, 1000 channels of 1 account, affinity", Some(7));
    Gateway::over(many()).cooling(10).measure(c, "gateway, 1000 channels, a tenth cooling", None);
    Gateway::over(many()).cooling(1).measure(c, "gateway, 1000 channels, all cooling", None);
    Gateway::over(limited()).measure(c, "gateway, 1000 channels with bounds, all free", None);
    let busy = Gateway::over(limited()).busy(10);
    assert_eq!(busy.permits.len(), ACCOUNTS / 10);
    let view = summary(None);
    let view = busy.traffic.view(&view, Protocol::OpenAi, key().requester(), 500, NOW);
    let accounts = busy.catalog.accounts().map(|account| view.account_load(account.id, account.limits()));
    assert_eq!(accounts.filter(|load| *load != tollgate_core::CapacityLoad::Free).count(), ACCOUNTS / 10);
    busy.measure(c, "gateway, 1000 channels with bounds, a tenth busy", None);
    Gateway::over(limited()).busy(1).measure(c, "gateway, 1000 channels with bounds, all busy", None);
}

criterion_group!(route_benches, benches);
criterion_main!(route_benches);
