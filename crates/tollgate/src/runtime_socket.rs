//! `<data>/gateway.sock`: the running gateway reports its address and its current state to commands on the same folder. Access to
//! the folder is the permission. Unlike the file `traffic.json` it needs no free space on the disk.

use std::{
    fs,
    io::Read as _,
    net::SocketAddr,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{io::AsyncWriteExt as _, net::UnixListener, time::timeout};
use tokio_util::sync::CancellationToken;
use tollgate_gateway::state::{runtime_state::RuntimeState, shared::Shared};
use url::Url;

/// Longest wait for the gateway, and for a command to read.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Larger answers are ignored.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The gateway's report to commands.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    /// Listening address for callers, which a flag may have set.
    pub(crate) listen: SocketAddr,
    /// Address of its console for browsers; empty from a gateway of an earlier build.
    #[serde(default)]
    pub(crate) console: String,
    pub(crate) state: RuntimeState,
}

fn path(data: &Path) -> PathBuf {
    data.join("gateway.sock")
}

/// Queries the gateway on this folder; `None` if none answers.
pub(crate) fn ask(data: &Path) -> Option<Report> {
    let stream = UnixStream::connect(path(data)).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let mut text = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Answers commands until `stop` is cancelled, one at a time. `console` is the console's address for browsers. The caller holds the lock
/// of the folder.
pub(crate) async fn serve(shared: Arc<Shared>, (listen, console): (SocketAddr, Url), data: PathBuf, stop: CancellationToken) {
    let path = path(&data);
    // A killed process may have left a socket.
    let _ = fs::remove_file(&path);
    let listener = match UnixListener::bind(&path) {
        Ok(listener) => listener,
        Err(error) => {
            // The path may be too long for a socket, or the file system may not support sockets.
            tracing::warn!(path = %path.display(), %error, "commands cannot ask this gateway; they read what it last wrote to its folder");
            return;
        }
    };
    let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((mut stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let text = serde_json::to_vec(&Report { listen, console: console.to_string(), state: RuntimeState::of(&shared) })
            .unwrap_or_default();
        // The gateway does not wait for a command that does not read.
        let _ = timeout(TIMEOUT, stream.write_all(&text)).await;
    }
    // After an upgrade, the path is that of the other process.
    if !shared.serving.hand_over.has_left() {
        let _ = fs::remove_file(&path);
    }
}
