//! Tunnels through a channel's proxy: `http://` with CONNECT (RFC 9110, section 9.3.6), `socks5://` and `socks5h://`
//! (RFC 1928, with the password of RFC 1929). The proxy is configured by the operator and may have any address that the lists of the
//! settings permit. It resolves host names itself, so the address policy and the lists apply to destinations only if they are written
//! as an address.
//!
//! `hyper_util::client::legacy::connect::proxy` (`Tunnel`, `SocksV5`; hyper-util 0.1.21) bounds the response head and
//! leaves name resolution to the proxy, but is not used here. `Tunnel` discards bytes received together with the response
//! head, which belong to the destination, and accepts only status 200 where RFC 9110 allows any 2xx. `SocksV5` takes the
//! credentials as UTF-8 strings and prints them in its `Debug` form.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use url::Url;

use super::{destination::UpstreamTarget, dial::dial, guard::AddressRules};
use crate::upstream::call::ConnectFault;

/// Largest response head to CONNECT.
const HEAD_BYTES: usize = 8 * 1024;

/// Connects to the destination through the proxy. The caller bounds the time.
pub(crate) async fn tunnel(proxy: &Url, destination: &UpstreamTarget, rules: &AddressRules) -> Result<TcpStream, ConnectFault> {
    let socket = reach(proxy, destination, rules).await?;
    open(socket, proxy, destination).await
}

/// Connects to the proxy itself, if it may connect to the destination.
pub(crate) async fn reach(proxy: &Url, destination: &UpstreamTarget, rules: &AddressRules) -> Result<TcpStream, ConnectFault> {
    if let Some(address) = destination.address {
        rules.permitted(destination.reach, vec![address])?;
    }
    let host = proxy.host_str().ok_or(ConnectFault::Proxy)?.trim_matches(['[', ']']);
    let port = proxy.port().unwrap_or(if proxy.scheme() == "http" { 3128 } else { 1080 });
    let found = tokio::net::lookup_host((host, port)).await.map_err(|_| ConnectFault::Proxy)?.take(16);
    let (mut addresses, mut fault) = (Vec::new(), ConnectFault::Proxy);
    for address in found {
        match rules.check(address.ip()) {
            Ok(()) => addresses.push(address),
            Err(denied) => fault = denied,
        }
    }
    if addresses.is_empty() {
        return Err(fault);
    }
    dial(addresses).await.map_err(|_| ConnectFault::Proxy)
}

/// Asks the proxy for a connection to the destination.
pub(crate) async fn open(mut socket: TcpStream, proxy: &Url, destination: &UpstreamTarget) -> Result<TcpStream, ConnectFault> {
    match proxy.scheme() {
        "http" => connect_method(&mut socket, proxy, destination).await?,
        "socks5" | "socks5h" => socks5(&mut socket, proxy, destination).await?,
        _ => return Err(ConnectFault::Proxy),
    }
    Ok(socket)
}

/// The method by which a proxy is asked for connections.
pub(crate) fn method(proxy: &Url) -> &'static str {
    if proxy.scheme() == "http" { "CONNECT" } else { "SOCKS5" }
}

async fn connect_method(socket: &mut TcpStream, proxy: &Url, destination: &UpstreamTarget) -> Result<(), ConnectFault> {
    let host = if destination.host.contains(':') { format!("[{}]", destination.host) } else { destination.host.clone() };
    let target = format!("{host}:{}", destination.port);
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n");
    if !proxy.username().is_empty() {
        let (name, password) = credentials(proxy);
        let mut both = name;
        both.push(b':');
        both.extend_from_slice(&password);
        request.push_str("proxy-authorization: Basic ");
        STANDARD.encode_string(both, &mut request);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    socket.write_all(request.as_bytes()).await.map_err(|_| ConnectFault::Proxy)?;
    let mut answer = Vec::with_capacity(256);
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == HEAD_BYTES {
            return Err(ConnectFault::Proxy);
        }
        // One byte at a time: bytes after the head belong to the destination.
        answer.push(socket.read_u8().await.map_err(|_| ConnectFault::Proxy)?);
    }
    let status = answer.split(|byte| *byte == b' ').nth(1);
    if status.is_some_and(|status| status.len() == 3 && status.starts_with(b"2")) { Ok(()) } else { Err(ConnectFault::Proxy) }
}

