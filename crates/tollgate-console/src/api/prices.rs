//! Prices side by side: what callers pay for a model, what each channel that serves it is charged, and which models have
//! no price at all.

use serde_json::{Value, json};
use tollgate_store::{AdminScope, Change, Kind, ModelSpec};

use super::{
    ask::Ask,
    form::{self, SCHEDULE},
    handler, paging,
    route::{AFTER, Gives, LIMIT, Method, Route, Takes},
    rows,
    shape::{How, MODEL_NAME, NAME, Object, Shape, both, read},
};
use crate::{answer::Answer, problem::Problem};

static COST: Object = Object {
    name: "ChannelCost",
    fields: &[
        read("channel", NAME, "Channel."),
        read("upstream", MODEL_NAME, "What the provider calls the model."),
        read("cost", SCHEDULE, "What the provider charges, before the account's multiplier; null: not known.").or_null(),
    ],
};
static PRICES: Object = Object {
    name: "ModelPrices",
    fields: &[
        read("model", MODEL_NAME, "What callers say."),
        both("price", SCHEDULE, "What callers pay, before the group's multiplier; null: not priced.").or_null(),
        read("served_by", Shape::List { of: &Shape::Of(&COST), most: 100_000 }, "Channels that serve it."),
    ],
};

pub(super) static ROUTES: &[Route] = &[
    Route {
        method: Method::Get,
        path: "/admin/v1/prices",
        resource: "prices",
        needs: AdminScope::Operator,
        id: "list_prices",
        doc: "Prices of every model that has a row or is served, in order of name.",
        query: &[LIMIT, AFTER, both("priced", Shape::Flag, "false: only those without a price.")],
        takes: Takes::Nothing,
        gives: Gives::Page(&PRICES),
        handler: handler!(list),
    },
    Route {
        method: Method::Put,
        path: "/admin/v1/prices/{model}",
        resource: "prices",
        needs: AdminScope::Operator,
        id: "set_price",
        doc: "Sets what callers pay for a model; makes its row where there is none.",
        query: &[],
        takes: Takes::Body(&PRICES, How::Part),
        gives: Gives::One(&PRICES),
        handler: handler!(set),
    },
];

/// Every model with its prices.
async fn all(ask: &Ask) -> Result<Vec<(String, Value)>, Problem> {
    let catalog = ask.within(ask.site.store.catalog.load()).await?;
    let mut names: Vec<&String> = catalog.models.keys().chain(catalog.served_by.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let shown = names.into_iter().map(|name| {
        let price = catalog.models.get(name).and_then(|model| model.price.as_ref());
        let served: Vec<Value> = catalog
            .channels
            .values()
            .flat_map(|channel| channel.serves.iter().filter(|serves| serves.model == *name).map(move |serves| (channel, serves)))
            .map(|(channel, serves)| {
                json!({"channel": channel.name, "upstream": serves.upstream, "cost": form::show_schedule(serves.cost.as_ref())})
            })
            .collect();
        (name.clone(), json!({"model": name, "price": form::show_schedule(price), "served_by": served}))
    });
    Ok(shown.collect())
}

async fn list(ask: Ask) -> Result<Answer, Problem> {
    let after = ask.query.text("after").unwrap_or_default();
    let priced = ask.query.0.get("priced").and_then(Value::as_bool);
    let mut models = all(&ask).await?;
    models.retain(|(name, shown)| name.as_str() > after && priced.is_none_or(|priced| shown["price"].is_null() != priced));
    models.truncate(ask.limit() as usize + 1);
    Ok(paging::page(models, ask.limit(), |(name, _)| name.clone(), |(_, shown)| shown.clone()))
}

async fn set(ask: Ask) -> Result<Answer, Problem> {
    let name = ask.at("model").to_owned();
    if !ask.body.has("price") {
        return Err(Problem::invalid("missing_required_parameter", "price", "Missing required parameter: 'price'."));
    }
    let there = rows::edit(&ask, Kind::Model, None, &name, |row| {
        let mut spec: ModelSpec = row.read()?;
        form::set_schedule(&ask.body, "price", &mut spec.price)?;
        Ok(vec![Change::PutModel(Box::new(spec))])
    });
    match there.await {
        Ok(_) => {}
        Err(problem) if problem.status == http::StatusCode::NOT_FOUND && !rows::is_id(Kind::Model, &name) => {
            if ask.if_match()?.is_some() {
                let message = format!("Model '{name}' has no row that could have this revision; leave If-Match away to make one.");
                return Err(Problem::conflict("revision_conflict", message));
            }
            let mut spec = ModelSpec { name: name.clone(), ..ModelSpec::default() };
            form::set_schedule(&ask.body, "price", &mut spec.price)?;
            let new = Change::ExpectNew { kind: Kind::Model, parent: String::new(), name: name.clone() };
            ask.apply(&[new, Change::PutModel(Box::new(spec))]).await?;
        }
        Err(problem) => return Err(problem),
    }
    let name = if rows::is_id(Kind::Model, &name) { rows::find(&ask, Kind::Model, None, &name).await?.name } else { name };
    let found = all(&ask).await?.into_iter().find(|(model, _)| *model == name);
    found.map(|(_, shown)| Answer::ok(shown)).ok_or_else(|| Problem::missing(Kind::Model, &name))
}
