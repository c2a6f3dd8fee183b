//! Counters of the limits that apply to a caller, and their source.

use serde::Serialize;
use tollgate_core::{Budget, Caller, Catalog, Key, Meter, Subject, Timestamp};
use tollgate_store::CounterSnapshot;

use crate::state::{runtime_state::RuntimeState, shared::Shared};

/// The origin of a subject's usage, the most current first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterSource {
    /// The running gateway's live counters.
    Gateway,
    /// One of several nodes: its last synchronised view. Newer usage of other nodes is missing.
    Node,
    /// The state file that a running gateway wrote recently.
    Snapshot,
    /// The database. Requests in progress are not included.
    #[default]
    Database,
}

/// The usage of a subject, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubjectCounters {
    pub subject: Subject,
    pub meter: Meter,
    pub by: CounterSource,
    /// Whether the usage of its rate limits is known.
    pub has_rates: bool,
}

/// Counters of all subjects whose limits apply to one key.
#[derive(Clone, Debug, Default)]
pub struct CallerCounters {
    pub counts: Vec<SubjectCounters>,
    /// The current time in the monotonic microseconds of the rate windows.
    pub micros: u64,
    pub budgets: Vec<Budget>,
}

impl CallerCounters {
    #[must_use]
    pub fn of(shared: &Shared, catalog: &Catalog, key: &Key) -> Self {
        let by = if shared.counters.is_shared() { CounterSource::Node } else { CounterSource::Gateway };
        let CounterSnapshot { micros, meters, .. } = shared.counters.snapshot(&subjects_of(catalog, key), shared.clock.instant());
        let counts = meters.into_iter().map(|(subject, meter)| SubjectCounters { subject, meter, by, has_rates: true });
        Self { counts: counts.collect(), micros, budgets: shared.settings.load().budgets.to_vec() }
    }

    /// Uses the counters in `state`, and those of the database for subjects that are missing there.
    #[must_use]
    pub fn from_database(booked: Vec<(Subject, Meter)>, state: &RuntimeState, now: Timestamp, budgets: Vec<Budget>) -> Self {
        let counts = booked.into_iter().map(|(subject, meter)| {
            let reported = state.counted.iter().find(|it| it.subject == subject);
            match reported {
                Some(reported) => SubjectCounters { subject, meter: reported.meter, by: CounterSource::Snapshot, has_rates: true },
                None => SubjectCounters { subject, meter, by: CounterSource::Database, has_rates: !state.counts_more },
            }
        });
        Self { counts: counts.collect(), micros: state.counted_micros_at(now), budgets }
    }

    /// Counters of one subject; zero when unknown.
    pub(super) fn counts(&self, subject: Subject) -> SubjectCounters {
        let found = self.counts.iter().find(|it| it.subject == subject).copied();
        found.unwrap_or(SubjectCounters { subject, meter: Meter::default(), by: CounterSource::default(), has_rates: true })
    }
}

/// The subjects whose limits may apply to requests of a key.
#[must_use]
pub fn subjects_of(catalog: &Catalog, key: &Key) -> Vec<Subject> {
    let mut subjects = vec![Subject::Key(key.id), Subject::Member(key.member.id), Subject::Gateway];
    let caller = Caller::of(catalog, std::sync::Arc::new(key.clone()));
    subjects.extend(caller.groups.iter().map(|group| Subject::Group(group.id)));
    subjects
}
