//! Notifies systemd that another process is the main one of the service.

use std::os::{
    linux::net::SocketAddrExt as _,
    unix::net::{SocketAddr, UnixDatagram},
};

use crate::config;

/// Makes this process the main one, if systemd started it. A failure is logged: systemd would consider the service failed when the
/// old process ends.
pub(crate) fn main_process() {
    let Some(path) = config::variable("NOTIFY_SOCKET") else { return };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let message = format!("MAINPID={}\nREADY=1\n", std::process::id());
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::error!(%error, "systemd was not notified which process serves now; set NotifyAccess=all in the unit");
    }
}
