//! Tool names and call ids in the spelling an upstream takes (translation reference, sections 1.6 and 1.7).

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};

use super::{Part, PartKind, Request};
use crate::Protocol;

/// Longest id an upstream other than Google's takes.
const ID_LIMIT: usize = 64;

/// The caller's tool names and how the upstream gets to know them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    map: HashMap<String, String>,
    renamed: Vec<(String, String)>,
}

impl Names {
    /// Names for everything the request calls a tool, in order of appearance.
    pub(crate) fn of(request: &Request, to: Protocol) -> Self {
        let mut names = Self::default();
        let (mut taken, mut next) = (HashSet::new(), HashMap::new());
        let used = request.turns.iter().flat_map(|turn| &turn.parts).filter_map(tool_name);
        let chosen = request.choice.iter().flat_map(|choice| choice.names.iter().map(String::as_str));
        let all: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).chain(used).chain(chosen).collect();
        // A name that needs no change keeps it, whatever else would like to be called so.
        for name in all.iter().filter(|name| legal(name, to) == **name) {
            taken.insert((*name).to_owned());
            names.map.insert((*name).to_owned(), (*name).to_owned());
        }
        for name in all {
            if names.map.contains_key(name) {
                continue;
            }
            let upstream = free(&legal(name, to), to.spec().tool_name_limit, &mut taken, &mut next);
            names.renamed.push((upstream.clone(), name.to_owned()));
            names.map.insert(name.to_owned(), upstream);
        }
        names
    }

    /// What the upstream calls a tool.
    pub(crate) fn get<'a>(&'a self, name: &'a str) -> &'a str {
        self.map.get(name).map_or(name, String::as_str)
    }

    /// Upstream name and caller's name, where they differ.
    pub(crate) fn into_renamed(self) -> Vec<(String, String)> {
        self.renamed
    }
}

fn tool_name(part: &Part) -> Option<&str> {
    match &part.kind {
        PartKind::Call { name, .. } | PartKind::Result { name, .. } => Some(name.as_str()).filter(|name| !name.is_empty()),
        PartKind::Text(_)
        | PartKind::Think { .. }
        | PartKind::Media(_)
        | PartKind::Code { .. }
        | PartKind::CodeOutput { .. }
        | PartKind::Opaque { .. } => None,
    }
}

/// The name with every letter the protocol does not take replaced.
fn legal(name: &str, to: Protocol) -> String {
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

/// The preferred, or the preferred with the first free number behind it; `next` remembers where to look on for each preferred.
fn free(preferred: &str, limit: usize, taken: &mut HashSet<String>, next: &mut HashMap<String, u32>) -> String {
    let mut name = preferred.to_owned();
    let number = next.entry(name.clone()).or_insert(2);
    while !taken.insert(name.clone()) {
        let suffix = format!("_{number}");
        let keep = preferred.len().min(limit - suffix.len());
        name = format!("{}{suffix}", &preferred[..keep]);
        *number += 1;
    }
    name
}

/// Call ids as an upstream other than Google's takes them; the same on a call and its result.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    map: HashMap<String, String>,
}

impl Ids {
    /// Ids for all calls of the history, in order.
    pub(crate) fn of(request: &Request) -> Self {
        let mut ids = Self::default();
        let mut taken = HashSet::new();
        for part in request.turns.iter().flat_map(|turn| &turn.parts) {
            let PartKind::Call { id, .. } = &part.kind else { continue };
            if ids.map.contains_key(id) {
                continue;
            }
            let mut clean = clean_id(id);
            if !taken.insert(clean.clone()) {
                clean = hashed_id(id);
                taken.insert(clean.clone());
            }
            ids.map.insert(id.clone(), clean);
        }
        ids
    }

    /// What the upstream gets for a caller's id.
    pub(crate) fn get<'a>(&'a self, id: &'a str) -> &'a str {
        self.map.get(id).map_or(id, String::as_str)
    }
}

fn clean_id(id: &str) -> String {
    let clean: String =
        id.chars().map(|letter| if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-') { letter } else { '_' }).collect();
    if clean.is_empty() || clean.len() > ID_LIMIT { hashed_id(id) } else { clean }
}

/// `call_` and the first 32 hex digits of the id's hash.
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
            path: String::new(),
        };
        Request { tools: names.iter().map(tool).collect(), ..Request::new("m", Protocol::Gemini, Operation::Generate) }
    }

    #[test]
    fn colliding_names_are_numbered_and_legal_ones_stay() {
        let names = Names::of(&request(&["a.b", "a:b", "a_b"]), Protocol::OpenAi);
        assert_eq!((names.get("a.b"), names.get("a:b"), names.get("a_b")), ("a_b_2", "a_b_3", "a_b"));
        assert_eq!(names.into_renamed(), [("a_b_2".into(), "a.b".into()), ("a_b_3".into(), "a:b".into())]);
    }

    #[test]
    fn long_names_keep_within_the_limit() {
        let (one, two) = ("x".repeat(80), format!("{}y", "x".repeat(79)));
        let names = Names::of(&request(&[&one, &two]), Protocol::Anthropic);
        assert_eq!(names.get(&one).len(), 64);
        assert_eq!(names.get(&two).len(), 64);
        assert!(names.get(&two).ends_with("x_2"));
    }

    #[test]
    fn google_names_begin_with_a_letter() {
        let names = Names::of(&request(&["1st.x:y"]), Protocol::Gemini);
        assert_eq!(names.get("1st.x:y"), "_1st.x:y");
    }

    #[test]
    fn ids_are_cleaned_and_long_ones_hashed() {
        assert_eq!(clean_id("fc.1"), "fc_1");
        let long = clean_id(&"x".repeat(65));
        assert_eq!(long.len(), 37);
        assert!(long.starts_with("call_"));
    }
}
