//! Every row's verdict, checked by running its example.

use serde_json::{Value, json};

use super::{LossRow, LossVerdict, loss_matrix};
use crate::{
    CanDisableThinking, F64, Framing, Method, Profile, Protocol, Target, Thinking, TranslateOptions, Untranslatable,
    decode_request, encode_request, neutral::Encoded,
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

fn translate((from, to): (Protocol, Protocol), body: &Value) -> Result<Encoded, Untranslatable> {
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
        (LossVerdict::Refused, Err(Untranslatable::Unsupported { fields, .. })) => {
            let named: Vec<String> = fields.iter().map(|field| plain(field)).collect();
            return if named == [row.path] { Ok(()) } else { Err(format!("named {named:?}")) };
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