async fn socks5(socket: &mut TcpStream, proxy: &Url, destination: &UpstreamTarget) -> Result<(), ConnectFault> {
    negotiate(socket, proxy, destination).await.map_err(|_| ConnectFault::Proxy)
}

async fn negotiate(socket: &mut TcpStream, proxy: &Url, destination: &UpstreamTarget) -> std::io::Result<()> {
    let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    let with_password = !proxy.username().is_empty();
    socket.write_all(&[5, 1, if with_password { 2 } else { 0 }]).await?;
    let mut choice = [0; 2];
    socket.read_exact(&mut choice).await?;
    match choice {
        [5, 0] if !with_password => {}
        [5, 2] if with_password => {
            let (name, password) = credentials(proxy);
            let mut login = vec![1];
            for text in [name, password] {
                login.push(u8::try_from(text.len()).map_err(|_| refused())?);
                login.extend_from_slice(&text);
            }
            socket.write_all(&login).await?;
            socket.read_exact(&mut choice).await?;
            if choice[1] != 0 {
                return Err(refused());
            }
        }
        _ => return Err(refused()),
    }
    let mut request = vec![5, 1, 0];
    match destination.address {
        Some(std::net::IpAddr::V4(v4)) => {
            request.push(1);
            request.extend_from_slice(&v4.octets());
        }
        Some(std::net::IpAddr::V6(v6)) => {
            request.push(4);
            request.extend_from_slice(&v6.octets());
        }
        None => {
            request.extend_from_slice(&[3, u8::try_from(destination.host.len()).map_err(|_| refused())?]);
            request.extend_from_slice(destination.host.as_bytes());
        }
    }
    request.extend_from_slice(&destination.port.to_be_bytes());
    socket.write_all(&request).await?;
    let mut answer = [0; 4];
    socket.read_exact(&mut answer).await?;
    let address = match answer {
        [5, 0, _, 1] => 4,
        [5, 0, _, 4] => 16,
        [5, 0, _, 3] => usize::from(socket.read_u8().await?),
        _ => return Err(refused()),
    };
    let mut bound = [0; 257];
    socket.read_exact(&mut bound[..address + 2]).await?;
    Ok(())
}

