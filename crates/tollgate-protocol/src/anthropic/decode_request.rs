//! Decodes Messages requests of callers. No caller route uses it yet; see the [module](super). Fields without a counterpart
//! in any other protocol are recorded as refused.

mod messages;
mod params;
mod tools;

use crate::{
    Malformed, Method, Protocol, Target,
    neutral::{Operation, Request, normalise::normalise},
    object::Fields,
    tree::Tree,
};

const FROM: Protocol = Protocol::Anthropic;

/// Decodes the body of `POST /v1/messages` or `POST /v1/messages/count_tokens`.
pub(crate) fn decode(target: &Target, body: &[u8]) -> Result<Request, Malformed> {
    let tree = Tree::parse(body)?;
    if tree.members().is_none() {
        return Err(Malformed::not_json("expected an object"));
    }
    let mut fields = Fields::new(&tree, "", FROM)?;
    let operation = if target.method == Method::CountTokens { Operation::Count } else { Operation::Generate };
    let counts_tokens = operation == Operation::Count;
    let mut request = Request::new(fields.required_text("model")?, FROM, operation);
    let Some((items, path)) = fields.list("messages")? else { return Err(Malformed::missing(FROM, "messages")) };
    if items.is_empty() {
        return Err(Malformed::invalid(FROM, &path, "must not be empty"));
    }
    messages::system(&mut fields, &mut request)?;
    messages::read(items, &path, &mut request)?;
    tools::read(&mut fields, &mut request)?;
    params::read(&mut fields, &mut request)?;
    if !counts_tokens && request.params.max_tokens.is_none() {
        return Err(Malformed::missing(FROM, "max_tokens"));
    }
    for field in fields.rest() {
        request.refuse(field);
    }
    normalise(&mut request)?;
    Ok(request)
}
