//! The fields of a group.

use tollgate_core::{Budget, Glob, Hedge, Multiplier, PriceLimit, Routing, StreamBreak, TranslationPolicy, Visibility};

use super::{
    Access, Kind, field,
    price::budgets_differ,
    table,
    value::{NAME, not_an_id},
};
use crate::GroupSpec;

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
