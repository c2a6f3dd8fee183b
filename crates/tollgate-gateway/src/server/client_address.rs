//! The client address behind reverse proxies: only configured proxies are trusted, and only the `X-Forwarded-For` entries
//! that they appended.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::header_fields::HeaderFields;

const FORWARDED_FOR: &str = "x-forwarded-for";
/// Entries of `X-Forwarded-For` that are read at most.
const MAX_PROXIES: usize = 16;

/// The address a request comes from. `peer` is the remote end of the connection. A trusted proxy appends the address of
/// its own peer to `X-Forwarded-For`, so the rightmost entry counts; while it is a trusted proxy too, the entry before it
/// counts. Entries further left can be forged by the caller.
///
/// `None` if a trusted proxy names no caller: it sent no entry, one that is not an address, or a loopback address, which no caller
/// beyond the proxy can have. The proxy's own address is not used instead: it may be loopback, or allowed.
pub(super) fn client_address(peer: IpAddr, headers: &HeaderFields, trusted: &[IpNet]) -> Option<IpAddr> {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|net| net.contains(address));
    let peer = peer.to_canonical();
    if trusted.is_empty() || !is_trusted(&peer) {
        return Some(peer);
    }
    let fields = headers.get_all(FORWARDED_FOR).collect::<Vec<_>>();
    let entries = fields.iter().rev().flat_map(|field| field.to_str().unwrap_or("?").rsplit(','));
    let mut client = None;
    for (number, entry) in entries.enumerate() {
        let named = address(entry.trim()).filter(|address| !address.is_loopback() && number < MAX_PROXIES)?;
        client = Some(named);
        if !is_trusted(&named) {
            break;
        }
    }
    client
}

/// Parses the forms proxies write: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:4711`.
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
        let mut headers = HeaderFields::default();
        for field in fields {
            headers.append(FORWARDED_FOR, HeaderValue::from_bytes(field.as_bytes()).unwrap());
        }
        let trusted: Vec<IpNet> = trusted.iter().map(|net| net.parse().unwrap()).collect();
        client_address(peer.parse().unwrap(), &headers, &trusted).map_or_else(|| "unknown".to_owned(), |client| client.to_string())
    }

    #[test]
    fn header_of_an_untrusted_peer_is_ignored() {
        assert_eq!(client("192.0.2.7", &["203.0.113.9"], &[]), "192.0.2.7");
        assert_eq!(client("192.0.2.7", &["203.0.113.9"], &["10.0.0.0/8"]), "192.0.2.7");
    }

    #[test]
    fn rightmost_untrusted_entry_counts() {
        let trusted = ["10.0.0.0/8"];
        assert_eq!(client("10.0.0.1", &["203.0.113.9"], &trusted), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["127.0.0.1, 203.0.113.9"], &trusted), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["127.0.0.1, 203.0.113.9, 10.2.3.4"], &trusted), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["127.0.0.1", "203.0.113.9", "10.2.3.4"], &trusted), "203.0.113.9");
    }

    #[test]
    fn caller_is_unknown_if_a_trusted_proxy_names_none() {
        let trusted = ["10.0.0.0/8", "127.0.0.0/8"];
        for fields in
            [&[][..], &[""], &["unknown"], &["203.0.113.9, , 10.2.3.4"], &["203.0.113.9, \u{fc}"], &["127.0.0.1"], &["::1"]]
        {
            assert_eq!(client("10.0.0.1", fields, &trusted), "unknown", "{fields:?}");
            assert_eq!(client("127.0.0.1", fields, &trusted), "unknown", "{fields:?}");
        }
        let many = vec!["10.1.1.1"; MAX_PROXIES + 1].join(",");
        assert_eq!(client("10.0.0.1", &[&format!("203.0.113.9,{many}")], &trusted), "unknown");
    }

    #[test]
    fn caller_inside_a_trusted_network_is_recognised() {
        assert_eq!(client("10.0.0.1", &["10.2.3.4"], &["10.0.0.0/8"]), "10.2.3.4");
        assert_eq!(client("127.0.0.1", &[], &["10.0.0.0/8"]), "127.0.0.1", "a direct peer that is not a proxy");
    }

    #[test]
    fn every_form_of_an_address_is_parsed() {
        let trusted = ["10.0.0.0/8", "::1/128"];
        assert_eq!(client("10.0.0.1", &["203.0.113.9:4711"], &trusted), "203.0.113.9");
        assert_eq!(client("::1", &["2001:db8::1"], &trusted), "2001:db8::1");
        assert_eq!(client("::1", &["[2001:db8::1]"], &trusted), "2001:db8::1");
        assert_eq!(client("::1", &["[2001:db8::1]:4711"], &trusted), "2001:db8::1");
        assert_eq!(client("::ffff:10.0.0.1", &["::ffff:203.0.113.9"], &trusted), "203.0.113.9");
    }
}
