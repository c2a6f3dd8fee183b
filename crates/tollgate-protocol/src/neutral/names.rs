//! Tool names and call ids in the spelling that an upstream accepts.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};

use super::{Part, PartKind, Request};
use crate::Protocol;

/// Maximum length of a call id for upstreams other than Gemini.
const ID_LIMIT: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    map: HashMap<String, String>,
    renamed: Vec<(String, String)>,
}

impl Names {
    /// Maps the names of all tools the request declares, calls or chooses, in order of appearance.
    pub(crate) fn of(request: &Request, to: Protocol) -> Self {
        let mut names = Self::default();
        let (mut used_names, mut next_suffix) = (HashSet::new(), HashMap::new());
        let used = request.turns.iter().flat_map(|turn| &turn.parts).filter_map(tool_name);
        let chosen = request.choice.iter().flat_map(|choice| choice.names.iter().map(String::as_str));
        let all: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).chain(used).chain(chosen).collect();
        // Valid names stay unchanged and take precedence over sanitised ones.
        for name in all.iter().filter(|name| sanitised(name, to) == **name) {
            used_names.insert((*name).to_owned());
            names.map.insert((*name).to_owned(), (*name).to_owned());
        }
        for name in all {
            if names.map.contains_key(name) {
                continue;
            }
            let upstream = unique(&sanitised(name, to), to.spec().tool_name_limit, &mut used_names, &mut next_suffix);
            names.renamed.push((upstream.clone(), name.to_owned()));
            names.map.insert(name.to_owned(), upstream);
        }
        names
    }

    pub(crate) fn get<'a>(&'a self, name: &'a str) -> &'a str {
        self.map.get(name).map_or(name, String::as_str)
    }

    /// Pairs of upstream name and caller's name, where they differ.
    pub(crate) fn into_renamed(self) -> Vec<(String, String)> {
        self.renamed
    }
}

fn tool_name(part: &Part) -> Option<&str> {
    let (PartKind::Call { name, .. } | PartKind::Result { name, .. }) = &part.kind else { return None };
    Some(name.as_str()).filter(|name| !name.is_empty())
}

/// The name with every character that the protocol does not allow replaced by `_`.
fn sanitised(name: &str, to: Protocol) -> String {
    let google = matches!(to, Protocol::Gemini);
    let keep =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-') || google && matches!(letter, '.' | ':');
    let mut out: String = name.chars().map(|letter| if keep(letter) { letter } else { '_' }).collect();
    if out.is_empty() || google && !out.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
        out.insert(0, '_');
    }
    out.truncate(to.spec().tool_name_limit);
    out
}

/// The preferred name, or the preferred name with the first unused number appended. `next_suffix` keeps the number to try
/// next for each preferred name.
fn unique(preferred: &str, limit: usize, used_names: &mut HashSet<String>, next_suffix: &mut HashMap<String, u32>) -> String {
    let mut name = preferred.to_owned();
    let number = next_suffix.entry(name.clone()).or_insert(2);
    while !used_names.insert(name.clone()) {
        let suffix = format!("_{number}");
        let keep = preferred.len().min(limit - suffix.len());
        name = format!("{}{suffix}", &preferred[..keep]);
        *number += 1;
    }
    name
}

/// Mapping of call ids to ids that upstreams other than Gemini accept; a call and its result get the same id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    map: HashMap<String, String>,
}

impl Ids {
    /// Maps the ids of all calls of the history, in order.
    pub(crate) fn of(request: &Request) -> Self {
        let mut ids = Self::default();
        let mut used_ids = HashSet::new();
        for part in request.turns.iter().flat_map(|turn| &turn.parts) {
            let PartKind::Call { id, .. } = &part.kind else { continue };
            if ids.map.contains_key(id) {
                continue;
            }
            let mut clean = sanitised_id(id);
            if !used_ids.insert(clean.clone()) {
                clean = hashed_id(id);
                used_ids.insert(clean.clone());
            }
            ids.map.insert(id.clone(), clean);
        }
        ids
    }

