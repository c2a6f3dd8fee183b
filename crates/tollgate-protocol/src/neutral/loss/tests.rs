//! Every row's verdict, checked by running its example.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{LossRow, LossVerdict, loss_matrix};
use crate::{
    CanDisableThinking, F64, Framing, Method, Profile, Protocol, Target, Thinking, TranslateError, TranslateOptions,
    decode_request, encode_request, neutral::EncodedRequest,
};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A model that takes everything its protocol has.
fn able(to: Protocol) -> Profile {
    let (thinking, off) = match to {
        Protocol::OpenAi => {
            (Thinking::Effort(words(&["none", "minimal", "low", "medium", "high", "xhigh", "max"])), CanDisableThinking::Yes)
        }
        Protocol::Gemini => (Thinking::Level(words(&["minimal", "low", "medium", "high", "xhigh"])), CanDisableThinking::No),
        Protocol::Anthropic => (Thinking::Adaptive(words(&["low", "medium", "high", "xhigh", "max"])), CanDisableThinking::Yes),
    };
    let claude = to == Protocol::Anthropic;
    Profile {
        thinking: Some(thinking),
        can_disable_thinking: Some(off),
        thinking_display: Some(true),
        part_media_resolution: Some(true),
        media_in_results: Some(true),
        n_max: Some(if claude { 1 } else { 8 }),
        penalties: Some(!claude),
        logprobs: Some(!claude),
        temperature_max: claude.then_some(F64(1.0)),
        stop_max: match to {
            Protocol::OpenAi => Some(4),
            Protocol::Gemini => Some(5),
            Protocol::Anthropic => None,
        },
        ..Profile::default()
    }
}

fn minimal(from: Protocol) -> Value {
    match from {
        Protocol::OpenAi => json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
        Protocol::Gemini => json!({"contents": [{"parts": [{"text": "hi"}]}]}),
        Protocol::Anthropic => json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
    }
}

fn translate((from, to): (Protocol, Protocol), body: &Value) -> Result<EncodedRequest, TranslateError> {
    let method = if from == Protocol::Gemini { Method::Generate } else { Method::Chat };
    let target = Target { method, model: (from == Protocol::Gemini).then(|| "m".to_owned()), framing: Framing::Sse };
    let request = decode_request(from, &target, body.to_string().as_bytes())?;
    encode_request(to, &request, "u", &able(to), &TranslateOptions::default())
}

