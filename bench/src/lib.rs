//! Shared by the benchmark programs: a clock for load client and fast upstream, minimal HTTP/1.1 parsing, and opening the
//! database that the fill programs use.

use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use tollgate_core::Timestamp;
use tollgate_store::{AccessMode, MasterKeySource, OpenOptions, RandomSource, Store, StoreUrl, open};

/// Opens the database of a fill program from its arguments `FOLDER COUNT [DATABASE_URL]`, and returns it with the count.
///
/// # Errors
/// Missing or invalid arguments (reported as `usage`), or a database that cannot be opened.
pub async fn open_database(usage: &str, now: Timestamp) -> Result<(Store, u64), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(count)) = (arguments.next(), arguments.next()) else { return Err(usage.into()) };
    let data = PathBuf::from(folder);
    let url = match arguments.next() {
        Some(url) => StoreUrl::parse(&url)?,
        None => StoreUrl::parse(&format!("sqlite:{}", data.join("tollgate.db").display()))?,
    };
    let (master, access, random) = (MasterKeySource::DataFolder, AccessMode::Command, RandomSource::system());
    let store = open(OpenOptions { url, data, master, access, random, now, without_database: None }).await?;
    Ok((store, count.parse()?))
}

/// Nanoseconds since 1970. Both programs run on one machine, so the difference of two timestamps is a one-way delay.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a measuring program reads the clock itself")]
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Position of `needle` in `haystack`.
#[must_use]
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|byte| *byte == first) {
        if haystack[from + at..].starts_with(needle) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// Value of a header in a message head; `name` in lower case.
#[must_use]
pub fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    head.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let (own, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        own.eq_ignore_ascii_case(name.as_bytes()).then(|| std::str::from_utf8(value.trim_ascii()).ok())?
    })
}

/// End of a chunked body that starts at `from`; `None` until it is complete.
#[must_use]
pub fn chunked_end(bytes: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let line = from + find(bytes.get(from..)?, b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[from..line]).ok()?.split(';').next()?.trim(), 16).ok()?;
        from = line + 2 + size + 2;
        if from > bytes.len() {
            return None;
        }
        if size == 0 {
            return Some(from);
        }
    }
}

/// End of head and end of body of the first message in a buffer; `None` until it is complete.
#[must_use]
pub fn message_end(bytes: &[u8]) -> Option<(usize, usize)> {
    let head = find(bytes, b"\r\n\r\n")?;
    let body = head + 4;
    if let Some(length) = header(&bytes[..head], "content-length").and_then(|text| text.parse::<usize>().ok()) {
        return (bytes.len() >= body + length).then_some((head, body + length));
    }
    if header(&bytes[..head], "transfer-encoding").is_some() {
        return chunked_end(bytes, body).map(|end| (head, end));
    }
    Some((head, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_end_follows_length_or_chunks() {
        assert_eq!(message_end(b"GET / HTTP/1.1\r\nhost: a\r\n\r\nrest"), Some((23, 27)));
        assert_eq!(message_end(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"), None);
        assert_eq!(message_end(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcd"), Some((34, 41)));
        assert_eq!(message_end(b"A\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nX"), Some((29, 45)));
    }
}
