//! Decodes Responses requests of callers. Fields without a counterpart in any other protocol are recorded as refused.

mod content;
mod echo;
mod items;
mod params;
mod tools;

use std::sync::Arc;

use self::tools::ToolNames;
use crate::{
    Malformed, Method, Protocol, Target,
    neutral::{Operation, Part, Request, RequestEcho, Role, Turn, normalise::normalise},
    object::Fields,
    tree::Tree,
};

const FROM: Protocol = Protocol::Responses;

/// Decodes the body of `POST /v1/responses` or `POST /v1/responses/input_tokens`.
pub(crate) fn decode(target: &Target, body: &[u8]) -> Result<Request, Malformed> {
    let tree = Tree::parse_object(body)?;
    let mut fields = Fields::new(&tree, "", FROM)?;
    let operation = if target.method == Method::CountTokens { Operation::Count } else { Operation::Generate };
    let mut request = Request::new(fields.required_text("model")?, FROM, operation);
    let mut names = ToolNames::default();
    tools::tools(&mut fields, &mut names, &mut request)?;
    if let Some(instructions) = fields.text("instructions")?
        && !instructions.value.is_empty()
    {
        request.system.push(Part::text(instructions.value, instructions.path));
    }
    input(&mut fields, &names, &mut request)?;
    params::read(&mut fields, &mut request)?;
    request.refuse_all(fields.rest());
    request.echo = Some(Arc::new(echo::of(&tree, names)));
    normalise(&mut request)?;
    Ok(request)
}

/// Members that an answer repeats if its request is unknown.
pub(super) fn no_echo() -> RequestEcho {
    Tree::parse(b"{}").map_or_else(|_| RequestEcho::default(), |body| echo::of(&body, ToolNames::default()))
}

/// Decodes `input`: one user message as a string, or items.
fn input(fields: &mut Fields<'_, '_>, names: &ToolNames, request: &mut Request) -> Result<(), Malformed> {
    let Some(field) = fields.take("input") else { return Err(missing_input(fields.take("messages").is_some())) };
    if let Some(text) = field.value.str() {
        let parts = vec![Part::text(text, field.path.clone())];
        request.turns.push(Turn { role: Role::User, parts, path: field.path });
        return Ok(());
    }
    let Some(items) = field.value.list() else {
        return Err(Malformed::wrong_type(FROM, &field.path, "a string or an array"));
    };
    if items.is_empty() && request.system.is_empty() {
        return Err(Malformed::invalid(FROM, &field.path, "must not be empty"));
    }
    items::read(items, &field.path, names, request)
}

/// The body lacks `input`; `messages` tells whether it is a chat completions body.
fn missing_input(messages: bool) -> Malformed {
    let fault = Malformed::missing(FROM, "input");
    if messages { Malformed { message: super::summary::CHAT_BODY.to_owned(), ..fault } } else { fault }
}
