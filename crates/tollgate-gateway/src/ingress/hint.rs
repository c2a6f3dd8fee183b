//! Suggests a valid path for an unknown one (E10). The most common mistakes are a base URL without the version, one with the
//! version twice, one with a prefix of another server, misspelt endpoints, and endpoints that the gateway does not have.

use http::Method as HttpMethod;
use tollgate_store::fields::nearest;

use super::{Destination, Query, gemini, not_offered, openai, versioned};
use crate::{header_fields::HeaderFields, refusal::PathHint};

/// Endpoints, and the names that other servers have for them.
const ENDPOINTS: [(&str, &[&str]); 7] = [
    ("chat/completions", &["chat", "completions", "completion", "chat/completion", "chatcompletions", "chat-completions"]),
    ("embeddings", &["embedding", "embed"]),
    ("messages", &["message"]),
    ("messages/count_tokens", &["count_tokens", "messages/count-tokens", "messages/token_count"]),
    ("models", &["model", "models/list"]),
    ("responses", &["response"]),
    ("responses/input_tokens", &["responses/input-tokens", "input_tokens"]),
];
const LACKS_V1: &str = "Your base URL lacks /v1.";
/// The path of Google's base URL for chat completions.
const GOOGLES_BASE: &str = "/v1beta/openai/";
const IS_GOOGLES: &str = "Your base URL ends with /v1beta/openai; here it ends with /v1.";
/// Longer names are not compared.
const MAX_COMPARED: usize = 40;

/// A similar path that exists, or the API that the path belongs to, if any.
pub(crate) fn hint(method: &HttpMethod, path: &str) -> Option<PathHint> {
    let cleaned = without_empty_segments(path);
    let found = |guess: &String| guess != path && fits(method, guess);
    let hinted = |path: String, base_url| Some(PathHint::Similar { path, base_url });
    if versioned(&cleaned).is_none() {
        let missing = [("/v1", LACKS_V1), ("/v1beta", "Your base URL lacks /v1beta.")];
        let guess =
            missing.into_iter().map(|(version, fault)| (format!("{version}{cleaned}"), fault)).find(|(guess, _)| found(guess));
        if let Some((guess, fault)) = guess {
            return hinted(guess, Some(fault));
        }
    } else if found(&cleaned) {
        return hinted(cleaned, None);
    }
    if let Some(api) = not_offered::api_of(&cleaned) {
        return Some(PathHint::NotOffered(api));
    }
    if let Some(guess) = from_last_version(&cleaned).filter(found) {
        let is_doubled = versioned(&cleaned).is_some_and(|(_, rest)| format!("/{rest}") == guess);
        let fault = if is_doubled { "Your base URL has the version twice." } else { "Your base URL has extra path segments." };
        return hinted(guess, Some(fault));
    }
    let guess = misspelt(&cleaned).filter(found)?;
    let lacks_version = versioned(&cleaned).is_none() && versioned(&guess).is_some_and(|(version, _)| version == "v1");
    let fault = if cleaned.starts_with(GOOGLES_BASE) { Some(IS_GOOGLES) } else { lacks_version.then_some(LACKS_V1) };
    hinted(guess, fault)
}

/// `//v1/chat//completions/` becomes `/v1/chat/completions`.
fn without_empty_segments(path: &str) -> String {
    path.split('/')
        .filter(|segment| !segment.is_empty())
        .fold(String::with_capacity(path.len()), |path, segment| path + "/" + segment)
}

/// The path from its last version on: `/v1/v1/chat` and `/api/v1/chat` become `/v1/chat`.
fn from_last_version(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let last = segments.iter().rposition(|segment| matches!(*segment, "v1" | "v1beta" | "v1alpha")).filter(|last| *last > 0)?;
    Some(format!("/{}", segments.get(last..)?.join("/")))
}

/// The endpoint whose name is most similar to the end of the path.
fn misspelt(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let (last, before) = segments.split_last()?;
    let version = before.first().copied().filter(|version| matches!(*version, "v1beta" | "v1alpha")).unwrap_or("v1beta");
    if gemini::verb_of(last).is_some() {
        return Some(format!("/{version}/models/{last}"));
    }
    let two =
        before.last().filter(|before| !matches!(**before, "v1" | "v1beta" | "v1alpha")).map(|before| format!("{before}/{last}"));
    let mut ends = two.into_iter().chain([(*last).to_owned()]).filter(|end| end.len() <= MAX_COMPARED);
    let known = |end: String| {
        let end = end.to_ascii_lowercase();
        let named = ENDPOINTS.into_iter().find(|(_, others)| others.contains(&end.as_str())).map(|(endpoint, _)| endpoint);
        named.or_else(|| nearest(&end, ENDPOINTS.map(|(endpoint, _)| endpoint)))
    };
    Some(format!("/v1/{}", ends.find_map(known)?))
}

fn fits(method: &HttpMethod, path: &str) -> bool {
    let query = Query::new(None);
    let found = match versioned(path) {
        Some(("v1", rest)) => openai::destination(method, rest, &HeaderFields::default(), query),
        Some((_, rest)) => gemini::destination(method, rest, query),
        None => return false,
    };
    matches!(found, Destination::Model(..) | Destination::List(..))
}
