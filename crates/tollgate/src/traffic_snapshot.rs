//! What a running gateway knows besides the database, left in the data folder for commands beside it: `<data>/traffic.json`,
//! written at most once a second while there is something to tell, gone when there is not. A file and not a route of
//! the gateway, so that whoever may read the data folder may see it and nobody else.

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

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// What is unchanged is written again after so many looks, to say that it still holds.
const REWRITE_AFTER: u32 = 5;
/// What is older was left by a gateway that is gone.
const VALID_MS: i64 = 15_000;
/// The file is not larger.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

fn file(data: &Path) -> PathBuf {
    data.join("traffic.json")
}

/// What the gateway on this data folder knows; nothing where none runs or none has anything to tell.
pub(crate) fn read(data: &Path, now: Timestamp) -> RuntimeState {
    let path = file(data);
    let small = fs::metadata(&path).is_ok_and(|about| about.len() <= MAX_BYTES);
    let text = small.then(|| fs::read(&path).ok()).flatten();
    let known: Option<RuntimeState> = text.and_then(|text| serde_json::from_slice(&text).ok());
    known.filter(|known| known.at.plus_ms(VALID_MS) > now).unwrap_or_default()
}

/// Keeps the file until it is told to stop. What cannot be written is told once: nothing depends on it.
pub(crate) async fn keep(shared: Arc<Shared>, data: PathBuf, stop: CancellationToken) {
    let mut notes = SnapshotFile { data, written: RuntimeState::default(), looks: 0, complained: false };
    // One that was killed may have left its own.
    notes.remove();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(EVERY) => {}
        }
        let known = RuntimeState::of(&shared);
        notes.put(known);
    }
    notes.remove();
}

struct SnapshotFile {
    data: PathBuf,
    written: RuntimeState,
    looks: u32,
    complained: bool,
}

impl SnapshotFile {
    fn put(&mut self, known: RuntimeState) {
        let same = known.same_content(&self.written);
        self.looks = if same { self.looks + 1 } else { 0 };
        if same && (known.is_empty() || !self.looks.is_multiple_of(REWRITE_AFTER)) {
            return;
        }
        if known.is_empty() {
            self.remove();
        } else if let Err(fault) = write(&self.data, &known)
            && !self.complained
        {
            self.complained = true;
            tracing::warn!(%fault, "what traffic teaches cannot be left in the data folder; `tollgate explain` will not know it");
        }
        self.written = known;
    }

    fn remove(&self) {
        // There is mostly none.
        let _ = fs::remove_file(file(&self.data));
    }
}

/// Whole or not at all, for the owner only.
fn write(data: &Path, known: &RuntimeState) -> std::io::Result<()> {
    let draft = data.join("traffic.json.new");
    let mut options = fs::File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file_at_draft = options.open(&draft)?;
    file_at_draft.write_all(&serde_json::to_vec(known)?)?;
    fs::rename(&draft, file(data))
}

#[cfg(test)]
mod tests {
    use tollgate_core::AccountId;
    use tollgate_gateway::state::{account_limiter::AccountUsage, runtime_state::AccountUsageEntry};

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    #[test]
    fn what_is_known_is_there_while_it_holds_and_gone_when_nothing_is() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut notes = SnapshotFile { data: dir.path().to_owned(), written: RuntimeState::default(), looks: 0, complained: false };
        notes.put(RuntimeState { at: NOW, ..RuntimeState::default() });
        assert!(!file(dir.path()).exists());
        let in_use = AccountUsage { running: 1, ..AccountUsage::default() };
        let accounts = vec![AccountUsageEntry { account: AccountId::from_parts(NOW, [1; 10]), in_use }];
        let known = |at| RuntimeState { at, accounts: accounts.clone(), ..RuntimeState::default() };
        notes.put(known(NOW));
        assert_eq!(read(dir.path(), NOW.plus_ms(1_000)), known(NOW));
        assert!(read(dir.path(), NOW.plus_ms(VALID_MS)).is_empty(), "the gateway is gone");
        for second in 1..=5 {
            notes.put(known(NOW.plus_ms(second * 1_000)));
        }
        assert_eq!(read(dir.path(), NOW).at, NOW.plus_ms(5_000), "said again so that it holds");
        notes.put(RuntimeState { at: NOW.plus_ms(6_000), ..RuntimeState::default() });
        assert!(!file(dir.path()).exists());
    }

    #[test]
    fn rubbish_in_the_file_is_nothing_known() {
        let dir = tempfile::TempDir::new().unwrap();
        fs::write(file(dir.path()), b"{\"at\":").unwrap();
        assert!(read(dir.path(), NOW).is_empty());
    }
}
