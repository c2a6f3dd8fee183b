//! Classification of addresses: whether they belong to the public internet, and to which other addresses they lead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// Whether an address belongs to the public internet. A channel without `private_network` reaches no others.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Excludes the IANA special-purpose registry and Azure's platform address 168.63.129.16, which is not public either.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    ) && address != Ipv4Addr::new(168, 63, 129, 16)
}

/// Global unicast (`2000::/3`) without its special-purpose blocks. Addresses that embed an IPv4 address (mapped, NAT64,
/// 6to4) are classified by that address.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            is_public_v4(embedded(high, low))
        }
        [0x2001, 0..=0x01ff | 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Every IPv4 address that an IPv6 address may lead to, through the host's own stack, a tunnel or a translator.
fn embedded_v4(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let octets = address.octets();
    let at = move |places: [usize; 4]| Ipv4Addr::from(places.map(|place| octets[place]));
    let last = at([12, 13, 14, 15]);
    let found: [Option<Ipv4Addr>; 4] = match address.segments() {
        // Compatible, mapped (RFC 4291) and translated (RFC 2765) addresses, and the well-known prefix of NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            [Some(last), None, None, None]
        }
        // NAT64 with the local-use prefix (RFC 8215), in lengths of 48 to 96 bits (RFC 6052).
        [0x64, 0xff9b, 1, ..] => [Some(last), Some(at([6, 7, 9, 10])), Some(at([7, 9, 10, 11])), Some(at([9, 10, 11, 12]))],
        // 6to4 (RFC 3056).
        [0x2002, ..] => [Some(at([2, 3, 4, 5])), None, None, None],
        // Teredo (RFC 4380): the server, and the client with all bits inverted.
        [0x2001, 0, ..] => [Some(at([4, 5, 6, 7])), Some(Ipv4Addr::from(!u32::from(last))), None, None],
        // ISATAP (RFC 5214), under any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => [Some(last), None, None, None],
        _ => [None; 4],
    };
    found.into_iter().flatten()
}

/// An address and every IPv4 address that it may lead to.
pub fn leads_to(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let embedded = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(embedded_v4(v6).map(IpAddr::V4)),
    };
    std::iter::once(address).chain(embedded.into_iter().flatten())
}

/// The networks to which outgoing connections may go, and those to which they may not. They restrict the addresses that are allowed
/// otherwise, and allow no further ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressLists {
    /// Empty: all.
    allowed: Vec<IpNet>,
    denied: Vec<IpNet>,
}

/// Why the lists do not permit an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.as_str())]
pub enum UnlistedAddress {
    /// The list of denied networks contains the address, or one that it leads to.
    Denied,
    /// The list of allowed networks is not empty and does not contain the address.
    NotAllowed,
}

impl UnlistedAddress {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::Denied, Self::NotAllowed];

    /// The reason in words, with the name of the setting.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "address denied by upstream.denied_addresses",
            Self::NotAllowed => "address not in upstream.allowed_addresses",
        }
    }

    /// How to permit the address, as the second half of a sentence.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Denied => "remove its network from that setting if it may be connected to",
            Self::NotAllowed => "add its network to that setting if it may be connected to",
        }
    }
}

impl AddressLists {
    /// Lists of networks. A network of IPv4-mapped addresses is one of IPv4 addresses.
    #[must_use]
    pub fn new(allowed: Vec<IpNet>, denied: Vec<IpNet>) -> Self {
        let canonical = |networks: Vec<IpNet>| networks.into_iter().map(unmapped).collect();
        Self { allowed: canonical(allowed), denied: canonical(denied) }
    }

    /// True if the lists permit every address.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.denied.is_empty()
    }

    /// Checks the address of a connection. It is denied if any address that it leads to is denied. It is allowed if it is allowed
    /// itself, or if its embedded IPv4 address is: that of a mapped address, or of one with the well-known prefix of NAT64.
    ///
    /// # Errors
    /// The list that does not permit the address.
    pub fn check(&self, address: IpAddr) -> Result<(), UnlistedAddress> {
        let is_in = |networks: &[IpNet], address: IpAddr| networks.iter().any(|network| network.contains(&address));
        if leads_to(address).any(|address| is_in(&self.denied, address)) {
            return Err(UnlistedAddress::Denied);
        }
        let is_allowed =
            self.allowed.is_empty() || is_in(&self.allowed, address) || is_in(&self.allowed, embedded_or_same(address));
        if is_allowed { Ok(()) } else { Err(UnlistedAddress::NotAllowed) }
    }
}

/// The IPv4 address embedded in a mapped address (RFC 4291) or in one with the well-known prefix of NAT64 (RFC 6052). Other addresses
/// are returned unchanged.
fn embedded_or_same(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => embedded_v4(v6).next().map_or(address, IpAddr::V4),
        _ => address,
    }
}

