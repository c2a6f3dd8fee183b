//! What is known of the counters that a caller's limits are measured by, and how well.

use serde::Serialize;
use tollgate_core::{Budget, Caller, Catalog, Key, Meter, Subject, Timestamp};
use tollgate_store::CounterSnapshot;

use crate::state::{runtime_state::RuntimeState, shared::Shared};

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterSource {
    /// The running gateway, now.
    Gateway,
    /// One node of several, as it last heard; what others did meanwhile is missing.
    Node,
    /// What a running gateway left in its folder a moment ago.
    Notes,
    /// The database: what is booked. Nothing of it is under way as far as is known.
    #[default]
    Database,
}

/// How one subject stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubjectCounters {
    /// Whose.
    pub subject: Subject,
    /// As it is counted.
    pub meter: Meter,
    /// By whom.
    pub by: CounterSource,
    /// Whether it is known what of its rates is used.
    pub knows_rates: bool,
}

/// How those stand that a request of one key is measured by.
#[derive(Clone, Debug, Default)]
pub struct CallerCounters {
    /// Each, once.
    pub counts: Vec<SubjectCounters>,
    /// Now, in the microseconds that minutes are counted in.
    pub micros: u64,
    /// Budgets of the whole gateway.
    pub budgets: Vec<Budget>,
}

impl CallerCounters {
    /// As the running gateway counts.
    #[must_use]
    pub fn of(shared: &Shared, catalog: &Catalog, key: &Key) -> Self {
        let by = if shared.counters.is_shared() { CounterSource::Node } else { CounterSource::Gateway };
        let CounterSnapshot { micros, meters, .. } = shared.counters.snapshot(&subjects_of(catalog, key), shared.clock.instant());
        let counts = meters.into_iter().map(|(subject, meter)| SubjectCounters { subject, meter, by, knows_rates: true });
        Self { counts: counts.collect(), micros, budgets: shared.settings.budgets.clone() }
    }

    /// As the database has it, where nothing is known of who is told of in the notes of a gateway.
    #[must_use]
    pub fn from_database(booked: Vec<(Subject, Meter)>, known: &RuntimeState, now: Timestamp, budgets: Vec<Budget>) -> Self {
        let counts = booked.into_iter().map(|(subject, meter)| {
            let told = known.counted.iter().find(|it| it.subject == subject);
            match told {
                Some(told) => SubjectCounters { subject, meter: told.meter, by: CounterSource::Notes, knows_rates: true },
                None => SubjectCounters { subject, meter, by: CounterSource::Database, knows_rates: !known.counts_more },
            }
        });
        Self { counts: counts.collect(), micros: known.counted_micros_at(now), budgets }
    }

    /// How one stands; with nothing spent where it is not known.
    pub(super) fn counts(&self, subject: Subject) -> SubjectCounters {
        let found = self.counts.iter().find(|it| it.subject == subject).copied();
        found.unwrap_or(SubjectCounters { subject, meter: Meter::default(), by: CounterSource::default(), knows_rates: true })
    }
}

/// Whose limits a key's requests may be measured by.
#[must_use]
pub fn subjects_of(catalog: &Catalog, key: &Key) -> Vec<Subject> {
    let mut subjects = vec![Subject::Key(key.id), Subject::Member(key.member.id), Subject::Gateway];
    let caller = Caller::of(catalog, std::sync::Arc::new(key.clone()));
    subjects.extend(caller.groups.iter().map(|group| Subject::Group(group.id)));
    subjects
}
