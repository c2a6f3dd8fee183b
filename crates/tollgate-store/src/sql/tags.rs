//! Tags in rows of the usage log. The text of a row has a line for each tag, between line breaks: `12=34` with the numbers of name and
//! value in the dictionary if the value has sums, `~12=text` if it is among the other values of a name, and `!name=text` if the name
//! has none. The form is chosen when the record is written (`append/tags.rs`).

use std::fmt::Write as _;

use tollgate_core::Tags;

use super::cells::broken;

/// The value under which all values without separate sums are summed.
pub(super) const OTHER_VALUES: i64 = -1;

/// The sums to which a tag of a record is added. Lists are in the order of the record's tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagRef {
    Own {
        tag: i64,
        value: i64,
    },
    /// The value is among the other values of its name.
    Other {
        tag: i64,
    },
    /// The name has no sums.
    Unsummed,
}

impl TagRef {
    /// The name and the value in the tables of sums. All names without sums share one row, which shows the times when such names occur.
    pub(super) const fn summed(self) -> (i64, i64) {
        match self {
            Self::Own { tag, value } => (tag, value),
            Self::Other { tag } => (tag, OTHER_VALUES),
            Self::Unsummed => (0, OTHER_VALUES),
        }
    }
}

/// A tag that was read from a row, with its texts if the dictionary does not have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredTag {
    pub(super) counted: TagRef,
    pub(super) name: Option<String>,
    pub(super) value: Option<String>,
}

/// The text of a row; `None` without tags.
pub(super) fn text(tags: &Tags, refs: &[TagRef]) -> Option<String> {
    if tags.is_empty() {
        return None;
    }
    let mut text = String::from("\n");
    for ((name, value), counted) in tags.iter().zip(refs) {
        match counted {
            TagRef::Own { tag, value } => writeln!(text, "{tag}={value}"),
            TagRef::Other { tag } => writeln!(text, "~{tag}={value}"),
            TagRef::Unsummed => writeln!(text, "!{name}={value}"),
        }
        .expect("writing to a String cannot fail");
    }
    Some(text)
}

pub(super) fn parse(text: &str) -> Result<Vec<StoredTag>, sqlx::Error> {
    text.trim_matches('\n').split('\n').map(parse_line).collect()
}

fn parse_line(line: &str) -> Result<StoredTag, sqlx::Error> {
    let (name, value) = line.split_once('=').ok_or_else(|| broken("a tag has no value"))?;
    let number = |text: &str| text.parse::<i64>().map_err(broken);
    Ok(if let Some(name) = name.strip_prefix('!') {
        StoredTag { counted: TagRef::Unsummed, name: Some(name.to_owned()), value: Some(value.to_owned()) }
    } else if let Some(tag) = name.strip_prefix('~') {
        StoredTag { counted: TagRef::Other { tag: number(tag)? }, name: None, value: Some(value.to_owned()) }
    } else {
        StoredTag { counted: TagRef::Own { tag: number(name)?, value: number(value)? }, name: None, value: None }
    })
}

/// The lines of a tag with a value, of which a row has one at most. `tag` and `number` are those of the dictionary, if it has them.
pub(super) fn lines((name, value): (&str, &str), tag: Option<i64>, number: Option<i64>) -> Vec<String> {
    let own = tag.zip(number).map(|(tag, value)| format!("\n{tag}={value}\n"));
    let other = tag.map(|tag| format!("\n~{tag}={value}\n"));
    own.into_iter().chain(other).chain([format!("\n!{name}={value}\n")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_row_reads_back() {
        let tags = Tags::parse_header([b"project=web,trace=a=b,user=x".as_slice()]).unwrap();
        let refs = [TagRef::Own { tag: 12, value: 34 }, TagRef::Unsummed, TagRef::Other { tag: 13 }];
        let stored = text(&tags, &refs).unwrap();
        assert_eq!(stored, "\n12=34\n!trace=a=b\n~13=x\n");
        let read = parse(&stored).unwrap();
        assert_eq!(read.iter().map(|tag| tag.counted).collect::<Vec<_>>(), refs);
        assert_eq!((read[1].name.as_deref(), read[1].value.as_deref()), (Some("trace"), Some("a=b")));
        assert_eq!((read[2].name.as_deref(), read[2].value.as_deref()), (None, Some("x")));
        assert_eq!(text(&Tags::default(), &[]), None);
        for damaged in ["\n", "\n12\n", "\nx=1\n", "\n~=1\n", "\n1=y\n"] {
            assert!(parse(damaged).is_err(), "{damaged:?}");
        }
        for line in lines(("trace", "a=b"), None, None) {
            assert!(stored.contains(&line));
        }
        assert!(lines(("project", "web"), Some(12), Some(34)).iter().any(|line| stored.contains(line)));
        assert!(lines(("user", "x"), Some(13), None).iter().any(|line| stored.contains(line)));
        assert!(!lines(("user", "y"), Some(13), Some(9)).iter().any(|line| stored.contains(line)));
    }
}
