//! Reads golden cases and runs request cases.

use std::{collections::HashMap, fs, path::Path, sync::Arc};

use serde_json::{Value, json};
use tollgate_protocol::{
    DownloadedMedia, FetchedMedia, Framing, MalformedKind, Method, Profile, Protocol, RemoteMedia, Target, TranslateError,
    TranslateOptions, codec, decode_request, encode_request,
};

pub(crate) const DIRECTIONS: [&str; 9] = [
    "openai_to_gemini",
    "gemini_to_openai",
    "openai_to_anthropic",
    "gemini_to_anthropic",
    "anthropic_to_gemini",
    "anthropic_to_openai",
    "responses_to_openai",
    "responses_to_gemini",
    "responses_to_anthropic",
];

/// One line of a golden file.
pub(crate) struct Case {
    pub(crate) name: String,
    kind: String,
    ctx: Value,
    input: Value,
    expected: Value,
}

impl Case {
    /// All cases of a direction.
    pub(crate) fn all(direction: &str) -> Vec<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/golden/{direction}.jsonl"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let read = |line: &str| {
            let mut line: Value = serde_json::from_str(line).expect("a case is JSON");
            let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
            Self {
                name: text(line["name"].take()),
                kind: text(line["kind"].take()),
                ctx: line["ctx"].take(),
                input: line["input"].take(),
                expected: line["expected"].take(),
            }
        };
        text.lines().map(read).collect()
    }

    /// True where the input is a caller's request.
    pub(crate) fn is_request(&self) -> bool {
        self.kind == "request" || self.kind == "error" && self.input.get("upstream_status").is_none()
    }
}

/// Runs one request case.
pub(crate) fn run(direction: &str, name: &str) {
    let case = Case::all(direction).into_iter().find(|case| case.name == name).expect("the case is in its file");
    let (from, to) = direction.split_once("_to_").expect("a direction");
    let (from, to) = (Protocol::parse(from).expect("a valid case"), Protocol::parse(to).expect("a valid case"));
    let word = case.ctx["profile"].as_str().unwrap_or(match to {
        Protocol::OpenAi | Protocol::Responses => "openai-chat",
        Protocol::Gemini => "gemini-3-flash",
        Protocol::Anthropic => "claude",
    });
    let method = match from {
        Protocol::OpenAi | Protocol::Anthropic | Protocol::Responses => Method::Chat,
        Protocol::Gemini if case.ctx["stream"] == true => Method::StreamGenerate,
        Protocol::Gemini => Method::Generate,
    };
    let target = Target { method, model: (from == Protocol::Gemini).then(|| "m".to_owned()), framing: Framing::Sse };
    let fetched: FetchedMedia = case.ctx["fetched"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(url, found)| {
            let text = |name: &str| found[name].as_str().expect("a valid case").to_owned();
            (url.clone(), Ok(Arc::new(DownloadedMedia { mime: text("mime"), data: text("data") })))
        })
        .collect();
    let options = TranslateOptions { media: RemoteMedia::Fetched(&fetched), ..TranslateOptions::default() };
    let body = serde_json::to_vec(&case.input).expect("a valid case");
    let outcome =
        decode_request(from, &target, &body).and_then(|request| encode_request(to, &request, word, &profile(word), &options));
    match (case.kind.as_str(), outcome) {
        ("request", Ok(encoded)) => {
            let body: Value = serde_json::from_slice(&encoded.body).expect("the encoded body is JSON");
            assert_same(&body, &case.expected["body"]);
            let dropped = case.expected.get("dropped").cloned().unwrap_or_else(|| json!([]));
            assert_eq!(json!(encoded.dropped), dropped, "dropped");
            let base = if to == Protocol::Gemini { "/v1beta" } else { "/v1" };
            let path = format!("{base}{}", codec(to).upstream_path(encoded.method, word, Framing::Sse));
            assert_eq!(path, case.expected["path"].as_str().expect("a valid case"), "path");
        }
        ("error", Err(refusal)) => assert_refused(from, &refusal, &case.expected),
        (_, outcome) => panic!("expected {}, got {outcome:?}", case.expected),
    }
}

/// Asserts equality with numbers compared by value.
fn assert_same(body: &Value, expected: &Value) {
    assert!(same(body, expected), "\n body {body}\nexpected {expected}");
}

fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same(l, r)),
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len() && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| same(value, other)))
        }
        _ => left == right,
    }
}

/// Compares a refusal with the expected error body of the gateway.
fn assert_refused(from: Protocol, refusal: &TranslateError, expected: &Value) {
    assert_eq!(expected["status"], 400);
    let error = &expected["body"]["error"];
    let message = error["message"].as_str().expect("a valid case");
    let (fields, code, reason) = match refusal {
        TranslateError::Unsupported { fields, reason } => {
            if let Some(reason) = reason {
                assert!(!message.contains(" (") || message.contains(&format!("({reason})")), "{reason} is not in: {message}");
            }
            let descriptions = vec!["Unsupported parameter.".to_owned(); fields.len()];
            (fields.iter().cloned().zip(descriptions).collect::<Vec<_>>(), "unsupported_parameter", "UNSUPPORTED_PARAMETER")
        }
        TranslateError::Malformed(fault) => {
            for word in quoted(message) {
                assert!(fault.message.contains(&format!("'{word}'")), "'{word}' is not in: {}", fault.message);
            }
            let code = match fault.kind {
                MalformedKind::NotJson => "invalid_json",
                MalformedKind::Missing => "missing_required_parameter",
                MalformedKind::WrongType => "invalid_type",
                MalformedKind::InvalidValue => "invalid_value",
            };
            let described = fault.violations.iter().map(|violation| (violation.field.clone(), violation.description.clone()));
            (described.collect(), code, "INVALID_BODY")
        }
        TranslateError::NoCounter => panic!("no case counts tokens"),
    };
    if from == Protocol::Anthropic {
        assert_eq!(error["type"], "invalid_request_error");
        let named: Vec<&str> = quoted(message).take(fields.len()).collect();
        assert_eq!(named, fields.iter().map(|(field, _)| field.as_str()).collect::<Vec<_>>());
    } else if from == Protocol::Gemini {
        assert_eq!(error["details"][0]["reason"], reason);
        let violations = error["details"][1]["fieldViolations"].as_array().expect("a valid case");
        assert_eq!(violations.len(), fields.len());
        for (violation, (field, description)) in violations.iter().zip(&fields) {
            assert_eq!(violation["field"], field.as_str());
            let wanted = violation["description"].as_str().expect("a valid case");
            let matches = wanted == description || quoted(wanted).all(|word| description.contains(&format!("'{word}'")));
            assert!(matches, "{description} does not contain {wanted}");
        }
    } else {
        assert_eq!(error["code"], code);
        assert_eq!(error["param"], fields[0].0.as_str());
    }
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('\'').skip(1).step_by(2)
}

/// The profiles of the golden cases.
fn profile(name: &str) -> Profile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden/profiles.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut all: HashMap<String, Profile> = serde_json::from_str(&text).expect("profiles in the catalog's format");
    all.remove(name).unwrap_or_else(|| panic!("no profile {name}"))
}
