//! Decodes Gemini requests into the neutral form, with the leniency of proto3 JSON. Fields without a counterpart in the other
//! protocols are recorded as unsupported, not ignored.

mod config;
mod contents;
mod embed;
mod tools;

use crate::{
    FieldViolation, Malformed, MalformedKind, Method, Protocol, Target,
    neutral::{Located, Operation, Request, normalise::normalise},
    object::Fields,
    tree::Tree,
};

const FROM: Protocol = Protocol::Gemini;

/// Decodes the body of any Gemini method; model and method come from the path.
pub(crate) fn decode(target: &Target, body: &[u8]) -> Result<Request, Malformed> {
    let tree = Tree::parse(body)?;
    if tree.members().is_none() {
        return Err(Malformed::not_json("expected an object"));
    }
    let model = target.model.clone().unwrap_or_default();
    let mut fields = Fields::new(&tree, "", FROM)?;
    match target.method {
        Method::EmbedContent | Method::Embeddings => embed::one(fields, model),
        Method::BatchEmbedContents => embed::batch(fields, model),
        Method::CountTokens => {
            let mut request = Request::new(model, FROM, Operation::Count);
            let inner = fields.object("generateContentRequest")?;
            generate(inner.unwrap_or(fields), &mut request)?;
            Ok(request)
        }
        Method::Generate | Method::StreamGenerate | Method::Chat => {
            let mut request = Request::new(model, FROM, Operation::Generate);
            request.params.stream = target.method == Method::StreamGenerate;
            generate(fields, &mut request)?;
            Ok(request)
        }
    }
}

fn generate(mut fields: Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    let Some((items, path)) = fields.list("contents")? else {
        return Err(no_contents(&mut fields));
    };
    if items.is_empty() {
        return Err(Malformed::invalid(FROM, &path, "must not be empty"));
    }
    if let Some(system) = fields.object("systemInstruction")? {
        contents::system(system, request)?;
    }
    contents::read(items, &path, request)?;
    tools::read(&mut fields, request)?;
    if let Some(config) = fields.object("generationConfig")? {
        config::read(config, request)?;
    }
    rest(&mut fields, request)?;
    normalise(request)
}

fn rest(fields: &mut Fields<'_, '_>, request: &mut Request) -> Result<(), Malformed> {
    request.params.google.cached_content = fields.text("cachedContent")?;
    if let Some((_, path)) = fields.list("safetySettings")? {
        let settings = fields.take("safetySettings").map(|field| field.value.compact()).unwrap_or_default();
        request.params.google.safety_settings = Some(Located::new(settings, path));
    }
    if let Some(tier) = fields.text("serviceTier")? {
        match tier.value.to_ascii_lowercase().as_str() {
            "unspecified" | "standard" | "service_tier_unspecified" => {}
            lower @ ("flex" | "priority") => request.params.tier = Some(Located::new(lower, tier.path)),
            _ => request.refuse(tier.path),
        }
    }
    if let Some(store) = fields.bool("store")?.filter(|store| store.value) {
        request.refuse(store.path);
    }
    request.dropped.extend(fields.paths(&["labels"]));
    fields.ignore(&["model"]);
    for field in fields.rest() {
        request.refuse(field);
    }
    Ok(())
}

fn no_contents(fields: &mut Fields<'_, '_>) -> Malformed {
    if fields.take("messages").is_none() {
        return Malformed::missing(FROM, "contents");
    }
    let message = "The body could not be parsed: unknown field 'messages'; the native protocol expects 'contents' (array of \
                   {role, parts}), not 'messages'.";
    let violation = FieldViolation { field: "messages".to_owned(), description: "Unknown field; use 'contents'.".to_owned() };
    Malformed { kind: MalformedKind::Missing, message: message.to_owned(), violations: vec![violation] }
}
