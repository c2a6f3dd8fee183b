//! Answers against an account that a caller's request may have provoked: a refusal, a 429 or spent quota without an end, and a
//! quota that only a message mentions. (A refusal may be about someone else's file, a prompt that a moderating upstream refuses,
//! or an output limit beyond the credit.) After such an answer the account is not used for that key; after another one for a
//! second key of the member, for none of the member's keys. It affects all callers once a key of another member gets one as well,
//! without an answered request in between, or once a probe is refused.
//!
//! A refusal is probed immediately. If the probe passes, the request was the cause.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tollgate_core::{
    AccountHealth, Availability, Concerned, CoolingRules, HealthSnapshot, HealthState, HealthStatus, Observation, Requester,
    RestingReason, Timestamp, observe,
};

use super::evidence::digest;
use crate::state::shares::Bound;

/// While requests are answered, refusals do not count for this long after a probe passed.
const PASSED_COUNTS_MS: i64 = 10_000;
/// Longest time a refusal bars its callers if the probes show nothing.
const REFUSED_MS: i64 = 600_000;

/// The suspicion against one account.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    held: Mutex<Held>,
    /// Whether an answered request changes this state. Read without a lock.
    heeds_answers: AtomicBool,
    /// Digest of the key or member that the account is barred from; 0: none. Read by routing without a lock, as is `state`.
    only: AtomicU64,
    /// [`HealthSnapshot::state`] for the barred callers.
    state: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    suspect: Option<Suspect>,
    /// Probes that were not refused since a request was last answered.
    probes: u32,
    /// When a probe last passed.
    passed: Option<Timestamp>,
    /// True if the account is unavailable to all callers because requests of two members were refused, but no probe was.
    unproven: bool,
}

#[derive(Clone, Copy, Debug)]
struct Suspect {
    by: Concerned,
    health: AccountHealth,
    since: Timestamp,
}

/// The callers that an answer against an account affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// No caller besides this request's: the credential was shown to work a moment ago.
    Request,
    /// The key or member that is now barred.
    Some,
    Everyone,
}

/// True if a request may provoke the observation. An answer that states an end is about the account, unless the end may be the caller's
/// text.
pub(super) const fn may_be_provoked(what: &Observation) -> bool {
    matches!(
        what,
        Observation::Refused
            | Observation::RateLimited { until: None }
            | Observation::QuotaSpent { until: None }
            | Observation::QuotaMentioned { .. }
    )
}

impl Suspicion {
    /// Judges an answer that [may have been provoked](may_be_provoked), to a request of `by`. `at`: when it takes effect; for a
    /// refusal, when the request was sent.
    pub(super) fn judge(&self, what: &Observation, by: Requester, at: Timestamp) -> Reach {
        let mut held = self.held();
        let is_refusal = *what == Observation::Refused;
        if is_refusal && held.probes == 0 && held.passed.is_some_and(|passed| at.ms_since(passed) < PASSED_COUNTS_MS) {
            return Reach::Request;
        }
        let fresh = observe(&AccountHealth::default(), what, CoolingRules::default(), at);
        let before = held.suspect.filter(|before| is_same_kind(&before.health.state, &fresh.state));
        let concerned = before.map_or_else(|| Bound::AccountHealth.share().concerned(by), |before| before.by.seen_by(by));
        if concerned == Concerned::Everyone {
            (held.suspect, held.unproven) = (None, is_refusal);
            self.publish(&held);
            return Reach::Everyone;
        }
        let mut health = before.map_or(fresh, |before| observe(&before.health, what, CoolingRules::default(), at));
        if is_refusal {
            let until = Some(at.plus_ms(REFUSED_MS));
            health.state = HealthState::Resting { why: RestingReason::Refused, since: at, until };
        }
        held.suspect = Some(Suspect { by: concerned, health, since: at });
        self.publish(&held);
        Reach::Some
    }

    /// Records that a request sent at `sent` was answered, so the account works. True if callers were barred.
    pub(super) fn answered(&self, sent: Timestamp) -> bool {
        if !self.heeds_answers.load(Ordering::Relaxed) {
            return false;
        }
        let mut held = self.held();
        if held.suspect.is_some_and(|suspect| sent < suspect.since) {
            return false;
        }
        let ended = held.suspect.take().is_some();
        held.probes = 0;
        self.publish(&held);
        ended
    }

