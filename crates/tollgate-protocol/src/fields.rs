//! Removes fields from a body whose other bytes are passed on unchanged.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    FieldPath,
    edits::Edits,
    scan::{Scanner, SyntaxError, ValueKind},
};

/// The body without the fields at these paths, spelled as in [`crate::RequestSummary::fields`]: `logit_bias`,
/// `generationConfig.topK`. Duplicates are removed too. Returns the same buffer if no field is present or the body is not
/// JSON.
pub fn remove_fields(body: &Bytes, fields: &[FieldPath]) -> Bytes {
    if fields.is_empty() {
        return body.clone();
    }
    let mut changes = Edits::new();
    match Scanner::new(body).and_then(|mut scanner| object(&mut scanner, &mut changes, "", fields)) {
        Ok(_) => changes.apply_to(body),
        Err(_) => body.clone(),
    }
}

/// Reads an object and records the members to remove. `prefix` is its path with a trailing dot.
fn object(
    scanner: &mut Scanner<'_>,
    changes: &mut Edits<'static>,
    prefix: &str,
    fields: &[FieldPath],
) -> Result<Range<usize>, SyntaxError> {
    let mut members = Vec::new();
    let range = scanner.object(|scanner, name| {
        let path = format!("{prefix}{}", name.word());
        let removed = fields.contains(&path);
        let inner = format!("{path}.");
        let value = if !removed && scanner.peek() == ValueKind::Object && fields.iter().any(|field| field.starts_with(&inner)) {
            object(scanner, changes, &inner, fields)?
        } else {
            scanner.skip()?
        };
        members.push((name.quote()..value.end, removed));
        Ok(())
    })?;
    changes.remove_items(&members);
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &'static str, fields: &[&str], expected: &str) {
        let fields: Vec<FieldPath> = fields.iter().map(|field| (*field).to_owned()).collect();
        assert_eq!(remove_fields(&Bytes::from_static(body.as_bytes()), &fields), expected);
    }

    #[test]
    fn named_fields_are_removed_and_other_bytes_kept() {
        let body = r#"{ "model":"m", "seed": 9007199254740993,"logit_bias":{"1":2},"t\u006fp_k":1 , "x":1e400,"messages":[{"top_k" : 1.0}] }"#;
        let expected = r#"{ "model":"m", "seed": 9007199254740993 , "x":1e400,"messages":[{"top_k" : 1.0}] }"#;
        check(body, &["logit_bias", "top_k", "none"], expected);
    }

    #[test]
    fn members_of_nested_objects_are_removed() {
        let body = r#"{"contents":[],"generationConfig":{"topK":3,"topP":0.10,"thinkingConfig":{"a":1,"b":2}},"generation":1}"#;
        let fields = ["generationConfig.topK", "generationConfig.thinkingConfig.a", "generation.x"];
        check(body, &fields, r#"{"contents":[],"generationConfig":{"topP":0.10,"thinkingConfig":{"b":2}},"generation":1}"#);
        check(body, &["generationConfig", "generationConfig.topK"], r#"{"contents":[],"generation":1}"#);
    }

    #[test]
    fn duplicate_fields_are_removed() {
        check(r#"{"a":1,"b":2,"a":3}"#, &["a"], r#"{"b":2}"#);
    }

    #[test]
    fn unchanged_body_is_the_same_buffer() {
        let body = Bytes::from_static(br#"{"a":1}"#);
        assert_eq!(remove_fields(&body, &["b".to_owned()]).as_ptr(), body.as_ptr());
        assert_eq!(remove_fields(&body, &[]).as_ptr(), body.as_ptr());
        let torn = Bytes::from_static(br#"{"a":1"#);
        assert_eq!(remove_fields(&torn, &["a".to_owned()]).as_ptr(), torn.as_ptr());
    }
}
