//! The fields of a group and a model.

use serde_json::{Map, Value};
use tollgate_core::{
    Budget, Glob, Hedge, Multiplier, OnUnsupported, ParameterRule, PriceLimit, PriceSchedule, Routing, StreamBreak,
    TranslationPolicy, Visibility,
};

use super::{
    Access, Fault, Field, FieldShape, FieldValue as _, Kind, field,
    price::{budgets_differ, times_rise},
    table,
    value::{MODEL_NAME, NAME, not_an_id},
};
use crate::{GroupSpec, ModelSpec};

table!(
    GroupSpec,
    "Group",
    GroupSpec { models: vec![Glob("*".to_owned())], ..GroupSpec::default() },
    &[
        field!("name", name: String, "Unique.").kind(NAME).access(Access::Fixed).rule(not_an_id),
        field!("visibility", visibility: Visibility, "`private`: for members it was granted to."),
        field!("channels", channels: Vec<String>, "Names of the channels it may use.").kind(Kind::List { of: &NAME, most: 1_000 }),
        field!("models", models: Vec<Glob>, "Names or globs out of what the channels serve."),
        field!("sale_multiplier", sale_multiplier: Multiplier, "Factor on sale prices."),
        field!(
            "translation",
            translation: TranslationPolicy,
            "`lenient`: parameters another protocol cannot express are dropped and named; else the request is refused."
        ),
        field!(
            "signatures_in_ids",
            signatures_in_ids: Option<bool>,
            "Thought signatures of Gemini models also travel behind the ids of tool calls, for clients that drop members they do \
             not know; `false`: only in `extra_content` (docs/translation.md)."
        )
        .default_text("`true`"),
        field!("stream_break", stream_break: StreamBreak, "What a broken answer costs (docs/money.md)."),
        field!("price_limit", price_limit: Option<PriceLimit>, "Which channels are accepted by price."),
        field!(
            "never_below_cost",
            never_below_cost: bool,
            "`true`: accounts on which any kind of token sells below its cost are not used, nor those whose cost is unknown."
        ),
        field!("routing", routing: Routing, "What orders usable accounts of one priority."),
        field!(
            "hedge",
            hedge: Option<Hedge>,
            "A second attempt beside the first where the first token of a stream is late (docs/operating.md)."
        )
        .default_text("off"),
        field!("trace", trace: bool, "`true`: callers may ask how their accounts were chosen (`x-tollgate-trace: 1`)."),
        field!("rpm", limits.rpm: u32, "Requests a minute; 0: no bound."),
        field!("tpm", limits.tpm: u64, "Tokens a minute; 0: no bound."),
        field!("concurrency", limits.concurrency: u32, "Requests at once; 0: no bound."),
        field!("budget", budgets: Vec<Budget>, "Budget on sales, or a list of them.").rule(budgets_differ),
    ]
);

const PARAMETERS: Kind = Kind::List { of: &Kind::Text { least: 1, most: 256 }, most: 1_000 };

/// One of the two lists of parameters; null takes the rule away where this list is the one that is there.
macro_rules! parameters {
    ($name:literal, $rule:ident, $doc:literal) => {
        Field {
            shape: FieldShape::new($name, PARAMETERS, $doc).or_null(),
            get: |model: &Self| match &model.parameters {
                ParameterRule::$rule(names) => names.show(),
                _ => Value::Null,
            },
            set: |model: &mut Self, value| {
                if !value.is_null() {
                    model.parameters = ParameterRule::$rule(Vec::read(value)?);
                } else if matches!(model.parameters, ParameterRule::$rule(_)) {
                    model.parameters = ParameterRule::All;
                }
                Ok(())
            },
        }
    };
}

table!(
    ModelSpec,
    "Model",
    ModelSpec::default(),
    &[
        field!("name", name: String, "What callers say, as in `serves`.").kind(MODEL_NAME).access(Access::Fixed).rule(not_an_id),
        field!(
            "price",
            price: Option<PriceSchedule>,
            "What callers pay, before the group's multiplier: a price, or a list of prices over time."
        )
        .default_text("not priced")
        .rule(times_rise),
        field!("context", context: Option<u64>, "Context length in tokens.").within(1, i64::MAX),
        field!("max_output", max_output: Option<u64>, "Most output tokens.").within(1, i64::MAX),
        parameters!(
            "supported_parameters",
            Only,
            "Only these optional parameters are taken; chat names, or native paths such as `generationConfig.topK`."
        )
        .default_text("all are taken"),
        parameters!("unsupported_parameters", Except, "All optional parameters but these are taken.").default_text("all are taken"),
        field!(
            "on_unsupported",
            on_unsupported: OnUnsupported,
            "What happens with a parameter that is not taken: the request is refused, or it is dropped and named in \
             `x-tollgate-dropped`."
        ),
        Field {
            shape: FieldShape::new("visible", Kind::Flag, "`false`: left out of lists; callers that know the name can use it."),
            get: |model: &Self| (!model.hidden).into(),
            set: |model: &mut Self, value| {
                model.hidden = !bool::read(value)?;
                Ok(())
            },
        },
        field!("description", description: Option<String>, "One line about it."),
        field!("embeddings", embeddings: bool, "Offered for embeddings instead of generation."),
    ],
    review one_list
);

fn one_list(model: &Map<String, Value>) -> Option<(&'static str, Fault)> {
    let has = |name: &str| model.get(name).is_some_and(|value| !value.is_null());
    let both = has("supported_parameters") && has("unsupported_parameters");
    both.then(|| {
        let message = "give supported_parameters or unsupported_parameters, not both";
        ("supported_parameters", Fault::Value(message.to_owned()))
    })
}
