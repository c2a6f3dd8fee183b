//! Shares revoked keys, disabled keys and suspended members with the other nodes through Redis, so that a node that has lost the
//! database refuses them too.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;
use tollgate_core::{KeyStatus, MemberStatus, Revision, Subject};
use tollgate_gateway::state::shared::Shared;
use tollgate_store::{AccessReport, AccessState, CatalogStore, KeySpec, MemberSpec, SharedAccessReports, StoredRow};

const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);
/// Bounds of the queue of reports to send: lists, and reports in each. Nodes read the content of reports that do not fit from
/// the database.
pub(crate) const QUEUE_CAPACITY: usize = 64;
const MAX_LISTED: usize = 1_000;
/// How long to wait for the database to reach the revision of a report.
const REVISION_TIMEOUT: Duration = Duration::from_secs(2);

/// The access state according to the row of a key or member; `None` for other subjects.
pub(crate) fn report(row: &StoredRow, subject: Subject, revision: Revision) -> Option<AccessReport> {
    let is_active = match subject {
        Subject::Key(_) if row.removed_at.is_some() => {
            return Some(AccessReport { subject, state: AccessState::Revoked, revision });
        }
        Subject::Key(_) => row.read::<KeySpec>().ok()?.status == KeyStatus::Active,
        Subject::Member(_) => row.read::<MemberSpec>().ok()?.status == MemberStatus::Active,
        Subject::Group(_) | Subject::Channel(_) | Subject::Gateway => return None,
    };
    let state = if is_active { AccessState::Allowed } else { AccessState::Blocked };
    Some(AccessReport { subject, state, revision })
}

/// Queues reports for the other nodes, reports about lost access first. Never waits.
pub(crate) fn enqueue(queue: &mpsc::Sender<Vec<AccessReport>>, mut reports: Vec<AccessReport>) {
    reports.sort_by_key(|report| report.state == AccessState::Allowed);
    for some in reports.chunks(MAX_LISTED) {
        // If the queue is full or there is no Redis, the other nodes read it from the database.
        if queue.try_send(some.to_vec()).is_err() {
            return;
        }
    }
}

/// Sends the reports of `ours` and applies those of other nodes until `stop` is cancelled.
pub(crate) async fn watch(
    mut shared_reports: SharedAccessReports,
    mut ours: mpsc::Receiver<Vec<AccessReport>>,
    catalog: Arc<dyn CatalogStore>,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    loop {
        let mut sent = Vec::new();
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EXCHANGE_INTERVAL) => {}
            Some(reports) = ours.recv() => sent.extend(reports),
        }
        while let Ok(reports) = ours.try_recv() {
            sent.extend(reports);
        }
        match shared_reports.exchange(sent).await {
            Ok(received) => apply(received, &*catalog, &shared).await,
            Err(error) => tracing::debug!(%error, "exchanging the access of keys with other nodes failed"),
        }
    }
}

async fn apply(received: Vec<AccessReport>, catalog: &dyn CatalogStore, shared: &Shared) {
    let applied = shared.apply_access(received);
    for AccessReport { subject, state, .. } in &applied {
        match (subject, state) {
            (Subject::Key(key), AccessState::Revoked) => {
                tracing::info!(key.id = %key, "another node reports that a key is revoked");
            }
            (Subject::Key(key), _) => tracing::info!(key.id = %key, ?state, "another node reports the access of a key"),
            (Subject::Member(member), _) => {
                tracing::info!(member.id = %member, ?state, "another node reports the access of a member");
            }
            (Subject::Group(_) | Subject::Channel(_) | Subject::Gateway, _) => {}
        }
    }
    // A report follows its change of the database. A database that has not reached the report's revision was replaced since, for
    // example by an older backup.
    if applied.iter().any(|report| report.state == AccessState::Blocked)
        && let Ok(Ok(revision)) = timeout(REVISION_TIMEOUT, catalog.revision()).await
    {
        shared.keys.forget_blocks_after(revision);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::KeyId;

    use super::*;
    use crate::compose;

    #[test]
    fn blocking_reports_take_precedence_in_a_full_queue() {
        let (queue, mut queued) = mpsc::channel(QUEUE_CAPACITY);
        let report = |number: u32, state| {
            let mut random = [0; 10];
            random[..4].copy_from_slice(&number.to_be_bytes());
            AccessReport { subject: Subject::Key(KeyId::from_parts(compose::now(), random)), state, revision: Revision(1) }
        };
        let mut reports: Vec<_> = (0..100_000).map(|number| report(number, AccessState::Allowed)).collect();
        reports.push(report(100_000, AccessState::Blocked));
        enqueue(&queue, reports);
        let first = queued.try_recv().unwrap();
        assert_eq!((first.len(), first[0].state), (MAX_LISTED, AccessState::Blocked));
        assert_eq!(queued.len(), QUEUE_CAPACITY - 1);
    }
}
