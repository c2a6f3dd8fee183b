//! Shared by the benchmark programs: a clock for load client and fast upstream, minimal HTTP/1.1 parsing, and opening the
//! database that the fill programs use.

use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use memchr::memmem::find;
use tollgate_core::{
    GroupId, KeyId, MemberId, Multiplier, NanoUsd, Outcome, RequestId, Revision, Tags, Timestamp, TokenSource, Tokens, UsageRecord,
};
use tollgate_protocol::{FinishReason, Method, Protocol};
use tollgate_store::{AccessMode, MasterKeySource, OpenOptions, RandomSource, Store, StoreUrl, open};

/// Opens the database of a fill program from its arguments `FOLDER COUNT [DATABASE_URL]`, and returns it with the count.
/// Missing or invalid arguments are reported as `usage`.
pub async fn open_database(
    usage: &str,
    mut arguments: impl Iterator<Item = String>,
    now: Timestamp,
) -> Result<(Store, u64), Box<dyn std::error::Error>> {
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

/// Ten bytes for an id.
pub fn id_bytes(number: u64) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[2..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// A completed request without attempts, by a key, member and group of these numbers. Their ids were made at `epoch`.
pub fn usage_record(epoch: Timestamp, id: RequestId, at: Timestamp, [key, member, group]: [u64; 3]) -> UsageRecord {
    UsageRecord {
        id,
        at,
        key: KeyId::from_parts(epoch, id_bytes(key)),
        key_name: format!("key {key}").into(),
        member: MemberId::from_parts(epoch, id_bytes(member)),
        group: Some(GroupId::from_parts(epoch, id_bytes(group))),
        group_name: Some(format!("group {group}").into()),
        protocol_in: Protocol::OpenAi,
        protocol_out: None,
        method: Method::Chat,
        model: Some("model".into()),
        stream: false,
        status: 200,
        outcome: Outcome::Completed,
        reason: None,
        detail: None,
        tokens: Tokens { input: 800, output: 200, source: TokenSource::Provider, ..Tokens::default() },
        cost: Some(NanoUsd::ZERO),
        sale: Some(NanoUsd(1_000)),
        price_version: Revision(3),
        ttft_us: None,
        duration_us: 1_000,
        address: None,
        client_request_id: None,
        dropped: Vec::new(),
        trace: Vec::new(),
        tags: Tags::default(),
        sale_multiplier: Multiplier::ONE,
        finish: Some(FinishReason::Stop),
        client: Some("OpenAI/Python 2.1.0".into()),
        request_bytes: 500,
        attempts: Vec::new(),
    }
}

/// Nanoseconds since 1970. Both programs run on one machine, so the difference of two timestamps is a one-way delay.
#[expect(clippy::disallowed_methods, reason = "a measuring program reads the clock itself")]
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Value of a header in a message head; `name` in lower case.
pub fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    head.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let (own, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        own.eq_ignore_ascii_case(name.as_bytes()).then(|| std::str::from_utf8(value.trim_ascii()).ok())?
    })
}

/// End of a chunked body that starts at `from`; `None` until it is complete.
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
