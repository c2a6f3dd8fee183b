//! Summarises a Gemini body in one pass without a tree. Model and method come from the path. Every field is accepted in
//! lowerCamelCase and `snake_case`. Only fields the gateway uses are validated; the upstream validates the rest.

mod content;

use crate::{
    ErrorStyle, Malformed, Method, RequestSummary, Target, markers, price_effects,
    price_fields::member_effects,
    scan::{Name, Scanner, SyntaxError, Value, ValueKind, is_finite, whole},
    summary_builder::{MAX_TOOLS, MAX_TURNS, SeenMembers, SummaryBuilder, ToolCharge, UniqueMember, candidates_of},
    validation::JsonPath,
};

const CONTENT: UniqueMember = UniqueMember::new(0, "content");
const REQUESTS: UniqueMember = UniqueMember::new(1, "requests");
const WHOLE_REQUEST: UniqueMember = UniqueMember::new(2, "generateContentRequest");
const CONTENTS: UniqueMember = UniqueMember::new(3, "contents");
const TOOLS: UniqueMember = UniqueMember::new(4, "tools");
// Members that may appear once in each spelling.
const CONFIG: [UniqueMember; 2] = [UniqueMember::new(5, "generationConfig"), UniqueMember::new(6, "generation_config")];
const INSTRUCTION: [UniqueMember; 2] = [UniqueMember::new(7, "systemInstruction"), UniqueMember::new(8, "system_instruction")];
const TIER: [UniqueMember; 2] = [UniqueMember::new(9, "serviceTier"), UniqueMember::new(10, "service_tier")];

#[derive(Debug, Default)]
struct RequiredMembers {
    contents: bool,
    messages: bool,
    whole_request: bool,
    content: bool,
    requests: bool,
}

/// Summarises a Gemini body of any method.
pub(super) fn summarise(target: &Target, bytes: &[u8]) -> Result<RequestSummary, Malformed> {
    let mut builder = SummaryBuilder::new(ErrorStyle::Gemini);
    let mut found = RequiredMembers::default();
    let model = target.model.clone().unwrap_or_default();
    read(bytes, &mut builder, &mut found, (target.method, &model)).map_err(|fault| fault.malformed(bytes))?;
    match target.method {
        Method::EmbedContent if !found.content => builder.errors.missing(&JsonPath::Root.member("content")),
        Method::BatchEmbedContents if !found.requests => builder.errors.missing(&JsonPath::Root.member("requests")),
        Method::CountTokens if found.whole_request => {}
        Method::EmbedContent | Method::BatchEmbedContents => {}
        Method::Generate | Method::StreamGenerate | Method::CountTokens | Method::Chat | Method::Embeddings | Method::Compact => {
            conversation(&mut builder, &found, &JsonPath::Root);
        }
    }
    builder.splices.markers = markers::has_wrapped_signatures(bytes);
    builder.build(model, target.method, target.method == Method::StreamGenerate, false)
}

/// Reports missing `contents`, with a hint if the body has `messages` instead.
fn conversation(builder: &mut SummaryBuilder, found: &RequiredMembers, at: &JsonPath<'_>) {
    let path = at.member("contents");
    match (found.contents, found.messages) {
        (true, _) => {}
        (false, true) => builder.errors.other_protocol(&path),
        (false, false) => builder.errors.missing(&path),
    }
}

fn read(
    bytes: &[u8],
    builder: &mut SummaryBuilder,
    found: &mut RequiredMembers,
    (method, model): (Method, &str),
) -> Result<(), SyntaxError> {
    let mut scanner = Scanner::new(bytes)?;
    let range = scanner.object(|scanner, name| {
        let word = name.word();
        let present = scanner.peek() != ValueKind::Null;
        match (word, method) {
            ("content", Method::EmbedContent) => {
                builder.members.check_unique(CONTENT, &name)?;
                found.content = present;
                if !present {
                    return scanner.skip().map(drop);
                }
                content::content(builder, scanner, &JsonPath::Root.member("content"))
            }
            ("requests", Method::BatchEmbedContents) => {
                builder.members.check_unique(REQUESTS, &name)?;
                found.requests = true;
                builder.required_list(scanner, &JsonPath::Root.member("requests"), |builder, scanner, path| {
                    embed_request(builder, scanner, path, model)
                })
            }
            ("generateContentRequest" | "generate_content_request", Method::CountTokens) if present => {
                builder.members.check_unique(WHOLE_REQUEST, &name)?;
                found.whole_request = true;
                whole_request(scanner, builder, &JsonPath::Root.member(word))
            }
            (_, Method::EmbedContent | Method::BatchEmbedContents) => embedding(scanner, builder, word),
            _ => member(scanner, builder, found, &JsonPath::Root, &name, word),
        }
    })?;
    builder.splices.body_open = range.start + 1;
    scanner.end()
}

