//! JSON as text: writing strings into an answer, compacting values without reading them into a tree.

use bytes::{BufMut, BytesMut};
use serde_json::value::RawValue;

/// Deepest nesting of a value that is handed on inside an answer.
const DEPTH_LIMIT: usize = 128;

/// Appends `text` as a JSON string. U+0085, U+2028 and U+2029 are escaped besides what must be: some event-stream
/// readers take them for line ends (native wire reference, section 8).
pub(crate) fn write_string(out: &mut BytesMut, text: &str) {
    out.reserve(text.len() + 2);
    out.put_u8(b'"');
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
    out.put_u8(b'"');
}

/// Appends sound JSON of one line. Only the line ends named at [`write_string`] change.
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

fn line_end(bytes: &[u8]) -> Option<(&'static [u8], usize)> {
    match bytes {
        [0xc2, 0x85, ..] => Some((b"\\u0085", 2)),
        [0xe2, 0x80, 0xa8, ..] => Some((b"\\u2028", 3)),
        [0xe2, 0x80, 0xa9, ..] => Some((b"\\u2029", 3)),
        _ => None,
    }
}

/// The compact text of a sound JSON value: no blanks, non-ASCII characters not escaped, everything else (member order,
/// numbers, duplicates) as it was. `None` above 128 levels.
pub(crate) fn compact(raw: &RawValue) -> Option<String> {
    let bytes = raw.get().as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let (mut at, mut depth, mut in_string) = (0, 0_usize, false);
    while at < bytes.len() {
        let byte = bytes[at];
        if in_string {
            if byte == b'\\' {
                at += unescape(&bytes[at..], &mut out);
                continue;
            }
            in_string = byte != b'"';
        } else {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => {
                    at += 1;
                    continue;
                }
                b'"' => in_string = true,
                b'{' | b'[' => {
                    depth += 1;
                    if depth > DEPTH_LIMIT {
                        return None;
                    }
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        out.push(byte);
        at += 1;
    }
    String::from_utf8(out).ok()
}

/// Copies the escape at the beginning of `bytes`, resolved where it is a character beyond ASCII. Returns its length.
fn unescape(bytes: &[u8], out: &mut Vec<u8>) -> usize {
    if let Some(first) = code_unit(bytes) {
        let mut buffer = [0; 4];
        if let Some(character) = char::from_u32(first) {
            if character.is_ascii() {
                out.extend_from_slice(&bytes[..6]);
            } else {
                out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
            }
            return 6;
        }
        if (0xd800..0xdc00).contains(&first)
            && let Some(second @ 0xdc00..0xe000) = code_unit(&bytes[6..])
            && let Some(character) = char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00))
        {
            out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
            return 12;
        }
        out.extend_from_slice(&bytes[..6]);
        return 6;
    }
    let length = bytes.len().min(2);
    out.extend_from_slice(&bytes[..length]);
    length
}

fn code_unit(bytes: &[u8]) -> Option<u32> {
    let [b'\\', b'u', digits @ ..] = bytes else { return None };
    let digits = std::str::from_utf8(digits.get(..4)?).ok()?;
    if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) { u32::from_str_radix(digits, 16).ok() } else { None }
}

/// Tool arguments as a compact JSON object: blank text is `{}`; `None` for what is no object.
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
    fn compacting_keeps_everything_but_blanks_and_needless_escapes() {
        let compacted = |json: &str| compact(serde_json::from_str(json).unwrap()).unwrap();
        assert_eq!(compacted("{ \"b\" : 1.0 ,\n \"a\" : \" \\u00e9 \\ud83d\\ude00 \\u0041 \\n \\\" \" }"), {
            r#"{"b":1.0,"a":" é 😀 \u0041 \n \" "}"#
        });
        assert_eq!(compacted(r#"{"x":"\ud83d"}"#), r#"{"x":"\ud83d"}"#);
        assert_eq!(
            compacted("{\"n\":123456789012345678901234567890,\"n\":1e400}"),
            "{\"n\":123456789012345678901234567890,\"n\":1e400}"
        );
    }

    #[test]
    fn arguments_must_be_an_object_of_bearable_depth() {
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
        fn a_written_string_reads_back(text in any::<String>()) {
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
