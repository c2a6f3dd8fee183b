//! Decodes messages into turns.

use super::FROM;
use crate::{
    Malformed, Protocol,
    neutral::{
        Media, Part, PartKind, Request, Role, Signature, Turn,
        media::{self, BadMedia},
        signature::{SealedItem, split_id},
    },
    object::{Field, Fields},
    tree::Tree,
};

/// Decodes all messages. System texts before the first other turn become the request's system texts.
pub(super) fn read(messages: &[Tree<'_>], request: &mut Request) -> Result<(), Malformed> {
    for (index, message) in messages.iter().enumerate() {
        let path = format!("messages[{index}]");
        let mut fields = Fields::new(message, &path, FROM)?;
        let name = fields.required_text("role")?;
        let role = match name.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Model,
            "tool" | "function" => Role::ToolResults,
            _ => {
                let why = format!("'{name}' is not one of 'system', 'developer', 'user', 'assistant', 'tool', 'function'");
                return Err(Malformed::invalid(FROM, &format!("{path}.role"), &why));
            }
        };
        let parts = match role {
            Role::System | Role::User => content(&mut fields, role, request)?,
            Role::Model => assistant(&mut fields, request)?,
            Role::ToolResults => vec![result(&mut fields, name == "function", request)?],
        };
        if role != Role::ToolResults {
            request.dropped.extend(fields.paths(&["name"]));
        }
        if role == Role::System && request.turns.is_empty() {
            request.system.extend(parts.into_iter().filter(|part| part.as_text() != Some("")));
        } else {
            request.turns.push(Turn { role, parts, path });
        }
    }
    Ok(())
}

/// Decodes `content`: a string, or an array of typed parts.
fn content(fields: &mut Fields<'_, '_>, role: Role, request: &mut Request) -> Result<Vec<Part>, Malformed> {
    let Some(content) = fields.take("content") else { return Ok(Vec::new()) };
    if let Some(text) = content.value.str() {
        return Ok(vec![Part::text(text, content.path)]);
    }
    let items = content.value.list().ok_or_else(|| Malformed::wrong_type(FROM, &content.path, "a string or an array"))?;
    let mut parts = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let path = format!("{}[{index}]", content.path);
        match part(item, &path, role)? {
            Some(part) => parts.push(part),
            None => request.refuse_part(path),
        }
    }
    Ok(parts)
}

/// Decodes one part; `None` for a kind that has no neutral form.
fn part(item: &Tree<'_>, path: &str, role: Role) -> Result<Option<Part>, Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    let kind = fields.required_text("type")?;
    Ok(match kind.as_str() {
        "text" => Some(Part::text(fields.required_text("text")?, path)),
        "refusal" => Some(Part::text(fields.required_text("refusal")?, path)),
        "image_url" if role != Role::System => Some(media_part(image(&mut fields, path)?, path)),
        "input_audio" if role != Role::System => Some(media_part(audio(&mut fields, path)?, path)),
        "file" if role != Role::System => file(&mut fields, path)?.map(|media| media_part(media, path)),
        _ => None,
    })
}

fn media_part(media: Media, path: &str) -> Part {
    Part::new(PartKind::Media(media), path)
}

/// Decodes `image_url`: an object or, as some clients send it, a bare string.
fn image(fields: &mut Fields<'_, '_>, path: &str) -> Result<Media, Malformed> {
    let path = format!("{path}.image_url");
    let field = fields.take("image_url").ok_or_else(|| Malformed::missing(FROM, &path))?;
    let (url, detail) = if let Some(url) = field.value.str() {
        (url.to_owned(), None)
    } else {
        let mut fields = Fields::new(field.value, &path, FROM)?;
        let url = fields.required_text("url")?;
        (url, fields.text("detail")?.map(|detail| detail.value).filter(|detail| detail != "auto"))
    };
    let media = media::from_url(&url, path.clone()).map_err(|fault| bad_media(fault, &path))?;
    Ok(Media { detail, ..media })
}

