use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::*;

fn accepts(text: &str) -> bool {
    let mut peek = Peek::new(text);
    peek.skip().is_ok() && peek.end().is_ok()
}

/// Walks everything through the closures instead of skipping it.
fn walk(peek: &mut Peek<'_>) -> Result<(), NotJson> {
    match peek.kind()? {
        Kind::Object => peek.object(|peek, _| walk(peek)).map(|_| ()),
        Kind::Array => peek.array(|peek, _| walk(peek)).map(|_| ()),
        Kind::Text | Kind::Number | Kind::Bool | Kind::Null => peek.skip().map(|_| ()),
    }
}

#[test]
fn what_is_json_is_told_from_what_is_not() {
    for text in ["{}", " [ ] ", "[1,2]", "{\"a\":{\"b\":[null,true,false]}}", "\"\\u00e9\\ud800\"", "-0.5e+3", "[[],{}]"] {
        assert!(accepts(text), "{text}");
    }
    let broken = [
        "",
        "{",
        "[",
        "{]",
        "[}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "[1,]",
        "[,1]",
        "{,}",
        "[1 2]",
        "01",
        "1.",
        ".5",
        "1e",
        "+1",
        "-",
        "nul",
        "tru",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"a",
        "\"a\nb\"",
        "{} {}",
        "[1],",
        "{1:2}",
        "NaN",
    ];
    for text in broken {
        assert!(!accepts(text), "{text}");
    }
}

#[test]
fn nesting_is_followed_without_recursion_up_to_the_limit() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(accepts(&nested(DEPTH_LIMIT)));
    assert_eq!(Peek::new(&nested(DEPTH_LIMIT + 1)).skip(), Err(NotJson("nested too deep")));
    assert_eq!(Peek::new(&"{\"a\":".repeat(100_000)).skip(), Err(NotJson("nested too deep")));
}

#[test]
fn members_are_seen_with_their_places() {
    let text = "{ \"a\" : 1 , \"\\u0062\" : [2] ,\"c\":\"x\"}";
    let mut seen = Vec::new();
    Peek::new(text)
        .object(|peek, member| {
            let value = if member.name == "c" { peek.at()..peek.at() } else { peek.skip()? };
            seen.push((member.name.to_string(), member.index, &text[member.comma..member.starts], value));
            Ok(())
        })
        .unwrap();
    assert_eq!(seen[0], ("a".to_owned(), 0, " ", 8..9));
    assert_eq!(seen[1], ("b".to_owned(), 1, ", ", 23..26));
    assert_eq!((seen[2].0.as_str(), seen[2].2), ("c", ","));
}

#[test]
fn other_kinds_are_skipped_where_an_object_or_array_was_asked_for() {
    let mut peek = Peek::new("[null,{\"a\":[]},7]");
    let mut kinds = Vec::new();
    let length = peek.array(|peek, index| {
        match index {
            0 => assert!(peek.object(|_, _| Ok(()))?.is_empty()),
            1 => assert_eq!(peek.array(|_, _| Ok(()))?, None),
            _ => assert!(peek.text()?.is_none()),
        }
        kinds.push(index);
        Ok(())
    });
    assert_eq!((length, kinds), (Ok(Some(3)), vec![0, 1, 2]));
    assert!(peek.end().is_ok());
}

#[test]
fn counts_are_read_leniently_and_absurd_ones_are_not() {
    for (text, expected) in [
        ("7", Some(7)),
        ("0", Some(0)),
        ("12.0", Some(12)),
        ("12.6", Some(13)),
        ("1e3", Some(1000)),
        ("\"42\"", Some(42)),
        ("\" 42 \"", Some(42)),
        ("-1", None),
        ("\"-1\"", None),
        ("9223372036854775808", None),
        ("1e400", None),
        ("null", None),
        ("\"many\"", None),
        ("\"nan\"", None),
        ("true", None),
        ("[1]", None),
    ] {
        assert_eq!(Peek::new(text).count(), Ok(expected), "{text}");
    }
}

#[test]
fn escapes_are_measured_and_decoded() {
    for (raw, decoded) in [
        (r"a\n\t\u0041\u00e9\u20ac", "a\n\tA\u{e9}\u{20ac}"),
        (r"\ud83d\ude00!", "\u{1f600}!"),
        (r#"\"\\\/\b\f\r"#, "\"\\/\u{8}\u{c}\r"),
    ] {
        let text = Text { raw, escaped: true };
        assert_eq!(text.decoded(), decoded);
        assert_eq!(text.decoded_len(), decoded.len() as u64, "{raw}");
    }
    for lone in [r"\ud83d", r"\ude00x", r"\ud83d\n", r"\ud83d\u0041"] {
        assert!(Text { raw: lone, escaped: true }.decoded().starts_with('\u{fffd}'), "{lone}");
    }
}

proptest! {
    #[test]
    fn the_grammar_is_that_of_serde_json(text in r#"[\[\]{}:,"\\a0-2eE.+\-tn ru]{0,24}"#) {
        let expected = serde_json::from_str::<IgnoredAny>(&text).is_ok();
        prop_assert_eq!(accepts(&text), expected, "skip");
        let mut peek = Peek::new(&text);
        prop_assert_eq!(walk(&mut peek).is_ok() && peek.end().is_ok(), expected, "walk");
    }

    #[test]
    fn documents_with_one_damaged_byte_are_judged_as_by_serde_json(at in 0_usize..80, byte in 0x20_u8..0x7f) {
        let mut text = br#"{"a":[1,-2.5e3,true,null,{"b":"x\u00e9\n"}],"c":{"d":{},"e":[]},"f":"","g":false}"#.to_vec();
        text[at] = byte;
        let text = String::from_utf8(text).unwrap();
        prop_assert_eq!(accepts(&text), serde_json::from_str::<IgnoredAny>(&text).is_ok());
    }
}
