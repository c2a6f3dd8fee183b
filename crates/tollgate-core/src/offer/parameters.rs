//! Parameter rules: which request fields a model accepts, in the spelling of any protocol.
//!
//! A rule uses chat field names, or paths of another protocol for fields that chat does not have. A request's fields are in the
//! caller's spelling. Native paths are normalised to camel case, and a field also matches its counterparts in the other protocols
//! (docs/translation.md).

use std::borrow::Cow;

use tollgate_protocol::{FieldPath, Protocol};

use crate::ParameterRule;

/// Names of a field in the order of [`Protocol`]; empty where a protocol has none. A field with several counterparts has several
/// rows.
const COUNTERPARTS: &[[&str; Protocol::ALL.len()]] = &[
    ["temperature", "generationConfig.temperature", "temperature", "temperature"],
    ["top_p", "generationConfig.topP", "top_p", "top_p"],
    ["top_k", "generationConfig.topK", "top_k", ""],
    ["max_tokens", "generationConfig.maxOutputTokens", "max_tokens", "max_output_tokens"],
    ["max_completion_tokens", "generationConfig.maxOutputTokens", "max_tokens", "max_output_tokens"],
    ["stop", "generationConfig.stopSequences", "stop_sequences", ""],
    ["n", "generationConfig.candidateCount", "", ""],
    ["seed", "generationConfig.seed", "", ""],
    ["presence_penalty", "generationConfig.presencePenalty", "", ""],
    ["frequency_penalty", "generationConfig.frequencyPenalty", "", ""],
    ["logprobs", "generationConfig.responseLogprobs", "", ""],
    ["top_logprobs", "generationConfig.logprobs", "", "top_logprobs"],
    ["response_format", "generationConfig.responseMimeType", "output_config.format", "text.format"],
    ["response_format", "generationConfig.responseSchema", "output_config.format", "text.format"],
    ["response_format", "generationConfig.responseJsonSchema", "output_config.format", "text.format"],
    ["response_format", "generationConfig._responseJsonSchema", "output_config.format", "text.format"],
    ["response_format", "generationConfig.responseFormat", "output_config.format", "text.format"],
    ["reasoning_effort", "generationConfig.thinkingConfig", "thinking", "reasoning.effort"],
    ["reasoning_effort", "generationConfig.thinkingConfig", "output_config.effort", "reasoning.effort"],
    ["verbosity", "", "", "text.verbosity"],
    ["modalities", "generationConfig.responseModalities", "", ""],
    ["audio", "generationConfig.speechConfig", "", ""],
    ["tools", "tools", "tools", "tools"],
    ["tool_choice", "toolConfig", "tool_choice", "tool_choice"],
    ["service_tier", "serviceTier", "service_tier", "service_tier"],
    ["store", "store", "", "store"],
    ["dimensions", "outputDimensionality", "", ""],
    ["dimensions", "embedContentConfig.outputDimensionality", "", ""],
];

/// Deprecated chat names and the newer names whose rules apply to them.
const RENAMED: &[(&str, &str)] = &[("functions", "tools"), ("function_call", "tool_choice")];

/// Structural fields, exempt from rules that list accepted fields.
const STRUCTURAL: &[&str] = &[
    "model",
    "messages",
    "contents",
    "stream",
    "stream_options",
    "system",
    "systemInstruction",
    "instructions",
    "include",
    "generationConfig",
    "input",
    "encoding_format",
    "content",
    "requests",
    "generateContentRequest",
    "embedContentConfig",
];

