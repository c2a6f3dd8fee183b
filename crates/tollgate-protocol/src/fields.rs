//! Removes fields from a body whose other bytes are passed on unchanged.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    FieldPath,
    edits::Edits,
    scan::{Scanner, SyntaxError, ValueKind},
};

/// The body without the fields at these paths, spelled as in [`crate::RequestSummary::fields`]: `logit_bias`,
/// `generationConfig.topK`, and elements of lists: `tools[1]`. Duplicates are removed too. Returns the same buffer if no field is
/// present or the body is not JSON.
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
        let (value, removed) = value(scanner, changes, &format!("{prefix}{}", name.word()), fields)?;
        members.push((name.quote()..value.end, removed));
        Ok(())
    })?;
    changes.remove_items(&members);
    Ok(range)
}

/// Reads the value at `path` and records what to remove inside it; true if it is to be removed as a whole.
fn value(
    scanner: &mut Scanner<'_>,
    changes: &mut Edits<'static>,
    path: &str,
    fields: &[FieldPath],
) -> Result<(Range<usize>, bool), SyntaxError> {
    if fields.iter().any(|field| field == path) {
        return Ok((scanner.skip()?, true));
    }
    let goes_on_with = |next: char| fields.iter().any(|field| field.strip_prefix(path).is_some_and(|rest| rest.starts_with(next)));
    let range = match scanner.peek() {
        ValueKind::Object if goes_on_with('.') => object(scanner, changes, &format!("{path}."), fields)?,
        ValueKind::Array if goes_on_with('[') => {
            let mut elements = Vec::new();
            let range = scanner.array(|scanner, index| {
                elements.push(value(scanner, changes, &format!("{path}[{index}]"), fields)?);
                Ok(())
            })?;
            changes.remove_items(&elements);
            range
        }
        ValueKind::Null | ValueKind::Bool | ValueKind::Number | ValueKind::Text | ValueKind::Array | ValueKind::Object => {
            scanner.skip()?
        }
    };
    Ok((range, false))
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
    fn elements_of_lists_are_removed() {
        let body = r#"{"tools":[{"type":"a"},{"type":"b","x":[1,2]}, {"type":"c"}],"choice":{"tools":[{"t":1}]}}"#;
        check(body, &["tools[1]"], r#"{"tools":[{"type":"a"}, {"type":"c"}],"choice":{"tools":[{"t":1}]}}"#);
        let several = ["tools[0]", "tools[1].x[1]", "choice.tools[0]", "tools[10]", "choice[0]"];
        check(body, &several, r#"{"tools":[{"type":"b","x":[1]}, {"type":"c"}],"choice":{"tools":[]}}"#);
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
