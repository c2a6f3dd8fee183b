//! Lists of rows that searches and counts go through as a whole. They are read again only after the catalog has changed, whichever node
//! changed it: each use reads the catalog's revision first.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::timeout};
use tollgate_core::Revision;
use tollgate_store::{GroupUsers, KeyEntry, MemberSpec};

/// Longest wait for another request that reads the same list; after that, the list is read again.
const MAX_WAIT: Duration = Duration::from_secs(6);

/// Lists of all rows, for readers who may see everything. Keys and members have at most 20,000 entries.
#[derive(Debug, Default)]
pub(crate) struct CatalogLists {
    /// Search and sort data of the keys that are not revoked.
    pub(crate) keys: UntilChanged<Vec<Arc<KeyEntry>>>,
    pub(crate) members: UntilChanged<Vec<Arc<MemberEntry>>>,
    /// Members and keys by name of the group.
    pub(crate) group_users: UntilChanged<HashMap<String, GroupUsers>>,
}

/// Search and sort data of a member.
#[derive(Debug)]
pub(crate) struct MemberEntry {
    pub(crate) id: String,
    pub(crate) spec: MemberSpec,
}

/// A value that was read from the catalog, with the revision that the catalog had before.
#[derive(Debug)]
pub(crate) struct UntilChanged<T>(Mutex<Option<(Revision, Arc<T>)>>);

impl<T> Default for UntilChanged<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> UntilChanged<T> {
    /// The value at this revision of the catalog: the one that was read last, or that `read` returns. Concurrent requests wait for the
    /// first one's `read`.
    pub(crate) async fn get<E>(&self, revision: Revision, read: impl Future<Output = Result<T, E>>) -> Result<Arc<T>, E> {
        let Ok(mut last) = timeout(MAX_WAIT, self.0.lock()).await else { return Ok(Arc::new(read.await?)) };
        if let Some((known, value)) = &*last
            && *known == revision
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(read.await?);
        *last = Some((revision, Arc::clone(&value)));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{join, join_all};
    use tokio::time::{Instant, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn slow(value: Result<u32, &'static str>) -> Result<u32, &'static str> {
        sleep(SECOND).await;
        value
    }

    #[tokio::test(start_paused = true)]
    async fn value_is_read_once_for_each_revision() {
        let list = UntilChanged::default();
        let get = async |revision, value| list.get(Revision(revision), slow(value)).await.map(|value| *value);
        assert_eq!(get(1, Ok(10)).await, Ok(10));
        assert_eq!(get(1, Ok(11)).await, Ok(10));
        assert_eq!(get(2, Ok(12)).await, Ok(12));
        assert_eq!(get(3, Err("busy")).await, Err("busy"), "an old value does not replace a failed read");
        assert_eq!(get(2, Ok(13)).await, Ok(12));
        assert_eq!(get(1, Ok(14)).await, Ok(14), "a restored database may have an earlier revision");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_a_read_for_a_bounded_time() {
        let list = UntilChanged::default();
        let began = Instant::now();
        let all = join_all((0..20).map(|value| list.get(Revision(1), slow(Ok(value))))).await;
        assert!(all.iter().all(|value| value.as_deref() == Ok(&0)));
        assert_eq!(began.elapsed(), SECOND);

        let stuck = list.get(Revision(2), async {
            sleep(SECOND * 60).await;
            Ok::<_, &str>(1)
        });
        let began = Instant::now();
        let other = async { (list.get(Revision(2), async { Ok::<_, &str>(2) }).await.map(|value| *value), began.elapsed()) };
        let (_, other) = join(stuck, other).await;
        assert_eq!(other, (Ok(2), MAX_WAIT));
    }
}
