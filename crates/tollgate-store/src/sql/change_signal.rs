//! Waiting for changes of the catalog: PostgreSQL notifications; or those of this process, and polling for those of others.

use std::{fmt, time::Duration};

use sqlx::postgres::PgListener;
use tokio::{
    sync::{Mutex, Notify},
    time::{sleep, timeout},
};

/// Interval between polls of the revision. On PostgreSQL polling covers lost notifications.
const SQLITE_POLL: Duration = Duration::from_millis(250);
const POSTGRES_POLL: Duration = Duration::from_secs(1);

/// Runs in the transaction that changes the catalog; PostgreSQL delivers the notification at the commit.
pub(super) const NOTIFY: &str = "NOTIFY tollgate_catalog";
const CHANNEL: &str = "tollgate_catalog";

/// Wakes up a task that waits for a change.
pub(super) enum ChangeSignal {
    /// SQLite has no notifications between processes.
    Poll {
        /// A change of this process.
        changed: Notify,
    },
    Listen {
        url: String,
        /// Connected by the first wait; commands never wait.
        listener: Mutex<Option<PgListener>>,
    },
}

impl fmt::Debug for ChangeSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poll { .. } => "Poll",
            Self::Listen { .. } => "Listen",
        })
    }
}

impl ChangeSignal {
    pub(super) fn listen(url: String) -> Self {
        Self::Listen { url, listener: Mutex::new(None) }
    }

    pub(super) fn poll() -> Self {
        Self::Poll { changed: Notify::new() }
    }

    /// Tells the waiting task that this process has changed the catalog.
    pub(super) fn notify(&self) {
        if let Self::Poll { changed } = self {
            changed.notify_one();
        }
    }

    /// Returns when there may be a change. The caller checks the revision.
    pub(super) async fn wait(&self) {
        let (url, listener) = match self {
            Self::Poll { changed } => {
                // An elapsed poll counts like a notification: the caller checks.
                let _ = timeout(SQLITE_POLL, changed.notified()).await;
                return;
            }
            Self::Listen { url, listener } => (url, listener),
        };
        let mut listener = listener.lock().await;
        match listener.as_mut() {
            Some(open) => {
                if let Ok(Err(_)) = timeout(POSTGRES_POLL, open.recv()).await {
                    *listener = None;
                    sleep(POSTGRES_POLL).await;
                }
            }
            None => match timeout(POSTGRES_POLL, open(url)).await {
                // Return at once: changes made before the listener connected sent no notification to it.
                Ok(Ok(open)) => *listener = Some(open),
                Ok(Err(_)) | Err(_) => sleep(POSTGRES_POLL).await,
            },
        }
    }

    /// Closes the connection unless a task still waits on it.
    pub(super) fn close(&self) {
        if let Self::Listen { listener, .. } = self
            && let Ok(mut listener) = listener.try_lock()
        {
            *listener = None;
        }
    }
}

async fn open(url: &str) -> Result<PgListener, sqlx::Error> {
    let mut listener = PgListener::connect(url).await?;
    listener.listen(CHANNEL).await?;
    Ok(listener)
}
