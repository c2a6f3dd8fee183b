//! What a caller with a wrong path probably meant (E10): the commonest are a base URL without its version, and one
//! with the version twice.

use http::{HeaderMap, Method as HttpMethod};

use super::{Destination, Query, gemini, openai, versioned};

/// A path that would have fitted, if one does.
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

/// `/v1/v1/chat` and `/v1beta/v1beta/models` with one version less; of two different versions the second counts.
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
