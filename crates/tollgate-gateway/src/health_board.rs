//! What is known of accounts' health, shared by all cores. Changing one account locks that account; choosing reads all of
//! them without a lock.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tollgate_core::{
    AccountHealth, AccountId, Condition, Glance, HealthState, HealthView, Observation, Timestamp, observe, start_probe,
};

use crate::{
    account_places::{AccountPlaces, PlacesLook},
    news::News,
};

/// Health of accounts. An account nothing is known of is healthy.
#[derive(Debug, Default)]
pub struct HealthBoard {
    places: AccountPlaces<Place>,
    /// That an account may be used again, or probed, sooner than was known.
    pub(crate) recoveries: News,
}

/// What is known of one account.
#[derive(Debug, Default)]
struct Place {
    health: Mutex<AccountHealth>,
    /// What choosing looks at of it ([`Glance`]), written whenever it changes.
    state: AtomicU64,
    pace: AtomicU64,
    /// Changed since it was last taken for saving.
    unsaved: AtomicBool,
}

impl Place {
    fn new(health: AccountHealth) -> Self {
        let place = Self::default();
        place.put(&mut place.health(), health);
        place
    }

    fn health(&self) -> MutexGuard<'_, AccountHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, held: &mut AccountHealth, health: AccountHealth) {
        let Glance { state, pace } = Glance::of(&health);
        *held = health;
        self.state.store(state, Ordering::Relaxed);
        self.pace.store(pace, Ordering::Relaxed);
    }

    fn glance(&self) -> Glance {
        Glance { state: self.state.load(Ordering::Relaxed), pace: self.pace.load(Ordering::Relaxed) }
    }

    fn mark(&self) {
        self.unsaved.store(true, Ordering::Release);
    }
}

impl HealthBoard {
    /// A board that begins with what was saved. A probe under way when it was saved is nobody's now: the account's
    /// next request is one again.
    #[must_use]
    pub fn from_saved(saved: impl IntoIterator<Item = (AccountId, AccountHealth)>) -> Self {
        let places = saved.into_iter().map(|(account, mut health)| {
            if let HealthState::Probing { why, .. } = health.state {
                health.state = HealthState::Probing { since: Timestamp(0), why };
            }
            (account, Arc::new(Place::new(health)))
        });
        Self { places: places.collect(), ..Self::default() }
    }

    /// What is known of an account.
    #[must_use]
    pub fn of(&self, account: AccountId) -> AccountHealth {
        self.places.get(account).map_or_else(AccountHealth::default, |place| *place.health())
    }

    /// All accounts as they are, for one choice.
    #[must_use]
    pub fn look(&self) -> HealthLook {
        HealthLook(self.places.look())
    }

    /// An attempt showed something of its account. `cooling_on` is the channel's switch.
    pub fn observe(&self, account: AccountId, what: &Observation, cooling_on: bool, now: Timestamp) {
        let place = self.places.get_or_make(account);
        let mut health = place.health();
        let before = *health;
        let after = observe(&before, what, cooling_on, now);
        if before == after {
            return;
        }
        place.put(&mut health, after);
        drop(health);
        place.mark();
        if before.state != after.state && usable(&after) {
            self.recoveries.tell();
        }
        if usable(&before) != usable(&after) {
            tracing::warn!(account.id = %account, state = state_word(&after.state), "account health changed");
        }
    }

    /// An attempt on an account begins: when a probe is due it is the probe, and others keep away.
    pub fn begin(&self, account: AccountId, now: Timestamp) {
        let Some(place) = self.places.get(account) else { return };
        let mut health = place.health();
        if let Some(after) = start_probe(&health, now) {
            place.put(&mut health, after);
            place.mark();
        }
    }

    /// What another node knows of accounts: the later end of a rest or a cooling wins.
    pub fn merge(&self, known: impl IntoIterator<Item = (AccountId, AccountHealth)>) {
        for (account, theirs) in known {
            let ours = self.of(account);
            if ends(&theirs.state) <= ends(&ours.state) {
                continue;
            }
            let place = self.places.get_or_make(account);
            let mut health = place.health();
            let ours = *health;
            if ends(&theirs.state) > ends(&ours.state) {
                place.put(&mut health, AccountHealth { state: theirs.state, coolings: theirs.coolings, ..ours });
                drop(health);
                tracing::warn!(account.id = %account, state = state_word(&theirs.state), "account health changed on another node");
            }
        }
    }

    /// Accounts that cool or rest.
    pub fn resting(&self, now: Timestamp) -> Vec<(AccountId, AccountHealth)> {
        let places = self.places.look();
        let all = places.iter().map(|(account, place)| (account, *place.health()));
        all.filter(|(_, health)| ends(&health.state) > now.0).collect()
    }

    /// Takes what has changed since the last call, for saving.
    pub fn take_unsaved(&self) -> Vec<(AccountId, AccountHealth)> {
        let places = self.places.look();
        let changed = places.iter().filter(|(_, place)| place.unsaved.swap(false, Ordering::AcqRel));
        changed.map(|(account, place)| (account, *place.health())).collect()
    }

    /// Saving failed: they are to be taken again.
    pub fn put_back(&self, accounts: impl IntoIterator<Item = AccountId>) {
        accounts.into_iter().filter_map(|account| self.places.get(account)).for_each(|place| place.mark());
    }

    /// These accounts are configured now: makes room for them, so that no request has to, and forgets all others.
    pub fn configure(&self, accounts: impl IntoIterator<Item = AccountId>) {
        self.places.configure(accounts, |_| false);
    }
}

/// All accounts' health as choosing reads it: for one choice, not to be kept.
pub struct HealthLook(PlacesLook<Place>);

impl HealthView for HealthLook {
    fn of(&self, account: AccountId, now: Timestamp) -> Condition {
        self.0.get(account).map_or(Condition::WELL, |place| place.glance().condition(now))
    }
}

impl std::fmt::Debug for HealthLook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HealthLook").finish_non_exhaustive()
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
        board.observe(account(1), &Observation::Success { pace: None }, true, later);
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
        again.configure([account(1), account(99)]);
        assert_eq!(again.of(account(2)), AccountHealth::default());
        assert_eq!((again.of(account(1)), again.places.look().iter().count()), (board.of(account(1)), 2));
        assert_eq!(again.take_unsaved(), [], "who is merely configured is not saved");
    }

    #[test]
    fn a_look_sees_every_change() {
        let board = HealthBoard::default();
        board.configure((1..=200).map(account));
        for (at, what) in [Observation::ConnectFailure, Observation::Refused, Observation::TestPassed].iter().enumerate() {
            for number in 1..=200 {
                let now = NOW.plus_ms(i64::try_from(at).unwrap() * 1_000);
                board.observe(account(number), what, true, now);
                assert_eq!(board.look().of(account(number), now), board.of(account(number)).condition(now));
            }
        }
        assert_eq!(board.look().of(account(250), NOW), Condition::WELL);
    }

    #[test]
    fn cores_that_observe_accounts_at_once_lose_nothing() {
        let board = HealthBoard::default();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| (0..200).for_each(|number| board.observe(account(number), &Observation::ServerError, false, NOW)));
            }
        });
        let seen = |number| board.of(account(number)).recent.iter().map(|bucket| bucket.failed).sum::<u32>();
        assert!((0..200).all(|number| seen(number) == 4));
    }
}