    pub(crate) fn get<'a>(&'a self, id: &'a str) -> &'a str {
        self.map.get(id).map_or(id, String::as_str)
    }
}

/// The call ids of one answer in the letters that Anthropic accepts in the ids of a history
/// (<https://docs.anthropic.com/en/api/messages>: `^[a-zA-Z0-9_-]+$`).
#[derive(Debug, Default)]
pub(crate) struct PlainIds {
    /// The original id of each plain id.
    given: HashMap<String, String>,
}

impl PlainIds {
    /// The id with `_` in the place of other characters. If that is the id of another call, it ends with 8 hex digits of the SHA-256.
    pub(crate) fn plain(&mut self, id: &str) -> String {
        let plain = with_plain_letters(id);
        if self.given.entry(plain.clone()).or_insert_with(|| id.to_owned()) == id {
            return plain;
        }
        format!("{plain}_{}", &hex::encode(Sha256::digest(id.as_bytes()))[..8])
    }
}

/// The id with `_` in the place of every character that is refused in ids.
fn with_plain_letters(id: &str) -> String {
    id.chars().map(|letter| if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-') { letter } else { '_' }).collect()
}

fn sanitised_id(id: &str) -> String {
    let clean = with_plain_letters(id);
    if clean.is_empty() || clean.len() > ID_LIMIT { hashed_id(id) } else { clean }
}

/// `call_` and the first 32 hex digits of the id's SHA-256.
fn hashed_id(id: &str) -> String {
    let digest = hex::encode(Sha256::digest(id.as_bytes()));
    format!("call_{}", &digest[..32])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neutral::{Operation, Tool};

    fn request(names: &[&str]) -> Request {
        let tool = |name: &&str| Tool {
            name: (*name).to_owned(),
            description: None,
            schema: None,
            strict: None,
            custom: false,
            grammar: None,
            path: String::new(),
        };
        Request { tools: names.iter().map(tool).collect(), ..Request::new("m", Protocol::Gemini, Operation::Generate) }
    }

    #[test]
    fn colliding_names_are_numbered_and_valid_names_stay() {
        let names = Names::of(&request(&["a.b", "a:b", "a_b"]), Protocol::OpenAi);
        assert_eq!((names.get("a.b"), names.get("a:b"), names.get("a_b")), ("a_b_2", "a_b_3", "a_b"));
        assert_eq!(names.into_renamed(), [("a_b_2".into(), "a.b".into()), ("a_b_3".into(), "a:b".into())]);
    }

    #[test]
    fn long_names_are_cut_to_the_limit() {
        let (one, two) = ("x".repeat(80), format!("{}y", "x".repeat(79)));
        let names = Names::of(&request(&[&one, &two]), Protocol::Anthropic);
        assert_eq!(names.get(&one).len(), 64);
        assert_eq!(names.get(&two).len(), 64);
        assert!(names.get(&two).ends_with("x_2"));
    }

    #[test]
    fn gemini_names_start_with_a_letter() {
        let names = Names::of(&request(&["1st.x:y"]), Protocol::Gemini);
        assert_eq!(names.get("1st.x:y"), "_1st.x:y");
    }

    #[test]
    fn ids_that_differ_in_special_characters_stay_distinct() {
        let mut of_answer = PlainIds::default();
        let ids = ["call.1", "call:1", "call 1", "call_1"].map(|id| of_answer.plain(id));
        assert_eq!(ids[0], "call_1");
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4, "{ids:?}");
        assert!(ids.iter().all(|id| id.starts_with("call_1") && with_plain_letters(id) == *id), "{ids:?}");
        assert_eq!([of_answer.plain("call.1"), of_answer.plain("call:1")], [ids[0].clone(), ids[1].clone()]);
    }

    #[test]
    fn ids_are_sanitised_and_long_ids_hashed() {
        assert_eq!(sanitised_id("fc.1"), "fc_1");
        let long = sanitised_id(&"x".repeat(65));
        assert_eq!(long.len(), 37);
        assert!(long.starts_with("call_"));
    }
}
