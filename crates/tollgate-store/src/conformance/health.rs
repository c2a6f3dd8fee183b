//! The contract of [`crate::HealthStore`].

use tollgate_core::{AccountHealth, CoolingReason, HealthState};

use super::{actor, put_account, put_channel};
use crate::{Change, ChangeOrigin, Store, samples::MIDNIGHT};

pub(super) async fn health_is_stored_for_existing_accounts(store: &Store) {
    let mut batch = vec![put_channel("main")];
    batch.extend((0..45).map(|n| put_account("main", &format!("a{n:02}"), Some("secret"))));
    store.catalog.apply(&batch, &actor(ChangeOrigin::Cli), MIDNIGHT).await.unwrap();
    let catalog = store.catalog.load().await.unwrap();
    let accounts = &catalog.channel_by_name("main").unwrap().accounts;
    let state = HealthState::Cooling { until: MIDNIGHT.plus_ms(9), why: CoolingReason::RateLimited, since: MIDNIGHT };
    let cooling = AccountHealth { state, failures: 3, error_average: 500_000, ..AccountHealth::default() };
    let mut health: Vec<_> = accounts.iter().map(|account| (account.id, AccountHealth::default())).collect();
    store.health.save_health(&health, MIDNIGHT).await.unwrap();
    health[7].1 = cooling;
    store.health.save_health(&health[7..8], MIDNIGHT.plus_ms(1)).await.unwrap();
    store.health.save_health(&[], MIDNIGHT).await.unwrap();
    health.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(store.health.load_health().await.unwrap(), health);

    // Writing health does not overwrite the time of a passed test.
    store.health.save_test(health[7].0, MIDNIGHT.plus_ms(2)).await.unwrap();
    store.health.save_test(health[7].0, MIDNIGHT.plus_ms(3)).await.unwrap();
    store.health.save_health(&health[7..8], MIDNIGHT.plus_ms(4)).await.unwrap();
    assert_eq!(store.health.load_tests().await.unwrap(), [(health[7].0, MIDNIGHT.plus_ms(3))]);
    assert_eq!(store.health.load_health().await.unwrap(), health);

    let gone = accounts[7].id;
    let remove = Change::RemoveAccount { channel: "main".to_owned(), account: "a07".to_owned() };
    store.catalog.apply(&[remove], &actor(ChangeOrigin::Cli), MIDNIGHT).await.unwrap();
    let kept = store.health.load_health().await.unwrap();
    assert!(kept.len() == 44 && kept.iter().all(|(id, _)| *id != gone));
}
