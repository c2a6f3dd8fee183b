//! Content blocks of messages, tool results and documents.

use std::collections::HashSet;

use super::FROM;
use crate::{
    Malformed, Protocol,
    markers::THINKING_SIGNATURE,
    neutral::{
        Media, Part, PartKind, Request, Signature,
        media::{self, BadMedia},
        signature::{ThoughtMember, of_call_signature_block, split_id},
    },
    object::{Field, Fields},
    opaque_state::{RESPONSES_SEAL, open_hidden_thought},
    tree::Tree,
};

/// Decodes blocks, and records in the request what cannot be expressed elsewhere.
pub(super) struct Blocks<'r> {
    pub(super) request: &'r mut Request,
    /// Names of the tools that the history has loaded.
    pub(super) loaded: &'r mut HashSet<String>,
    /// Gemini's signature of the next call of this message.
    pub(super) call_signature: Option<Signature>,
}

/// The source of an image or a document.
enum Source {
    Media(Media),
    /// Text, or blocks.
    Parts(Vec<Part>),
    /// A source that only Anthropic can read, such as a file.
    Unreadable,
}

/// The signature of a thinking block: Anthropic's own, the sealed thought of a Responses upstream, or the mark of a chat upstream,
/// whose thoughts are not sealed. Blocks with other marks have none.
fn thinking_signature(value: String) -> Option<Signature> {
    if let Some(sealed) = value.strip_prefix(RESPONSES_SEAL) {
        return Some(Signature { owner: Protocol::Responses, value: sealed.to_owned() });
    }
    if let Some(member) = ThoughtMember::of_mark(&value) {
        return Some(member.signature());
    }
    let is_genuine = !value.is_empty() && !value.starts_with(THINKING_SIGNATURE);
    is_genuine.then_some(Signature { owner: FROM, value })
}

