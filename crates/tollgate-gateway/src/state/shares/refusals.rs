//! Refused requests of a key and a member: the first of a kind in a minute leave a record each, the others are counted in one
//! record, so that a caller that is refused cannot fill the database.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::bounds::Bound;

const MINUTE: Duration = Duration::from_mins(1);
/// Models for which a key's refusals with one error are counted separately. Bounded, because callers can send any name.
const MAX_MODELS: usize = 8;

/// The refusals of one key, or of one member with all its keys.
#[derive(Debug, Default)]
pub(super) struct RefusalWindows(Mutex<Vec<RefusalWindow>>);

/// Refusals with the same kind are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RefusalKind {
    error: &'static str,
    /// Hash of the model's name; `None` for those without a model, and those of all further models of the key. Two models with the same
    /// hash would share a record.
    model: Option<u64>,
}

/// Refusals of one kind.
#[derive(Debug)]
struct RefusalWindow {
    kind: RefusalKind,
    ends: Instant,
    recorded: u32,
    counted: Option<Arc<RepeatedRefusals>>,
}

/// The refusals of one minute that have one record together.
#[derive(Debug, Default)]
pub(crate) struct RepeatedRefusals(AtomicU64);

impl RepeatedRefusals {
    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// How a refusal is recorded.
#[derive(Debug)]
pub(crate) enum RefusalRecord {
    /// By a record of its own.
    Own,
    /// The refusal is the first of a shared record, which is written at this time.
    Shared(Arc<RepeatedRefusals>, Instant),
    /// It was counted in that record.
    Counted,
}

/// Counts a refused request of a key and its member. Once the key has used up its separate records for the error and the model, one more
/// record counts its further refusals. Once the member has used up those for the error, one more record counts those of all its keys and
/// models.
pub(super) fn count([key, member]: [&RefusalWindows; 2], error: &'static str, model: Option<&str>, now: Instant) -> RefusalRecord {
    let [of_key, of_member] = Bound::RecordedRefusals.share().of_callers();
    let [mut key, mut member] = [key, member].map(|windows| windows.0.lock().unwrap_or_else(PoisonError::into_inner));
    for windows in [&mut key, &mut member] {
        windows.retain(|window| window.ends > now);
    }
    let model = model.map(hash);
    let kind = kind_of(&key, error, model);
    let (key, member) = (window(&mut key, kind, now), window(&mut member, RefusalKind { error, model: None }, now));
    if key.has_counted() {
        return RefusalRecord::Counted;
    }
    if member.recorded >= of_member.each_minute(u32::MAX) {
        return member.share_record();
    }
    member.recorded += 1;
    if key.recorded < of_key.each_minute(u32::MAX) {
        key.recorded += 1;
        return RefusalRecord::Own;
    }
    key.share_record()
}

fn hash(model: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    model.hash(&mut hasher);
    hasher.finish()
}

/// The kind of a refusal: its model counts if it is one of the first ones.
fn kind_of(windows: &[RefusalWindow], error: &'static str, model: Option<u64>) -> RefusalKind {
    let kind = RefusalKind { error, model };
    let models = windows.iter().filter(|window| window.kind.error == error && window.kind.model.is_some()).count();
    let is_known = windows.iter().any(|window| window.kind == kind);
    if is_known || models < MAX_MODELS { kind } else { RefusalKind { error, model: None } }
}

/// The window of a kind of refusal.
fn window(windows: &mut Vec<RefusalWindow>, kind: RefusalKind, now: Instant) -> &mut RefusalWindow {
    let at = windows.iter().position(|window| window.kind == kind).unwrap_or_else(|| {
        windows.push(RefusalWindow { kind, ends: now + MINUTE, recorded: 0, counted: None });
        windows.len() - 1
    });
    &mut windows[at]
}

impl RefusalWindow {
    /// Adds one to the shared record, if there is one.
    fn has_counted(&self) -> bool {
        let Some(counted) = &self.counted else { return false };
        counted.0.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Counts one in the shared record, which is created for the first.
    fn share_record(&mut self) -> RefusalRecord {
        if self.has_counted() {
            return RefusalRecord::Counted;
        }
        let counted = Arc::new(RepeatedRefusals(AtomicU64::new(1)));
        self.counted = Some(Arc::clone(&counted));
        RefusalRecord::Shared(counted, self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `count` refusals of a model: how many get their own record, begin a shared record, and are counted in a shared record.
    fn refuse(windows: [&RefusalWindows; 2], model: Option<&str>, count: usize, now: Instant) -> [usize; 3] {
        let mut found = [0; 3];
        for _ in 0..count {
            found[match super::count(windows, "E13", model, now) {
                RefusalRecord::Own => 0,
                RefusalRecord::Shared(..) => 1,
                RefusalRecord::Counted => 2,
            }] += 1;
        }
        found
    }

    #[test]
    fn refusals_of_different_models_have_separate_records() {
        let (key, member) = (RefusalWindows::default(), RefusalWindows::default());
        let now = Instant::now();
        assert_eq!(refuse([&key, &member], Some("a"), 15, now), [10, 1, 4]);
        assert_eq!(refuse([&key, &member], Some("b"), 12, now), [10, 1, 1]);
        assert_eq!(refuse([&key, &member], Some("a"), 1, now + MINUTE), [1, 0, 0], "the next minute");
    }

    #[test]
    fn models_beyond_the_eighth_share_a_record_until_the_minute_ends() {
        let (key, member) = (RefusalWindows::default(), RefusalWindows::default());
        let now = Instant::now();
        for number in 0..MAX_MODELS {
            assert_eq!(refuse([&key, &member], Some(&format!("m{number}")), 1, now), [1, 0, 0]);
        }
        let of_others: Vec<_> = (0..12).map(|number| refuse([&key, &member], Some(&format!("o{number}")), 1, now)).collect();
        assert_eq!(of_others.iter().map(|found| found[0]).sum::<usize>(), 10);
        assert_eq!(of_others[10..], [[0, 1, 0], [0, 0, 1]]);
        assert_eq!(refuse([&key, &member], None, 1, now), [0, 0, 1], "nor do refusals without a model");
        assert_eq!(key.0.lock().unwrap().len(), MAX_MODELS + 1);
        assert_eq!(refuse([&key, &member], Some("o1"), 1, now + MINUTE), [1, 0, 0]);
    }
}
