//! Contents of requests, as they are stored: the body that a caller sent and the answer that it got, shortened.
//!
//! Most bytes of a body are media in base64, which are of no use to a reader, so runs of base64 are cut. A shortened body is still
//! JSON, unless it exceeds the size limit and is cut at its end.

use std::borrow::Cow;

use minicbor::{Decode, Encode};
use regex::Regex;

use crate::{KeyId, MemberId, RequestId, Timestamp};

/// Characters kept of a run of base64. No word or number is as long.
const KEPT_RUN: usize = 1_024;
/// Bytes that are compared at once.
const BLOCK: usize = 64;

/// The contents of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContents {
    pub id: RequestId,
    /// When the request arrived.
    pub at: Timestamp,
    pub key: KeyId,
    pub member: MemberId,
    /// The body, after decompression.
    pub request: Excerpt,
    /// The answer as it was sent: JSON, or the events of a stream. Empty for a refusal: its error is in the usage record.
    pub answer: Excerpt,
}

/// A text that may be shortened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Excerpt {
    #[n(0)]
    pub text: String,
    /// Length of the whole text in bytes.
    #[n(1)]
    pub bytes: u64,
    /// Whether the end is missing, because the text is longer than the kept part.
    #[n(2)]
    pub is_cut: bool,
}

/// Shortens a text that arrives in pieces.
#[derive(Debug)]
pub struct ExcerptWriter {
    text: Vec<u8>,
    /// Most bytes that are kept.
    max: usize,
    bytes: u64,
    /// Length of the run of base64 at the end of the received text.
    run: usize,
    is_cut: bool,
}

impl ExcerptWriter {
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { text: Vec::new(), max, bytes: 0, run: 0, is_cut: false }
    }

    /// Adds the next bytes of the text.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.is_cut {
            return;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let run = base64_run(rest);
            let kept = run.min(KEPT_RUN.saturating_sub(self.run));
            self.keep(&rest[..kept]);
            self.run += run;
            rest = &rest[run..];
            if !rest.is_empty() {
                self.end_run();
                let other = rest.iter().take_while(|byte| !is_base64(**byte)).count();
                self.keep(&rest[..other]);
                rest = &rest[other..];
            }
        }
    }

    /// Bytes that are kept.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.text.len()
    }

    /// The kept part of the text. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn finish(mut self) -> Excerpt {
        self.end_run();
        if self.is_cut {
            self.text.truncate(whole_characters(&self.text));
        }
        let text = String::from_utf8(self.text).unwrap_or_else(|fault| String::from_utf8_lossy(fault.as_bytes()).into_owned());
        Excerpt { text, bytes: self.bytes, is_cut: self.is_cut }
    }

    /// Ends a run and writes how many of its characters are missing.
    fn end_run(&mut self) {
        let missing = std::mem::take(&mut self.run).saturating_sub(KEPT_RUN);
        if missing > 0 {
            self.keep(format!("[{missing} more characters]").as_bytes());
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(self.max.saturating_sub(self.text.len()));
        self.is_cut |= kept < bytes.len();
        self.text.extend_from_slice(&bytes[..kept]);
    }
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() | matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_')
}

/// Length of the run of base64 at the beginning. Media have megabytes of it, so it is read in blocks, for which the compiler uses vector
/// instructions.
fn base64_run(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let is_run = |block: &&[u8; BLOCK]| block.iter().fold(true, |is_run, byte| is_run & is_base64(*byte));
    let whole = BLOCK * blocks.iter().take_while(is_run).count();
    whole + bytes[whole..].iter().take_while(|byte| is_base64(**byte)).count()
}

/// Length of a text without an incomplete UTF-8 character at its end.
fn whole_characters(text: &[u8]) -> usize {
    match std::str::from_utf8(text) {
        Err(fault) if fault.error_len().is_none() => fault.valid_up_to(),
        _ => text.len(),
    }
}

/// A pattern of texts that are replaced before contents are stored.
#[derive(Clone, Debug)]
pub struct Redaction(Regex);

impl Redaction {
    /// # Errors
    /// When it is not a regular expression, or one that needs too much memory.
    pub fn new(pattern: &str) -> Result<Self, String> {
        // The last line of the error is the message; those before draw the pattern.
        let fault =
            |fault: regex::Error| fault.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let pattern = Regex::new(pattern).map_err(fault)?;
        if pattern.is_match("") { Err("it matches the empty text, which is everywhere".to_owned()) } else { Ok(Self(pattern)) }
    }