/// The fields of a request that a rule rejects, in the caller's spelling and order.
pub(crate) fn refused(rule: &ParameterRule, from: Protocol, fields: &[FieldPath]) -> Vec<FieldPath> {
    let (listed, accepts_listed) = match rule {
        ParameterRule::All => return Vec::new(),
        ParameterRule::Only(listed) => (listed, true),
        ParameterRule::Except(listed) => (listed, false),
    };
    let listed: Vec<Cow<'_, str>> = listed.iter().map(|entry| normalise(entry)).collect();
    let is_listed = |path: &str| listed.iter().any(|entry| entry == path);
    let refuses = |field: &&FieldPath| {
        let spelled = field.as_str();
        let field = if from == Protocol::Gemini { camel_case(spelled) } else { Cow::Borrowed(spelled) };
        if accepts_listed {
            let accepted = |it: &str| is_listed(it) || others(from).any(|other| counterparts(from, other, it).any(is_listed));
            !STRUCTURAL.contains(&field.as_ref()) && !is_listed(spelled) && !ancestry(&field).any(accepted)
        } else {
            // A field is rejected with its counterparts only if the rule names all of them: `max_tokens` alone does not reject
            // `generationConfig.maxOutputTokens`, which `max_completion_tokens` can express.
            let rejected =
                |it: &str| is_listed(it) || others(from).any(|other| all_listed(counterparts(from, other, it), is_listed));
            is_listed(spelled) || ancestry(&field).any(rejected)
        }
    };
    fields.iter().filter(refuses).cloned().collect()
}

/// The fields of a request that match one of these names, in the spelling of any protocol.
pub(crate) fn matching_fields(names: &[String], from: Protocol, fields: &[FieldPath]) -> Vec<FieldPath> {
    refused(&ParameterRule::Except(names.to_vec()), from, fields)
}

/// True for fields that a request cannot do without.
pub(crate) fn is_structural(field: &str) -> bool {
    STRUCTURAL.contains(&camel_case(field).as_ref()) || STRUCTURAL.contains(&field)
}

fn all_listed<'a>(mut paths: impl Iterator<Item = &'a str>, is_listed: impl Fn(&str) -> bool) -> bool {
    paths.next().is_some_and(&is_listed) && paths.all(is_listed)
}

/// A path, its parents (`a.b.c`, `a.b`, `a`) and its newer name.
fn ancestry(path: &str) -> impl Iterator<Item = &str> {
    let newer = RENAMED.iter().find(|(deprecated, _)| *deprecated == path).map(|(_, newer)| *newer);
    std::iter::successors(Some(path), |path| path.rsplit_once('.').map(|(parent, _)| parent)).chain(newer)
}

/// The other protocols in whose spelling a rule may name a field.
fn others(from: Protocol) -> impl Iterator<Item = Protocol> {
    Protocol::ALL.into_iter().filter(move |other| *other != from)
}

/// Another protocol's names of a field. A name that is also a chat field means the chat field in a rule.
fn counterparts(from: Protocol, other: Protocol, path: &str) -> impl Iterator<Item = &'static str> {
    let rows = COUNTERPARTS.iter().filter(move |row| row[from as usize] == path);
    let is_chats = |name: &str| COUNTERPARTS.iter().any(|row| row[Protocol::OpenAi as usize] == name);
    rows.map(move |row| row[other as usize]).filter(move |name| !name.is_empty() && (other == Protocol::OpenAi || !is_chats(name)))
}

/// The names that a field of one protocol can have in another, or in the same one where it has several.
pub(crate) fn names_in(from: Protocol, to: Protocol, path: &str) -> Vec<&'static str> {
    let field = if from == Protocol::Gemini { camel_case(path) } else { Cow::Borrowed(path) };
    // Names with the same meaning, such as both names of chat's output limit, share a name in another protocol.
    let of_field: Vec<_> = COUNTERPARTS.iter().filter(|row| row[from as usize] == field).collect();
    let mut names: Vec<&'static str> = if from == to {
        let is_same = |row: &&[&str; Protocol::ALL.len()]| of_field.iter().any(|own| own[1] == row[1] && !row[1].is_empty());
        COUNTERPARTS.iter().filter(is_same).map(|row| row[to as usize]).collect()
    } else {
        of_field.iter().map(|row| row[to as usize]).collect()
    };
    names.retain(|name| !name.is_empty() && *name != field);
    names.dedup();
    names
}

/// Snake-case roots of native paths; no chat field has these names.
const NATIVE_ROOTS: &[&str] = &[
    "generation_config",
    "tool_config",
    "system_instruction",
    "safety_settings",
    "cached_content",
    "generate_content_request",
    "output_dimensionality",
    "task_type",
    "embed_content_config",
];

/// Normalises an entry of a rule: native paths to camel case; chat names, which never have a native root, unchanged.
fn normalise(entry: &str) -> Cow<'_, str> {
    let root = entry.split('.').next().unwrap_or(entry);
    let nested = root.len() < entry.len();
    if nested || NATIVE_ROOTS.contains(&root) { camel_case(entry) } else { Cow::Borrowed(entry) }
}

