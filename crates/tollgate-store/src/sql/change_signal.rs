//! What ends a wait for a change of the catalog: PostgreSQL's own notification, or the time for another look.

use std::{fmt, time::Duration};

use sqlx::postgres::PgListener;
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

/// How often the revision is looked at. On PostgreSQL this is the fallback for notifications that get lost.
const SQLITE_POLL: Duration = Duration::from_millis(250);
const POSTGRES_POLL: Duration = Duration::from_secs(1);

/// Goes with the transaction that changes the catalog, so it is delivered when that one is committed.
pub(super) const NOTIFY: &str = "NOTIFY tollgate_catalog";
const CHANNEL: &str = "tollgate_catalog";

/// How one hears of changes.
pub(super) enum ChangeSignal {
    /// Only by looking: SQLite tells other processes nothing.
    Look,
    /// By listening to PostgreSQL.
    Listen {
        /// The address, its password included.
        url: String,
        /// Opened by the first wait; commands never wait.
        listener: Mutex<Option<PgListener>>,
    },
}

impl fmt::Debug for ChangeSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Look => "Look",
            Self::Listen { .. } => "Listen",
        })
    }
}

impl ChangeSignal {
    pub(super) fn listen(url: String) -> Self {
        Self::Listen { url, listener: Mutex::new(None) }
    }

    /// Ends when there may be something new, which the caller then looks for.
    pub(super) async fn wait(&self) {
        let Self::Listen { url, listener } = self else {
            sleep(SQLITE_POLL).await;
            return;
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
                // Whatever came before it listened has to be looked for at once.
                Ok(Ok(open)) => *listener = Some(open),
                Ok(Err(_)) | Err(_) => sleep(POSTGRES_POLL).await,
            },
        }
    }

    /// Closes the connection, unless somebody waits on it still.
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
