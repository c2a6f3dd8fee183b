//! What is known of the counters that a caller's limits are measured by, and how well.

use serde::Serialize;
use tollgate_core::{Budget, Caller, Catalog, Key, Meter, Subject, Timestamp};
use tollgate_store::Look;

use crate::{Known, Shared};

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountedBy {
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
pub struct Counts {
    /// Whose.
    pub subject: Subject,
    /// As it is counted.
    pub meter: Meter,
    /// By whom.
    pub by: CountedBy,
    /// Whether it is known what of its rates is used.
    pub knows_rates: bool,
}

/// How those stand that a request of one key is measured by.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Each, once.
    pub counts: Vec<Counts>,
    /// Now, in the microseconds that minutes are counted in.
    pub micros: u64,
    /// Budgets of the whole gateway.
    pub budgets: Vec<Budget>,
}

impl Counted {
    /// As the running gateway counts.
    #[must_use]
    pub fn of(shared: &Shared, catalog: &Catalog, key: &Key) -> Self {
        let by = if shared.counters.is_shared() { CountedBy::Node } else { CountedBy::Gateway };
        let Look { micros, meters, .. } = shared.counters.look(&subjects_of(catalog, key), shared.clock.instant());
        let counts = meters.into_iter().map(|(subject, meter)| Counts { subject, meter, by, knows_rates: true });
        Self { counts: counts.collect(), micros, budgets: shared.settings.budgets.clone() }
    }

    /// As the database has it, where nothing is known of who is told of in the notes of a gateway.
    #[must_use]
    pub fn at_rest(booked: Vec<(Subject, Meter)>, known: &Known, now: Timestamp, budgets: Vec<Budget>) -> Self {
        let counts = booked.into_iter().map(|(subject, meter)| {
            let told = known.counted.iter().find(|it| it.subject == subject);
            match told {
                Some(told) => Counts { subject, meter: told.meter, by: CountedBy::Notes, knows_rates: true },
                None => Counts { subject, meter, by: CountedBy::Database, knows_rates: !known.counts_more },
            }
        });
        Self { counts: counts.collect(), micros: known.counted_micros_at(now), budgets }
    }

    /// How one stands; with nothing spent where it is not known.
    pub(super) fn counts(&self, subject: Subject) -> Counts {
        let found = self.counts.iter().find(|it| it.subject == subject).copied();
        found.unwrap_or(Counts { subject, meter: Meter::default(), by: CountedBy::default(), knows_rates: true })
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