impl Blocks<'_> {
    /// Decodes content: a string, or blocks.
    pub(super) fn content(&mut self, field: &Field<'_, '_>) -> Result<Vec<Part>, Malformed> {
        if let Some(text) = field.value.str() {
            return Ok(vec![Part::text(text, field.path.clone())]);
        }
        let blocks = field.value.list().ok_or_else(|| Malformed::wrong_type(FROM, &field.path, "a string or an array"))?;
        let mut parts = Vec::with_capacity(blocks.len());
        for (index, item) in blocks.iter().enumerate() {
            parts.extend(self.block(item, &format!("{}[{index}]", field.path))?);
        }
        Ok(parts)
    }

    /// Decodes one block. Unknown kinds can only be sent to Anthropic upstreams.
    fn block(&mut self, item: &Tree<'_>, path: &str) -> Result<Vec<Part>, Malformed> {
        let mut fields = Fields::new(item, path, FROM)?;
        let kind = fields.required_text("type")?;
        let mut signature = None;
        let kind = match kind.as_str() {
            "text" => {
                self.drop_citations(&mut fields);
                PartKind::Text(fields.required_text("text")?)
            }
            "thinking" => {
                let value = fields.text_or_empty("signature")?;
                let shown = fields.text_or_empty("thinking")?;
                if let Some(of_call) = of_call_signature_block(&value) {
                    self.call_signature = Some(of_call);
                    return Ok(Vec::new());
                }
                let hidden = open_hidden_thought(&value);
                signature = match hidden {
                    Some(_) => Some(ThoughtMember::ReasoningContent.signature()),
                    None => thinking_signature(value),
                };
                PartKind::Think { text: hidden.unwrap_or(shown), redacted: None }
            }
            "redacted_thinking" => PartKind::Think { text: String::new(), redacted: Some(fields.required_text("data")?) },
            "image" => return self.image(&mut fields, path),
            "document" => return self.document(&mut fields, path),
            "search_result" => PartKind::Text(self.search_result(&mut fields)?),
            "tool_reference" => {
                let name = fields.required_text("tool_name")?;
                let text = format!("Tool loaded: {name}");
                self.loaded.insert(name);
                PartKind::Text(text)
            }
            "tool_use" => {
                let given = fields.required_text("id")?;
                let (id, carried) = split_id(&given);
                signature = self.call_signature.take().or(carried);
                let name = fields.required_text("name")?;
                let args = fields.take("input").map_or_else(|| "{}".to_owned(), |input| input.value.compact());
                PartKind::Call { id: id.to_owned(), name, args, custom: false }
            }
            "tool_result" => self.result(&mut fields)?,
            _ => PartKind::Opaque { protocol: FROM, raw: item.compact() },
        };
        Ok(vec![Part { kind, signature, path: path.to_owned() }])
    }

    /// Reports the citations of a text in the history as dropped: no other protocol accepts them back.
    fn drop_citations(&mut self, fields: &mut Fields<'_, '_>) {
        let given = fields.take("citations").filter(|field| field.value.list().is_some_and(|list| !list.is_empty()));
        self.request.dropped.extend(given.map(|field| field.path));
    }

    fn image(&mut self, fields: &mut Fields<'_, '_>, path: &str) -> Result<Vec<Part>, Malformed> {
        match self.source(fields, path, "")? {
            Source::Media(media) => Ok(vec![Part::new(PartKind::Media(media), path)]),
            Source::Parts(_) | Source::Unreadable => {
                self.request.refuse_part(format!("{path}.source"));
                Ok(Vec::new())
            }
        }
    }

    fn document(&mut self, fields: &mut Fields<'_, '_>, path: &str) -> Result<Vec<Part>, Malformed> {
        let title = fields.text("title")?;
        if let Some(mut citations) = fields.object("citations")?
            && citations.flag("enabled")?
        {
            self.request.refuse(format!("{path}.citations"));
        }
        self.request.dropped.extend(fields.paths(&["context"]));
        match self.source(fields, path, "application/pdf")? {
            Source::Media(media) => {
                let name = title.map(|title| title.value);
                Ok(vec![Part::new(PartKind::Media(Media { name, ..media }), path)])
            }
            Source::Parts(parts) => {
                self.request.dropped.extend(title.map(|title| title.path));
                Ok(parts)
            }
            Source::Unreadable => {
                self.request.refuse_part(format!("{path}.source"));
                Ok(Vec::new())
            }
        }
    }

    /// `remote_type` is the media type of a source given by URL; empty: any image.
    fn source(&mut self, fields: &mut Fields<'_, '_>, path: &str, remote_type: &str) -> Result<Source, Malformed> {
        let path = format!("{path}.source");
        let mut source = fields.object("source")?.ok_or_else(|| Malformed::missing(FROM, &path))?;
        let kind = source.required_text("type")?;
        let bad = |fault: BadMedia| {
            let why = match fault {
                BadMedia::Base64 => "the data is not base64",
                BadMedia::Url => "is not an https: address",
            };
            Malformed::invalid(FROM, &path, why)
        };
        Ok(match kind.as_str() {
            "base64" => {
                let (mime, data) = (source.required_text("media_type")?, source.required_text("data")?);
                Source::Media(media::inline(&mime, &data, path.clone()).map_err(bad)?)
            }
            "url" => {
                let media = media::from_url(&source.required_text("url")?, path.clone()).map_err(bad)?;
                let mime = if remote_type.is_empty() { media.mime } else { remote_type.to_owned() };
                Source::Media(Media { mime, ..media })
            }
            "text" => Source::Parts(vec![Part::text(source.required_text("data")?, path)]),
            "content" => {
                let Some(content) = source.take("content") else {
                    return Err(Malformed::missing(FROM, &format!("{path}.content")));
                };
                Source::Parts(self.content(&content)?)
            }
            _ => Source::Unreadable,
        })
    }

    /// Title, source and texts of a search result, one a line.
    fn search_result(&mut self, fields: &mut Fields<'_, '_>) -> Result<String, Malformed> {
        let mut lines = vec![fields.required_text("title")?, fields.required_text("source")?];
        if let Some(content) = fields.take("content") {
            for part in self.content(&content)? {
                if let PartKind::Text(text) = part.kind {
                    lines.push(text);
                } else {
                    self.request.refuse_part(part.path);
                }
            }
        }
        Ok(lines.join("\n"))
    }

    fn result(&mut self, fields: &mut Fields<'_, '_>) -> Result<PartKind, Malformed> {
        let given = fields.required_text("tool_use_id")?;
        let is_error = fields.flag("is_error")?;
        let (mut texts, mut media) = (Vec::new(), Vec::new());
        if let Some(field) = fields.take("content") {
            for part in self.content(&field)? {
                if let PartKind::Text(text) = part.kind {
                    texts.push(text);
                } else if let PartKind::Media(item) = part.kind {
                    media.push(item);
                } else {
                    self.request.refuse_part(part.path);
                }
            }
        }
        let call_id = split_id(&given).0.to_owned();
        Ok(PartKind::Result { call_id, name: String::new(), content: texts.join("\n"), json: false, media, is_error })
    }
}
