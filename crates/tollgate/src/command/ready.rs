//! `ready`: whether the local gateway takes requests, for health checks in containers without a shell.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use crate::{cli::Common, compose, failure::Failure, output};

/// Timeout of each network operation.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Queries `/readyz` at `server.listen`. Exit code 1 if the gateway is unreachable or takes no requests. A gateway without its
/// database is ready: restarting its containers would only make the outage worse.
pub(crate) fn run(common: &Common) -> Result<(), Failure> {
    let config = compose::settings(common, &[])?;
    if !config.text("server.tls_cert").is_empty() {
        return Err(Failure::invalid("`tollgate ready` uses plain HTTP; with server.tls_cert, query https://…/readyz instead"));
    }
    let address = local_address(config.listen);
    let status =
        readyz_status(address).map_err(|error| Failure::Machine(format!("no gateway answers at http://{address}: {error}")))?;
    if status != 200 {
        return Err(Failure::Machine(format!("the gateway at http://{address} takes no requests now: /readyz returned {status}")));
    }
    if !common.quiet {
        output::line("ready");
    }
    Ok(())
}

/// Loopback address for a gateway that listens on every address.
pub(crate) fn local_address(listen: SocketAddr) -> SocketAddr {
    let loopback = if listen.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) };
    SocketAddr::new(if listen.ip().is_unspecified() { loopback } else { listen.ip() }, listen.port())
}

/// Status of `/readyz`.
fn readyz_status(address: SocketAddr) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())?;
    // `HTTP/1.1 200`
    let mut line = [0; 12];
    stream.read_exact(&mut line)?;
    let status = std::str::from_utf8(&line[9..]).ok().and_then(|text| text.parse().ok());
    status.ok_or_else(|| std::io::Error::other("not an HTTP server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_address_becomes_loopback() {
        let local = |text: &str| local_address(text.parse().unwrap()).to_string();
        assert_eq!(local("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(local("[::]:8080"), "[::1]:8080");
        assert_eq!(local("10.0.0.5:80"), "10.0.0.5:80");
    }
}
