//! The fields of a group and a model.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tollgate_core::{
    Budget, Glob, Hedge, Modality, ModelBadge, ModelSpec, Multiplier, OnUnsupported, ParameterRule, PriceLimit, PriceSchedule,
    Routing, StreamBreak, TranslationPolicy, Visibility,
};

use super::{
    Access, Fault, Field, FieldShape, FieldValue as _, Kind, field,
    price::{budgets_differ, times_rise},
    table,
    value::{MODEL_NAME, NAME, not_an_id},
};
use crate::GroupSpec;

table!(
    GroupSpec,
    "Group",
    GroupSpec { models: vec![Glob("*".to_owned())], ..GroupSpec::default() },
    &[
        field!("name", name: String, "Unique.").kind(NAME).access(Access::Fixed).rule(not_an_id),
        field!("description", description: Option<String>, "Description for callers who choose a group.")
            .kind(Kind::Text { min: 1, max: 200 }),
        field!("visibility", visibility: Visibility, "`private`: only for members who were granted it."),
        field!("channels", channels: Vec<String>, "Names of the channels it may use.").kind(Kind::List { of: &NAME, max: 1_000 }),
        field!("models", models: Vec<Glob>, "Names or globs of the models offered, among those its channels serve."),
        field!("sale_multiplier", sale_multiplier: Multiplier, "Factor on sale prices."),
        field!(
            "model_multipliers",
            model_multipliers: BTreeMap<Glob, Multiplier>,
            "Factors of models, by name or glob, instead of `sale_multiplier`. Of several that match a model the most specific applies \
             (docs/money.md)."
        )
        .rule(for_some_models),
        field!(
            "translation",
            translation: TranslationPolicy,
            "`lenient`: drops parameters the upstream protocol cannot express and reports them; `strict`: refuses the request."
        ),
        field!(
            "signatures_in_ids",
            signatures_in_ids: Option<bool>,
            "Thought signatures of Gemini models are also appended to the ids of tool calls, for clients that drop unknown members; \
             `false`: only in `extra_content` (docs/translation.md)."
        )
        .default_text("`true`"),
        field!("stream_break", stream_break: StreamBreak, "What an interrupted answer costs (docs/money.md)."),
        field!("price_limit", price_limit: Option<PriceLimit>, "Excludes channels by price."),
        field!(
            "never_below_cost",
            never_below_cost: bool,
            "`true`: excludes accounts on which any kind of token sells below its cost, and those whose cost is unknown."
        ),
        field!("routing", routing: Routing, "How accounts of equal priority are ordered."),
        field!(
            "hedge",
            hedge: Option<Hedge>,
            "Starts a second attempt when the first token of a stream is late (docs/operating.md)."
        )
        .default_text("off"),
        field!("trace", trace: bool, "`true`: callers may request a routing trace (`x-tollgate-trace: 1`)."),
        field!(
            "log_contents",
            log_contents: bool,
            "`true`: bodies and answers of its requests are stored, where `contents.store` is on (docs/contents.md)."
        ),
        field!(
            "self_service",
            self_service: bool,
            "`true`: members may make, rotate, disable and revoke their own keys of this group (docs/people.md)."
        ),
        field!("rpm", limits.rpm: u32, "Requests per minute; 0: unlimited."),
        field!("tpm", limits.tpm: u64, "Tokens per minute; 0: unlimited."),
        field!("concurrency", limits.concurrency: u32, "Concurrent requests; 0: unlimited."),
        field!("budget", budgets: Vec<Budget>, "One budget or a list, counted by sales.").rule(budgets_differ),
    ]
);

/// A factor of all models would hide the group's.
fn for_some_models(value: &Value) -> Result<(), String> {
    let all = |pattern: &&String| Glob((*pattern).clone()).matches_all();
    let found = value.as_object().into_iter().flat_map(Map::keys).find(all);
    found.map_or(Ok(()), |pattern| Err(format!("'{pattern}' matches every model; set sale_multiplier instead")))
}

const PARAMETERS: Kind = Kind::List { of: &Kind::Text { min: 1, max: 256 }, max: 1_000 };

/// One of the two parameter lists; null removes the rule if it is of this kind.
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
        field!("name", name: String, "Model name used by callers, as in `serves`.").kind(MODEL_NAME).access(Access::Fixed).rule(not_an_id),
        field!(
            "price",
            price: Option<PriceSchedule>,
            "What callers pay, before the group's multiplier: a price, or a list of prices over time."
        )
        .default_text("not priced")
        .rule(times_rise),
        field!(
            "context",
            context: Option<u64>,
            "Context length in tokens; also the bound of input that a request does not show (docs/money.md)."
        )
        .within(1, i64::MAX),
        field!("max_output", max_output: Option<u64>, "Maximum number of output tokens.").within(1, i64::MAX),
        parameters!(
            "supported_parameters",
            Only,
            "Only these optional parameters are accepted; chat names, or native paths such as `generationConfig.topK`."
        )
        .default_text("all are accepted"),
        parameters!("unsupported_parameters", Except, "All optional parameters except these are accepted.").default_text("all are accepted"),
        field!(
            "on_unsupported",
            on_unsupported: OnUnsupported,
            "What happens to a parameter that is not accepted: the request is refused, or the parameter is dropped and reported in \
             `x-tollgate-dropped`."
        ),
        Field {
            shape: FieldShape::new("visible", Kind::Flag, "`false`: hidden from model lists, still usable by name."),
            get: |model: &Self| (!model.hidden).into(),
            set: |model: &mut Self, value| {
                model.hidden = !bool::read(value)?;
                Ok(())
            },
        },
        field!("description", description: Option<String>, "One-line description."),
        field!("embeddings", embeddings: bool, "Offered for embeddings instead of generation."),
        field!("display_name", display_name: Option<String>, "Name shown beside `name` in the model square.")
            .kind(Kind::Text { min: 1, max: 256 }),
        field!("vendor", vendor: Option<String>, "Who made the model, shown in the model square.").kind(Kind::Text { min: 1, max: 100 }),
        field!("input_modalities", input_modalities: Vec<Modality>, "What the model reads, shown in the model square.")
            .default_text("not stated"),
        field!("output_modalities", output_modalities: Vec<Modality>, "What the model writes, shown in the model square.")
            .default_text("not stated"),
        field!(
            "badge",
            badge: Option<ModelBadge>,
            "Remark in the model square: `deprecated`: it will be removed; `limited`: offered for some time or in small amounts only."
        ),
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
