//! Runtime state of a running gateway for commands on the same data folder: `<data>/traffic.json`, written at most once a second
//! and removed while there is nothing to report. It is a file and not a route, so that access requires access to the folder.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use tollgate_core::Timestamp;
use tollgate_gateway::state::{runtime_state::RuntimeState, shared::Shared};

use crate::runtime_socket;

const UPDATE_INTERVAL: Duration = Duration::from_secs(1);
/// Unchanged state is rewritten after this many updates, to refresh its timestamp.
const REWRITE_AFTER: u32 = 5;
/// An older file is stale: the gateway that wrote it no longer runs.
const VALID_MS: i64 = 15_000;
/// Larger files are ignored.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

fn file(data: &Path) -> PathBuf {
    data.join("traffic.json")
}

/// The state of the gateway on this data folder: its present answer, else the file that it wrote last; empty if none is
/// running.
pub(crate) fn read(data: &Path, now: Timestamp) -> RuntimeState {
    runtime_socket::ask(data).map_or_else(|| read_file(data, now), |report| report.state)
}

fn read_file(data: &Path, now: Timestamp) -> RuntimeState {
    let path = file(data);
    let fits = fs::metadata(&path).is_ok_and(|metadata| metadata.len() <= MAX_BYTES);
    let text = fits.then(|| fs::read(&path).ok()).flatten();
    let known: Option<RuntimeState> = text.and_then(|text| serde_json::from_slice(&text).ok());
    known.filter(|known| known.at.plus_ms(VALID_MS) > now).unwrap_or_default()
}

/// Updates the file until `stop` is cancelled. A failed write is logged once.
pub(crate) async fn run(shared: Arc<Shared>, data: PathBuf, stop: CancellationToken) {
    let mut snapshot = SnapshotFile { data, written: RuntimeState::default(), unchanged: 0, warned: false };
    // A killed process may have left a file.
    snapshot.remove();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(UPDATE_INTERVAL) => {}
        }
        snapshot.update(RuntimeState::of(&shared));
    }
    if shared.serving.hand_over.has_left() {
        // The file is the other process's.
        return;
    }
    snapshot.remove();
}

struct SnapshotFile {
    data: PathBuf,
    written: RuntimeState,
    unchanged: u32,
    warned: bool,
}

impl SnapshotFile {
    fn update(&mut self, known: RuntimeState) {
        let same = known.same_content(&self.written);
        self.unchanged = if same { self.unchanged + 1 } else { 0 };
        if same && (known.is_empty() || !self.unchanged.is_multiple_of(REWRITE_AFTER)) {
            return;
        }
        if known.is_empty() {
            self.remove();
        } else if let Err(fault) = write(&self.data, &known)
            && !self.warned
        {
            self.warned = true;
            tracing::warn!(%fault, "cannot write traffic.json to the data folder; `tollgate explain` will not show runtime state");
        }
        self.written = known;
    }

    fn remove(&self) {
        // Usually there is no file.
        let _ = fs::remove_file(file(&self.data));
    }
}

/// Writes atomically, readable by the owner only.
fn write(data: &Path, known: &RuntimeState) -> std::io::Result<()> {
    let path = data.join("traffic.json.new");
    let mut options = fs::File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut temporary = options.open(&path)?;
    temporary.write_all(&serde_json::to_vec(known)?)?;
    fs::rename(&path, file(data))
}

#[cfg(test)]
mod tests {
    use tollgate_core::AccountId;
    use tollgate_gateway::state::{capacity_limiter::CapacityUsage, runtime_state::AccountUsageEntry};

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    #[test]
    fn file_exists_while_there_is_state_to_report() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut snapshot =
            SnapshotFile { data: dir.path().to_owned(), written: RuntimeState::default(), unchanged: 0, warned: false };
        snapshot.update(RuntimeState { at: NOW, ..RuntimeState::default() });
        assert!(!file(dir.path()).exists());
        let in_use = CapacityUsage { running: 1, ..CapacityUsage::default() };
        let accounts = vec![AccountUsageEntry { account: AccountId::from_parts(NOW, [1; 10]), in_use }];
        let known = |at| RuntimeState { at, accounts: accounts.clone(), ..RuntimeState::default() };
        snapshot.update(known(NOW));
        assert_eq!(read(dir.path(), NOW.plus_ms(1_000)), known(NOW));
        assert!(read(dir.path(), NOW.plus_ms(VALID_MS)).is_empty(), "stale");
        for second in 1..=5 {
            snapshot.update(known(NOW.plus_ms(second * 1_000)));
        }
        assert_eq!(read(dir.path(), NOW).at, NOW.plus_ms(5_000), "rewritten to refresh the timestamp");
        snapshot.update(RuntimeState { at: NOW.plus_ms(6_000), ..RuntimeState::default() });
        assert!(!file(dir.path()).exists());
    }

    #[test]
    fn damaged_file_is_ignored() {
        let dir = tempfile::TempDir::new().unwrap();
        fs::write(file(dir.path()), b"{\"at\":").unwrap();
        assert!(read(dir.path(), NOW).is_empty());
    }
}
