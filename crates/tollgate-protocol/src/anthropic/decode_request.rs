//! Messages requests as they are meant, for callers who speak that protocol. Fields without a counterpart anywhere are
//! noted, not skipped.

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

/// Reads the body of `POST /v1/messages` or of its token counter.
pub(crate) fn decode(target: &Target, body: &[u8]) -> Result<Request, Malformed> {
    let tree = Tree::parse(body)?;
    if tree.members().is_none() {
        return Err(Malformed::not_json("expected an object"));
    }
    let mut fields = Fields::new(&tree, "", FROM)?;
    let ask = if target.method == Method::CountTokens { Operation::Count } else { Operation::Generate };
    let counts = ask == Operation::Count;
    let mut request = Request::new(fields.required_text("model")?, FROM, ask);
    let Some((items, path)) = fields.list("messages")? else { return Err(Malformed::missing(FROM, "messages")) };
    if items.is_empty() {
        return Err(Malformed::invalid(FROM, &path, "must not be empty"));
    }
    messages::system(&mut fields, &mut request)?;
    messages::read(items, &path, &mut request)?;
    tools::read(&mut fields, &mut request)?;
    params::read(&mut fields, &mut request)?;
    if !counts && request.params.max_tokens.is_none() {
        return Err(Malformed::missing(FROM, "max_tokens"));
    }
    for field in fields.rest() {
        request.refuse(field);
    }
    normalise(&mut request)?;
    Ok(request)
}
