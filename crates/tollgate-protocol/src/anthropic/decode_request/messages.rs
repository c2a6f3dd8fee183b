//! Decodes system texts and messages.

use super::FROM;
use crate::{
    Malformed, Protocol,
    neutral::{
        Media, Part, PartKind, Request, Role, Signature, Turn,
        media::{self, BadMedia},
        signature::split_id,
    },
    object::{Field, Fields},
    tree::Tree,
};

/// Prefix of signatures that the gateway generates for thoughts of other providers' models.
const FOREIGN_SIGNATURE: &str = "tg1.";

/// Decodes `system`: a string, or text blocks.
pub(super) fn system(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some(field) = fields.take("system") else { return Ok(()) };
    let parts = content(&field, request)?;
    for part in parts {
        match part.as_text() {
            Some("") => {}
            Some(_) => request.system.push(part),
            None => request.refuse_part(part.path),
        }
    }
    Ok(())
}

/// Decodes all messages. Tool results become turns of their own.
pub(super) fn read(messages: &[Tree<'_>], path: &str, request: &mut Request) -> Result<(), Malformed> {
    for (index, message) in messages.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut fields = Fields::new(message, &path, FROM)?;
        let role = match fields.required_text("role")?.as_str() {
            "user" => Role::User,
            "assistant" => Role::Model,
            "system" => Role::System,
            other => {
                let why = format!("'{other}' is not one of 'user', 'assistant', 'system'");
                return Err(Malformed::invalid(FROM, &format!("{path}.role"), &why));
            }
        };
        let Some(field) = fields.take("content") else { return Err(Malformed::missing(FROM, &format!("{path}.content"))) };
        let (results, others): (Vec<Part>, Vec<Part>) =
            content(&field, request)?.into_iter().partition(|part| matches!(part.kind, PartKind::Result { .. }));
        let has_results = !results.is_empty();
        if has_results {
            request.turns.push(Turn { role: Role::ToolResults, parts: results, path: path.clone() });
        }
        if !others.is_empty() || !has_results {
            request.turns.push(Turn { role, parts: others, path });
        }
    }
    Ok(())
}

/// Decodes content: a string, or blocks.
fn content(field: &Field<'_, '_>, request: &mut Request) -> Result<Vec<Part>, Malformed> {
    if let Some(text) = field.value.str() {
        return Ok(vec![Part::text(text, field.path.clone())]);
    }
    let blocks = field.value.list().ok_or_else(|| Malformed::wrong_type(FROM, &field.path, "a string or an array"))?;
    let mut parts = Vec::with_capacity(blocks.len());
    for (index, item) in blocks.iter().enumerate() {
        parts.extend(block(item, &format!("{}[{index}]", field.path), request)?);
    }
    Ok(parts)
}

/// Decodes one block. Unknown kinds can only be sent to Anthropic upstreams.
fn block(item: &Tree<'_>, path: &str, request: &mut Request) -> Result<Option<Part>, Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    let kind = fields.required_text("type")?;
    let mut signature = None;
    let kind = match kind.as_str() {
        "text" => PartKind::Text(fields.required_text("text")?),
        "thinking" => {
            let value = fields.text("signature")?.map(|signature| signature.value).unwrap_or_default();
            let is_genuine = !value.is_empty() && !value.starts_with(FOREIGN_SIGNATURE);
            signature = is_genuine.then_some(Signature { owner: Protocol::Anthropic, value });
            let text = fields.text("thinking")?.map(|text| text.value).unwrap_or_default();
            PartKind::Think { text, redacted: None }
        }
        "redacted_thinking" => PartKind::Think { text: String::new(), redacted: Some(fields.required_text("data")?) },
        "image" | "document" => {
            let Some(media) = source(&mut fields, path)? else {
                request.refuse_part(format!("{path}.source"));
                return Ok(None);
            };
            PartKind::Media(media)
        }
        "tool_use" => {
            let given = fields.required_text("id")?;
            let (id, carried) = split_id(&given);
            signature = carried;
            let name = fields.required_text("name")?;
            let args = fields.take("input").map_or_else(|| "{}".to_owned(), |input| input.value.compact());
            PartKind::Call { id: id.to_owned(), name, args, custom: false }
        }
        "tool_result" => result(&mut fields, request)?,
        _ => PartKind::Opaque { protocol: FROM, raw: item.compact() },
    };
    Ok(Some(Part { kind, signature, path: path.to_owned() }))
}

/// Decodes the source of an image or document; `None` for sources that only Anthropic can read, such as files.
fn source(fields: &mut Fields<'_, '_>, path: &str) -> Result<Option<Media>, Malformed> {
    let path = format!("{path}.source");
    let name = fields.text("title")?.map(|title| title.value);
    let mut source = fields.object("source")?.ok_or_else(|| Malformed::missing(FROM, &path))?;
    let kind = source.required_text("type")?;
    let bad = |fault: BadMedia| {
        let why = match fault {
            BadMedia::Base64 => "the data is not base64",
            BadMedia::Url => "is not an https: address",
        };
        Malformed::invalid(FROM, &path, why)
    };
    let media = match kind.as_str() {
        "base64" => {
            media::inline(&source.required_text("media_type")?, &source.required_text("data")?, path.clone()).map_err(bad)?
        }
        "url" => {
            let media = media::from_url(&source.required_text("url")?, path.clone()).map_err(bad)?;
            let is_document = fields.required_text("type")? == "document";
            let mime = if is_document { "application/pdf".to_owned() } else { media.mime };
            Media { mime, ..media }
        }
        _ => return Ok(None),
    };
    Ok(Some(Media { name, ..media }))
}

fn result(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<PartKind, Malformed> {
    let given = fields.required_text("tool_use_id")?;
    let is_error = fields.bool("is_error")?.is_some_and(|is_error| is_error.value);
    let (mut texts, mut media) = (Vec::new(), Vec::new());
    if let Some(field) = fields.take("content") {
        for part in content(&field, request)? {
            if let PartKind::Text(text) = part.kind {
                texts.push(text);
            } else if let PartKind::Media(item) = part.kind {
                media.push(item);
            } else {
                request.refuse_part(part.path);
            }
        }
    }
    let call_id = split_id(&given).0.to_owned();
    Ok(PartKind::Result { call_id, name: String::new(), content: texts.join("\n"), json: false, media, is_error })
}
