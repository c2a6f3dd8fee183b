//! Suggests a valid path for an unknown one (E10). The most common mistakes are a base URL without the version and one with
//! the version twice.

use http::{HeaderMap, Method as HttpMethod};

use super::{Destination, Query, gemini, openai, versioned};

/// A similar path that exists, if any.
pub(crate) fn hint(method: &HttpMethod, path: &str) -> Option<String> {
    let trimmed = path.trim_end_matches('/');
    let single = without_doubled_version(trimmed);
    let mut guesses = vec![trimmed.to_owned()];
    guesses.extend(single.iter().cloned());
    if versioned(trimmed).is_none() {
        guesses.push(format!("/v1{trimmed}"));
        guesses.push(format!("/v1beta{trimmed}"));
    }
    guesses.into_iter().find(|guess| guess != path && fits(method, guess))
}

/// Removes the first of two versions: `/v1/v1/chat` becomes `/v1/chat`.
fn without_doubled_version(path: &str) -> Option<String> {
    let (_, rest) = versioned(path)?;
    let inner = format!("/{rest}");
    versioned(&inner).is_some().then_some(inner)
}

fn fits(method: &HttpMethod, path: &str) -> bool {
    let query = Query::new(None);
    let found = match versioned(path) {
        Some(("v1", rest)) => openai::destination(method, rest, &HeaderMap::new(), query),
        Some((_, rest)) => gemini::destination(method, rest, query),
        None => return false,
    };
    matches!(found, Destination::Model(..) | Destination::List(..))
}
