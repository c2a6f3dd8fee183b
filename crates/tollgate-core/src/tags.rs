//! Tags of a request: names with values that its caller gives it, so that usage can be summed by them.

use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Most tags of a request.
pub const MAX_TAGS: usize = 16;
/// Longest name and longest value of a tag, in characters.
pub const MAX_TAG_NAME: usize = 40;
pub const MAX_TAG_VALUE: usize = 100;

/// The tags of a request, ordered by name, without duplicate names. An empty list allocates no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(transparent)]
#[cbor(transparent)]
pub struct Tags(#[n(0)] Vec<(String, String)>);

/// Why the header `x-tollgate-tags` is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTags {
    #[error("expected 'name=value' pairs separated by commas")]
    Form,
    #[error("the name of a tag has 1 to {MAX_TAG_NAME} letters, digits, '_', '-' or '.'")]
    Name,
    #[error("the value of the tag '{0}' must have 1 to {MAX_TAG_VALUE} printable ASCII characters")]
    Value(TagName),
    #[error("the tag '{0}' occurs twice")]
    Repeated(TagName),
    #[error("more than {MAX_TAGS} tags")]
    TooMany,
}

impl Tags {
    /// Parses the lines of the header `x-tollgate-tags`: `name=value,name=value`. Spaces around names and values do not count.
    pub fn parse_header<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, InvalidTags> {
        let mut tags = Self::default();
        for line in lines {
            for pair in line.split(|byte| *byte == b',') {
                let (name, value) = split_pair(pair).ok_or(InvalidTags::Form)?;
                let name = std::str::from_utf8(name).ok().and_then(TagName::parse).ok_or(InvalidTags::Name)?;
                let is_valid = (1..=MAX_TAG_VALUE).contains(&value.len()) && value.iter().all(|byte| matches!(byte, b' '..=b'~'));
                let value = std::str::from_utf8(value).ok().filter(|_| is_valid).ok_or(InvalidTags::Value(name))?;
                let Err(index) = tags.search(name.as_str()) else { return Err(InvalidTags::Repeated(name)) };
                if tags.0.len() == MAX_TAGS {
                    return Err(InvalidTags::TooMany);
                }
                tags.0.insert(index, (name.as_str().to_owned(), value.to_owned()));
            }
        }
        Ok(tags)
    }

    /// Adds entries from sources that are not meant for the gateway alone: the request's own `metadata` and headers of clients. Entries
    /// that are not valid tags, have the name of an existing tag or exceed [`MAX_TAGS`] are left out.
    pub fn add_metadata(&mut self, entries: &[(String, String)]) {
        for (name, value) in entries {
            if self.0.len() == MAX_TAGS {
                return;
            }
            if TagName::parse(name).is_some()
                && is_tag_value(value)
                && let Err(index) = self.search(name)
            {
                self.0.insert(index, (name.clone(), value.clone()));
            }
        }
    }

    /// Adds other tags, except those whose name exists and those beyond [`MAX_TAGS`].
    pub fn add(&mut self, others: Self) {
        if self.0.is_empty() {
            self.0 = others.0;
            return;
        }
        for (name, value) in others.0 {
            if self.0.len() == MAX_TAGS {
                return;
            }
            if let Err(index) = self.search(&name) {
                self.0.insert(index, (name, value));
            }
        }
    }

    /// The position of a name, or the position to insert it at.
    fn search(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(name))
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.search(name).ok().map(|at| self.0[at].1.as_str())
    }

    /// Names and values, in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Splits a pair at its first `=` and trims both sides.
fn split_pair(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = pair.iter().position(|byte| *byte == b'=')?;
    Some((pair[..at].trim_ascii(), pair[at + 1..].trim_ascii()))
}

/// Whether a text can be the value of a tag: 1 to 100 characters without commas and control characters.
pub fn is_tag_value(text: &str) -> bool {
    let is_wrong = |character: char| character == ',' || character.is_control();
    !text.is_empty() && text.chars().take(MAX_TAG_VALUE + 1).count() <= MAX_TAG_VALUE && !text.contains(is_wrong)
}

/// The name of a tag: letters, digits, `_`, `-` and `.`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagName {
    /// ASCII; zeros behind the name.
    bytes: [u8; MAX_TAG_NAME],
}

impl TagName {
    /// Name and value of `name=value`; `None` for a text that is not a tag.
    pub fn of_pair(text: &str) -> Option<(Self, &str)> {
        let (name, value) = text.split_once('=')?;
        let value = value.trim();
        Some((Self::parse(name.trim())?, value)).filter(|_| is_tag_value(value))
    }

