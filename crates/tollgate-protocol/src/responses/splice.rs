//! Edits a Responses body for an upstream of the same protocol: model name, output limit, and marks of other providers. All other
//! bytes are forwarded unchanged.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    RequestEdits, RequestSummary,
    edits::{Edits, literal},
    markers::{SEALED_REASONING, is_translated_reasoning, strip_id_suffix},
    scan::{Scanner, SyntaxError, Value, ValueKind},
};

const LIMIT_FIELD: &str = "max_output_tokens";

/// Applies the edits; returns the same buffer if nothing changes. Also returns the result of [`left_out`], so that removed items are read
/// only once.
pub(super) fn forward(body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> (Bytes, Vec<String>) {
    let mut left = Vec::new();
    let mut changes = Edits::new();
    if let (Some(name), Some(range)) = (edits.upstream_model, &summary.splices.model)
        && name != summary.model
    {
        changes.replace(range.clone(), literal(name).into_bytes());
    }
    if let Some(limit) = edits.max_output
        && summary.method.takes_output_limit()
    {
        changes.limit_output(body, &summary.splices, LIMIT_FIELD, limit);
    }
    if summary.splices.markers || edits.drop_signatures {
        let mut cleaned = Edits::new();
        if let Ok(removed) = clean(body, edits.drop_signatures, &mut cleaned) {
            changes.append(cleaned);
            left = removed;
        }
    }
    (changes.apply_to(body), left)
}

/// The items that [`forward`] removes because only an upstream of another protocol can read them.
pub(super) fn left_out(body: &[u8], summary: &RequestSummary) -> Vec<String> {
    let removed = if summary.splices.markers { clean(body, false, &mut Edits::new()) } else { Ok(Vec::new()) };
    removed.unwrap_or_default()
}

/// Why an item of the history is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    /// Only an upstream of another protocol can read it.
    Foreign,
    /// All sealed thoughts are removed, including this item.
    Sealed,
}

impl Removal {
    /// The path that names the removal for the item at this position.
    fn path(self, at: usize) -> String {
        match self {
            Self::Foreign => format!("input[{at}]"),
            Self::Sealed => format!("input[{at}].encrypted_content"),
        }
    }
}

/// Removes content that only an upstream of another protocol can read: reasoning items that carry such content, and suffixes of
/// call ids. With `all`, removes every sealed reasoning item. Returns the names of the removed parts.
fn clean(body: &[u8], all: bool, changes: &mut Edits<'static>) -> Result<Vec<String>, SyntaxError> {
    let mut removed = Vec::new();
    Scanner::new(body)?.members(|scanner, name| {
        if name.word() != "input" || scanner.peek() != ValueKind::Array {
            return Ok(());
        }
        let mut items = Vec::new();
        let mut inside = Vec::new();
        scanner.array(|scanner, _| {
            let mut found = Edits::new();
            let (range, removal) = item(scanner, all, &mut found)?;
            match removal {
                Some(removal) => removed.push(removal.path(items.len())),
                None => inside.push(found),
            }
            items.push((range, removal.is_some()));
            Ok(())
        })?;
        changes.remove_items(&items);
        for found in inside {
            changes.append(found);
        }
        Ok(())
    })?;
    Ok(removed)
}

