//! Summarises a Gemini body in one pass without a tree. Model and method come from the path. Every field is accepted in
//! lowerCamelCase and `snake_case`. Only fields the gateway uses are validated; the upstream validates the rest.

mod config;
mod content;

use crate::{
    ErrorStyle, Malformed, Method, RequestSummary, Target, markers,
    scan::{JsonStr, Scanner, SyntaxError, ValueKind},
    summary_builder::{MAX_TOOLS, MAX_TURNS, SummaryBuilder},
    validation::JsonPath,
};

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
    read(bytes, &mut builder, &mut found, target.method).map_err(|fault| fault.malformed(bytes))?;
    match target.method {
        Method::EmbedContent if !found.content => builder.errors.missing(&JsonPath::Root.member("content")),
        Method::BatchEmbedContents if !found.requests => builder.errors.missing(&JsonPath::Root.member("requests")),
        Method::CountTokens if found.whole_request => {}
        Method::EmbedContent | Method::BatchEmbedContents => {}
        Method::Generate | Method::StreamGenerate | Method::CountTokens | Method::Chat | Method::Embeddings => {
            conversation(&mut builder, &found, &JsonPath::Root);
        }
    }
    builder.splices.markers = markers::has_wrapped_signatures(bytes);
    let model = target.model.clone().unwrap_or_default();
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

fn read(bytes: &[u8], builder: &mut SummaryBuilder, found: &mut RequiredMembers, method: Method) -> Result<(), SyntaxError> {
    let mut scanner = Scanner::new(bytes)?;
    let range = scanner.object(|scanner, name| {
        let word = name.decode();
        let present = scanner.peek() != ValueKind::Null;
        match (&*word, method) {
            ("content", Method::EmbedContent) => {
                builder.check_unique("content", &name)?;
                found.content = present;
                if !present {
                    return scanner.skip().map(drop);
                }
                content::content(builder, scanner, &JsonPath::Root.member("content"))
            }
            ("requests", Method::BatchEmbedContents) => {
                builder.check_unique("requests", &name)?;
                found.requests = true;
                builder.required_list(scanner, &JsonPath::Root.member("requests"), embed_request)
            }
            ("generateContentRequest" | "generate_content_request", Method::CountTokens) if present => {
                builder.check_unique("generateContentRequest", &name)?;
                found.whole_request = true;
                whole_request(scanner, builder, &JsonPath::Root.member(&word))
            }
            (_, Method::EmbedContent | Method::BatchEmbedContents) => config::embedding(scanner, builder, &word),
            _ => member(scanner, builder, found, &JsonPath::Root, &name, &word),
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
    name: &JsonStr<'_>,
    word: &str,
) -> Result<(), SyntaxError> {
    let path = at.member(word);
    let present = scanner.peek() != ValueKind::Null;
    match word {
        "contents" => {
            builder.check_unique("contents", name)?;
            found.contents = true;
            return builder.required_list(scanner, &path, content::content);
        }
        "model" => return scanner.skip().map(drop),
        _ if !present => return scanner.skip().map(drop),
        "generationConfig" | "generation_config" => {
            builder.check_unique(if word == "generationConfig" { "generationConfig" } else { "generation_config" }, name)?;
            return config::generation(scanner, builder, &path);
        }
        "toolConfig" | "tool_config" => return config::open_object(scanner, builder, &path),
        "systemInstruction" => {
            builder.check_unique("systemInstruction", name)?;
            content::instruction(scanner, builder, &path)?;
        }
        "system_instruction" => {
            builder.check_unique("system_instruction", name)?;
            content::instruction(scanner, builder, &path)?;
        }
        "tools" => {
            builder.check_unique("tools", name)?;
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
        _ => {
            found.messages |= word == "messages";
            scanner.skip()?;
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
    builder.nested_request(|builder| {
        scanner.object(|scanner, name| member(scanner, builder, &mut found, path, &name, &name.decode()))
    })?;
    conversation(builder, &found, path);
    Ok(())
}

/// One request of an embedding batch.
fn embed_request(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut found = false;
    scanner.object(|scanner, name| {
        if name.decode() != "content" {
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

/// `tools`: an array of objects. The function declarations of all tools are counted together.
fn tools(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    let mut declarations = 0;
    let (_, raw) = builder.list(scanner, path, MAX_TOOLS, |builder, scanner, path| {
        if scanner.peek() != ValueKind::Object {
            builder.errors.wrong_type(path, "an object");
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, name| match &*name.decode() {
            "functionDeclarations" | "function_declarations" if scanner.peek() == ValueKind::Array => scanner
                .array(|scanner, _| {
                    declarations += 1;
                    scanner.skip().map(drop)
                })
                .map(drop),
            _ => scanner.skip().map(drop),
        })?;
        Ok(())
    })?;
    builder.tools(declarations, raw);
    if declarations > MAX_TOOLS {
        builder.errors.invalid(path, &format!("must have at most {MAX_TOOLS} function declarations"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