/// Converts a network of IPv4-mapped addresses (`::ffff:0:0/96`) to the IPv4 network. Other networks are returned unchanged.
fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    let mapped = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    mapped.and_then(|(address, length)| Ipv4Net::new(address, length).ok()).map_or(network, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(allowed: &[&str], denied: &[&str]) -> AddressLists {
        let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        AddressLists::new(networks(allowed), networks(denied))
    }

    fn listed(lists: &AddressLists, address: &str) -> Option<UnlistedAddress> {
        lists.check(address.parse().unwrap()).err()
    }

    #[test]
    fn denied_network_is_detected_in_every_form_of_its_addresses() {
        let lists = lists(&[], &["10.0.0.0/8", "2001:4860::/32"]);
        for address in [
            "10.1.2.3",
            "::ffff:10.1.2.3",
            "::10.1.2.3",
            "::ffff:0:10.1.2.3",
            "64:ff9b::10.1.2.3",
            "64:ff9b:1::10.1.2.3",
            "2002:a01:203::1",
            "2001:0:a01:203::1",
            "fe80::5efe:10.1.2.3",
            "2001:4860:4860::8888",
        ] {
            assert_eq!(listed(&lists, address), Some(UnlistedAddress::Denied), "{address}");
        }
        for address in ["11.1.2.3", "::ffff:11.1.2.3", "64:ff9b::11.1.2.3", "2606:4700::1111", "::1"] {
            assert_eq!(listed(&lists, address), None, "{address}");
        }
    }

    #[test]
    fn only_allowed_networks_are_permitted_and_denied_networks_take_precedence() {
        let lists = lists(&["192.0.2.0/24", "2001:db8::/32"], &["192.0.2.7/32"]);
        for address in ["192.0.2.1", "::ffff:192.0.2.1", "64:ff9b::192.0.2.1", "2001:db8::1"] {
            assert_eq!(listed(&lists, address), None, "{address}");
        }
        for address in ["192.0.2.7", "::ffff:192.0.2.7", "64:ff9b::192.0.2.7"] {
            assert_eq!(listed(&lists, address), Some(UnlistedAddress::Denied), "{address}");
        }
        // A tunnel to an allowed address is a different address: 6to4, Teredo, NAT64 with a network-specific prefix.
        for address in ["192.0.3.1", "::1", "2002:c000:201::1", "2001:0:c000:201::1", "64:ff9b:1::192.0.2.1"] {
            assert_eq!(listed(&lists, address), Some(UnlistedAddress::NotAllowed), "{address}");
        }
    }

    #[test]
    fn networks_of_mapped_addresses_are_networks_of_ipv4() {
        let lists = lists(&["::ffff:192.0.2.0/120"], &["::ffff:192.0.2.7/128"]);
        assert_eq!(listed(&lists, "192.0.2.1"), None);
        assert_eq!(listed(&lists, "192.0.2.7"), Some(UnlistedAddress::Denied));
        assert_eq!(listed(&lists, "192.0.3.1"), Some(UnlistedAddress::NotAllowed));
    }

    #[test]
    fn without_lists_every_address_is_permitted() {
        let lists = AddressLists::default();
        assert!(lists.is_empty());
        for address in ["127.0.0.1", "::1", "8.8.8.8", "169.254.169.254"] {
            assert_eq!(listed(&lists, address), None, "{address}");
        }
    }

    #[test]
    fn embedded_addresses_are_found_in_every_form() {
        for (address, expected) in [
            ("::ffff:1.2.3.4", vec!["1.2.3.4"]),
            ("::1.2.3.4", vec!["1.2.3.4"]),
            ("::ffff:0:1.2.3.4", vec!["1.2.3.4"]),
            ("64:ff9b::1.2.3.4", vec!["1.2.3.4"]),
            ("2002:102:304::9", vec!["1.2.3.4"]),
            ("2001:0:102:304::fefd:fcfb", vec!["1.2.3.4", "1.2.3.4"]),
            ("fe80::5efe:1.2.3.4", vec!["1.2.3.4"]),
            ("2606:4700:1:2:200:5efe:1.2.3.4", vec!["1.2.3.4"]),
            ("2606:4700::1111", vec![]),
            ("fd00::1.2.3.4", vec![]),
        ] {
            let found: Vec<String> = embedded_v4(address.parse().unwrap()).map(|v4| v4.to_string()).collect();
            assert_eq!(found, expected, "{address}");
        }
        // Prefixes of 48, 56, 64 and 96 bits.
        for address in ["64:ff9b:1:102:3:400::", "64:ff9b:1:1:2:304::", "64:ff9b:1::1:203:400:0", "64:ff9b:1::1.2.3.4"] {
            assert!(embedded_v4(address.parse().unwrap()).any(|v4| v4 == Ipv4Addr::new(1, 2, 3, 4)), "{address}");
        }
    }
}
