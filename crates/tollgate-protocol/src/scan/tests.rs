//! The scanner accepts valid JSON and reports the position of errors.

use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::*;

fn scan(body: &[u8]) -> Result<(), SyntaxError> {
    let mut scanner = Scanner::new(body)?;
    scanner.skip()?;
    scanner.end()
}

fn sentence(body: &[u8]) -> String {
    scan(body).expect_err("the body is at fault").malformed(body).message
}

#[test]
fn accepts_what_the_grammar_allows() {
    for body in [
        "null",
        " true ",
        "false",
        "0",
        "-0",
        "-12.50e+07",
        "1E400",
        "\"\"",
        "\"a\\u0041\\ud83d\\ude00\\n\\/\"",
        "\"\\ud800\"",
        "\"\\udfff x\"",
        "\"\u{7f}\u{2028}\"",
        "[]",
        "[ ]",
        "[1,[2,{}],{\"a\":[]}]",
        "{}",
        "{ \"a\" : 1 , \"b\":{\"c\":[ null ]}}",
        "\t\r\n{\"\":0}\n",
    ] {
        assert_eq!(scan(body.as_bytes()), Ok(()), "{body}");
    }
}

#[test]
fn syntax_errors_have_reason_and_position() {
    for (body, expected) in [
        ("", "expected a value at line 1 column 1"),
        (" \n\t ", "expected a value at line 2 column 3"),
        ("{\n \"a\": 1,\n \"b\": 2 \"c\"}", "expected ',' or '}' at line 3 column 9"),
        ("[1 2]", "expected ',' or ']' at line 1 column 4"),
        ("[1}", "expected ',' or ']' at line 1 column 3"),
        ("{\"a\":1,}", "expected a member name in double quotes at line 1 column 8"),
        ("{,}", "expected a member name in double quotes at line 1 column 2"),
        ("[1,]", "expected a value at line 1 column 4"),
        ("{\"a\" 1}", "expected ':' at line 1 column 6"),
        ("{\"é\":x}", "expected a value at line 1 column 6"),
        ("nul", "expected a value at line 1 column 1"),
        ("-Infinity", "expected a digit at line 1 column 2"),
        ("NaN", "expected a value at line 1 column 1"),
        ("010", "expected no digit after a leading zero at line 1 column 2"),
        ("+5", "expected a value at line 1 column 1"),
        ("1.", "expected a digit at line 1 column 3"),
        ("1e+", "expected a digit at line 1 column 4"),
        (".5", "expected a value at line 1 column 1"),
        ("\"a", "expected '\"' at line 1 column 3"),
        ("\"a\0b\"", "control character in a string at line 1 column 3"),
        ("\"\\u12\"", "expected four hexadecimal digits after '\\u' at line 1 column 2"),
        ("\"\\x\"", "unknown escape in a string at line 1 column 2"),
        ("1 x", "expected the end of the document at line 1 column 3"),
        ("{} {}", "expected the end of the document at line 1 column 4"),
        (")]}'\n{}", "expected a value at line 1 column 1"),
        ("\u{feff}{}", "expected a value at line 1 column 1"),
    ] {
        assert_eq!(sentence(body.as_bytes()), format!("The request body is not valid JSON: {expected}."), "{body}");
    }
}

#[test]
fn refuses_bytes_that_are_not_utf8() {
    for bytes in [&b"\"\xff\""[..], b"\"\xc0\xaf\"", b"\"\xf5\x80\x80\x80\"", b"\xff\xfe{\0}\0", b"\"\xed\xa0\x80\""] {
        assert!(sentence(bytes).contains("invalid UTF-8 at line 1"), "{bytes:?}");
    }
}

#[test]
fn nesting_ends_at_the_limit() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(scan(nested(128).as_bytes()), Ok(()));
    assert!(sentence(nested(129).as_bytes()).contains("nested more than 128 levels deep at line 1 column 129"));
    let objects = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    assert_eq!(scan(objects(128).as_bytes()), Ok(()));
    assert!(scan(objects(129).as_bytes()).is_err());
    assert!(scan("[".repeat(1_000_000).as_bytes()).is_err());
    // Brackets opened by the caller count together with those inside skipped values.
    let mut scanner = Scanner::new(b"[[1]]").expect("UTF-8");
    scanner.depth = MAX_DEPTH - 1;
    assert!(scanner.array(|scanner, _| scanner.skip().map(drop)).is_err());
}