    /// Records a passed probe that was sent at `sent`. True if it lets barred callers in again.
    pub(super) fn probe_passed(&self, sent: Timestamp, now: Timestamp) -> bool {
        let mut held = self.held();
        held.passed = Some(now);
        let ends = held.suspect.is_some_and(|suspect| is_refused(&suspect.health.state) && suspect.since <= sent);
        if ends {
            held.suspect = None;
        }
        if ends || held.unproven {
            held.probes = held.probes.saturating_add(1);
        }
        self.publish(&held);
        ends
    }

    /// Records a probe that neither passed nor was refused.
    pub(super) fn probe_was_unclear(&self) {
        let mut held = self.held();
        held.probes = held.probes.saturating_add(1);
        self.publish(&held);
    }

    /// Records that the state for everyone was set by something other than requests: a probe, a test, another node. True if callers
    /// were barred.
    pub(super) fn settle(&self) -> bool {
        let mut held = self.held();
        let ended = held.suspect.take().is_some();
        held.unproven = false;
        self.publish(&held);
        ended
    }

    /// Records that the credential was replaced. True if callers were barred.
    pub(super) fn forget(&self) -> bool {
        let mut held = self.held();
        let ended = held.suspect.is_some();
        *held = Held::default();
        self.publish(&held);
        ended
    }

    /// Ends states that began in the future, because the clock was set back.
    pub(super) fn follow_clock(&self, now: Timestamp) -> bool {
        let mut held = self.held();
        held.passed = held.passed.filter(|passed| *passed <= now);
        let ended = held.suspect.take_if(|suspect| suspect.since > now).is_some();
        self.publish(&held);
        ended
    }

    /// How often a refusal was probed without a clear outcome since a request was last answered; `None` if there is none to
    /// probe.
    pub(super) fn probes(&self) -> Option<u32> {
        if !self.heeds_answers.load(Ordering::Relaxed) {
            return None;
        }
        let held = self.held();
        let is_suspected = held.suspect.is_some_and(|suspect| is_refused(&suspect.health.state));
        (is_suspected || held.unproven).then_some(held.probes)
    }

    /// The status for requests of `by`; `None`: of anyone.
    pub(super) fn status(&self, by: Option<Requester>, status: HealthStatus, now: Timestamp) -> HealthStatus {
        let only = self.only.load(Ordering::Relaxed);
        if only == 0 || by.is_some_and(|by| ![Concerned::Key(by), Concerned::Member(by.member)].map(digest).contains(&only)) {
            return status;
        }
        let state = HealthSnapshot { state: self.state.load(Ordering::Relaxed), latency: 0 };
        match (status.availability, state.status(now).availability) {
            (
                Availability::Usable | Availability::ProbeDue,
                availability @ (Availability::Cooling { .. } | Availability::Resting { .. }),
            ) => HealthStatus { availability, ..status },
            _ => status,
        }
    }

    /// The state for the barred callers.
    pub(super) fn state(&self) -> Option<HealthState> {
        self.held().suspect.map(|suspect| suspect.health.state)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, held: &Held) {
        self.state.store(held.suspect.map_or(0, |suspect| HealthSnapshot::of(&suspect.health).state), Ordering::Relaxed);
        self.only.store(held.suspect.map_or(0, |suspect| digest(suspect.by)), Ordering::Relaxed);
        self.heeds_answers.store(held.suspect.is_some() || held.probes > 0 || held.unproven, Ordering::Relaxed);
    }
}

const fn is_refused(state: &HealthState) -> bool {
    matches!(state, HealthState::Resting { why: RestingReason::Refused, .. })
}