/// Percent-decoded user name and password of the proxy's URL; empty if it has none.
fn credentials(proxy: &Url) -> (Vec<u8>, Vec<u8>) {
    let decode = |text| percent_decode_str(text).collect();
    (decode(proxy.username()), decode(proxy.password().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tollgate_core::{AddressLists, UnlistedAddress};

    use super::*;
    use crate::testing::channel;

    fn to(base: &str) -> UpstreamTarget {
        UpstreamTarget::of(&channel(base)).unwrap()
    }

    /// A proxy that, for each pair, reads the expected bytes and sends the answer.
    async fn proxy(turns: Vec<(Vec<u8>, &'static [u8])>) -> (u16, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio_util::task::TaskTracker::new().spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            for (expected, answer) in turns {
                let mut seen = vec![0; expected.len()];
                socket.read_exact(&mut seen).await.unwrap();
                assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(&expected));
                socket.write_all(answer).await.unwrap();
            }
        });
        (port, task)
    }

    #[tokio::test]
    async fn connect_sends_credentials_and_keeps_bytes_after_the_head() {
        let request =
            b"CONNECT api.example.com:443 HTTP/1.1\r\nhost: api.example.com:443\r\nproxy-authorization: Basic bWU6cEBzcw==\r\n\r\n";
        let (port, task) = proxy(vec![(request.to_vec(), b"HTTP/1.1 200 OK\r\nx: y\r\n\r\nrest")]).await;
        let url = Url::parse(&format!("http://me:p%40ss@127.0.0.1:{port}")).unwrap();
        let mut socket = tunnel(&url, &to("https://api.example.com/v1"), &AddressRules::default()).await.unwrap();
        let mut rest = [0; 4];
        socket.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"rest", "bytes after the head belong to the destination");
        task.await.unwrap();
    }

    #[tokio::test]
    async fn refusal_by_the_proxy_is_a_fault() {
        let request = b"CONNECT a.example.com:80 HTTP/1.1\r\nhost: a.example.com:80\r\n\r\n";
        let (port, task) = proxy(vec![(request.to_vec(), b"HTTP/1.1 403 no\r\n\r\n")]).await;
        let url = Url::parse(&format!("http://127.0.0.1:{port}")).unwrap();
        assert_eq!(tunnel(&url, &to("http://a.example.com/v1"), &AddressRules::default()).await.err(), Some(ConnectFault::Proxy));
        task.await.unwrap();
    }

    #[tokio::test]
    async fn socks5_authenticates_and_sends_the_host_name() {
        let turns: Vec<(Vec<u8>, &'static [u8])> = vec![
            (vec![5, 1, 2], &[5, 2]),
            (b"\x01\x02me\x02pw".to_vec(), &[1, 0]),
            (b"\x05\x01\x00\x03\x0da.example.com\x01\xbb".to_vec(), &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
        ];
        let (port, task) = proxy(turns).await;
        let url = Url::parse(&format!("socks5://me:pw@127.0.0.1:{port}")).unwrap();
        tunnel(&url, &to("https://a.example.com/v1"), &AddressRules::default()).await.unwrap();
        task.await.unwrap();
    }

    #[tokio::test]
    async fn private_address_is_denied_through_a_proxy_too() {
        let mut row = channel("http://169.254.169.254/v1");
        row.spec.private_network = false;
        let url = Url::parse("http://127.0.0.1:1").unwrap();
        let destination = UpstreamTarget::of(&row).unwrap();
        assert_eq!(tunnel(&url, &destination, &AddressRules::default()).await.err(), Some(ConnectFault::Denied));
    }

    #[tokio::test]
    async fn lists_of_the_settings_apply_to_the_proxy_and_to_destinations_written_as_an_address() {
        let networks = |text: &str| text.split(',').filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()).collect();
        for (proxy, destination, allowed, denied, fault) in [
            ("http://127.0.0.1:1", "https://api.example.com/v1", "", "127.0.0.0/8", Some(UnlistedAddress::Denied)),
            ("http://[::ffff:127.0.0.1]:1", "https://api.example.com/v1", "", "127.0.0.0/8", Some(UnlistedAddress::Denied)),
            ("http://127.0.0.1:1", "https://api.example.com/v1", "8.8.8.8/32", "", Some(UnlistedAddress::NotAllowed)),
            ("http://127.0.0.1:1", "https://8.8.8.8/v1", "127.0.0.1/32", "", Some(UnlistedAddress::NotAllowed)),
            ("http://127.0.0.1:1", "https://8.8.8.8/v1", "", "8.8.8.0/24", Some(UnlistedAddress::Denied)),
            // Permitted: only the connection fails.
            ("http://127.0.0.1:1", "https://api.example.com/v1", "127.0.0.1/32", "8.8.8.8/32", None),
        ] {
            let rules = AddressRules::new(AddressLists::new(networks(allowed), networks(denied)));
            let failed = tunnel(&Url::parse(proxy).unwrap(), &to(destination), &rules).await.err();
            assert_eq!(failed, Some(fault.map_or(ConnectFault::Proxy, ConnectFault::Unlisted)), "{proxy} {destination}");
        }
    }
}
