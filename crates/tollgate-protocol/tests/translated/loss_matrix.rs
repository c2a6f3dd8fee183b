//! The loss matrix in `fixtures/translation`, checked by translating the example of every row.

use std::collections::BTreeSet;

use Protocol::{Anthropic, Gemini, OpenAi, Responses};
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_protocol::{
    CanDisableThinking, F64, Framing, Method, Profile, Protocol, Target, Thinking, TranslateError, TranslateOptions,
    decode_request, encode_request, neutral::EncodedRequest,
};

const PROTOCOLS: [Protocol; 4] = Protocol::ALL;

/// Caller protocol, upstream protocol.
type Direction = (Protocol, Protocol);

const FILES: [(Direction, &str); 12] = [
    ((OpenAi, Gemini), include_str!("../../fixtures/translation/openai_to_gemini.toml")),
    ((OpenAi, Anthropic), include_str!("../../fixtures/translation/openai_to_anthropic.toml")),
    ((Gemini, OpenAi), include_str!("../../fixtures/translation/gemini_to_openai.toml")),
    ((Gemini, Anthropic), include_str!("../../fixtures/translation/gemini_to_anthropic.toml")),
    ((Anthropic, OpenAi), include_str!("../../fixtures/translation/anthropic_to_openai.toml")),
    ((Anthropic, Gemini), include_str!("../../fixtures/translation/anthropic_to_gemini.toml")),
    ((OpenAi, Responses), include_str!("../../fixtures/translation/openai_to_responses.toml")),
    ((Gemini, Responses), include_str!("../../fixtures/translation/gemini_to_responses.toml")),
    ((Anthropic, Responses), include_str!("../../fixtures/translation/anthropic_to_responses.toml")),
    ((Responses, OpenAi), include_str!("../../fixtures/translation/responses_to_openai.toml")),
    ((Responses, Gemini), include_str!("../../fixtures/translation/responses_to_gemini.toml")),
    ((Responses, Anthropic), include_str!("../../fixtures/translation/responses_to_anthropic.toml")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Matrix {
    row: Vec<Row>,
}

/// A row as `fixtures/translation/README.md` describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    field: String,
    verdict: Verdict,
    #[serde(rename = "note")]
    _note: Option<String>,
    path: Option<String>,
    #[serde(default)]
    server_tools: bool,
    example: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Verdict {
    #[serde(rename = "mapped")]
    Mapped,
    #[serde(rename = "mapped with change")]
    Changed,
    #[serde(rename = "refused")]
    Refused,
    #[serde(rename = "dropped")]
    Dropped,
    #[serde(rename = "accepted, no effect")]
    NoEffect,
}

impl Row {
    /// The path that a refusal or a report of a dropped field names.
    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(&self.field)
    }

    fn example(&self) -> Value {
        serde_json::from_str(&self.example).expect("the example is JSON")
    }
}

fn loss_matrix() -> Vec<(Direction, Vec<Row>)> {
    let parsed = FILES.into_iter().map(|(direction, text)| {
        let matrix: Matrix = toml::from_str(text).unwrap_or_else(|error| panic!("{direction:?}: {error}"));
        (direction, matrix.row)
    });
    parsed.collect()
}

fn rows(direction: Direction) -> Vec<Row> {
    loss_matrix().into_iter().find(|(of, _)| *of == direction).expect("every direction has a file").1
}

/// A model that supports everything its protocol has.
fn full_profile(to: Protocol) -> Profile {
    let levels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (thinking, can_disable) = match to {
        OpenAi | Responses => {
            (Thinking::Effort(levels(&["none", "minimal", "low", "medium", "high", "xhigh", "max"])), CanDisableThinking::Yes)
        }
        Gemini => (Thinking::Level(levels(&["minimal", "low", "medium", "high", "xhigh"])), CanDisableThinking::No),
        Anthropic => (Thinking::Adaptive(levels(&["low", "medium", "high", "xhigh", "max"])), CanDisableThinking::Yes),
    };
    let claude = to == Anthropic;
    Profile {
        thinking: Some(thinking),
        can_disable_thinking: Some(can_disable),
        thinking_display: Some(true),
        part_media_resolution: Some(true),
        media_in_results: Some(true),
        n_max: Some(if claude { 1 } else { 8 }),
        penalties: Some(!claude),
        logprobs: Some(!claude),
        temperature_max: claude.then_some(F64(1.0)),
        stop_max: match to {
            OpenAi | Responses => Some(4),
            Gemini => Some(5),
            Anthropic => None,
        },
        ..Profile::default()
    }
}

fn minimal_body(from: Protocol) -> Value {
    match from {
        OpenAi => json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
        Gemini => json!({"contents": [{"parts": [{"text": "hi"}]}]}),
        Anthropic => json!({"model": "m", "max_tokens": 90, "messages": [{"role": "user", "content": "hi"}]}),
        Responses => json!({"model": "m", "input": "hi"}),
    }
}

fn translate((from, to): Direction, body: &Value, server_tools: bool) -> Result<EncodedRequest, TranslateError> {
    let method = if from == Gemini { Method::Generate } else { Method::Chat };
    let target = Target { method, model: (from == Gemini).then(|| "m".to_owned()), framing: Framing::Sse };
    let request = decode_request(from, &target, body.to_string().as_bytes())?;
    encode_request(to, &request, "u", &full_profile(to), &TranslateOptions { server_tools, ..TranslateOptions::default() })
}

/// The path without list positions and without the value of an adjustment.
fn bare_path(path: &str) -> String {
    let path = path.split('=').next().unwrap_or_default();
    path.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

fn check(direction: Direction, row: &Row) -> Result<(), String> {
    let minimal = minimal_body(direction.0);
    let base = translate(direction, &minimal, row.server_tools).map_err(|error| error.to_string())?;
    let mut body = minimal;
    body.as_object_mut().expect("an object").extend(row.example().as_object().expect("an object").clone());
    let encoded = match (row.verdict, translate(direction, &body, row.server_tools)) {
        (Verdict::Refused, Err(TranslateError::Unsupported { fields, .. })) => {
            let named: Vec<String> = fields.iter().map(|field| bare_path(field)).collect();
            return if named == row.path().split(", ").collect::<Vec<_>>() { Ok(()) } else { Err(format!("named {named:?}")) };
        }
        (Verdict::Refused, other) => return Err(format!("not refused: {other:?}")),
        (_, Err(error)) => return Err(error.to_string()),
        (_, Ok(encoded)) => encoded,
    };
    let reported: Vec<String> = encoded.dropped.iter().map(|entry| bare_path(entry)).collect();
    if row.verdict == Verdict::Dropped {
        return if reported == [row.path()] { Ok(()) } else { Err(format!("reported {reported:?}")) };
    }
    if !reported.is_empty() {
        return Err(format!("reported {reported:?}"));
    }
    let unchanged = (encoded.method, &encoded.body) == (base.method, &base.body);
    if unchanged == (row.verdict == Verdict::NoEffect) { Ok(()) } else { Err(format!("encoded {:?}", encoded.body)) }
}

#[test]
fn every_example_has_the_stated_verdict() {
    let mut faults = Vec::new();
    for (direction, rows) in loss_matrix() {
        for row in rows {
            if let Err(fault) = check(direction, &row) {
                faults.push(format!("{direction:?} {} ({:?}): {fault}", row.field, row.verdict));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_direction_lists_each_field_once() {
    for from in PROTOCOLS {
        for to in PROTOCOLS.into_iter().filter(|to| *to != from) {
            let rows = rows((from, to));
            assert!(!rows.is_empty(), "{from:?} to {to:?}");
            let fields: BTreeSet<&str> = rows.iter().map(|row| row.field.as_str()).collect();
            assert_eq!(fields.len(), rows.len(), "{from:?} to {to:?}");
        }
    }
}

/// Paths of the members of an example without list positions. Free-form values of the caller are not descended into.
fn members(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    const FREE_FORM: [&str; 9] =
        ["parameters", "schema", "input_schema", "responseSchema", "args", "input", "response", "metadata", "labels"];
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if !FREE_FORM.contains(&name.as_str()) {
                    members(value, &path, found);
                }
                found.insert(path);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| members(value, &format!("{path}[]"), found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The members that the examples of a direction use.
fn exemplified(direction: Direction) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for row in rows(direction) {
        members(&row.example(), "", &mut found);
    }
    found
}

#[test]
fn all_upstreams_of_a_caller_have_examples_of_the_same_fields() {
    for from in PROTOCOLS {
        let mut directions = PROTOCOLS.into_iter().filter(|to| *to != from).map(|to| exemplified((from, to)));
        let one = directions.next().expect("several upstreams");
        for other in directions {
            let missing: Vec<_> = one.symmetric_difference(&other).collect();
            assert!(missing.is_empty(), "{from:?}: {missing:?}");
        }
    }
}

/// Covers the top-level members of the request schemas, and those of Gemini's `generationConfig`.
#[test]
fn every_field_of_the_request_schemas_has_an_example() {
    const OPENAI: &str = include_str!("../../fixtures/schemas/openai-chat-request.schema.json");
    const GEMINI: &str = include_str!("../../fixtures/schemas/gemini-generate-content-request.schema.json");
    const ANTHROPIC: &str = include_str!("../../fixtures/schemas/anthropic-messages-request.schema.json");
    const RESPONSES: &str = include_str!("../../fixtures/schemas/openai-responses-request.schema.json");
    let schemas = [
        (OpenAi, None, OPENAI),
        (Gemini, None, GEMINI),
        (Gemini, Some("GenerationConfig"), GEMINI),
        (Anthropic, None, ANTHROPIC),
        (Responses, None, RESPONSES),
    ];
    for (from, definition, schema) in schemas {
        let schema: Value = serde_json::from_str(schema).expect("a schema");
        let mut fields = BTreeSet::new();
        properties(&schema, definition.map_or(&schema, |name| &schema["$defs"][name]), &mut fields);
        // Gemini has the model in the URL, and both a camelCase and a snake_case spelling of every member.
        fields.retain(|field| field != "model" && !(from == Gemini && field.contains('_')));
        assert!(fields.len() > 5, "{definition:?}");
        for to in PROTOCOLS.into_iter().filter(|to| *to != from) {
            let exemplified = exemplified((from, to));
            let has_example = |field: &str| match definition {
                Some(_) => exemplified.contains(&format!("generationConfig.{field}")),
                None => exemplified.contains(field) || minimal_body(from).get(field).is_some(),
            };
            let missing: Vec<_> = fields.iter().filter(|field| !has_example(field)).collect();
            assert!(missing.is_empty(), "{from:?} to {to:?}: {missing:?}");
        }
    }
}

/// Names of the properties of a schema and of the schemas it is composed of.
fn properties(root: &Value, schema: &Value, found: &mut BTreeSet<String>) {
    found.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
    for part in schema["allOf"].as_array().into_iter().flatten() {
        properties(root, part, found);
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        properties(root, &root["$defs"][name], found);
    }
}

/// `ProtocolSpec::parameters` lists the optional fields of the request schemas.
#[test]
fn parameters_match_the_request_schemas() {
    const OPENAI: &str = include_str!("../../fixtures/schemas/openai-chat-request.schema.json");
    const GEMINI: &str = include_str!("../../fixtures/schemas/gemini-generate-content-request.schema.json");
    const ANTHROPIC: &str = include_str!("../../fixtures/schemas/anthropic-messages-request.schema.json");
    const REQUIRED: [&str; 7] =
        ["model", "messages", "stream", "stream_options", "contents", "systemInstruction", "generationConfig"];
    const RESPONSES: &str = include_str!("../../fixtures/schemas/openai-responses-request.schema.json");
    const REQUIRED_OF_ANTHROPIC: [&str; 3] = ["max_tokens", "system", "output_config"];
    /// Listed by their members, or not options of a caller.
    const OBJECTS_OF_RESPONSES: [&str; 5] = ["input", "text", "reasoning", "access_programs", "image"];
    /// Supported by the decoders, but not part of the schemas.
    const MORE: [&str; 6] = ["extra_body", "labels", "context_management", "fallbacks", "mcp_servers", "thread"];
    for (protocol, schema, config) in [
        (OpenAi, OPENAI, None),
        (Gemini, GEMINI, Some(("generationConfig", "GenerationConfig"))),
        (Anthropic, ANTHROPIC, Some(("output_config", "OutputConfigParam"))),
        (Responses, RESPONSES, None),
    ] {
        let schema: Value = serde_json::from_str(schema).expect("a schema");
        let (mut fields, mut members) = (BTreeSet::new(), BTreeSet::new());
        properties(&schema, &schema, &mut fields);
        if let Some((_, definition)) = config {
            properties(&schema, &schema["$defs"][definition], &mut members);
        }
        // Gemini's schema has both spellings of a member.
        let is_listed = |field: &String| {
            let required = REQUIRED.contains(&field.as_str())
                || protocol == Anthropic && REQUIRED_OF_ANTHROPIC.contains(&field.as_str())
                || protocol == Responses && OBJECTS_OF_RESPONSES.contains(&field.as_str());
            !(required || protocol == Gemini && field.contains('_'))
        };
        let members = members.into_iter().filter(is_listed).map(|member| {
            let (object, _) = config.expect("members of a config object");
            format!("{object}.{member}")
        });
        let expected: BTreeSet<String> = fields.into_iter().filter(is_listed).chain(members).collect();
        let listed: BTreeSet<String> = protocol.spec().parameters.iter().map(|field| (*field).to_owned()).collect();
        let is_nested = |field: &String| protocol == Responses && field.contains('.');
        let is_more = |field: &String| MORE.contains(&field.as_str()) && !expected.contains(field);
        let listed: BTreeSet<String> = listed.into_iter().filter(|field| !is_more(field) && !is_nested(field)).collect();
        assert_eq!(listed, expected, "{protocol:?}");
    }
}
