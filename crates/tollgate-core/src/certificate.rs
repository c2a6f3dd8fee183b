//! Reads the expiry of a certificate (X.509, RFC 5280), the only field that alerts need.

use crate::{Timestamp, time::first_day_of};

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which old certificates omit.
const VERSION: u8 = 0xa0;

/// When a certificate in DER expires; `None` if it cannot be read.
#[must_use]
pub fn certificate_expiry(der: &[u8]) -> Option<Timestamp> {
    let (certificate, _) = element(der, SEQUENCE)?;
    let (mut fields, _) = element(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = any(fields)?.2;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields = any(fields)?.2;
    }
    let (validity, _) = element(fields, SEQUENCE)?;
    let (_, _, rest) = any(validity)?;
    let (tag, time, _) = any(rest)?;
    parse_time(tag, std::str::from_utf8(time).ok()?)
}

/// Tag and content of the first element, and the bytes after it.
fn any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |sum, digit| (sum << 8) | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn element(bytes: &[u8], expected: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = any(bytes)?;
    (tag == expected).then_some((content, rest))
}

/// `YYMMDDHHMMSSZ` (years 1950 to 2049) or `YYYYMMDDHHMMSSZ`.
fn parse_time(tag: u8, text: &str) -> Option<Timestamp> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year: i64 = digits[..2].parse().ok()?;
            (if year < 50 { 2_000 + year } else { 1_900 + year }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(2)?, part(4)?, part(6)?, part(8)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = (first_day_of(year, month) + day - 1) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Timestamp(seconds * 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let mut out = vec![tag];
        if content.len() < 0x80 {
            out.push(u8::try_from(content.len()).unwrap());
        } else {
            out.extend([0x82, u8::try_from(content.len() >> 8).unwrap(), u8::try_from(content.len() & 0xff).unwrap()]);
        }
        out.extend(content);
        out
    }

    fn certificate(with_version: bool, end: &[u8], end_tag: u8) -> Vec<u8> {
        let validity = der(SEQUENCE, &[&der(UTC_TIME, &[b"250101000000Z"]), &der(end_tag, &[end])]);
        let version = if with_version { der(VERSION, &[&[2, 1, 2]]) } else { Vec::new() };
        let issuer = der(SEQUENCE, &[&[0; 200]]);
        let fields = der(SEQUENCE, &[&version, &der(2, &[&[9; 8]]), &der(SEQUENCE, &[]), &issuer, &validity, &der(SEQUENCE, &[])]);
        der(SEQUENCE, &[&fields, &der(SEQUENCE, &[]), &der(3, &[&[0; 64]])])
    }

    #[test]
    fn expiry_is_read_in_both_forms() {
        let of = |with_version, end: &str, tag| certificate_expiry(&certificate(with_version, end.as_bytes(), tag));
        let text = |at: Option<Timestamp>| at.unwrap().to_string();
        assert_eq!(text(of(true, "261231235959Z", UTC_TIME)), "2026-12-31T23:59:59Z");
        assert_eq!(text(of(false, "500101000000Z", UTC_TIME)), "1950-01-01T00:00:00Z");
        assert_eq!(text(of(true, "20510304050607Z", GENERALIZED_TIME)), "2051-03-04T05:06:07Z");
    }

    #[test]
    fn invalid_certificates_have_no_expiry() {
        let whole = certificate(true, b"261231235959Z", UTC_TIME);
        for length in 0..whole.len() {
            assert_eq!(certificate_expiry(&whole[..length]), None, "{length} bytes");
        }
        for end in ["261331235959Z", "26123123595Z", "2612312359590Z", "2612312359é9Z"] {
            assert_eq!(certificate_expiry(&certificate(true, end.as_bytes(), UTC_TIME)), None, "{end}");
        }
        assert_eq!(certificate_expiry(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