/// A member of a generation request, at the top level or in a request to count.
fn member(
    scanner: &mut Scanner<'_>,
    builder: &mut SummaryBuilder,
    found: &mut RequiredMembers,
    at: &JsonPath<'_>,
    name: &Name<'_>,
    word: &str,
) -> Result<(), SyntaxError> {
    let path = at.member(word);
    let present = scanner.peek() != ValueKind::Null;
    match word {
        "contents" => {
            builder.members.check_unique(CONTENTS, name)?;
            found.contents = true;
            return builder.required_list(scanner, &path, content::content);
        }
        "model" => return scanner.skip().map(drop),
        _ if !present => return scanner.skip().map(drop),
        "generationConfig" | "generation_config" => {
            builder.members.check_unique(CONFIG[usize::from(word == "generation_config")], name)?;
            return generation(scanner, builder, &path);
        }
        "toolConfig" | "tool_config" => return open_object(scanner, builder, &path),
        "systemInstruction" | "system_instruction" => {
            builder.members.check_unique(INSTRUCTION[usize::from(word == "system_instruction")], name)?;
            content::instruction(scanner, builder, &path)?;
        }
        "tools" => {
            builder.members.check_unique(TOOLS, name)?;
            tools(scanner, builder, &path)?;
        }
        "safetySettings" | "safety_settings" => {
            builder.list(scanner, &path, MAX_TURNS, |builder, scanner, path| {
                if scanner.peek() != ValueKind::Object {
                    builder.errors.wrong_type(path, "an object");
                }
                scanner.skip().map(drop)
            })?;
        }
        "cachedContent" | "cached_content" => {
            builder.cached_content(scanner.peek());
            scanner.skip()?;
        }
        "serviceTier" | "service_tier" => {
            builder.members.check_unique(TIER[usize::from(word == "service_tier")], name)?;
            builder.service_tier(&scanner.value()?.0);
        }
        _ => {
            found.messages |= word == "messages";
            builder.costly_option(scanner, price_effects(word))?;
        }
    }
    builder.field(&path);
    Ok(())
}

/// `generateContentRequest` of a count, which takes precedence over `contents` beside it.
fn whole_request(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut found = RequiredMembers::default();
    builder
        .nested_request(|builder| scanner.object(|scanner, name| member(scanner, builder, &mut found, path, &name, name.word())))?;
    conversation(builder, &found, path);
    Ok(())
}

/// One request of a batch. Its model has to be `model`, the one in the path, which alone decides prices and accounts.
fn embed_request(
    builder: &mut SummaryBuilder,
    scanner: &mut Scanner<'_>,
    path: &JsonPath<'_>,
    model: &str,
) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut found = false;
    scanner.object(|scanner, name| {
        if name.word() == "model" {
            if let Value::Text(named) = scanner.value()?.0
                && !is_model(&named.decode(), model)
            {
                builder.errors.invalid(&path.member("model"), "must be the model of the path");
            }
            return Ok(());
        }
        if name.word() != "content" {
            return scanner.skip().map(drop);
        }
        if scanner.peek() == ValueKind::Null {
            return scanner.skip().map(drop);
        }
        found = true;
        content::content(builder, scanner, &path.member("content"))
    })?;
    if !found {
        builder.errors.missing(&path.member("content"));
    }
    Ok(())
}

/// True if `named` is the bare name of this model, or a resource name that ends with it, such as `models/m`.
fn is_model(named: &str, model: &str) -> bool {
    named == model || named.strip_suffix(model).is_some_and(|front| front.ends_with('/'))
}

/// The charge for a member of a tool; `None`: the caller runs the tool.
fn charge_of(tool: &str) -> Option<ToolCharge> {
    match tool {
        "computerUse" | "computer_use" => None,
        "urlContext" | "url_context" | "codeExecution" | "code_execution" | "fileSearch" | "file_search" => {
            Some(ToolCharge::Tokens)
        }
        "googleSearch"
        | "google_search"
        | "googleSearchRetrieval"
        | "google_search_retrieval"
        | "enterpriseWebSearch"
        | "enterprise_web_search"
        | "googleMaps"
        | "google_maps" => Some(ToolCharge::Search),
        _ => Some(ToolCharge::Other),
    }
}

