//! Takes fields out of a JSON body, leaving everything else as it was written, byte for byte. Only requests that
//! carry a field their model's row says to drop come here.

use bytes::Bytes;
use indexmap::IndexMap;
use serde_json::value::RawValue;

/// A body without the fields at these paths: top-level members (`logit_bias`) and members of top-level objects
/// (`generationConfig.topK`). Paths that are not there change nothing.
pub(crate) fn strip_fields(body: &Bytes, fields: &[String]) -> Bytes {
    let paths: Vec<&str> = fields.iter().map(String::as_str).collect();
    strip(body, &paths).map_or_else(|| body.clone(), Bytes::from)
}

fn strip(object: &[u8], paths: &[&str]) -> Option<Vec<u8>> {
    let mut members: IndexMap<String, Box<RawValue>> = serde_json::from_slice(object).ok()?;
    for path in paths {
        members.shift_remove(*path);
    }
    let inner: IndexMap<&str, Vec<&str>> = paths.iter().filter_map(|path| path.split_once('.')).fold(
        IndexMap::new(),
        |mut inner: IndexMap<&str, Vec<&str>>, (member, rest)| {
            inner.entry(member).or_default().push(rest);
            inner
        },
    );
    for (member, rest) in inner {
        if let Some(value) = members.get_mut(member)
            && let Some(stripped) = strip(value.get().as_bytes(), &rest)
            && let Ok(text) = String::from_utf8(stripped)
            && let Ok(raw) = RawValue::from_string(text)
        {
            *value = raw;
        }
    }
    serde_json::to_vec(&members).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &'static str, fields: &[&str], expected: &str) {
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        assert_eq!(String::from_utf8(strip_fields(&Bytes::from_static(body.as_bytes()), &fields).to_vec()).unwrap(), expected);
    }

    #[test]
    fn named_members_go_and_the_rest_stays_as_written() {
        let body = r#"{"model":"m", "seed": 9007199254740993,"logit_bias":{"1":2},"temperature":1e400,"messages":[{"a" : 1.0}]}"#;
        check(body, &["logit_bias"], r#"{"model":"m","seed":9007199254740993,"temperature":1e400,"messages":[{"a" : 1.0}]}"#);
    }

    #[test]
    fn members_of_an_inner_object_go_alone() {
        let body = r#"{"contents":[],"generationConfig":{"topK":3,"topP":0.10,"stopSequences":[]},"generation":1}"#;
        check(
            body,
            &["generationConfig.topK", "generationConfig.stopSequences", "generation.x", "none"],
            r#"{"contents":[],"generationConfig":{"topP":0.10},"generation":1}"#,
        );
    }
}
