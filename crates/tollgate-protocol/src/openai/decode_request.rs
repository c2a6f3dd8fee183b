//! Decodes chat completions and embeddings requests into the neutral form. Fields without a counterpart in the other protocols
//! are recorded as unsupported, not ignored.

mod messages;
mod params;
mod tools;

use crate::{
    FieldViolation, Malformed, MalformedKind, Method, Protocol, Target,
    neutral::{EmbedRequest, Located, Operation, Request, normalise::normalise},
    object::Fields,
    tree::Tree,
};

const FROM: Protocol = Protocol::OpenAi;

/// Decodes a request body: embeddings or chat completions, by the target's method.
pub(crate) fn decode(target: &Target, body: &[u8]) -> Result<Request, Malformed> {
    if target.method == Method::Embeddings { embeddings(body) } else { chat(body) }
}

/// Decodes the body of `POST /v1/chat/completions`.
fn chat(body: &[u8]) -> Result<Request, Malformed> {
    let tree = document(body)?;
    let mut fields = Fields::new(&tree, "", FROM)?;
    let mut request = Request::new(fields.required_text("model")?, FROM, Operation::Generate);
    let Some((messages, _)) = fields.list("messages")? else {
        return Err(no_messages(fields.take("contents").is_some()));
    };
    if messages.is_empty() {
        return Err(Malformed::invalid(FROM, "messages", "must not be empty"));
    }
    messages::read(messages, &mut request)?;
    tools::read(&mut fields, &mut request)?;
    params::read(&mut fields, &mut request)?;
    for field in fields.rest() {
        request.refuse(field);
    }
    normalise(&mut request)?;
    Ok(request)
}

/// Decodes the body of `POST /v1/embeddings`.
fn embeddings(body: &[u8]) -> Result<Request, Malformed> {
    let tree = document(body)?;
    let mut fields = Fields::new(&tree, "", FROM)?;
    let model = fields.required_text("model")?;
    let input = fields.take("input").ok_or_else(|| Malformed::missing(FROM, "input"))?;
    let mut refused = Vec::new();
    let inputs = match (input.value.str(), input.value.list()) {
        (Some(text), _) => vec![text.to_owned()],
        (None, Some([])) => return Err(Malformed::invalid(FROM, "input", "must not be empty")),
        (None, Some(items)) => items.iter().filter_map(|item| item.str().map(str::to_owned)).collect(),
        (None, None) => return Err(Malformed::wrong_type(FROM, "input", "a string or an array")),
    };
    let count = input.value.list().map_or(1, <[Tree<'_>]>::len);
    if inputs.len() != count {
        refused.push(input.path); // Token ids are specific to one tokeniser.
    }
    let dimensions = fields.at_least("dimensions", 1)?.map(narrow).transpose()?;
    let format = fields.text("encoding_format")?;
    let base64 = format.as_ref().is_some_and(|format| format.value == "base64");
    if let Some(format) = format.filter(|format| !matches!(format.value.as_str(), "float" | "base64")) {
        refused.push(format.path);
    }
    let user = fields.text("user")?;
    refused.extend(fields.rest());
    let embed = EmbedRequest { inputs, list: true, dimensions, task: None, title: None, base64, user };
    let mut request = Request::new(model, FROM, Operation::Embed(Box::new(embed)));
    for field in refused {
        request.refuse(field);
    }
    Ok(request)
}

fn document(body: &[u8]) -> Result<Tree<'_>, Malformed> {
    let tree = Tree::parse(body)?;
    if tree.members().is_none() {
        return Err(Malformed::not_json("expected an object"));
    }
    Ok(tree)
}

fn no_messages(contents: bool) -> Malformed {
    if !contents {
        return Malformed::missing(FROM, "messages");
    }
    let message = "Missing required parameter: 'messages'; chat completions expect 'messages' (array of {role, content}), not \
                   'contents'.";
    let violation = FieldViolation { field: "messages".to_owned(), description: message.to_owned() };
    Malformed { kind: MalformedKind::Missing, message: message.to_owned(), violations: vec![violation] }
}

fn narrow(given: Located<u64>) -> Result<Located<u32>, Malformed> {
    let Ok(value) = u32::try_from(given.value) else {
        return Err(Malformed::invalid(FROM, &given.path, "is too large"));
    };
    Ok(Located { value, path: given.path })
}