/// `tools`: an array of objects. The function declarations of all tools are counted together.
fn tools(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    let mut declarations = 0;
    let (_, raw) = builder.list(scanner, path, MAX_TOOLS, |builder, scanner, path| {
        if scanner.peek() != ValueKind::Object {
            builder.errors.wrong_type(path, "an object");
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, name| match name.word() {
            "functionDeclarations" | "function_declarations" if scanner.peek() == ValueKind::Array => scanner
                .array(|scanner, _| {
                    declarations += 1;
                    scanner.skip().map(drop)
                })
                .map(drop),
            "functionDeclarations" | "function_declarations" => scanner.skip().map(drop),
            tool => {
                if scanner.peek() != ValueKind::Null
                    && let Some(charge) = charge_of(tool)
                {
                    builder.server_tool(charge);
                }
                scanner.skip().map(drop)
            }
        })?;
        Ok(())
    })?;
    builder.tools(declarations, raw);
    if declarations > MAX_TOOLS {
        builder.errors.invalid(path, &format!("must have at most {MAX_TOOLS} function declarations"));
    }
    Ok(())
}

/// Members of a `generationConfig` that may appear once in each spelling.
const LIMIT: [UniqueMember; 2] = [UniqueMember::new(0, "maxOutputTokens"), UniqueMember::new(1, "max_output_tokens")];
const CANDIDATES: [UniqueMember; 2] = [UniqueMember::new(2, "candidateCount"), UniqueMember::new(3, "candidate_count")];
/// Largest `maxOutputTokens`; the field is an int32.
const MAX_LIMIT: u64 = i32::MAX.unsigned_abs() as u64;

/// Reads a `generationConfig` that is not `null`: limits, and the names of all members.
fn generation(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut members = SeenMembers::default();
    let range = scanner.object(|scanner, name| {
        let word = name.word();
        let path = path.member(word);
        let present = scanner.peek() != ValueKind::Null;
        match word {
            "maxOutputTokens" | "max_output_tokens" => {
                members.check_unique(LIMIT[usize::from(word == "max_output_tokens")], &name)?;
                limit(scanner, builder, &path)?;
            }
            "candidateCount" | "candidate_count" => {
                members.check_unique(CANDIDATES[usize::from(word == "candidate_count")], &name)?;
                builder.candidates = builder.candidates.max(candidates_of(&scanner.value()?.0));
            }
            "temperature" => {
                let value = scanner.value()?.0;
                if present && !is_float(&value) {
                    builder.errors.wrong_type(&path, "a number");
                }
            }
            "responseModalities" | "response_modalities" => builder.modalities(scanner)?,
            word => builder.costly_option(scanner, member_effects("generationConfig", word))?,
        }
        if present {
            builder.field(&path);
        }
        Ok(())
    })?;
    builder.splices.config_open = Some(range.start + 1);
    Ok(())
}

/// Reads an output limit. If both spellings are present, the larger one counts: which one an upstream uses is unknown.
fn limit(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    let (value, range) = scanner.value()?;
    builder.splices.max_output.push(range);
    let limit = match value {
        Value::Null => return Ok(()),
        Value::Number(number) => whole(number),
        Value::Text(text) => whole(&text.decode()),
        Value::Bool(_) | Value::Array | Value::Object => None,
    };
    match limit.filter(|limit| *limit <= MAX_LIMIT) {
        Some(limit) => builder.max_output = builder.max_output.max(Some(limit)),
        None => builder.errors.wrong_type(path, "a whole number from 0 to 2147483647"),
    }
    Ok(())
}

/// A number, or a string with one. proto3 JSON accepts both, and `NaN` and infinities as strings.
fn is_float(value: &Value<'_>) -> bool {
    match value {
        Value::Number(number) => is_finite(number),
        Value::Text(text) => matches!(&*text.decode(), "NaN" | "Infinity" | "-Infinity") || is_finite(&text.decode()),
        Value::Null | Value::Bool(_) | Value::Array | Value::Object => false,
    }
}

/// Reads another configuration object that is not `null`: only the names of its members.
fn open_object(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.field(path);
        return scanner.skip().map(drop);
    }
    scanner.object(|scanner, name| {
        if scanner.peek() != ValueKind::Null {
            builder.field(&path.member(name.word()));
        }
        scanner.skip().map(drop)
    })?;
    Ok(())
}

fn embedding(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, word: &str) -> Result<(), SyntaxError> {
    let path = JsonPath::Member(&JsonPath::Root, word);
    match word {
        "model" => scanner.skip().map(drop),
        _ if scanner.peek() == ValueKind::Null => scanner.skip().map(drop),
        "embedContentConfig" | "embed_content_config" => open_object(scanner, builder, &path),
        _ => {
            builder.field(&path);
            scanner.skip().map(drop)
        }
    }
}

#[cfg(test)]
mod tests;