fn is_same_kind(one: &HealthState, other: &HealthState) -> bool {
    match (one, other) {
        (HealthState::Resting { why: one, .. }, HealthState::Resting { why: other, .. }) => one == other,
        (HealthState::Cooling { why: one, .. }, HealthState::Cooling { why: other, .. }) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{KeyId, MemberId};

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);
    const LIMITED: Observation = Observation::RateLimited { until: None };

    fn requester(key: u8, member: u8) -> Requester {
        let (key, member) = (KeyId::from_parts(Timestamp(0), [key; 10]), MemberId::from_parts(Timestamp(0), [100 + member; 10]));
        Requester { key, member }
    }

    fn at(seconds: i64) -> Timestamp {
        NOW.plus_ms(seconds * 1_000)
    }

    fn is_barred(suspicion: &Suspicion, by: Requester, now: Timestamp) -> bool {
        suspicion.status(Some(by), HealthStatus::HEALTHY, now).availability != Availability::Usable
    }

    #[test]
    fn refusal_bars_its_key_then_its_member_and_everyone_only_from_a_second_member() {
        let suspicion = Suspicion::default();
        let (one, sibling, third, other) = (requester(1, 1), requester(2, 1), requester(3, 1), requester(4, 2));
        let barred = || [one, sibling, third, other].map(|by| is_barred(&suspicion, by, NOW));
        for _ in 0..20 {
            assert_eq!(suspicion.judge(&Observation::Refused, one, NOW), Reach::Some);
        }
        assert_eq!(barred(), [true, false, false, false]);
        assert_eq!(suspicion.judge(&Observation::Refused, sibling, NOW), Reach::Some);
        assert_eq!(barred(), [true, true, true, false]);
        assert_eq!(suspicion.judge(&Observation::Refused, other, NOW), Reach::Everyone);
        assert_eq!((barred(), suspicion.probes()), ([false; 4], Some(0)), "the account's own health has it now, to be probed");
    }

    #[test]
    fn answered_request_clears_earlier_refusals() {
        let suspicion = Suspicion::default();
        let (one, other) = (requester(1, 1), requester(2, 2));
        let mentioned = Observation::QuotaMentioned { until: Some(at(86_400)) };
        for what in [Observation::Refused, LIMITED, Observation::QuotaSpent { until: None }, mentioned] {
            for round in 0..10 {
                assert_eq!(suspicion.judge(&what, one, at(round)), Reach::Some, "{what:?}");
                assert!(!suspicion.answered(at(round - 1)), "sent before");
                assert!(is_barred(&suspicion, one, at(round)));
                assert!(suspicion.answered(at(round)) && !is_barred(&suspicion, one, at(round)));
                assert_eq!(suspicion.judge(&what, other, at(round)), Reach::Some, "not the second in a row");
                assert!(suspicion.answered(at(round)));
            }
        }
    }

    #[test]
    fn different_refusals_of_two_members_do_not_bar_everyone() {
        let suspicion = Suspicion::default();
        assert_eq!(suspicion.judge(&LIMITED, requester(1, 1), NOW), Reach::Some);
        assert_eq!(suspicion.judge(&Observation::Refused, requester(2, 2), NOW), Reach::Some);
        assert_eq!(suspicion.judge(&Observation::Refused, requester(3, 3), NOW), Reach::Everyone);
    }

    #[test]
    fn passed_probe_lifts_the_bar_and_weakens_refusals_while_requests_are_answered() {
        let (suspicion, one) = (Suspicion::default(), requester(1, 1));
        suspicion.judge(&Observation::Refused, one, NOW);
        assert!(!suspicion.probe_passed(at(-1), at(1)), "it was sent before the refused request");
        assert!(suspicion.probe_passed(NOW, at(1)) && !is_barred(&suspicion, one, at(1)));
        assert_eq!(suspicion.judge(&Observation::Refused, one, at(2)), Reach::Some, "nothing was answered since");
        assert_eq!(suspicion.probes(), Some(1), "the next probe waits longer");
        assert!(suspicion.answered(at(2)));
        assert_eq!(suspicion.judge(&Observation::Refused, one, at(3)), Reach::Request);
        assert!(!is_barred(&suspicion, one, at(3)));
        assert_eq!(suspicion.judge(&Observation::Refused, one, at(11)), Reach::Some, "ten seconds after the probe");
        assert_eq!(suspicion.probes(), Some(0));
    }

    #[test]
    fn bars_expire_and_are_reset_by_a_new_credential() {
        let (suspicion, one) = (Suspicion::default(), requester(1, 1));
        suspicion.judge(&Observation::Refused, one, NOW);
        assert!(is_barred(&suspicion, one, at(599)) && !is_barred(&suspicion, one, at(600)));
        suspicion.forget();
        assert!(!is_barred(&suspicion, one, NOW) && suspicion.probes().is_none());
        for seconds in [10, 20, 40] {
            suspicion.judge(&LIMITED, one, NOW.plus_ms(seconds * 10_000));
            let end = NOW.plus_ms(seconds * 10_000 + seconds * 1_000);
            assert!(is_barred(&suspicion, one, end.plus_ms(-1)) && !is_barred(&suspicion, one, end), "{seconds}");
        }
        suspicion.judge(&LIMITED, one, at(3_600));
        assert!(suspicion.follow_clock(NOW) && !is_barred(&suspicion, one, NOW), "the clock was put back");
    }
}
