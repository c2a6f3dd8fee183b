//! Decodes contents into turns.

use super::FROM;
use crate::{
    Malformed, Protocol,
    neutral::{
        Media, Part, PartKind, Request, Role, Signature, Turn,
        media::{self, BadMedia},
        signature::split_id,
    },
    object::Fields,
    tree::{Tree, same_proto_name},
};

/// Members of a part that hold its data; a part has one of them.
const DATA: [&str; 9] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
];

pub(super) fn system(mut content: Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some((parts, path)) = content.list("parts")? else { return Ok(()) };
    for (index, item) in parts.iter().enumerate() {
        let path = format!("{path}[{index}]");
        match part(item, &path, request)? {
            Some(part) if matches!(part.kind, PartKind::Text(_)) => push_system(part, request),
            Some(_) => request.refuse_part(path),
            None => {}
        }
    }
    Ok(())
}

fn push_system(part: Part, request: &mut Request) {
    if !matches!(&part.kind, PartKind::Text(text) if text.is_empty()) {
        request.system.push(Part { signature: None, ..part });
    }
}

/// Decodes all contents. Function responses become separate turns.
pub(super) fn read(contents: &[Tree<'_>], path: &str, request: &mut Request) -> Result<(), Malformed> {
    for (index, content) in contents.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut fields = Fields::new(content, &path, FROM)?;
        let role = role(&mut fields)?;
        let (mut others, mut results) = (Vec::new(), Vec::new());
        for (item, path) in fields.elements("parts")? {
            let Some(part) = part(item, &path, request)? else { continue };
            if matches!(part.kind, PartKind::Result { .. }) {
                results.push(part);
            } else if part.is_call() && role != Role::Model {
                request.refuse_part(path);
            } else {
                others.push(part);
            }
        }
        if role == Role::System && request.turns.is_empty() && results.is_empty() {
            for part in others {
                push_system(part, request);
            }
            continue;
        }
        if !others.is_empty() || results.is_empty() {
            request.turns.push(Turn { role, parts: others, path: path.clone() });
        }
        if !results.is_empty() {
            request.turns.push(Turn { role: Role::ToolResults, parts: results, path });
        }
    }
    Ok(())
}

fn role(fields: &mut Fields<'_, '_>) -> Result<Role, Malformed> {
    let Some(role) = fields.text("role")? else { return Ok(Role::User) };
    match role.value.as_str() {
        "" | "user" | "function" | "tool" => Ok(Role::User),
        "model" | "assistant" => Ok(Role::Model),
        "system" => Ok(Role::System),
        other => {
            let why = format!("'{other}' is not a valid role; use 'user' or 'model'");
            Err(Malformed::invalid(FROM, &role.path, &why))
        }
    }
}

/// Decodes one part. `None` for an empty part, and for a kind that has no neutral form, which is recorded as unsupported.
fn part(item: &Tree<'_>, path: &str, request: &mut Request) -> Result<Option<Part>, Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    let thought = fields.flag("thought")?;
    let signature = fields.text("thoughtSignature")?.filter(|given| !given.value.is_empty());
    let signature = signature.map(|given| Signature { owner: Protocol::Gemini, value: given.value });
    let detail = fields.take("mediaResolution").and_then(|field| resolution(field.value));
    fields.ignore(&["videoMetadata", "partMetadata"]);
    let kind = if let Some(text) = fields.text("text")? {
        if thought { PartKind::Think { text: text.value, redacted: None } } else { PartKind::Text(text.value) }
    } else if let Some(data) = fields.object("inlineData")? {
        PartKind::Media(Media { detail, ..inline(data, path)? })
    } else if let Some(data) = fields.object("fileData")? {
        PartKind::Media(Media { detail, ..file(data, path)? })
    } else if let Some(call) = fields.object("functionCall")? {
        function_call(call)?
    } else if let Some(response) = fields.object("functionResponse")? {
        function_response(response, path)?
    } else if let Some(code) = fields.object("executableCode")? {
        executable_code(code)?
    } else if let Some(output) = fields.object("codeExecutionResult")? {
        code_output(output)?
    } else if fields.take("toolCall").is_some() || fields.take("toolResponse").is_some() {
        PartKind::Opaque { protocol: FROM, raw: item.compact() }
    } else if !fields.rest().is_empty() {
        request.refuse_part(path);
        return Ok(None);
    } else if signature.is_some() {
        PartKind::Text(String::new())
    } else {
        return Ok(None);
    };
    if fields.unread().any(|(key, _)| DATA.iter().any(|name| same_proto_name(key, name))) {
        // A second data member would be lost.
        request.refuse_part(path);
        return Ok(None);
    }
    Ok(Some(Part { kind, signature, path: path.to_owned() }))
}

