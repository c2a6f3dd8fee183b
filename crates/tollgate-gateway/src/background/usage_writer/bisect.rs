//! Writes a batch that the database rejects by bisection: halves are written separately until the rejected records are
//! isolated. Those are quarantined in the journal, so that one invalid record does not block the others.

use tollgate_core::{RequestId, UsageRecord};
use tollgate_store::{Journal, StoreError, UsageStore};

use super::MAX_QUARANTINED;

/// Result of a bisection.
#[derive(Debug, Default)]
pub(super) struct BisectOutcome {
    pub(super) booked: usize,
    pub(super) refused: usize,
    pub(super) left: Vec<RequestId>,
    /// Why the bisection stopped early: the database became unreachable, or it rejects more than [`MAX_QUARANTINED`] records.
    pub(super) stopped: Option<StoreError>,
}

/// Writes the records that the database accepts and quarantines the others.
pub(super) async fn bisect(usage: &dyn UsageStore, journal: &Journal, records: &[UsageRecord]) -> BisectOutcome {
    let mut outcome = BisectOutcome::default();
    let mut parts = Vec::new();
    halve(records, &mut parts);
    while let Some(part) = parts.pop() {
        match usage.append(part).await {
            Ok(_new) => {
                journal.mark_booked(&part.iter().map(|record| record.id).collect::<Vec<_>>());
                outcome.booked += part.len();
            }
            Err(fault) if fault.is_invalid_data() && journal.quarantined() < MAX_QUARANTINED => match part {
                [record] => {
                    quarantine(journal, record, &fault);
                    outcome.refused += 1;
                }
                _ => halve(part, &mut parts),
            },
            Err(fault) => {
                parts.push(part);
                outcome.stopped = Some(fault);
                break;
            }
        }
    }
    outcome.left = parts.iter().rev().flat_map(|part| part.iter()).map(|record| record.id).collect();
    outcome
}

/// Pushes both halves so that the first is processed first. A single record is not split.
fn halve<'a>(part: &'a [UsageRecord], parts: &mut Vec<&'a [UsageRecord]>) {
    let (first, second) = part.split_at(part.len() / 2);
    parts.extend([second, first].into_iter().filter(|part| !part.is_empty()));
}

fn quarantine(journal: &Journal, record: &UsageRecord, fault: &StoreError) {
    tracing::error!(
        request.id = %record.id, %fault,
        "the database rejects a usage record; it is quarantined in the journal and retried at the next start"
    );
    if let Err(fault) = journal.quarantine(record) {
        tracing::error!(request.id = %record.id, %fault, "the record cannot be quarantined; it remains in its journal segment");
    }
}
