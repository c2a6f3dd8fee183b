//! JSON as text: writing strings, and compacting values without building a tree.

use bytes::{BufMut, BytesMut};
use serde_json::value::RawValue;

use crate::tree;

/// Deepest nesting of a value passed on inside a reply.
const DEPTH_LIMIT: usize = 128;

/// Larger buffers are not used again once their bytes are taken.
const KEPT_BYTES: usize = 32 * 1024;

/// Takes the bytes out of a reused buffer. A large buffer is taken as a whole, because its remainder would keep the entire allocation
/// alive.
pub(crate) fn take_written(buffer: &mut BytesMut) -> BytesMut {
    if buffer.len() > KEPT_BYTES { std::mem::take(buffer) } else { buffer.split() }
}

/// Appends `text` as a JSON string. U+0085, U+2028 and U+2029 are escaped as well: some event-stream parsers split lines
/// at them.
pub(crate) fn write_string(out: &mut BytesMut, text: &str) {
    out.reserve(text.len() + 2);
    out.put_u8(b'"');
    write_escaped(out, text);
    out.put_u8(b'"');
}

/// Appends the content of [`write_string`], without the quotation marks.
pub(crate) fn write_escaped(out: &mut BytesMut, text: &str) {
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x00..=0x1f => {
                out.put_slice(&bytes[from..at]);
                out.put_slice(format!("\\u{byte:04x}").as_bytes());
                from = at + 1;
                continue;
            }
            0xc2 | 0xe2 => {
                if let Some((escape, length)) = line_end(&bytes[at..]) {
                    out.put_slice(&bytes[from..at]);
                    out.put_slice(escape);
                    from = at + length;
                }
                continue;
            }
            _ => continue,
        };
        out.put_slice(&bytes[from..at]);
        out.put_slice(escape);
        from = at + 1;
    }
    out.put_slice(&bytes[from..]);
}

/// Appends valid JSON without line breaks, with the line separators of [`write_string`] escaped.
pub(crate) fn write_json(out: &mut BytesMut, json: &str) {
    let bytes = json.as_bytes();
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if matches!(byte, 0xc2 | 0xe2)
            && let Some((escape, length)) = line_end(&bytes[at..])
        {
            out.put_slice(&bytes[from..at]);
            out.put_slice(escape);
            from = at + length;
        }
    }
    out.put_slice(&bytes[from..]);
}

/// Writes a comma before every element but the first.
pub(crate) fn write_separator(out: &mut BytesMut, index: usize) {
    if index > 0 {
        out.put_u8(b',');
    }
}

/// The escape of the line separator at the start of `bytes`, and the separator's length.
pub(crate) fn line_end(bytes: &[u8]) -> Option<(&'static [u8], usize)> {
    match bytes {
        [0xc2, 0x85, ..] => Some((b"\\u0085", 2)),
        [0xe2, 0x80, 0xa8, ..] => Some((b"\\u2028", 3)),
        [0xe2, 0x80, 0xa9, ..] => Some((b"\\u2029", 3)),
        _ => None,
    }
}

/// Valid JSON without white space and needless escapes; member order, numbers and duplicates are kept. `None` if nested
/// deeper than 128 levels.
pub(crate) fn compact(raw: &RawValue) -> Option<String> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in raw.get().bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_LIMIT {
            return None;
        }
    }
    Some(tree::compact(raw.get()))
}

/// Tool arguments as a compact JSON object. Blank text is `{}`; `None` if it is not an object.
pub(crate) fn arguments_object(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return Some("{}".to_owned());
    }
    if !text.starts_with('{') {
        return None;
    }
    serde_json::from_str::<&RawValue>(text).ok().and_then(compact)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &str) -> String {
        let mut out = BytesMut::new();
        write_string(&mut out, text);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn line_ends_of_any_kind_are_escaped() {
        assert_eq!(written("a\n\u{1}\"\\\u{85}\u{2028}\u{2029}é€"), r#""a\n\u0001\"\\\u0085\u2028\u2029é€""#);
        let mut out = BytesMut::new();
        write_json(&mut out, "{\"a\":\"\u{2028}é\"}");
        assert_eq!(&out[..], "{\"a\":\"\\u2028é\"}".as_bytes());
    }

    #[test]
    fn compacting_removes_only_white_space_and_needless_escapes() {
        let compacted = |json: &str| compact(serde_json::from_str(json).unwrap()).unwrap();
        let spaced = "{ \"b\" : 1.0 ,\n \"a\" : \" \\u00e9 \\ud83d\\ude00 [ \\n \\\" { \" }";
        assert_eq!(compacted(spaced), r#"{"b":1.0,"a":" é 😀 [ \n \" { "}"#);
        assert_eq!(compacted(r#"{"x":"\ud83d"}"#), r#"{"x":"\ud83d"}"#);
        let numbers = "{\"n\":123456789012345678901234567890,\"n\":1e400}";
        assert_eq!(compacted(numbers), numbers);
        let brackets = format!("[\"{}\"]", "[".repeat(1_000));
        assert_eq!(compacted(&brackets), brackets);
    }

    #[test]
    fn arguments_must_be_an_object_of_limited_depth() {
        assert_eq!(arguments_object(" ").as_deref(), Some("{}"));
        assert_eq!(arguments_object(" {\"a\": 1} ").as_deref(), Some("{\"a\":1}"));
        for bad in ["{\"a\":", "[1]", "null", "\"x\"", "{} {}", "{\"a\":1}x"] {
            assert_eq!(arguments_object(bad), None, "{bad}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(arguments_object(&deep), None);
    }

    proptest! {
        #[test]
        fn written_strings_parse_to_the_same_text(text in any::<String>()) {
            prop_assert_eq!(serde_json::from_str::<String>(&written(&text)).unwrap(), text);
        }

        #[test]
        fn compacting_does_not_change_the_value(text in any::<String>(), number in any::<i64>()) {
            let value = serde_json::json!({ "k": [text, number, null, { "x": true }] });
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let compacted = compact(serde_json::from_str(&pretty).unwrap()).unwrap();
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&compacted).unwrap(), value);
        }
    }
}
