//! Flags that take a point in time.

use tollgate_core::Timestamp;

use crate::failure::Failure;

/// Parses RFC 3339; the failure names the flag.
pub(crate) fn parse(flag: &str, text: &str) -> Result<Timestamp, Failure> {
    text.parse::<jiff::Timestamp>()
        .map(|time| Timestamp(time.as_microsecond()))
        .map_err(|_| Failure::Usage(format!("{flag} takes a time such as 2026-11-30T12:00:00Z, not '{text}'")))
}
