//! An upgrade without a gap: a new process takes over the sockets, the lock of the data folder and the state of the counters from
//! the running one (`tollgate serve --upgrade`).
//!
//! ```text
//! new                                   running
//!  ── Ask ────────────────────────────▶  pauses: accepts nothing, books every record that has ended
//!  ◀──────── Handed, with the sockets ─
//!  opens database and journal
//!  ── Ready ──────────────────────────▶  leaves: from here on it only completes running requests
//!  ◀──────────────────────────── Go ───
//!  serves                                relays its open responses, books their records
//!  ◀────────── Settled, Connection … ──  each ended request, each connection between two requests
//! ```
//!
//! Until `Go` the running process can resume serving, and does so if the new one fails (`Failed`, or the end of the conversation).
//! Connections that arrive meanwhile wait in the kernel's queue, and so do processes that ask for the next upgrade. Each process
//! writes its own journal folder, so killing either loses nothing.

pub(crate) mod adopt;
pub(crate) mod leaving;
mod messages;
pub(crate) mod notify;
pub(crate) mod predecessors;
pub(crate) mod sockets;
pub(crate) mod taking_over;

use std::path::{Path, PathBuf};

/// Version of the messages; a gateway refuses to hand over to a process with another version.
const PROTOCOL: u32 = 1;

fn socket_path(data: &Path) -> PathBuf {
    data.join("upgrade.sock")
}