fn audio(fields: &mut Fields<'_, '_>, path: &str) -> Result<Media, Malformed> {
    let path = format!("{path}.input_audio");
    let mut fields = fields.object("input_audio")?.ok_or_else(|| Malformed::missing(FROM, &path))?;
    let data = fields.required_text("data")?;
    let format = fields.required_text("format")?;
    media::inline(&format!("audio/{format}"), &data, path.clone()).map_err(|fault| bad_media(fault, &path))
}

/// Decodes an inline file; `None` for a file id, which only its own provider can resolve.
fn file(fields: &mut Fields<'_, '_>, path: &str) -> Result<Option<Media>, Malformed> {
    let path = format!("{path}.file");
    let mut fields = fields.object("file")?.ok_or_else(|| Malformed::missing(FROM, &path))?;
    let name = fields.text("filename")?.map(|name| name.value);
    let Some(data) = fields.text("file_data")? else { return Ok(None) };
    let media = if data.value.contains(':') {
        media::from_url(&data.value, path.clone())
    } else {
        let by_name = name.as_deref().and_then(media::mime_by_name);
        media::inline(media::mime_by_magic(&data.value).or(by_name).unwrap_or_default(), &data.value, path.clone())
    };
    Ok(Some(Media { name, ..media.map_err(|fault| bad_media(fault, &path))? }))
}

fn bad_media(fault: BadMedia, path: &str) -> Malformed {
    let why = match fault {
        BadMedia::Base64 => "is not base64",
        BadMedia::Url => "is neither a data: nor an https: address",
    };
    Malformed::invalid(FROM, path, why)
}

/// Decodes an assistant message: thoughts, then texts, then calls. Thoughts of the first call stand in front of the texts, as they
/// did in the answer.
fn assistant(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<Vec<Part>, Malformed> {
    let calls = tool_calls(fields)?;
    let mut parts = Vec::new();
    for name in ["reasoning_content", "reasoning"] {
        let Some(field) = fields.take(name) else { continue };
        if let Some(text) = field.value.str().filter(|text| !text.is_empty())
            && parts.is_empty()
        {
            parts.push(Part::new(PartKind::Think { text: text.to_owned(), redacted: None }, field.path));
        }
    }
    let mut calls = calls.into_iter();
    let first = calls.next();
    let first = first.map(|(thoughts, call)| {
        parts.extend(thoughts);
        call
    });
    parts.extend(content(fields, Role::Model, request)?);
    if let Some(refusal) = fields.text("refusal")? {
        parts.push(Part::text(refusal.value, refusal.path));
    }
    if let Some(signature) = fields.take("extra_content").as_ref().and_then(google_signature) {
        sign_text(&mut parts, signature, fields.path());
    }
    // Replies of this gateway carry images here, so histories do too.
    for (item, path) in fields.elements("images")? {
        let mut fields = Fields::new(item, &path, FROM)?;
        parts.push(media_part(image(&mut fields, &path)?, &path));
    }
    if let Some(audio) = fields.take("audio") {
        request.refuse_part(audio.path);
    }
    parts.extend(first);
    for (thoughts, call) in calls {
        parts.extend(thoughts);
        parts.push(call);
    }
    if let Some(mut function) = fields.object("function_call")? {
        let path = function.path().to_owned();
        let (name, args) = (function.required_text("name")?, arguments(&mut function)?);
        parts.push(Part::new(PartKind::Call { id: String::new(), name, args, custom: false }, path));
    }
    Ok(parts)
}

/// Reads the signature that Google's OpenAI-compatible endpoint adds to a call or a text.
fn google_signature(extra: &Field<'_, '_>) -> Option<Signature> {
    let value = extra.value.get("google")?.get("thought_signature")?.str()?;
    Some(Signature { owner: Protocol::Gemini, value: value.to_owned() })
}

/// Reads the thoughts in front of a call that a Responses upstream sealed: one reasoning item, or a list of them.
fn sealed_thoughts(extra: &Field<'_, '_>) -> Vec<Part> {
    let path = format!("{}.openai.reasoning", extra.path);
    let reasoning = extra.value.get("openai").and_then(|openai| openai.get("reasoning"));
    let items = reasoning.map(|items| items.list().unwrap_or(std::slice::from_ref(items))).unwrap_or_default();
    let thought = |item: &Tree<'_>| {
        let content = item.get("encrypted_content")?.str().filter(|content| !content.is_empty())?;
        let sealed = SealedItem { id: item.get("id").and_then(Tree::str), content };
        let summary = item.get("summary").and_then(Tree::list).unwrap_or_default();
        let text = summary.iter().filter_map(|part| part.get("text")?.str()).collect();
        let kind = PartKind::Think { text, redacted: None };
        Some(Part { kind, signature: Some(sealed.signature()), path: path.clone() })
    };
    items.iter().filter_map(thought).collect()
}

