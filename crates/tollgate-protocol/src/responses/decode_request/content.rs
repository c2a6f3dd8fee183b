//! Content of messages and of results: a string, or typed parts.

use super::FROM;
use crate::{
    Malformed,
    neutral::{
        Media, Part, PartKind, Request,
        media::{self, BadMedia},
    },
    object::{Field, Fields},
    tree::Tree,
};

/// Decodes content. Parts of unknown kinds, and files that only their own provider can read, are refused.
pub(super) fn content(field: &Field<'_, '_>, request: &mut Request) -> Result<Vec<Part>, Malformed> {
    if let Some(text) = field.value.str() {
        return Ok(vec![Part::text(text, field.path.clone())]);
    }
    let items = field.value.list().ok_or_else(|| Malformed::wrong_type(FROM, &field.path, "a string or an array"))?;
    let mut parts = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let path = format!("{}[{index}]", field.path);
        match part(item, &path)? {
            Some(kind) => parts.push(Part::new(kind, path)),
            None => request.refuse_part(path),
        }
    }
    Ok(parts)
}

fn part(item: &Tree<'_>, path: &str) -> Result<Option<PartKind>, Malformed> {
    let mut fields = Fields::new(item, path, FROM)?;
    Ok(match fields.required_text("type")?.as_str() {
        "input_text" | "output_text" | "text" => Some(PartKind::Text(fields.required_text("text")?)),
        "refusal" => Some(PartKind::Text(fields.required_text("refusal")?)),
        "input_image" => image(&mut fields)?.map(PartKind::Media),
        "input_file" => file(&mut fields)?.map(PartKind::Media),
        "input_audio" => Some(PartKind::Media(audio(&mut fields, path)?)),
        _ => None,
    })
}

/// Decodes an image; `None` for an uploaded one.
fn image(fields: &mut Fields<'_, '_>) -> Result<Option<Media>, Malformed> {
    let detail = match fields.text("detail")?.map(|detail| detail.value).as_deref() {
        None | Some("auto") => None,
        Some("original") => Some("high".to_owned()),
        Some(detail) => Some(detail.to_owned()),
    };
    let Some(url) = fields.text("image_url")? else { return Ok(None) };
    let media = media::from_url(&url.value, url.path.clone()).map_err(|fault| bad_media(fault, &url.path))?;
    Ok(Some(Media { detail, ..media }))
}

/// Decodes a file; `None` for an uploaded one.
fn file(fields: &mut Fields<'_, '_>) -> Result<Option<Media>, Malformed> {
    let name = fields.text("filename")?.map(|name| name.value);
    if let Some(data) = fields.text("file_data")? {
        let by_name = || name.as_deref().and_then(media::mime_by_name);
        let media = if data.value.contains(':') {
            media::from_url(&data.value, data.path.clone())
        } else {
            let mime = media::mime_by_magic(&data.value).or_else(by_name).unwrap_or_default();
            media::inline(mime, &data.value, data.path.clone())
        };
        return Ok(Some(Media { name, ..media.map_err(|fault| bad_media(fault, &data.path))? }));
    }
    let Some(url) = fields.text("file_url")? else { return Ok(None) };
    let media = media::from_url(&url.value, url.path.clone()).map_err(|fault| bad_media(fault, &url.path))?;
    // An address without an extension is a document here, not an image.
    let mime = if media.mime.is_empty() { "application/pdf".to_owned() } else { media.mime };
    Ok(Some(Media { mime, name, ..media }))
}

fn audio(fields: &mut Fields<'_, '_>, path: &str) -> Result<Media, Malformed> {
    let path = format!("{path}.input_audio");
    let mut audio = fields.object("input_audio")?.ok_or_else(|| Malformed::missing(FROM, &path))?;
    let (data, format) = (audio.required_text("data")?, audio.required_text("format")?);
    media::inline(&format!("audio/{format}"), &data, path.clone()).map_err(|fault| bad_media(fault, &path))
}

fn bad_media(fault: BadMedia, path: &str) -> Malformed {
    let why = match fault {
        BadMedia::Base64 => "is not base64",
        BadMedia::Url => "is neither a data: nor an https: address",
    };
    Malformed::invalid(FROM, path, why)
}
