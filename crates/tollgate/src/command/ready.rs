//! `ready`: whether the gateway on this machine takes requests, for health checks of containers that have no shell.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use crate::{cli::Common, compose, failure::Failure, output};

/// Longest wait for each step.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks `/readyz` at the address of `server.listen`. Exit code 1 when the gateway takes no requests, or none answers. A
/// database that is away leaves a gateway ready: to stop its containers would only add to the outage.
pub(crate) fn run(common: &Common) -> Result<(), Failure> {
    let config = compose::settings(common, &[])?;
    if !config.text("server.tls_cert").is_empty() {
        return Err(Failure::written("ready asks over plain HTTP; with server.tls_cert ask https://…/readyz instead"));
    }
    let address = near(config.listen);
    let status = ask(address).map_err(|error| Failure::Machine(format!("no gateway answers at http://{address}: {error}")))?;
    if status != 200 {
        return Err(Failure::Machine(format!("the gateway at http://{address} takes no requests now: /readyz says {status}")));
    }
    if !common.quiet {
        output::line("ready");
    }
    Ok(())
}

/// Where a gateway that listens on every address is found from this machine.
fn near(listen: SocketAddr) -> SocketAddr {
    let here = if listen.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) };
    SocketAddr::new(if listen.ip().is_unspecified() { here } else { listen.ip() }, listen.port())
}

/// The status of `/readyz`.
fn ask(address: SocketAddr) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())?;
    // `HTTP/1.1 200`
    let mut line = [0; 12];
    stream.read_exact(&mut line)?;
    let status = std::str::from_utf8(&line[9..]).ok().and_then(|text| text.parse().ok());
    status.ok_or_else(|| std::io::Error::other("what answers does not speak HTTP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_on_every_address_is_asked_on_this_machine() {
        let near = |text: &str| near(text.parse().unwrap()).to_string();
        assert_eq!(near("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(near("[::]:8080"), "[::1]:8080");
        assert_eq!(near("10.0.0.5:80"), "10.0.0.5:80");
    }
}
