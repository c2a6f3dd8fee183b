//! Assembles calls whose arguments Vertex AI streams in pieces (`partialArgs`, `willContinue`). Pieces are collected by path; the
//! assembled call is handled like any other.

use serde_json::{Map, Value};

use super::wire::{FunctionCall, PartialArg};
use crate::{
    StreamError,
    lenient::{LenientText, TextJoiner},
    neutral::{CALL_BYTES_LIMIT, Signature},
};

const DEPTH_LIMIT: usize = 128;
const LIST_LIMIT: usize = 10_000;

const BAD_PATH: StreamError = StreamError::Malformed("a path of an argument that leads nowhere");

#[derive(Debug)]
pub(super) struct CompleteCall {
    pub id: String,
    pub name: String,
    /// Compact JSON.
    pub args: String,
    pub signature: Option<Signature>,
}

#[derive(Debug, Default)]
pub(super) struct PartialCalls {
    open: Vec<(u32, Collected)>,
}

#[derive(Debug)]
struct Collected {
    id: String,
    name: String,
    signature: Option<Signature>,
    args: Value,
    bytes: usize,
    /// The path of the last piece.
    path: String,
    /// The string at that path.
    joiner: TextJoiner,
}

impl PartialCalls {
    /// Bytes of the pieces of all open calls.
    pub(super) fn held_bytes(&self) -> usize {
        self.open.iter().map(|(_, collected)| collected.bytes).sum()
    }

    /// Whether a call of candidate `candidate` is streamed in pieces or continues one that is.
    pub(super) fn is_part_of_call(&self, candidate: u32, call: &FunctionCall<'_>) -> bool {
        call.partial.is_some() || call.will_continue == Some(true) || self.open.iter().any(|(index, _)| *index == candidate)
    }

    /// Adds a piece; returns the call when it is complete.
    pub(super) fn take(
        &mut self,
        candidate: u32,
        call: FunctionCall<'_>,
        signature: Option<Signature>,
    ) -> Result<Option<CompleteCall>, StreamError> {
        let at = if let Some(at) = self.open.iter().position(|(index, _)| *index == candidate) {
            at
        } else {
            let name = LenientText::filled(call.name).ok_or(StreamError::Malformed("a call without a name"))?;
            let id = call.id.map(|id| id.0).unwrap_or_default();
            let args = call.args.and_then(|raw| serde_json::from_str(raw.get()).ok()).filter(Value::is_object);
            let args = args.unwrap_or_else(|| Value::Object(Map::new()));
            self.open.push((
                candidate,
                Collected { id, name, signature: None, args, bytes: 0, path: String::new(), joiner: TextJoiner::default() },
            ));
            self.open.len() - 1
        };
        let collected = &mut self.open[at].1;
        collected.signature = signature.or(collected.signature.take());
        for piece in call.partial.unwrap_or_default() {
            collected.put(piece)?;
        }
        Ok(if call.will_continue == Some(true) { None } else { self.close(candidate) })
    }

    fn close(&mut self, candidate: u32) -> Option<CompleteCall> {
        let at = self.open.iter().position(|(index, _)| *index == candidate)?;
        Some(self.open.swap_remove(at).1.complete())
    }

    /// All open calls, with their candidates.
    pub(super) fn close_all(&mut self) -> impl Iterator<Item = (u32, CompleteCall)> + use<> {
        std::mem::take(&mut self.open).into_iter().map(|(candidate, collected)| (candidate, collected.complete()))
    }
}

impl Collected {
    fn complete(mut self) -> CompleteCall {
        self.finish_string();
        let Self { id, name, signature, args, .. } = self;
        CompleteCall { id, name, args: args.to_string(), signature }
    }

    /// Completes the last string, which may end with half of a surrogate pair, before another value.
    fn finish_string(&mut self) {
        if let Some(rest) = self.joiner.finish()
            && let Ok(Value::String(begun)) = value_at(&mut self.args, &self.path)
        {
            begun.push_str(&rest);
        }
    }

    fn put(&mut self, piece: PartialArg) -> Result<(), StreamError> {
        let path = piece.path.map(|path| path.0).unwrap_or_default();
        self.bytes += path.len() + piece.string.as_ref().map_or(8, |text| text.0.len());
        if self.bytes > CALL_BYTES_LIMIT {
            return Err(StreamError::Malformed("calls larger than the limit"));
        }
        if path != self.path {
            self.finish_string();
            self.path.clone_from(&path);
        }
        let value = value_at(&mut self.args, &path)?;
        match (piece.string, value) {
            // A string may arrive in several pieces.
            (Some(text), Value::String(begun)) => begun.push_str(&self.joiner.join(text)),
            (Some(text), value) => *value = Value::String(self.joiner.join(text)),
            (None, value) => {
                let number = piece.number.map(Value::Number);
                *value = number.or(piece.bool.map(Value::Bool)).unwrap_or(Value::Null);
            }
        }
        Ok(())
    }
}