    /// `None` for a text that is not a name.
    pub fn parse(text: &str) -> Option<Self> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if text.is_empty() || text.len() > MAX_TAG_NAME || !text.bytes().all(is_valid) {
            return None;
        }
        let mut bytes = [0; MAX_TAG_NAME];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(Self { bytes })
    }

    /// # Panics
    ///
    /// Never: names are ASCII.
    pub fn as_str(&self) -> &str {
        let length = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(MAX_TAG_NAME);
        std::str::from_utf8(&self.bytes[..length]).expect("names are ASCII")
    }
}

impl fmt::Display for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &[&str]) -> Result<Vec<(String, String)>, InvalidTags> {
        let tags = Tags::parse_header(lines.iter().map(|line| line.as_bytes()))?;
        Ok(tags.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn header_is_a_list_of_pairs_in_any_number_of_lines() {
        assert_eq!(parsed(&[]), Ok(Vec::new()));
        assert_eq!(parsed(&["project=web"]), Ok(pairs(&[("project", "web")])));
        let tags = parsed(&[" user = Ada L. ,env=a=b", "app.name-1=x"]);
        assert_eq!(tags, Ok(pairs(&[("app.name-1", "x"), ("env", "a=b"), ("user", "Ada L.")])));
        let name = |text| TagName::parse(text).unwrap();
        for (wrong, error) in [
            ("", InvalidTags::Form),
            ("project", InvalidTags::Form),
            ("project=web,", InvalidTags::Form),
            ("=web", InvalidTags::Name),
            ("my project=web", InvalidTags::Name),
            ("größe=1", InvalidTags::Name),
            ("project=", InvalidTags::Value(name("project"))),
            ("project=größe", InvalidTags::Value(name("project"))),
            ("project=a\tb", InvalidTags::Value(name("project"))),
            ("project=a,project=b", InvalidTags::Repeated(name("project"))),
        ] {
            assert_eq!(parsed(&[wrong]), Err(error), "{wrong}");
        }
        assert_eq!(parsed(&[&format!("{}=1", "n".repeat(MAX_TAG_NAME + 1))]), Err(InvalidTags::Name));
        assert_eq!(parsed(&[&format!("n={}", "v".repeat(MAX_TAG_VALUE + 1))]), Err(InvalidTags::Value(name("n"))));
        let many: Vec<String> = (0..=MAX_TAGS).map(|number| format!("n{number}=1")).collect();
        assert_eq!(parsed(&[&many.join(",")]), Err(InvalidTags::TooMany));
        assert_eq!(parsed(&[&many[1..].join(",")]).unwrap().len(), MAX_TAGS);
    }

    #[test]
    fn metadata_adds_valid_tags_and_the_header_takes_precedence() {
        let mut tags = Tags::parse_header([b"project=web".as_slice()]).unwrap();
        tags.add_metadata(&pairs(&[
            ("project", "other"),
            ("user", "größe"),
            ("a b", "x"),
            ("long", &"v".repeat(101)),
            ("cr", "a\r"),
            ("list", "a,b"),
        ]));
        assert_eq!(tags.iter().collect::<Vec<_>>(), [("project", "web"), ("user", "größe")]);
        assert_eq!((tags.get("user"), tags.get("long")), (Some("größe"), None));
        tags.add_metadata(&(0..100).map(|number| (format!("n{number}"), "1".to_owned())).collect::<Vec<_>>());
        assert_eq!(tags.iter().len(), MAX_TAGS);
    }

    #[test]
    fn existing_tags_take_precedence_over_added_ones() {
        let parsed = |line: &str| Tags::parse_header([line.as_bytes()]).unwrap();
        let mut tags = parsed("team=search,cost=42");
        tags.add(parsed("team=mine,run=7"));
        assert_eq!(tags.iter().collect::<Vec<_>>(), [("cost", "42"), ("run", "7"), ("team", "search")]);
        let many: Vec<String> = (0..MAX_TAGS).map(|number| format!("n{number:02}=1")).collect();
        tags.add(parsed(&many.join(",")));
        assert_eq!((tags.iter().len(), tags.get("n12"), tags.get("n13")), (MAX_TAGS, Some("1"), None));
        let mut none = Tags::default();
        none.add(parsed("run=7"));
        assert_eq!(none, parsed("run=7"));
    }

    #[test]
    fn tag_pair_is_parsed_into_name_and_value() {
        let project = TagName::parse("project").unwrap();
        assert_eq!(TagName::of_pair(" project = größe=1 "), Some((project, "größe=1")));
        assert_eq!(project.as_str(), "project");
        for wrong in ["", "project", "project=", "a b=c", "=c", "project=a,b"] {
            assert_eq!(TagName::of_pair(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tags_survive_the_journal() {
        let tags = Tags::parse_header([b"b=2,a=1".as_slice()]).unwrap();
        let bytes = minicbor::to_vec(&tags).unwrap();
        assert_eq!(minicbor::decode::<Tags>(&bytes).unwrap(), tags);
    }
}
