//! A batch that the database refuses as a whole: halves of it are booked, and halves of those, until the records stand
//! alone that it refuses. They are quarantined, so that one record cannot block all others.

use tollgate_core::{RequestId, UsageRecord};
use tollgate_store::{Journal, StoreError, UsageStore};

use super::REFUSED_MOST;

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct BisectOutcome {
    /// How many records are booked.
    pub(super) booked: usize,
    /// Number of quarantined records.
    pub(super) refused: usize,
    /// Records that were not come to.
    pub(super) left: Vec<RequestId>,
    /// Why not: the database went away, or refuses so much that the fault is not the records'.
    pub(super) stopped: Option<StoreError>,
}

/// Stores the records that the database accepts, and quarantines the others.
pub(super) async fn bisect(usage: &dyn UsageStore, journal: &Journal, records: &[UsageRecord]) -> BisectOutcome {
    let mut apart = BisectOutcome::default();
    let mut parts = Vec::new();
    halve(records, &mut parts);
    while let Some(part) = parts.pop() {
        match usage.append(part).await {
            Ok(_new) => {
                journal.mark_booked(&part.iter().map(|record| record.id).collect::<Vec<_>>());
                apart.booked += part.len();
            }
            Err(fault) if fault.is_invalid_data() && journal.quarantined() < REFUSED_MOST => match part {
                [record] => {
                    quarantine(journal, record, &fault);
                    apart.refused += 1;
                }
                _ => halve(part, &mut parts),
            },
            Err(fault) => {
                parts.push(part);
                apart.stopped = Some(fault);
                break;
            }
        }
    }
    apart.left = parts.iter().rev().flat_map(|part| part.iter()).map(|record| record.id).collect();
    apart
}

/// The first half is taken first. A single record stays whole.
fn halve<'a>(part: &'a [UsageRecord], parts: &mut Vec<&'a [UsageRecord]>) {
    let (first, second) = part.split_at(part.len() / 2);
    parts.extend([second, first].into_iter().filter(|part| !part.is_empty()));
}

fn quarantine(journal: &Journal, record: &UsageRecord, fault: &StoreError) {
    tracing::error!(
        request.id = %record.id, %fault,
        "the database refuses a usage record; it is quarantined in the journal and offered again at the next start"
    );
    if let Err(fault) = journal.quarantine(record) {
        tracing::error!(request.id = %record.id, %fault, "the record cannot be quarantined; it stays where it is in the journal");
    }
}
