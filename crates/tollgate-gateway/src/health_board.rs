//! What is known of accounts' health, shared by all cores: sharded by account, locked for one look or one change.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tollgate_core::{AccountHealth, AccountId, HealthState, HealthView, IdHash, Observation, Timestamp, observe, start_probe};

const SHARDS: usize = 16;

/// Health of accounts. An account nothing is known of is healthy.
#[derive(Debug, Default)]
pub struct HealthBoard {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    health: HashMap<AccountId, AccountHealth, IdHash>,
    /// Changed since they were last taken for saving.
    unsaved: Vec<AccountId>,
}

impl HealthBoard {
    /// A board that begins with what was saved. A probe under way when it was saved is nobody's now: the account's
    /// next request is one again.
    #[must_use]
    pub fn from_saved(saved: impl IntoIterator<Item = (AccountId, AccountHealth)>) -> Self {
        let board = Self::default();
        for (account, mut health) in saved {
            if let HealthState::Probing { why, .. } = health.state {
                health.state = HealthState::Probing { since: Timestamp(0), why };
            }
            board.shard(account).health.insert(account, health);
        }
        board
    }

    /// An attempt showed something of its account. `cooling_on` is the channel's switch.
    pub fn observe(&self, account: AccountId, what: &Observation, cooling_on: bool, now: Timestamp) {
        let mut shard = self.shard(account);
        let before = shard.health.get(&account).copied().unwrap_or_default();
        let after = observe(&before, what, cooling_on, now);
        shard.put(account, before, after);
        drop(shard);
        if usable(&before) != usable(&after) {
            tracing::warn!(account.id = %account, state = state_word(&after.state), "account health changed");
        }
    }

    /// An attempt on an account begins: when a probe is due it is the probe, and others keep away.
    pub fn begin(&self, account: AccountId, now: Timestamp) {
        let mut shard = self.shard(account);
        let Some(before) = shard.health.get(&account).copied() else { return };
        if let Some(after) = start_probe(&before, now) {
            shard.put(account, before, after);
        }
    }

    /// What another node knows of accounts: the later end of a rest or a cooling wins.
    pub fn merge(&self, known: impl IntoIterator<Item = (AccountId, AccountHealth)>) {
        for (account, theirs) in known {
            let mut shard = self.shard(account);
            let ours = shard.health.get(&account).copied().unwrap_or_default();
            if ends(&theirs.state) > ends(&ours.state) {
                shard.health.insert(account, AccountHealth { state: theirs.state, coolings: theirs.coolings, ..ours });
                drop(shard);
                tracing::warn!(account.id = %account, state = state_word(&theirs.state), "account health changed on another node");
            }
        }
    }