    /// The text with `[redacted]` in the place of each match; `None` if there is none.
    #[must_use]
    pub fn redact(&self, text: &str) -> Option<String> {
        match self.0.replace_all(text, "[redacted]") {
            Cow::Borrowed(_) => None,
            Cow::Owned(text) => Some(text),
        }
    }
}

impl PartialEq for Redaction {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Redaction {}

/// The most that each holder may keep so that all together keep at most `total`. Holders that have less keep all of it, and their
/// unused share is divided equally among the others.
#[must_use]
pub fn fair_level(held: &[u64], total: u64) -> u64 {
    let mut sorted = held.to_vec();
    sorted.sort_unstable();
    let mut left = total;
    for (at, size) in sorted.iter().enumerate() {
        let level = left / (sorted.len() - at) as u64;
        if *size > level {
            return level;
        }
        left -= size;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn excerpt(text: &str, max: usize, piece: usize) -> Excerpt {
        let mut writer = ExcerptWriter::new(max);
        text.as_bytes().chunks(piece).for_each(|bytes| writer.push(bytes));
        writer.finish()
    }

    #[test]
    fn short_texts_are_kept_whole() {
        let text = r#"{"model":"m","messages":[{"role":"user","content":"Grüße, 你好"}]}"#;
        for piece in [1, 7, 1_000] {
            assert_eq!(excerpt(text, 1_000, piece), Excerpt { text: text.to_owned(), bytes: text.len() as u64, is_cut: false });
        }
    }

    #[test]
    fn media_are_cut_and_the_body_stays_json() {
        let data = "QUJD".repeat(10_000);
        let body = serde_json::json!({"image": format!("data:image/png;base64,{data}"), "after": "text"}).to_string();
        for piece in [1, 333, 100_000] {
            let Excerpt { text, bytes, is_cut } = excerpt(&body, 10_000, piece);
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!((bytes, is_cut, &read["after"]), (body.len() as u64, false, &serde_json::json!("text")));
            assert!(read["image"].as_str().unwrap().ends_with("QUJD[38976 more characters]"), "{text}");
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let Excerpt { text, bytes, is_cut } = excerpt(&"你 ".repeat(100), 5, 3);
        assert_eq!((text.as_str(), bytes, is_cut), ("你 ", 400, true));
    }

    #[test]
    fn matches_are_redacted() {
        let redaction = Redaction::new(r"[\w.]+@[\w.]+|sk-\w{8,}").unwrap();
        let text = r#"{"user":"ada@example.com","note":"key sk-123456789, 你好"}"#;
        assert_eq!(redaction.redact(text).unwrap(), r#"{"user":"[redacted]","note":"key [redacted], 你好"}"#);
        assert_eq!(redaction.redact("nothing"), None);
        assert_eq!(redaction, Redaction::new(r"[\w.]+@[\w.]+|sk-\w{8,}").unwrap());
    }

    #[test]
    fn patterns_that_cannot_work_are_refused() {
        assert_eq!(Redaction::new("(a").unwrap_err(), "unclosed group");
        assert_eq!(Redaction::new("a*").unwrap_err(), "it matches the empty text, which is everywhere");
        assert!(Redaction::new("(a{1000}){1000}").unwrap_err().contains("size limit"));
    }

    #[test]
    fn holders_below_the_fair_share_are_not_reduced() {
        assert_eq!(fair_level(&[10, 20, 30], 60), u64::MAX);
        assert_eq!(fair_level(&[10, 20, 1_000], 60), 30);
        assert_eq!(fair_level(&[100, 100, 1], 61), 30);
        assert_eq!(fair_level(&[5, 5], 0), 0);
        assert_eq!(fair_level(&[], 0), u64::MAX);
    }

    proptest! {
        #[test]
        fn fair_level_is_the_highest_that_fits_the_total(held in prop::collection::vec(0_u64..1_000, 1..20), total in 0_u64..10_000) {
            let level = fair_level(&held, total);
            let kept: u64 = held.iter().map(|size| (*size).min(level)).sum();
            prop_assert!(kept <= total);
            // The level is the highest possible: one more unit for each holder would exceed the total.
            let more: u64 = held.iter().map(|size| (*size).min(level.saturating_add(1))).sum();
            prop_assert!(level == u64::MAX || more > total || more == kept);
        }

        #[test]
        fn excerpt_does_not_depend_on_the_piece_size(text in "[a-zA-Z0-9 ü你\"]{0,3000}", piece in 1_usize..500, max in 0_usize..2_000) {
            prop_assert_eq!(excerpt(&text, max, piece), excerpt(&text, max, usize::MAX / 2));
        }
    }
}