/// Cleans one item; returns why its thought must be removed, if it must. If all thoughts are removed, the items bound to one lose their
/// ids, by which the service would notice the missing thought.
fn item(
    scanner: &mut Scanner<'_>,
    all: bool,
    changes: &mut Edits<'static>,
) -> Result<(Range<usize>, Option<Removal>), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        return Ok((scanner.skip()?, None));
    }
    let (mut reasoning, mut bound, mut marked, mut sealed, mut translated) = (false, false, false, false, false);
    let mut members = Vec::new();
    let range = scanner.object(|scanner, name| {
        let word = name.word();
        match word {
            "call_id" => strip_id_suffix(scanner, changes)?,
            "type" => {
                if let Value::Text(kind) = scanner.value()?.0 {
                    let kind = kind.decode();
                    reasoning = kind == "reasoning";
                    bound = matches!(&*kind, "message" | "function_call" | "custom_tool_call");
                }
            }
            "encrypted_content" => {
                if let Value::Text(seal) = scanner.value()?.0 {
                    let seal = seal.raw();
                    sealed |= !seal.is_empty();
                    marked |= seal.starts_with(SEALED_REASONING);
                }
            }
            "id" => {
                translated |= matches!(scanner.value()?.0, Value::Text(id) if is_translated_reasoning(id.raw()));
            }
            _ => {
                scanner.skip()?;
            }
        }
        members.push((name.quote()..scanner.position(), word == "id"));
        Ok(())
    })?;
    if all && bound {
        changes.remove_items(&members);
    }
    // A thought that translation passed on unsealed has only an id, and the service would search for an item that it never made.
    let is_foreign = marked || translated && !sealed;
    let removal = if is_foreign { Some(Removal::Foreign) } else { (all && sealed).then_some(Removal::Sealed) };
    Ok((range, removal.filter(|_| reasoning)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Codec, Framing, Method, Target,
        neutral::signature::ThoughtMember,
        responses::{Responses, output},
        shared_pieces::SharedPieces,
    };

    fn forward(body: &str, edits: &RequestEdits<'_>) -> String {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
        let summary = Responses.summarise(&target, &body).expect("a valid body");
        String::from_utf8(super::forward(&body, &summary, edits).0.into()).expect("UTF-8")
    }

    #[test]
    fn body_is_forwarded_unchanged() {
        let body = Bytes::from_static(br#"{ "model":"m","input":"hi","x_new":[1.0,{"y":null}] , "store" : true}"#);
        let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
        let summary = Responses.summarise(&target, &body).unwrap();
        assert_eq!(super::forward(&body, &summary, &RequestEdits::default()).0.as_ptr(), body.as_ptr());
    }

    #[test]
    fn model_and_limit_are_replaced() {
        let edits = RequestEdits { upstream_model: Some("up"), max_output: Some(9), ..RequestEdits::default() };
        assert_eq!(forward(r#"{"model":"m","input":"hi"}"#, &edits), r#"{"max_output_tokens":9,"model":"up","input":"hi"}"#);
        let body = r#"{"max_output_tokens":10,"model":"m","input":"hi"}"#;
        assert_eq!(forward(body, &edits), r#"{"max_output_tokens":9,"model":"up","input":"hi"}"#);
        let body = r#"{"max_output_tokens":8,"model":"m","input":"hi"}"#;
        assert_eq!(forward(body, &edits), r#"{"max_output_tokens":8,"model":"up","input":"hi"}"#);
    }

    #[test]
    fn compaction_gets_no_output_limit() {
        let body = Bytes::from_static(br#"{"model":"m","input":"hi"}"#);
        let target = Target { method: Method::Compact, model: None, framing: Framing::Sse };
        let summary = Responses.summarise(&target, &body).unwrap();
        let edits = RequestEdits { upstream_model: Some("up"), max_output: Some(9), ..RequestEdits::default() };
        assert_eq!(super::forward(&body, &summary, &edits).0, r#"{"model":"up","input":"hi"}"#);
    }

    #[test]
    fn markers_of_other_upstreams_are_removed() {
        let edits = RequestEdits::default();
        let own = r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAAA"}"#;
        let foreign = r#"{"type":"reasoning","summary":[],"encrypted_content":"tg1.a.SIG"}"#;
        let call = r#"{"type":"function_call","call_id":"c1__sig1_QUJD","name":"f","arguments":"__sig1_QUJD"}"#;
        let body = |items: &[&str]| format!(r#"{{"model":"m","input":[{}]}}"#, items.join(","));
        let cleaned = r#"{"type":"function_call","call_id":"c1","name":"f","arguments":"__sig1_QUJD"}"#;
        assert_eq!(forward(&body(&[foreign, own, call]), &edits), body(&[own, cleaned]));
        assert_eq!(forward(&body(&[own, foreign]), &edits), body(&[own]));
        let text = r#"{"role":"user","content":"\"tg1.a.SIG"}"#;
        assert_eq!(forward(&body(&[text]), &edits), body(&[text]));
    }

    #[test]
    fn reasoning_of_every_other_protocol_is_removed_and_reported() {
        let text = r#"{"role":"user","content":"hi"}"#;
        let own = r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAAA"}"#;
        let chat = [ThoughtMember::ReasoningContent, ThoughtMember::Reasoning].map(|member| Some(member.mark()));
        for mark in chat.into_iter().chain([None]) {
            let foreign = SharedPieces::written(|out| {
                let summary = SharedPieces::written(|out| out.extend(b"a thought"));
                output::reasoning(out, "rs_01k9v2m5x4r7t8w9y0z1a2b3c4_0", "completed", &summary, mark);
            });
            let foreign = String::from_utf8(foreign.into_bytes().into()).expect("UTF-8");
            let body = |items: &[&str]| format!(r#"{{"model":"m","input":[{}]}}"#, items.join(","));
            let given = body(&[text, &foreign, own, &foreign, text]);
            assert_eq!(forward(&given, &RequestEdits::default()), body(&[text, own, text]), "{mark:?}");
            let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
            let summary = Responses.summarise(&target, given.as_bytes()).unwrap();
            assert_eq!(Responses.left_out(given.as_bytes(), &summary), ["input[1]", "input[3]"]);
            let left = |drop_signatures: bool| {
                let edits = RequestEdits { drop_signatures, ..RequestEdits::default() };
                Responses.forward(&given.clone().into(), &summary, &edits).1
            };
            assert_eq!(left(false), ["input[1]", "input[3]"]);
            assert_eq!(left(true), ["input[1]", "input[2].encrypted_content", "input[3]"]);
        }
    }

    #[test]
    fn encrypted_reasoning_is_removed_with_the_ids_bound_to_it() {
        let edits = RequestEdits { drop_signatures: true, ..RequestEdits::default() };
        let body = |items: &[&str]| format!(r#"{{"model":"m","input":[{}]}}"#, items.join(","));
        let sealed = r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAAA"}"#;
        let open = r#"{"id":"rs_2","type":"reasoning","summary":[],"encrypted_content":null}"#;
        let call = r#"{"id":"fc_1","type":"function_call","call_id":"c1__sig1_QUJD","name":"f","arguments":"{\"id\":1}"}"#;
        let bare = r#"{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"id\":1}"}"#;
        let result = r#"{"type":"function_call_output","id":"fco_1","call_id":"c1","output":"x"}"#;
        let text = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}],"id":"msg_1"}"#;
        let said = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}"#;
        let compacted = r#"{"id":"cmp_1","type":"compaction","encrypted_content":"gAAAA"}"#;
        let given = body(&[compacted, sealed, text, open, sealed, call, result]);
        assert_eq!(forward(&given, &edits), body(&[compacted, said, open, bare, result]));
        assert_eq!(forward(r#"{"model":"m","input":"hi"}"#, &edits), r#"{"model":"m","input":"hi"}"#);
    }
}
