//! The addresses that may be connected to (protection against server-side request forgery): those of the channel or other destination,
//! restricted by the lists of the settings. The check applies to the resolved address that is then connected to, so DNS rebinding cannot
//! bypass it.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use tollgate_core::{AddressLists, Channel, UnlistedAddress, is_public, leads_to};

use super::destination::UpstreamTarget;
use crate::upstream::call::ConnectFault;

/// The list that blocks all requests to a channel because the host in its base URL, or in that of its proxy, is an address that the list
/// does not permit.
#[must_use]
pub fn unlisted(channel: &Channel, lists: &AddressLists) -> Option<UnlistedAddress> {
    if lists.is_empty() {
        return None;
    }
    let destination = UpstreamTarget::of(channel).ok()?;
    let proxy = destination.proxy.as_ref().and_then(|proxy| proxy.host_str()?.trim_matches(['[', ']']).parse().ok());
    [destination.address, proxy].into_iter().flatten().find_map(|address| lists.check(address).err())
}

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

/// The lists of the settings that restrict all outgoing connections. New connections are checked against them. Each change
/// increments the version; a pooled connection with an older version is checked again before it is reused.
#[derive(Debug, Default)]
pub(crate) struct AddressRules {
    lists: ArcSwap<AddressLists>,
    version: AtomicU64,
}

impl AddressRules {
    pub(crate) fn new(lists: AddressLists) -> Self {
        Self { lists: ArcSwap::from_pointee(lists), version: AtomicU64::new(0) }
    }

    pub(crate) fn replace(&self, lists: AddressLists) {
        if **self.lists.load() != lists {
            self.lists.store(Arc::new(lists));
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The version of the lists. An address that is checked afterwards is checked by lists of this version or a later one.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// # Errors
    /// Which list does not permit it.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), ConnectFault> {
        self.lists.load().check(address).map_err(ConnectFault::Unlisted)
    }

    /// The addresses that a destination with this policy may have.
    ///
    /// # Errors
    /// If none is permitted, the reason for the first one.
    pub(crate) fn permitted(&self, reach: AddressPolicy, addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, ConnectFault> {
        let (mut permitted, mut fault) = (Vec::with_capacity(addresses.len()), None);
        for address in addresses {
            let checked = if reach.allows(address) { self.check(address) } else { Err(ConnectFault::Denied) };
            match checked {
                Ok(()) => permitted.push(address),
                Err(denied) => fault = fault.or(Some(denied)),
            }
        }
        if permitted.is_empty() { Err(fault.unwrap_or(ConnectFault::Resolve)) } else { Ok(permitted) }
    }
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
    use tollgate_core::Secret;

    use super::*;
    use crate::testing::channel;

    #[test]
    fn channels_with_an_address_not_permitted_are_detected() {
        let lists = AddressLists::new(Vec::new(), vec!["10.0.0.0/8".parse().unwrap()]);
        for (base_url, proxy, found) in [
            ("http://10.0.0.1/v1", None, Some(UnlistedAddress::Denied)),
            ("http://[::ffff:10.0.0.1]/v1", None, Some(UnlistedAddress::Denied)),
            ("http://11.0.0.1/v1", None, None),
            ("https://api.example.com/v1", None, None),
            ("https://api.example.com/v1", Some("socks5://10.0.0.1"), Some(UnlistedAddress::Denied)),
            ("https://api.example.com/v1", Some("http://[::ffff:10.0.0.1]:3128"), Some(UnlistedAddress::Denied)),
            ("https://api.example.com/v1", Some("http://proxy.example.com"), None),
            ("not a URL", None, None),
        ] {
            let row = Channel { proxy: proxy.map(|proxy| Secret::new(proxy.to_owned())), ..channel(base_url) };
            assert_eq!(unlisted(&row, &lists), found, "{base_url} {proxy:?}");
            assert_eq!(unlisted(&row, &AddressLists::default()), None);
        }
    }

    fn parsed(addresses: &[&str]) -> Vec<IpAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn address_lists_only_restrict_what_the_policy_allows() {
        let lists = |allowed: &[&str], denied: &[&str]| {
            let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
            AddressLists::new(networks(allowed), networks(denied))
        };
        let rules = AddressRules::new(lists(&["10.0.0.0/8", "8.8.0.0/16"], &["8.8.8.0/24"]));
        let permitted = |reach, addresses: &[&str]| rules.permitted(reach, parsed(addresses));
        let (denied, not_allowed) =
            (ConnectFault::Unlisted(UnlistedAddress::Denied), ConnectFault::Unlisted(UnlistedAddress::NotAllowed));
        assert_eq!(permitted(AddressPolicy::Public, &["10.0.0.1"]), Err(ConnectFault::Denied), "a private address needs its box");
        assert_eq!(permitted(AddressPolicy::Anywhere, &["10.0.0.1"]), Ok(parsed(&["10.0.0.1"])));
        assert_eq!(permitted(AddressPolicy::Public, &["8.8.8.8", "8.8.4.4", "1.1.1.1"]), Ok(parsed(&["8.8.4.4"])));
        assert_eq!(permitted(AddressPolicy::Public, &["::ffff:8.8.8.8", "1.1.1.1"]), Err(denied));
        assert_eq!(permitted(AddressPolicy::Public, &["1.1.1.1", "8.8.8.8"]), Err(not_allowed), "the fault of the first address");
        assert_eq!(permitted(AddressPolicy::Anywhere, &["169.254.169.254"]), Err(ConnectFault::Denied));
        assert_eq!(permitted(AddressPolicy::Anywhere, &[]), Err(ConnectFault::Resolve));

        let before = rules.version();
        rules.replace(lists(&["10.0.0.0/8", "8.8.0.0/16"], &["8.8.8.0/24"]));
        assert_eq!(rules.version(), before, "the same lists");
        rules.replace(AddressLists::default());
        assert!(rules.version() > before && rules.check("8.8.8.8".parse().unwrap()).is_ok());
    }

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
            // The metadata address as reached through translators and tunnels of a private network.
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
            // Other addresses of private networks remain reachable.
            ("64:ff9b::10.0.0.1", true),
            ("64:ff9b:1::10.0.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("fe80::1", true),
        ] {
            assert_eq!(AddressPolicy::Anywhere.allows(address.parse().unwrap()), allowed, "{address}");
        }
    }
}