#[test]
fn values_are_counted() {
    let body = |values: usize| format!("[{}1]", "1,".repeat(values - 2));
    assert_eq!(scan(body(250_000).as_bytes()), Ok(()));
    assert!(sentence(body(250_001).as_bytes()).contains("more than 250000 values"));
}

#[test]
fn values_are_returned_with_their_byte_ranges() {
    let body = br#"{ "a": [10, "x\ny"], "\u0062": {"c": true} }"#;
    let mut seen = Vec::new();
    let mut scanner = Scanner::new(body).expect("UTF-8");
    let whole = scanner
        .object(|scanner, name| {
            let (value, range) = scanner.value()?;
            seen.push((name.word().to_owned(), value, scanner.slice(range).to_owned()));
            Ok(())
        })
        .expect("valid");
    assert_eq!(whole, 0..body.len());
    assert_eq!(seen[0], ("a".to_owned(), Value::Array, r#"[10, "x\ny"]"#.to_owned()));
    assert_eq!(seen[1], ("b".to_owned(), Value::Object, r#"{"c": true}"#.to_owned()));
}

#[test]
fn strings_are_decoded_and_measured() {
    for (raw, expected) in [
        ("plain", "plain"),
        ("caf\\u00e9 \\ud83d\\ude00", "café 😀"),
        ("\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\u{8}\u{c}\n\r\t"),
        ("\\ud800", "\u{fffd}"),
        ("\\ud800\\ud83d\\ude00", "\u{fffd}😀"),
        ("a\\udc00b", "a\u{fffd}b"),
        ("\\u0000", "\0"),
    ] {
        let body = format!("\"{raw}\"");
        let (value, range) = Scanner::new(body.as_bytes()).and_then(|mut scanner| scanner.value()).expect("valid");
        let Value::Text(text) = value else { panic!("{raw} is text") };
        assert_eq!(text.decode(), expected);
        assert_eq!(text.decoded_bytes(), expected.len() as u64);
        assert_eq!(text.content_range(), 1..range.end - 1);
    }
}

#[test]
fn whole_numbers_are_read_exactly() {
    for (number, expected) in [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("0.000e-5", Some(0)),
        ("5.0", Some(5)),
        ("1e2", Some(100)),
        ("120e-1", Some(12)),
        ("1.25E2", Some(125)),
        ("9223372036854775807", Some(9_223_372_036_854_775_807)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("1000000000000000000000e-3", Some(1_000_000_000_000_000_000)),
        ("0e99999999999999999999", Some(0)),
        ("1e99999999999999999999", None),
        ("1e-99999999999999999999", None),
        ("-1", None),
        ("1.5", None),
        ("", None),
        ("12 ", None),
        ("0x10", None),
        ("010", None),
    ] {
        assert_eq!(whole(number), expected, "{number}");
    }
    assert_eq!(whole(&"9".repeat(100_000)), None);
}

proptest! {
    #[test]
    fn finite_numbers_are_those_that_fit_a_float(text in "-?[0-9]{0,22}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,3})?") {
        let valid = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(is_finite(&text), valid && text.parse::<f64>().is_ok_and(f64::is_finite));
    }

    #[test]
    fn whole_numbers_are_read_equally_with_and_without_a_fraction(text in "[0-9]{0,22}[x ]?") {
        let valid = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
        let expected = if valid { text.parse::<u64>().ok() } else { None };
        prop_assert_eq!(whole(&text), expected);
        prop_assert_eq!(whole(&format!("{text}.0")), expected);
    }
}

#[test]
fn infinite_floats_are_detected() {
    assert!(is_finite("-5") && is_finite("1e308") && is_finite("1e-400"));
    assert!(!is_finite("1e400") && !is_finite("-1e400") && !is_finite("hot") && !is_finite("inf") && !is_finite(""));
}

#[test]
fn long_strings_end_at_their_first_special_byte() {
    let scan = |bytes: &[u8]| text::scan(bytes, 0, text::next_special(bytes, 0));
    for length in 0..200 {
        for special in ['"', '\\', '\u{1}'] {
            let text = "é".repeat(length / 2) + &"a".repeat(length % 2);
            let bytes = format!("{text}{special}x");
            let expected = (special == '"').then_some((text.len(), text.len()));
            assert_eq!(scan(bytes.as_bytes()).ok(), expected, "{length} {special:?}");
        }
        assert!(scan("é".repeat(length).as_bytes()).is_err());
    }
}

proptest! {
    #[test]
    fn special_byte_search_matches_a_byte_by_byte_search(
        mut bytes in proptest::collection::vec(prop_oneof![8 => 0x20_u8..=0xff, 1 => any::<u8>()], 0..220),
        plain in 0_usize..220,
    ) {
        for byte in bytes.iter_mut().take(plain) {
            *byte = if *byte < 0x20 || *byte == b'"' || *byte == b'\\' { b'#' } else { *byte };
        }
        for at in 0..=bytes.len() {
            let expected = bytes[at..].iter().position(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\');
            prop_assert_eq!(text::next_special(&bytes, at), expected.map_or(bytes.len(), |offset| at + offset));
            let short = text::next_special_of_short(&bytes, at);
            prop_assert!(short.is_none_or(|found| Some(found - at) == expected));
            prop_assert!(short.is_some() || expected.is_none_or(|offset| offset >= 32 || bytes.len() - at - offset < 16));
        }
    }
}

/// JSON-like text: fragments that make valid documents likely and every kind of error possible.
fn json_like() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(":"),
        Just("\"a\""),
        Just("\"\\u12aF\""),
        Just("\"\\ud800\""),
        Just("1"),
        Just("-0.5e3"),
        Just("01"),
        Just("true"),
        Just("null"),
        Just(" "),
        Just("\n"),
        Just("\""),
        Just("\\"),
        Just("é"),
        Just("\u{1}"),
    ];
    proptest::collection::vec(fragment, 0..12).prop_map(|fragments| fragments.concat())
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(|float| serde_json::json!(float)),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            proptest::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn agrees_with_serde(body: &[u8]) {
    let theirs = std::str::from_utf8(body).is_ok_and(|body| serde_json::from_str::<IgnoredAny>(body).is_ok());
    assert_eq!(scan(body).is_ok(), theirs, "{:?}", String::from_utf8_lossy(body));
}

proptest! {
    #[test]
    fn accepts_exactly_what_serde_json_accepts(text in json_like()) {
        agrees_with_serde(text.as_bytes());
    }

    #[test]
    fn accepts_every_document_and_judges_its_mutations_as_serde_json_does(
        value in json(),
        pretty in any::<bool>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut body = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.expect("serialises");
        prop_assert_eq!(scan(&body), Ok(()));
        let at = at.index(body.len());
        agrees_with_serde(&body[..at]);
        body[at] = byte;
        agrees_with_serde(&body);
        body.remove(at);
        agrees_with_serde(&body);
    }

    #[test]
    fn decodes_strings_as_serde_json_does(text in any::<String>(), ascii in any::<bool>()) {
        let mut body = serde_json::to_string(&text).expect("serialises");
        if ascii {
            body = body.chars().flat_map(|character| {
                let escaped = |unit: &u16| format!("\\u{unit:04x}").chars().collect::<Vec<_>>();
                let mut units = [0; 2];
                if character.is_ascii() {
                    vec![character]
                } else {
                    character.encode_utf16(&mut units).iter().flat_map(escaped).collect()
                }
            }).collect();
        }
        let (value, _) = Scanner::new(body.as_bytes()).and_then(|mut scanner| scanner.value()).expect("valid");
        let Value::Text(read) = value else { panic!("text") };
        prop_assert_eq!(read.decode(), text.as_str());
        prop_assert_eq!(read.decoded_bytes(), text.len() as u64);
    }

    #[test]
    fn never_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(fault) = scan(&body) {
            fault.malformed(&body);
        }
    }
}