/// Attaches the signature to the last text part, or to an empty one if there is none.
fn sign_text(parts: &mut Vec<Part>, signature: Signature, path: &str) {
    if let Some(part) = parts.iter_mut().rev().find(|part| matches!(part.kind, PartKind::Text(_))) {
        part.signature = Some(signature);
    } else {
        parts.push(Part { signature: Some(signature), ..Part::text("", path) });
    }
}

/// Decodes the calls, each with the sealed thoughts in front of it.
fn tool_calls(fields: &mut Fields<'_, '_>) -> Result<Vec<(Vec<Part>, Part)>, Malformed> {
    fields.elements("tool_calls")?.into_iter().map(|(item, path)| call(item, &path)).collect()
}

fn call(item: &Tree<'_>, path: &str) -> Result<(Vec<Part>, Part), Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    let given = fields.text_or_empty("id")?;
    let (id, carried) = split_id(&given);
    let extra = fields.take("extra_content");
    let signature = extra.as_ref().and_then(google_signature).or(carried);
    let thoughts = extra.as_ref().map(sealed_thoughts).unwrap_or_default();
    let kind = if let Some(mut custom) = fields.object("custom")? {
        let args = custom.text_or_empty("input")?;
        PartKind::Call { id: id.to_owned(), name: custom.required_text("name")?, args, custom: true }
    } else {
        let mut function = fields.object("function")?.ok_or_else(|| Malformed::missing(FROM, &format!("{path}.function")))?;
        let name = function.required_text("name")?;
        PartKind::Call { id: id.to_owned(), name, args: arguments(&mut function)?, custom: false }
    };
    Ok((thoughts, Part { kind, signature, path: path.to_owned() }))
}

/// Arguments as the caller wrote them. An object in place of a string, a common client error, becomes its JSON text.
fn arguments(function: &mut Fields<'_, '_>) -> Result<String, Malformed> {
    let Some(field) = function.take("arguments") else { return Ok(String::new()) };
    match field.value.str() {
        Some(text) => Ok(text.to_owned()),
        None if field.value.members().is_some() => Ok(field.value.compact()),
        None => Err(Malformed::wrong_type(FROM, &field.path, "a string")),
    }
}

/// Decodes a `tool` or (deprecated) `function` message.
fn result(fields: &mut Fields<'_, '_>, by_name: bool, request: &mut Request) -> Result<Part, Malformed> {
    let path = fields.path().to_owned();
    let name = if by_name { fields.required_text("name")? } else { String::new() };
    let call_id = if by_name { String::new() } else { fields.required_text("tool_call_id")? };
    let (mut texts, mut media) = (Vec::new(), Vec::new());
    for part in content(fields, Role::ToolResults, request)? {
        if let PartKind::Text(text) = part.kind {
            texts.push(text);
        } else if let PartKind::Media(item) = part.kind {
            media.push(item);
        }
    }
    let call_id = split_id(&call_id).0.to_owned();
    let kind = PartKind::Result { call_id, name, content: texts.join("\n"), json: false, media, is_error: false };
    Ok(Part::new(kind, path))
}