/// The value at a path such as `$.a['b'][0]`, created if missing.
fn value_at<'v>(args: &'v mut Value, path: &str) -> Result<&'v mut Value, StreamError> {
    let mut rest = path.strip_prefix('$').ok_or(BAD_PATH)?;
    let mut value = args;
    for _ in 0..DEPTH_LIMIT {
        if rest.is_empty() {
            return Ok(value);
        }
        let step;
        (step, rest) = self::step(rest).ok_or(BAD_PATH)?;
        value = match step {
            Step::Member(name) => {
                if value.is_null() {
                    *value = Value::Object(Map::new());
                }
                value.as_object_mut().ok_or(BAD_PATH)?.entry(name).or_insert(Value::Null)
            }
            Step::Element(index) => {
                if value.is_null() {
                    *value = Value::Array(Vec::new());
                }
                let list = value.as_array_mut().ok_or(BAD_PATH)?;
                if list.len() <= index {
                    list.resize(index + 1, Value::Null);
                }
                &mut list[index]
            }
        };
    }
    Err(BAD_PATH)
}

enum Step<'p> {
    Member(&'p str),
    Element(usize),
}

fn step(path: &str) -> Option<(Step<'_>, &str)> {
    if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        return (end > 0).then(|| (Step::Member(&rest[..end]), &rest[end..]));
    }
    let rest = path.strip_prefix('[')?;
    for quote in ["'", "\""] {
        if let Some(rest) = rest.strip_prefix(quote) {
            let (name, rest) = rest.split_once(quote)?;
            return Some((Step::Member(name), rest.strip_prefix(']')?));
        }
    }
    let (index, rest) = rest.split_once(']')?;
    let index = index.parse().ok().filter(|index| *index < LIST_LIMIT)?;
    Some((Step::Element(index), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(calls: &mut PartialCalls, json: &str) -> Result<Option<CompleteCall>, StreamError> {
        calls.take(0, serde_json::from_str(json).unwrap(), None)
    }

    #[test]
    fn pieces_are_assembled_by_path() {
        let mut calls = PartialCalls::default();
        assert!(take(&mut calls, r#"{"id":"a","name":"f","willContinue":true}"#).unwrap().is_none());
        let piece = r#"{"partialArgs":[{"jsonPath":"$.city","stringValue":"Zü","willContinue":true},
            {"jsonPath":"$.list[1]['k.l']","numberValue":1.50}],"willContinue":true}"#;
        assert!(take(&mut calls, piece).unwrap().is_none());
        let piece = r#"{"partialArgs":[{"jsonPath":"$.city","stringValue":"rich"},{"jsonPath":"$.yes","boolValue":true},
            {"jsonPath":"$.no","nullValue":null}],"willContinue":true}"#;
        assert!(take(&mut calls, piece).unwrap().is_none());
        let call = take(&mut calls, "{}").unwrap().expect("the call is whole");
        assert_eq!((call.id.as_str(), call.name.as_str()), ("a", "f"));
        assert_eq!(call.args, r#"{"city":"Zürich","list":[null,{"k.l":1.5}],"yes":true,"no":null}"#);
        assert!(calls.close(0).is_none());
    }

    #[test]
    fn invalid_paths_are_errors() {
        let deep = format!("${}", ".a".repeat(200));
        for path in ["", "a", "$a", "$.", "$[", "$[x]", "$[10000]", "$[-1]", "$['a", "$.a.b", "$.a[0]", "$[0]", &deep] {
            let mut calls = PartialCalls::default();
            take(&mut calls, r#"{"name":"f","partialArgs":[{"jsonPath":"$.a","boolValue":true}],"willContinue":true}"#).unwrap();
            let piece = serde_json::json!({ "partialArgs": [{ "jsonPath": path, "stringValue": "x" }] }).to_string();
            assert_eq!(take(&mut calls, &piece).unwrap_err(), BAD_PATH, "{path}");
        }
        assert!(take(&mut PartialCalls::default(), r#"{"willContinue":true}"#).is_err());
    }
}
