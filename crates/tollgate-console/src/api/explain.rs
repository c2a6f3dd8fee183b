//! Why a request would go where it goes: the same answer as `tollgate explain --json`, with what the running gateway
//! knows.

use tollgate_core::parse_max_price;
use tollgate_protocol::Protocol;
use tollgate_store::{AdminScope, Kind};

use super::{
    ask::Ask,
    handler,
    route::{Gives, Method, Route, Takes},
    rows,
    shape::{MODEL_NAME, NAME, Shape, both, needed},
};
use crate::{Question, answer::Answer, problem::Problem};

/// Tokens of one request.
const MOST_TOKENS: i64 = 1_000_000_000;

pub(super) static ROUTES: &[Route] = &[Route {
    method: Method::Get,
    path: "/admin/v1/explain",
    resource: "explain",
    needs: AdminScope::Operator,
    id: "explain",
    doc: "Whether limits of its caller refuse a request, which accounts it would use, in order, and why not the others.",
    query: &[
        needed("model", MODEL_NAME, "As a caller names it."),
        needed("key", NAME, "Key id, or its name where only one has it."),
        both("protocol", Shape::Word(&["openai", "gemini"]), "The caller's; openai where it is left out."),
        both("fields", Shape::Text { least: 1, most: 1_000 }, "Fields the request would carry besides, with commas between."),
        both("max_price", Shape::Text { least: 1, most: 200 }, "Its `x-tollgate-max-price`."),
        both(
            "input_tokens",
            Shape::Whole { least: 0, most: MOST_TOKENS },
            "What its input is estimated at; 1000 where it is left out.",
        ),
        both(
            "output_tokens",
            Shape::Whole { least: 1, most: MOST_TOKENS },
            "The output limit it asks for; none where it is left out, so that the model's own counts, else 16384.",
        ),
    ],
    takes: Takes::Nothing,
    gives: Gives::Document,
    handler: handler!(explain),
}];

async fn explain(ask: Ask) -> Result<Answer, Problem> {
    let asked = ask.query.text("key").unwrap_or_default();
    let id = rows::key_id(&ask, asked).await?;
    let key = ask.site.store.listing.key(id).await?.ok_or_else(|| Problem::missing(Kind::Key, asked))?;
    let max_price = ask.query.text("max_price").map(parse_max_price).transpose();
    let question = Question {
        key,
        model: ask.query.text("model").unwrap_or_default().to_owned(),
        protocol: ask.query.text("protocol").and_then(Protocol::parse).unwrap_or(Protocol::OpenAi),
        fields: ask
            .query
            .text("fields")
            .map(|text| text.split(',').map(|field| field.trim().to_owned()).collect())
            .unwrap_or_default(),
        input_tokens: ask.query.whole("input_tokens").and_then(|tokens| u64::try_from(tokens).ok()),
        output_tokens: ask.query.whole("output_tokens").and_then(|tokens| u64::try_from(tokens).ok()),
        max_price: max_price.map_err(|fault| Problem::value("max_price", fault))?,
    };
    let explained = ask.within(ask.site.running.explain(&question)).await?.map_err(|fault| Problem::value("model", fault))?;
    Ok(Answer::ok(explained))
}
