//! The addresses a channel may reach (protection against server-side request forgery). The check applies to the resolved
//! address that is then connected to, so DNS rebinding cannot bypass it.

use std::net::IpAddr;

use tollgate_core::{Channel, embedded_v4, is_public};

/// Whether a channel may connect to non-public addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AddressPolicy {
    Public,
    /// Loopback and private addresses too: the channel has `private_network`.
    Anywhere,
}

impl AddressPolicy {
    pub(crate) const fn of(channel: &Channel) -> Self {
        if channel.spec.private_network { Self::Anywhere } else { Self::Public }
    }

    pub(crate) fn allows(self, address: IpAddr) -> bool {
        let is_denied = leads_to(address).any(|address| is_group_address(address) || is_metadata_address(address));
        !is_denied && (self == Self::Anywhere || is_public(address))
    }
}

/// An address and those that it embeds: a tunnel or translator in a private network would lead there.
fn leads_to(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let embedded = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(embedded_v4(v6).map(IpAddr::V4)),
    };
    std::iter::once(address).chain(embedded.into_iter().flatten())
}

/// Multicast and broadcast addresses, denied under every policy.
fn is_group_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}

/// Addresses under which clouds hand out the credentials of a machine, denied under every policy.
fn is_metadata_address(address: IpAddr) -> bool {
    match address {
        // Link-local: AWS, Google, Azure and containers, Tencent; then Alibaba, Oracle classic and Azure's platform.
        IpAddr::V4(v4) => matches!(
            v4.octets(),
            [169, 254, 169 | 170, _] | [169, 254, 0, 23] | [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16]
        ),
        // The networks of AWS and Google for services of the machine, and the address of OpenStack.
        IpAddr::V6(v6) => {
            matches!(v6.segments(), [0xfd00, 0xec2, ..] | [0xfd20, 0xce, ..] | [0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, public: bool) {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(AddressPolicy::Public.allows(address), public, "{address}");
    }

    #[test]
    fn private_and_special_addresses_are_denied() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "127.0.0.1",
            "127.255.0.9",
            "100.64.0.1",
            "100.127.255.255",
            "100.100.100.200",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2a00:1450::5efe:169.254.169.254",
        ] {
            check(address, false);
        }
    }

    #[test]
    fn public_addresses_are_allowed() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            check(address, true);
        }
    }

    #[test]
    fn private_network_allows_private_addresses_but_no_multicast_and_no_metadata() {
        for (address, allowed) in [
            ("127.0.0.1", true),
            ("10.0.0.1", true),
            ("::1", true),
            ("fd00::1", true),
            ("224.0.0.1", false),
            ("ff02::1", false),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("169.254.170.2", false),
            ("100.100.100.200", false),
            ("168.63.129.16", false),
            ("169.254.0.23", false),
            ("192.0.0.192", false),
            ("fd00:ec2::254", false),
            ("fd00:ec2::23", false),
            ("fd20:ce::254", false),
            ("fe80::a9fe:a9fe", false),
            // The metadata address behind translators and tunnels of a private network.
            ("64:ff9b::169.254.169.254", false),
            ("64:ff9b::100.100.100.200", false),
            ("64:ff9b:1::169.254.169.254", false),
            ("64:ff9b:1:a9fe:a9:fe00::", false),
            ("2002:a9fe:a9fe::", false),
            ("2002:a9fe:a9fe::1", false),
            ("2001:0:a9fe:a9fe::1", false),
            ("2001::5601:5601", false),
            ("::169.254.169.254", false),
            ("::100.100.100.200", false),
            ("::ffff:0:169.254.169.254", false),
            ("::ffff:100.100.100.200", false),
            ("fe80::5efe:169.254.169.254", false),
            ("::ffff:224.0.0.1", false),
            // Other addresses of private networks stay reachable.
            ("64:ff9b::10.0.0.1", true),
            ("64:ff9b:1::10.0.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("fe80::1", true),
        ] {
            assert_eq!(AddressPolicy::Anywhere.allows(address.parse().unwrap()), allowed, "{address}");
        }
    }
}
