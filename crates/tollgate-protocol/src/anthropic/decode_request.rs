//! Decodes Messages requests of callers. Fields without a counterpart in any other protocol are recorded as refused.

mod blocks;
mod params;
mod tools;

use std::collections::HashSet;

use self::blocks::Blocks;
use crate::{
    Malformed, Method, Protocol, Target,
    neutral::{Operation, Part, PartKind, Request, Role, Turn, normalise::normalise},
    object::{Field, Fields},
    tree::Tree,
};

const FROM: Protocol = Protocol::Anthropic;

/// Decodes the body of `POST /v1/messages` or `POST /v1/messages/count_tokens`.
pub(crate) fn decode(target: &Target, body: &[u8]) -> Result<Request, Malformed> {
    let tree = Tree::parse_object(body)?;
    let mut fields = Fields::new(&tree, "", FROM)?;
    let operation = if target.method == Method::CountTokens { Operation::Count } else { Operation::Generate };
    let counts_tokens = operation == Operation::Count;
    let mut request = Request::new(fields.required_text("model")?, FROM, operation);
    let Some((items, path)) = fields.list("messages")? else { return Err(Malformed::missing(FROM, "messages")) };
    if items.is_empty() {
        return Err(Malformed::invalid(FROM, &path, "must not be empty"));
    }
    // Names of the tools that the history has loaded.
    let mut loaded = HashSet::new();
    let mut blocks = Blocks { request: &mut request, loaded: &mut loaded, call_signature: None };
    if let Some(field) = fields.take("system") {
        system(&field, &mut blocks)?;
    }
    messages(items, &path, &mut blocks)?;
    tools::tools(&mut fields, loaded, &mut request)?;
    params::params(&mut fields, &mut request)?;
    if !counts_tokens && request.params.max_tokens.is_none() {
        return Err(Malformed::missing(FROM, "max_tokens"));
    }
    // Known parameters do not change a token count and are accepted there. Unknown ones may add input, so a count refuses them too.
    for field in fields.rest() {
        if counts_tokens { request.refuse_input(field) } else { request.refuse(field) }
    }
    normalise(&mut request)?;
    Ok(request)
}

/// Decodes `system`: a string, or text blocks.
fn system(field: &Field<'_, '_>, blocks: &mut Blocks<'_>) -> Result<(), Malformed> {
    let texts = texts_of(blocks.content(field)?, blocks);
    blocks.request.system.extend(texts.into_iter().filter(|part| part.as_text() != Some("")));
    Ok(())
}

/// The texts of an instruction. Other blocks are refused.
fn texts_of(parts: Vec<Part>, blocks: &mut Blocks<'_>) -> Vec<Part> {
    let (texts, others): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.as_text().is_some());
    for part in others {
        blocks.request.refuse_part(part.path);
    }
    texts
}

/// Decodes all messages. Tool results become turns of their own.
fn messages(messages: &[Tree<'_>], path: &str, blocks: &mut Blocks<'_>) -> Result<(), Malformed> {
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
        blocks.call_signature = None;
        let Some(field) = fields.take("content") else { return Err(Malformed::missing(FROM, &format!("{path}.content"))) };
        let mut parts = blocks.content(&field)?;
        if role == Role::System {
            parts = texts_of(parts, blocks);
        }
        let (results, others): (Vec<Part>, Vec<Part>) =
            parts.into_iter().partition(|part| matches!(part.kind, PartKind::Result { .. }));
        let has_results = !results.is_empty();
        if has_results {
            blocks.request.turns.push(Turn { role: Role::ToolResults, parts: results, path: path.clone() });
        }
        if !others.is_empty() || !has_results {
            blocks.request.turns.push(Turn { role, parts: others, path });
        }
    }
    Ok(())
}
