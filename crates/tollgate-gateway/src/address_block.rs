//! The unit of limits per client address.

use std::net::{IpAddr, Ipv4Addr};

/// An IPv4 address or an IPv6 /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AddressBlock(u64, bool);

impl AddressBlock {
    /// The block of a caller. Callers whose proxy names no address are counted together.
    pub(crate) fn of_caller(address: Option<IpAddr>) -> Self {
        Self::of(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()))
    }

    /// The block of an address. IPv4-mapped IPv6 counts as IPv4.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits()), false),
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Self(u64::from(a) << 48 | u64::from(b) << 32 | u64::from(c) << 16 | u64::from(d), true)
            }
        }
    }
}