/// The suffix of the level in lower case: `{"level": "MEDIA_RESOLUTION_LOW"}` becomes `low`.
fn resolution(value: &Tree<'_>) -> Option<String> {
    let level = value.get_proto("level").and_then(Tree::str)?.to_ascii_lowercase();
    let word = level.strip_prefix("media_resolution_").unwrap_or(&level);
    (word != "unspecified").then(|| word.to_owned())
}

fn bad_media(fault: BadMedia, path: &str) -> Malformed {
    let why = match fault {
        BadMedia::Base64 => "the data is not base64",
        BadMedia::Url => "is not an address that can be followed",
    };
    Malformed::invalid(FROM, path, why)
}

fn inline(mut data: Fields<'_, '_>, path: &str) -> Result<Media, Malformed> {
    let mime = data.required_text("mimeType")?;
    let bytes = data.text_or_empty("data")?;
    media::inline(&mime, &bytes, path.to_owned()).map_err(|fault| bad_media(fault, path))
}

fn file(mut data: Fields<'_, '_>, path: &str) -> Result<Media, Malformed> {
    let mime = data.text("mimeType")?.map(|mime| media::mime_type(&mime.value));
    let address = data.required_text("fileUri")?;
    let media = match media::from_url(&address, path.to_owned()) {
        Ok(media) => media,
        // Any other URI is a name inside Google's services.
        Err(BadMedia::Url) => {
            let source = crate::neutral::MediaSource::Uri(address);
            Media { mime: String::new(), source, name: None, detail: None, path: path.to_owned() }
        }
        Err(fault) => return Err(bad_media(fault, path)),
    };
    Ok(Media { mime: mime.unwrap_or(media.mime), ..media })
}

fn function_call(mut call: Fields<'_, '_>) -> Result<PartKind, Malformed> {
    let id = call.text("id")?.map(|id| split_id(&id.value).0.to_owned()).unwrap_or_default();
    let name = call.required_text("name")?;
    let args = match call.take("args") {
        Some(field) if field.value.members().is_none() => return Err(Malformed::wrong_type(FROM, &field.path, "an object")),
        Some(field) => field.value.compact(),
        None => "{}".to_owned(),
    };
    Ok(PartKind::Call { id, name, args, custom: false })
}

/// Decodes a function response: `{"output": "text"}` becomes text, any other response stays an object.
fn function_response(mut fields: Fields<'_, '_>, path: &str) -> Result<PartKind, Malformed> {
    let call_id = fields.text("id")?.map(|id| split_id(&id.value).0.to_owned()).unwrap_or_default();
    let name = fields.required_text("name")?;
    let (mut content, mut json, mut is_error) = ("{}".to_owned(), true, false);
    if let Some(response) = fields.take("response") {
        let Some(members) = response.value.members() else {
            return Err(Malformed::wrong_type(FROM, &response.path, "an object"));
        };
        content = response.value.compact();
        if let [(key, value)] = members {
            is_error = key == "error";
            if let ("output", Some(text)) = (&**key, value.str()) {
                (content, json) = (text.to_owned(), false);
            }
        }
    }
    let mut media = Vec::new();
    if let Some((parts, inner)) = fields.list("parts")? {
        for (index, item) in parts.iter().enumerate() {
            let item_path = format!("{inner}[{index}]");
            let mut part = Fields::new(item, &item_path, FROM)?;
            if let Some(data) = part.object("inlineData")? {
                media.push(inline(data, &item_path)?);
            } else if let Some(data) = part.object("fileData")? {
                media.push(file(data, &item_path)?);
            } else {
                return Err(Malformed::invalid(FROM, path, "a functionResponse takes inlineData parts only"));
            }
        }
    }
    Ok(PartKind::Result { call_id, name, content, json, media, is_error })
}

fn executable_code(mut code: Fields<'_, '_>) -> Result<PartKind, Malformed> {
    let language = code.text("language")?.map(|language| language.value.to_ascii_lowercase()).unwrap_or_default();
    let text = code.text_or_empty("code")?;
    Ok(PartKind::Code { language, text })
}

fn code_output(mut output: Fields<'_, '_>) -> Result<PartKind, Malformed> {
    let outcome = output.text_or_empty("outcome")?;
    let text = output.text_or_empty("output")?;
    Ok(PartKind::CodeOutput { outcome, text })
}