/// A path without the positions in lists and without the value of an adjustment.
fn plain(path: &str) -> String {
    let path = path.split('=').next().unwrap_or_default();
    path.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

fn check(row: &LossRow) -> Result<(), String> {
    let base = translate(row.direction, &minimal(row.direction.0)).map_err(|error| error.to_string())?;
    let mut body = minimal(row.direction.0);
    let example: Value = serde_json::from_str(row.example).map_err(|error| error.to_string())?;
    body.as_object_mut().expect("an object").extend(example.as_object().expect("an object").clone());
    let outcome = translate(row.direction, &body);
    let encoded = match (row.verdict, outcome) {
        (LossVerdict::Refused, Err(TranslateError::Unsupported { fields, .. })) => {
            let named: Vec<String> = fields.iter().map(|field| plain(field)).collect();
            return if named == row.path.split(", ").collect::<Vec<_>>() { Ok(()) } else { Err(format!("named {named:?}")) };
        }
        (LossVerdict::Refused, other) => return Err(format!("not refused: {other:?}")),
        (_, Err(error)) => return Err(error.to_string()),
        (_, Ok(encoded)) => encoded,
    };
    let reported: Vec<String> = encoded.dropped.iter().map(|entry| plain(entry)).collect();
    if row.verdict == LossVerdict::Dropped {
        return if reported == [row.path] { Ok(()) } else { Err(format!("reported {reported:?}")) };
    }
    if !reported.is_empty() {
        return Err(format!("reported {reported:?}"));
    }
    let same = (encoded.method, &encoded.body) == (base.method, &base.body);
    let harmless = row.verdict == LossVerdict::Harmless;
    if same == harmless { Ok(()) } else { Err(format!("written {:?}", encoded.body)) }
}

#[test]
fn every_row_does_what_it_says() {
    let faults: Vec<String> = loss_matrix()
        .iter()
        .filter_map(|row| {
            check(row).err().map(|fault| format!("{:?} {} ({}): {fault}", row.direction, row.field, row.verdict.as_str()))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_direction_has_rows_and_no_field_stands_twice() {
    let rows = loss_matrix();
    for from in [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic] {
        for to in [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic] {
            let mut fields: Vec<&str> = rows.iter().filter(|row| row.direction == (from, to)).map(|row| row.field).collect();
            assert_eq!(fields.is_empty(), from == to, "{from:?} to {to:?}");
            let all = fields.len();
            fields.sort_unstable();
            fields.dedup();
            assert_eq!(fields.len(), all, "{from:?} to {to:?}");
        }
    }
}

/// Paths of the members of an example, positions left out; what lies in values of the caller's own form is not walked.
fn members(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    const FREE: [&str; 9] =
        ["parameters", "schema", "input_schema", "responseSchema", "args", "input", "response", "metadata", "labels"];
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if !FREE.contains(&name.as_str()) {
                    members(value, &path, found);
                }
                found.insert(path);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| members(value, &format!("{path}[]"), found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_field_that_one_direction_shows_the_other_shows_too() {
    let rows = loss_matrix();
    let shown = |direction: (Protocol, Protocol)| {
        let mut found = BTreeSet::new();
        for row in rows.iter().filter(|row| row.direction == direction) {
            members(&serde_json::from_str(row.example).expect("JSON"), "", &mut found);
        }
        found
    };
    for from in [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic] {
        let ways: Vec<_> = [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic].into_iter().filter(|to| *to != from).collect();
        let (one, other) = (shown((from, ways[0])), shown((from, ways[1])));
        let missing: Vec<_> = one.symmetric_difference(&other).collect();
        assert!(missing.is_empty(), "{from:?}: {missing:?}");
    }
}

/// Top-level members of the published request schemas, and those of the native `generationConfig`.
#[test]
fn every_field_a_caller_knows_has_a_row_in_every_direction() {
    let schemas = [
        (Protocol::OpenAi, None, include_str!("../../../fixtures/schemas/openai-chat-request.schema.json")),
        (Protocol::Gemini, None, include_str!("../../../fixtures/schemas/gemini-generate-content-request.schema.json")),
        (
            Protocol::Gemini,
            Some("GenerationConfig"),
            include_str!("../../../fixtures/schemas/gemini-generate-content-request.schema.json"),
        ),
        (Protocol::Anthropic, None, include_str!("../../../fixtures/schemas/anthropic-messages-request.schema.json")),
    ];
    let rows = loss_matrix();
    for (from, part, schema) in schemas {
        let schema: Value = serde_json::from_str(schema).expect("a schema");
        let mut known = BTreeSet::new();
        properties(&schema, part.map_or(&schema, |part| &schema["$defs"][part]), &mut known);
        // The path has the native model; members have two spellings there.
        known.retain(|field| field != "model" && !(from == Protocol::Gemini && field.contains('_')));
        assert!(known.len() > 5, "{part:?}");
        for to in [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic].into_iter().filter(|to| *to != from) {
            let mut shown = BTreeSet::new();
            for row in rows.iter().filter(|row| row.direction == (from, to)) {
                members(&serde_json::from_str(row.example).expect("JSON"), "", &mut shown);
            }
            let shows = |field: &str| match part {
                Some(_) => shown.contains(&format!("generationConfig.{field}")),
                None => shown.contains(field) || minimal(from).get(field).is_some(),
            };
            let missing: Vec<_> = known.iter().filter(|field| !shows(field)).collect();
            assert!(missing.is_empty(), "{from:?} to {to:?}: {missing:?}");
        }
    }
}

/// Names of the properties of a schema and of the schemas it is made of.
fn properties(root: &Value, schema: &Value, found: &mut BTreeSet<String>) {
    found.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
    for part in schema["allOf"].as_array().into_iter().flatten() {
        properties(root, part, found);
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        properties(root, &root["$defs"][name], found);
    }
}
