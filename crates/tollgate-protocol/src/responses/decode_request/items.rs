//! Decodes the items of `input` into turns.

use super::{FROM, content::content, tools::ToolNames};
use crate::{
    Malformed,
    neutral::{Part, PartKind, Request, Role, Signature, Turn, signature::split_id},
    object::Fields,
    responses::carrier::{self, Carried},
    tree::Tree,
};

/// Why an item that the service keeps is refused.
const NOT_STORED: &str = "nothing is stored here; send the item itself";

/// Decodes all items. System texts before the first other item become the request's system texts.
pub(super) fn read(items: &[Tree<'_>], path: &str, names: &ToolNames, request: &mut Request) -> Result<(), Malformed> {
    let mut turns = ItemReader { names, request, call_signature: None };
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut fields = Fields::new(item, &path, FROM)?;
        let kind = fields.text("type")?.map(|kind| kind.value);
        match kind.as_deref() {
            None | Some("message") => turns.message(&mut fields, path)?,
            Some("function_call") => turns.call(&mut fields, "arguments", path)?,
            Some("custom_tool_call") => turns.call(&mut fields, "input", path)?,
            Some("function_call_output" | "custom_tool_call_output") => turns.result(&mut fields, path)?,
            Some("reasoning") => turns.reasoning(&mut fields, path)?,
            // Past uses of tools that are left out.
            Some("web_search_call" | "tool_search_call" | "tool_search_output") => turns.request.dropped.push(path),
            Some("item_reference") => turns.request.refuse_part_because(path, NOT_STORED),
            Some(_) => turns.request.refuse_part(path),
        }
    }
    Ok(())
}

struct ItemReader<'r> {
    names: &'r ToolNames,
    request: &'r mut Request,
    /// The signature of the next call of this model turn.
    call_signature: Option<Signature>,
}

impl ItemReader<'_> {
    fn push(&mut self, role: Role, parts: Vec<Part>, path: String) {
        if role != Role::Model {
            self.call_signature = None;
        }
        self.request.turns.push(Turn { role, parts, path });
    }

    /// Separates a message of the assistant from a preceding one by a blank line. Other protocols merge both into one message, in which a
    /// model could not separate them.
    fn separate(&self, parts: &mut [Part]) {
        let before = self.request.turns.last().filter(|turn| turn.role == Role::Model).and_then(|turn| turn.parts.last());
        let ends_open = before.and_then(Part::as_text).is_some_and(|text| !text.is_empty() && !text.ends_with('\n'));
        if let Some(Part { kind: PartKind::Text(text), .. }) = parts.first_mut()
            && ends_open
            && !text.is_empty()
            && !text.starts_with('\n')
        {
            text.insert_str(0, "\n\n");
        }
    }

    fn message(&mut self, fields: &mut Fields<'_, '_>, path: String) -> Result<(), Malformed> {
        let name = fields.required_text("role")?;
        let role = match name.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Model,
            _ => {
                let why = format!("'{name}' is not one of 'user', 'assistant', 'system', 'developer'");
                return Err(Malformed::invalid(FROM, &format!("{path}.role"), &why));
            }
        };
        let mut parts = match fields.take("content") {
            Some(field) => content(&field, self.request)?,
            None => Vec::new(),
        };
        if role == Role::System {
            let (texts, others): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.as_text().is_some());
            for part in others {
                self.request.refuse_part(part.path);
            }
            parts = texts;
            if self.request.turns.is_empty() {
                self.request.system.extend(parts.into_iter().filter(|part| part.as_text() != Some("")));
                return Ok(());
            }
        }
        if role == Role::Model {
            self.separate(&mut parts);
        }
        self.push(role, parts, path);
        Ok(())
    }

    /// Decodes a call. `member` holds its arguments, or the text for a custom tool.
    fn call(&mut self, fields: &mut Fields<'_, '_>, member: &str, path: String) -> Result<(), Malformed> {
        let given = fields.required_text("call_id")?;
        let (id, in_id) = split_id(&given);
        let name = fields.required_text("name")?;
        let namespace = fields.text("namespace")?.map(|namespace| namespace.value);
        let name = self.names.flat(namespace.as_deref(), &name);
        let args = match fields.take(member) {
            // A common error of clients.
            Some(field) if field.value.members().is_some() => field.value.compact(),
            Some(field) => match field.value.str() {
                Some(text) => text.to_owned(),
                None => return Err(Malformed::wrong_type(FROM, &field.path, "a string")),
            },
            None => String::new(),
        };
        let kind = PartKind::Call { id: id.to_owned(), name, args, custom: member == "input" };
        let signature = self.call_signature.take().or(in_id);
        let part = Part { kind, signature, path: path.clone() };
        self.push(Role::Model, vec![part], path);
        Ok(())
    }

    fn result(&mut self, fields: &mut Fields<'_, '_>, path: String) -> Result<(), Malformed> {
        let call_id = fields.required_text("call_id")?;
        let parts = match fields.take("output") {
            Some(field) => content(&field, self.request)?,
            None => return Err(Malformed::missing(FROM, &format!("{path}.output"))),
        };
        let (mut texts, mut media) = (Vec::new(), Vec::new());
        for part in parts {
            if let PartKind::Text(text) = part.kind {
                texts.push(text);
            } else if let PartKind::Media(item) = part.kind {
                media.push(item);
            }
        }
        let kind = PartKind::Result {
            call_id: split_id(&call_id).0.to_owned(),
            name: String::new(),
            content: texts.join("\n"),
            json: false,
            media,
            is_error: false,
        };
        let part = Part::new(kind, path.clone());
        self.push(Role::ToolResults, vec![part], path);
        Ok(())
    }

    fn reasoning(&mut self, fields: &mut Fields<'_, '_>, path: String) -> Result<(), Malformed> {
        let mut text = String::new();
        for (item, path) in fields.elements("summary")? {
            text.push_str(&Fields::new(item, &path, FROM)?.text_or_empty("text")?);
        }
        let sealed = fields.text("encrypted_content")?.map(|sealed| sealed.value);
        let (kind, signature) = match carrier::open(sealed.as_deref(), text.clone()) {
            Carried::Thought(kind, signature) => (kind, signature),
            // Keep the thought beside the call, so that its loss is reported for an upstream that cannot use the signature.
            Carried::CallSignature(signature) => {
                self.call_signature = Some(signature.clone());
                (PartKind::Think { text, redacted: None }, Some(signature))
            }
            Carried::TextSignature(signature) => (PartKind::Text(String::new()), Some(signature)),
        };
        let part = Part { kind, signature, path: path.clone() };
        self.push(Role::Model, vec![part], path);
        Ok(())
    }
}
