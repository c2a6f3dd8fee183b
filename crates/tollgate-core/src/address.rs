//! Which addresses belong to the public internet, and which lead to others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
pub fn embedded_v4(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