/// A native path in camel case.
fn camel_case(path: &str) -> Cow<'_, str> {
    if !path.contains('_') {
        return Cow::Borrowed(path);
    }
    let mut camel_case = String::with_capacity(path.len());
    for segment in path.split('.') {
        if !camel_case.is_empty() {
            camel_case.push('.');
        }
        // A leading underscore belongs to the name (`_responseJsonSchema`).
        let (lead, name) = segment.strip_prefix('_').map_or(("", segment), |name| ("_", name));
        camel_case.push_str(lead);
        for (i, word) in name.split('_').enumerate() {
            let mut letters = word.chars();
            match letters.next() {
                Some(first) if i > 0 => camel_case.push(first.to_ascii_uppercase()),
                Some(first) => camel_case.push(first),
                None => {}
            }
            camel_case.push_str(letters.as_str());
        }
    }
    Cow::Owned(camel_case)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn except(rule: &[&str], from: Protocol, fields: &[&str]) -> Vec<String> {
        refused(&ParameterRule::Except(list(rule)), from, &list(fields))
    }

    fn only(rule: &[&str], from: Protocol, fields: &[&str]) -> Vec<String> {
        refused(&ParameterRule::Only(list(rule)), from, &list(fields))
    }

    use Protocol::{Anthropic, Gemini, OpenAi, Responses};

    #[test]
    fn all_fields_pass_without_a_rule() {
        assert!(refused(&ParameterRule::All, OpenAi, &list(&["logit_bias", "anything"])).is_empty());
    }

    #[test]
    fn listed_fields_are_rejected_in_request_order() {
        assert_eq!(except(&["seed", "logit_bias"], OpenAi, &["logit_bias", "temperature", "seed"]), ["logit_bias", "seed"]);
    }

    #[test]
    fn chat_names_match_native_fields_in_every_spelling() {
        for field in ["generationConfig.stopSequences", "generation_config.stop_sequences", "generationConfig.stop_sequences"] {
            assert_eq!(except(&["stop"], Gemini, &[field, "generationConfig.topK"]), [field]);
        }
        for [chat, native, messages, responses] in COUNTERPARTS.iter().filter(|row| !row[1].is_empty()) {
            let rule: Vec<&str> = COUNTERPARTS.iter().filter(|row| row[1] == *native).map(|row| row[0]).collect();
            assert_eq!(except(&rule, Gemini, &[native]), [*native], "{chat}");
            let rule: Vec<&str> = COUNTERPARTS.iter().filter(|row| row[2] == *messages).map(|row| row[0]).collect();
            assert!(messages.is_empty() || except(&rule, Anthropic, &[messages]) == [*messages], "{chat}");
            let rule: Vec<&str> = COUNTERPARTS.iter().filter(|row| row[3] == *responses).map(|row| row[0]).collect();
            assert!(responses.is_empty() || except(&rule, Responses, &[responses]) == [*responses], "{chat}");
        }
    }

    #[test]
    fn native_paths_match_chat_fields() {
        assert_eq!(except(&["generationConfig.temperature"], OpenAi, &["temperature"]), ["temperature"]);
        assert_eq!(except(&["generation_config.top_k"], OpenAi, &["top_k"]), ["top_k"]);
        assert_eq!(except(&["generation_config.top_k"], Gemini, &["generationConfig.topK"]), ["generationConfig.topK"]);
    }

    #[test]
    fn one_of_two_counterparts_does_not_reject_the_field_covering_both() {
        assert!(except(&["max_tokens"], Gemini, &["generationConfig.maxOutputTokens"]).is_empty());
        assert!(except(&["max_tokens"], OpenAi, &["max_completion_tokens"]).is_empty());
        assert_eq!(except(&["max_tokens", "max_completion_tokens"], Gemini, &["generationConfig.maxOutputTokens"]).len(), 1);
        assert!(except(&["generationConfig.responseSchema"], OpenAi, &["response_format"]).is_empty());
    }

    #[test]
    fn nested_fields_follow_their_parent() {
        let field = "generationConfig.thinkingConfig.thinking_budget";
        assert_eq!(except(&["reasoning_effort"], Gemini, &[field]), [field]);
        assert_eq!(except(&["generationConfig.thinkingConfig"], Gemini, &[field]), [field]);
        assert_eq!(except(&["tool_choice"], Gemini, &["tool_config.function_calling_config"]).len(), 1);
    }

    #[test]
    fn rule_on_tools_applies_to_deprecated_names() {
        assert_eq!(except(&["tools", "tool_choice"], OpenAi, &["functions", "function_call"]).len(), 2);
        assert!(except(&["functions"], OpenAi, &["tools"]).is_empty());
        assert!(only(&["tools"], OpenAi, &["functions"]).is_empty());
        assert_eq!(except(&["tools"], Gemini, &["tools"]), ["tools"]);
    }

    #[test]
    fn only_rule_rejects_unlisted_fields_except_structural_ones() {
        let fields = ["stream", "stream_options", "temperature", "max_tokens", "logit_bias"];
        assert_eq!(only(&["temperature", "max_tokens"], OpenAi, &fields), ["logit_bias"]);
        let fields = ["systemInstruction", "generationConfig", "generationConfig.temperature", "generationConfig.topK", "tools"];
        assert_eq!(only(&["temperature"], Gemini, &fields), ["generationConfig.topK", "tools"]);
        assert!(only(&["max_tokens"], Gemini, &["generationConfig.maxOutputTokens"]).is_empty());
        assert!(only(&["response_format"], Gemini, &["generationConfig.responseMimeType"]).is_empty());
        assert_eq!(only(&[], OpenAi, &["stream", "temperature"]), ["temperature"]);
    }

    #[test]
    fn chat_names_match_fields_of_messages() {
        assert_eq!(
            except(&["stop", "temperature"], Anthropic, &["temperature", "stop_sequences", "top_k"]),
            ["temperature", "stop_sequences"]
        );
        assert_eq!(
            except(&["reasoning_effort"], Anthropic, &["thinking", "output_config.effort", "output_config.format"]).len(),
            2
        );
        assert_eq!(except(&["stop_sequences"], OpenAi, &["stop"]), ["stop"]);
        assert_eq!(only(&["tools"], Anthropic, &["system", "stream", "tools", "thread"]), ["thread"]);
        assert!(only(&["response_format"], Anthropic, &["output_config.format"]).is_empty());
    }

    #[test]
    fn chat_names_match_fields_of_responses() {
        assert_eq!(except(&["temperature", "verbosity"], Responses, &["temperature", "text.verbosity"]).len(), 2);
        assert_eq!(except(&["reasoning_effort"], Responses, &["reasoning.effort", "reasoning.summary"]), ["reasoning.effort"]);
        assert!(except(&["max_tokens"], Responses, &["max_output_tokens"]).is_empty());
        assert_eq!(except(&["max_output_tokens"], OpenAi, &["max_tokens"]), ["max_tokens"]);
        assert_eq!(only(&["tools"], Responses, &["instructions", "include", "tools", "truncation"]), ["truncation"]);
    }

    #[test]
    fn native_fields_match_in_camel_and_snake_case() {
        for rule in ["service_tier", "serviceTier"] {
            for field in ["service_tier", "serviceTier"] {
                assert_eq!(except(&[rule], Gemini, &[field]), [field], "{rule}");
                assert!(only(&[rule], Gemini, &[field]).is_empty(), "{rule}");
            }
        }
        assert_eq!(except(&["x_new"], Gemini, &["x_new"]), ["x_new"]);
        let field = "embed_content_config.output_dimensionality";
        assert_eq!(except(&["dimensions"], Gemini, &[field]), [field]);
    }

    #[test]
    fn native_paths_are_normalised_to_camel_case() {
        assert_eq!(normalise("generation_config.max_output_tokens"), "generationConfig.maxOutputTokens");
        assert_eq!(normalise("generationConfig._responseJsonSchema"), "generationConfig._responseJsonSchema");
        assert_eq!(normalise("max_tokens"), "max_tokens");
        assert_eq!(
            normalise("tool_config.function_calling_config.allowed_function_names"),
            "toolConfig.functionCallingConfig.allowedFunctionNames"
        );
    }
}