    /// Accounts that cool or rest.
    pub fn resting(&self, now: Timestamp) -> Vec<(AccountId, AccountHealth)> {
        let mut resting = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            resting
                .extend(shard.health.iter().filter(|(_, health)| ends(&health.state) > now.0).map(|(id, health)| (*id, *health)));
        }
        resting
    }

    /// Takes what has changed since the last call, for saving.
    pub fn take_unsaved(&self) -> Vec<(AccountId, AccountHealth)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for account in std::mem::take(&mut shard.unsaved) {
                if let Some(health) = shard.health.get(&account) {
                    taken.push((account, *health));
                }
            }
        }
        taken
    }

    /// Saving failed: they are to be taken again.
    pub fn put_back(&self, accounts: impl IntoIterator<Item = AccountId>) {
        for account in accounts {
            self.shard(account).mark(account);
        }
    }

    /// Forgets accounts that are no longer configured.
    pub fn retain(&self, configured: impl Fn(AccountId) -> bool) {
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).health.retain(|account, _| configured(*account));
        }
    }

    fn shard(&self, account: AccountId) -> MutexGuard<'_, Shard> {
        // The last bytes of a version 7 uuid are random.
        let place = usize::from(account.uuid().as_bytes()[15]) % SHARDS;
        self.shards[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HealthView for HealthBoard {
    fn of(&self, account: AccountId) -> AccountHealth {
        self.shard(account).health.get(&account).copied().unwrap_or_default()
    }
}

impl Shard {
    fn put(&mut self, account: AccountId, before: AccountHealth, after: AccountHealth) {
        if before == after && self.health.contains_key(&account) {
            return;
        }
        self.health.insert(account, after);
        self.mark(account);
    }

    fn mark(&mut self, account: AccountId) {
        if !self.unsaved.contains(&account) {
            self.unsaved.push(account);
        }
    }
}

/// When a state ends by itself; one that only a test ends is the latest, one that keeps nobody away the earliest.
fn ends(state: &HealthState) -> i64 {
    match state {
        HealthState::Usable | HealthState::Probing { .. } => 0,
        HealthState::Cooling { until, .. } | HealthState::Resting { until: Some(until), .. } => until.0,
        HealthState::Resting { until: None, .. } => i64::MAX,
    }
}

fn usable(health: &AccountHealth) -> bool {
    matches!(health.state, HealthState::Usable | HealthState::Probing { .. })
}

const fn state_word(state: &HealthState) -> &'static str {
    match state {
        HealthState::Usable => "usable",
        HealthState::Cooling { .. } => "cooling",
        HealthState::Resting { .. } => "resting",
        HealthState::Probing { .. } => "probing",
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{CoolingReason, Standing};

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    fn account(number: u8) -> AccountId {
        AccountId::from_parts(Timestamp(1), [number; 10])
    }

    #[test]
    fn of_two_nodes_the_later_end_wins() {
        let (one, other) = (HealthBoard::default(), HealthBoard::default());
        one.observe(account(1), &Observation::ConnectFailure, true, NOW);
        other.observe(account(1), &Observation::ConnectFailure, true, NOW.plus_ms(2_000));
        let until = NOW.plus_ms(7_000);
        one.merge(other.take_unsaved());
        assert_eq!(one.of(account(1)).standing(NOW), Standing::Cooling { until, why: CoolingReason::ConnectFailure });
        other.merge([(account(1), AccountHealth::default()), (account(2), AccountHealth::default())]);
        assert_eq!(other.of(account(1)).standing(NOW), Standing::Cooling { until, why: CoolingReason::ConnectFailure });
        assert_eq!(one.take_unsaved().len(), 1, "what came from another node is saved by that one");
    }

    #[test]
    fn a_probe_of_the_last_process_is_nobody_s_after_a_start() {
        let state = HealthState::Probing { since: NOW, why: Some(CoolingReason::ServerError) };
        let board = HealthBoard::from_saved([(account(1), AccountHealth { state, ..AccountHealth::default() })]);
        assert_eq!(board.of(account(1)).standing(NOW), Standing::ProbeDue);
        board.begin(account(1), NOW);
        assert!(matches!(board.of(account(1)).standing(NOW), Standing::Cooling { .. }), "the next request is the probe");
    }

    #[test]
    fn nothing_known_is_healthy_and_a_failure_is_seen_by_everybody() {
        let board = HealthBoard::default();
        assert_eq!(board.of(account(1)).standing(NOW), Standing::Usable);
        board.observe(account(1), &Observation::ConnectFailure, true, NOW);
        let until = NOW.plus_ms(5_000);
        assert_eq!(board.of(account(1)).standing(NOW), Standing::Cooling { until, why: CoolingReason::ConnectFailure });
        assert_eq!(board.of(account(2)).standing(NOW), Standing::Usable);
        board.observe(account(2), &Observation::ConnectFailure, false, NOW);
        assert_eq!(board.of(account(2)).standing(NOW), Standing::Usable, "cooling is switched off on its channel");
    }

    #[test]
    fn after_cooling_one_request_is_the_probe() {
        let board = HealthBoard::default();
        board.observe(account(1), &Observation::ConnectFailure, true, NOW);
        let later = NOW.plus_ms(6_000);
        assert_eq!(board.of(account(1)).standing(later), Standing::ProbeDue);
        board.begin(account(1), later);
        assert!(!matches!(board.of(account(1)).standing(later), Standing::ProbeDue | Standing::Usable));
        board.observe(account(1), &Observation::Success { first_token_us: None }, true, later);
        assert_eq!(board.of(account(1)).standing(later), Standing::Usable);
    }

    #[test]
    fn what_changed_is_taken_once_and_can_be_put_back() {
        let board = HealthBoard::default();
        for number in 1..=40 {
            board.observe(account(number), &Observation::ServerError, true, NOW);
            board.observe(account(number), &Observation::ServerError, true, NOW);
        }
        let taken = board.take_unsaved();
        assert_eq!(taken.len(), 40);
        assert_eq!(board.take_unsaved().len(), 0);
        board.put_back(taken.iter().map(|(account, _)| *account));
        assert_eq!(board.take_unsaved().len(), 40);
        let again = HealthBoard::from_saved(taken.clone());
        assert!(taken.iter().all(|(account, health)| again.of(*account) == *health));
        again.retain(|it| it == account(1));
        assert_eq!(again.of(account(2)), AccountHealth::default());
    }
}
