//! Checks whether the gateway can listen on the addresses of the settings, and which program does if they are taken.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use serde_json::Value;
use tollgate_gateway::server::can_listen;
use tollgate_store::DataFolderLock;

/// Longest time for each step of asking the program that listens for its version.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of the answer.
const ANSWER_BYTES: u64 = 4_096;

/// Whether a gateway with this data folder could serve at an address, or already does, with an explanation. `setting` is the setting with
/// the address.
pub(crate) fn check(address: SocketAddr, setting: &str, data: &Path) -> (bool, String) {
    let Err(error) = can_listen(address) else { return (true, format!("{address} is free")) };
    let kind = error.kind();
    if kind == ErrorKind::AddrInUse {
        return taken(address, setting, data);
    }
    let text = if kind == ErrorKind::PermissionDenied {
        format!("this user may not listen on {address}: set {setting} to a port from 1024 on, or permit it (CAP_NET_BIND_SERVICE)")
    } else if kind == ErrorKind::AddrNotAvailable {
        format!("{address} is not an address of this machine: set {setting} to one, or to 0.0.0.0 for all")
    } else {
        format!("{address} cannot be listened on: {error}")
    };
    (false, text)
}

/// An address on which something listens: the gateway of this data folder, or another program.
fn taken(address: SocketAddr, setting: &str, data: &Path) -> (bool, String) {
    let version = version_of(address).ok().flatten();
    let is_running = DataFolderLock::is_taken(data);
    match (is_running, version) {
        (true, Some(version)) => (true, format!("{address} is served by tollgate {version}")),
        // The address speaks TLS, or is that of the console.
        (true, None) => (true, format!("{address} is in use, and a gateway runs with this data folder")),
        (false, Some(version)) => (
            false,
            format!(
                "{address} is served by tollgate {version} with another data folder: stop it, or set {setting} to another port"
            ),
        ),
        (false, None) => (false, format!("{address} is in use by another program: stop it, or set {setting} to another port")),
    }
}

/// The version of the gateway that answers plain HTTP at an address.
fn version_of(address: SocketAddr) -> io::Result<Option<String>> {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        reachable.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    let mut socket = TcpStream::connect_timeout(&reachable, TIMEOUT)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    socket.write_all(format!("GET /version HTTP/1.1\r\nhost: {reachable}\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    socket.take(ANSWER_BYTES).read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    let is_gateway = said["name"] == "tollgate";
    Ok(said["version"].as_str().filter(|_| is_gateway).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn free_taken_and_foreign_addresses_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Accepts the question and closes.
        let server = std::thread::spawn(move || drop(listener.accept()));
        let (is_good, text) = check(address, "server.listen", folder.path());
        assert!(!is_good && text.contains("in use by another program") && text.contains("server.listen"), "{text}");
        server.join().unwrap();
        let (is_good, text) = check("127.0.0.1:0".parse().unwrap(), "server.listen", folder.path());
        assert!(is_good && text.ends_with("is free"), "{text}");
        let (is_good, text) = check("192.0.2.1:8080".parse().unwrap(), "server.listen", folder.path());
        assert!(!is_good && text.contains("not an address of this machine"), "{text}");
    }
}
