//! The light scan of a native body: one pass, no tree. Model and method come from the path. Every field is read in both
//! spellings, lowerCamelCase and `snake_case`. What is checked here and nothing else is refused here (native wire
//! reference, section 3); the rest is the upstream's to judge.

mod config;
mod content;

use crate::{
    Malformed, Method, Outline, Target, markers,
    scan::{Fault, Kind, Scanner, Text},
    shape::{Path, Wording},
    survey::{MAX_TOOLS, MAX_TURNS, Survey},
};

/// Which of the required members have been seen.
#[derive(Debug, Default)]
struct Found {
    contents: bool,
    messages: bool,
    whole_request: bool,
    content: bool,
    requests: bool,
}

/// Reads a native body of any method.
pub(super) fn outline(target: &Target, bytes: &[u8]) -> Result<Outline, Malformed> {
    let mut survey = Survey::new(Wording::Gemini);
    let mut found = Found::default();
    read(bytes, &mut survey, &mut found, target.method).map_err(|fault| fault.malformed(bytes))?;
    match target.method {
        Method::EmbedContent if !found.content => survey.faults.missing(&Path::Root.member("content")),
        Method::BatchEmbedContents if !found.requests => survey.faults.missing(&Path::Root.member("requests")),
        Method::CountTokens if found.whole_request => {}
        Method::EmbedContent | Method::BatchEmbedContents => {}
        Method::Generate | Method::StreamGenerate | Method::CountTokens | Method::Chat | Method::Embeddings => {
            conversation(&mut survey, &found, &Path::Root);
        }
    }
    survey.splices.markers = markers::has_wrapped_signatures(bytes);
    let model = target.model.clone().unwrap_or_default();
    survey.into_outline(model, target.method, target.method == Method::StreamGenerate, false)
}

/// `contents` has to be there; perhaps it came under the other protocol's name.
fn conversation(survey: &mut Survey, found: &Found, at: &Path<'_>) {
    let path = at.member("contents");
    match (found.contents, found.messages) {
        (true, _) => {}
        (false, true) => survey.faults.other_protocol(&path),
        (false, false) => survey.faults.missing(&path),
    }
}

fn read(bytes: &[u8], survey: &mut Survey, found: &mut Found, method: Method) -> Result<(), Fault> {
    let mut scanner = Scanner::new(bytes)?;
    let range = scanner.object(|scanner, name| {
        let word = name.decode();
        let present = scanner.peek() != Kind::Null;
        match (&*word, method) {
            ("content", Method::EmbedContent) => {
                survey.once("content", &name)?;
                found.content = present;
                if !present {
                    return scanner.skip().map(drop);
                }
                content::content(survey, scanner, &Path::Root.member("content"))
            }
            ("requests", Method::BatchEmbedContents) => {
                survey.once("requests", &name)?;
                found.requests = true;
                survey.required_list(scanner, &Path::Root.member("requests"), embed_request)
            }
            ("generateContentRequest" | "generate_content_request", Method::CountTokens) if present => {
                survey.once("generateContentRequest", &name)?;
                found.whole_request = true;
                whole_request(scanner, survey, &Path::Root.member(&word))
            }
            (_, Method::EmbedContent | Method::BatchEmbedContents) => config::embedding(scanner, survey, &word),
            _ => member(scanner, survey, found, &Path::Root, &name, &word),
        }
    })?;
    survey.splices.body_open = range.start + 1;
    scanner.end()
}

/// A member of a request to generate, at the top level or inside a request to count.
fn member(
    scanner: &mut Scanner<'_>,
    survey: &mut Survey,
    found: &mut Found,
    at: &Path<'_>,
    name: &Text<'_>,
    word: &str,
) -> Result<(), Fault> {
    let path = at.member(word);
    let present = scanner.peek() != Kind::Null;
    match word {
        "contents" => {
            survey.once("contents", name)?;
            found.contents = true;
            return survey.required_list(scanner, &path, content::content);
        }
        "model" => return scanner.skip().map(drop),
        _ if !present => return scanner.skip().map(drop),
        "generationConfig" | "generation_config" => {
            survey.once(if word == "generationConfig" { "generationConfig" } else { "generation_config" }, name)?;
            return config::generation(scanner, survey, &path);
        }
        "toolConfig" | "tool_config" => return config::open_object(scanner, survey, &path),
        "systemInstruction" => {
            survey.once("systemInstruction", name)?;
            content::instruction(scanner, survey, &path)?;
        }
        "system_instruction" => {
            survey.once("system_instruction", name)?;
            content::instruction(scanner, survey, &path)?;
        }
        "tools" => {
            survey.once("tools", name)?;
            tools(scanner, survey, &path)?;
        }
        "safetySettings" | "safety_settings" => {
            survey.list(scanner, &path, MAX_TURNS, |survey, scanner, path| {
                if scanner.peek() != Kind::Object {
                    survey.faults.wrong_type(path, "an object");
                }
                scanner.skip().map(drop)
            })?;
        }
        _ => {
            found.messages |= word == "messages";
            scanner.skip()?;
        }
    }
    survey.field(&path);
    Ok(())
}

/// `generateContentRequest` of a request to count: `contents` beside it does not count.
fn whole_request(scanner: &mut Scanner<'_>, survey: &mut Survey, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.faults.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut found = Found::default();
    survey.inside(|survey| scanner.object(|scanner, name| member(scanner, survey, &mut found, path, &name, &name.decode())))?;
    conversation(survey, &found, path);
    Ok(())
}

/// One request of a batch to embed.
fn embed_request(survey: &mut Survey, scanner: &mut Scanner<'_>, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.faults.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut found = false;
    scanner.object(|scanner, name| {
        if name.decode() != "content" {
            return scanner.skip().map(drop);
        }
        if scanner.peek() == Kind::Null {
            return scanner.skip().map(drop);
        }
        found = true;
        content::content(survey, scanner, &path.member("content"))
    })?;
    if !found {
        survey.faults.missing(&path.member("content"));
    }
    Ok(())
}

/// `tools`: an array of objects. Function declarations are counted, all of them together.
fn tools(scanner: &mut Scanner<'_>, survey: &mut Survey, path: &Path<'_>) -> Result<(), Fault> {
    let mut declarations = 0;
    let (_, raw) = survey.list(scanner, path, MAX_TOOLS, |survey, scanner, path| {
        if scanner.peek() != Kind::Object {
            survey.faults.wrong_type(path, "an object");
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, name| match &*name.decode() {
            "functionDeclarations" | "function_declarations" if scanner.peek() == Kind::Array => scanner
                .array(|scanner, _| {
                    declarations += 1;
                    scanner.skip().map(drop)
                })
                .map(drop),
            _ => scanner.skip().map(drop),
        })?;
        Ok(())
    })?;
    survey.tools(declarations, raw);
    if declarations > MAX_TOOLS {
        survey.faults.invalid(path, &format!("must have at most {MAX_TOOLS} function declarations"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
