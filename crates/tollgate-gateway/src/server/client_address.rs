//! Whose request it is when proxies stand in front: only proxies that the operator named are believed, and of what they
//! say only the part that they wrote themselves.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

const FORWARDED_FOR: &str = "x-forwarded-for";
/// Proxies in a row that are followed.
const MOST_PROXIES: usize = 16;

/// The address a request comes from. `peer` is the other end of the connection. A trusted peer has put the address that it
/// was called from at the end of `X-Forwarded-For`; when that is a trusted proxy too, the one before counts, and so on.
/// What stands further left was written by untrusted peers and is ignored. Entries that are no address end the walk.
pub(super) fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|net| net.contains(address));
    let mut client = peer.to_canonical();
    if trusted.is_empty() || !is_trusted(&client) {
        return client;
    }
    let fields = headers.get_all(FORWARDED_FOR).iter().collect::<Vec<_>>();
    let entries = fields.iter().rev().flat_map(|field| field.to_str().unwrap_or("?").rsplit(','));
    for entry in entries.take(MOST_PROXIES) {
        let Some(address) = address(entry.trim()) else { break };
        client = address;
        if !is_trusted(&client) {
            break;
        }
    }
    client
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:4711`: the forms proxies write.
fn address(text: &str) -> Option<IpAddr> {
    let plain = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    plain
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()))
        .ok()
        .map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(peer: &str, fields: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(FORWARDED_FOR, HeaderValue::from_bytes(field.as_bytes()).unwrap());
        }
        let trusted: Vec<IpNet> = trusted.iter().map(|net| net.parse().unwrap()).collect();
        client_address(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn forwarded_for_is_ignored_from_untrusted_peers() {
        assert_eq!(client("192.0.2.7", &["203.0.113.9"], &[]), "192.0.2.7");
        assert_eq!(client("192.0.2.7", &["203.0.113.9"], &["10.0.0.0/8"]), "192.0.2.7");
    }

    #[test]
    fn the_last_address_a_trusted_proxy_wrote_counts_and_not_what_the_caller_wrote() {
        let trusted = ["10.0.0.0/8"];
        assert_eq!(client("10.0.0.1", &["203.0.113.9"], &trusted), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["127.0.0.1, 203.0.113.9"], &trusted), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["127.0.0.1, 203.0.113.9, 10.2.3.4"], &trusted), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["127.0.0.1", "203.0.113.9", "10.2.3.4"], &trusted), "203.0.113.9");
    }

    #[test]
    fn without_an_address_the_last_known_proxy_counts() {
        let trusted = ["10.0.0.0/8"];
        assert_eq!(client("10.0.0.1", &[], &trusted), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["unknown"], &trusted), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, , 10.2.3.4"], &trusted), "10.2.3.4");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, \u{fc}"], &trusted), "10.0.0.1");
        let many = vec!["10.1.1.1"; MOST_PROXIES + 1].join(",");
        assert_eq!(client("10.0.0.1", &[&format!("203.0.113.9,{many}")], &trusted), "10.1.1.1");
    }

    #[test]
    fn every_form_of_an_address_is_read() {
        let trusted = ["10.0.0.0/8", "::1/128"];
        assert_eq!(client("10.0.0.1", &["203.0.113.9:4711"], &trusted), "203.0.113.9");
        assert_eq!(client("::1", &["2001:db8::1"], &trusted), "2001:db8::1");
        assert_eq!(client("::1", &["[2001:db8::1]"], &trusted), "2001:db8::1");
        assert_eq!(client("::1", &["[2001:db8::1]:4711"], &trusted), "2001:db8::1");
        assert_eq!(client("::ffff:10.0.0.1", &["::ffff:203.0.113.9"], &trusted), "203.0.113.9");
    }
}
