//! Groups: which models and channels their keys reach, at which prices, within which limits.

use serde_json::{Map, Value, json};
use tollgate_core::{Glob, Hedge, NanoUsd};
use tollgate_store::{AdminScope, Change, GroupSpec, Kind};

use super::{
    ask::Members,
    form::{self, BUDGETS, CONCURRENCY, PRICE_LIMIT, RPM, TPM},
    named::{self, Named, named_routes},
    previews,
    route::{AFTER, Gives, LIMIT, Method, Route, Takes},
    shape::{
        CREATED_AT, FACTOR, Field, How, NAME, OWNER, Object, POSITIVE_NANO_USD, POSITIVE_USD, REVISION, Shape, both, fixed, read,
    },
};
use crate::problem::Problem;

static HEDGE: Object = Object {
    name: "Hedge",
    fields: &[
        both("cost_cap_nano_usd", POSITIVE_NANO_USD, "What second attempts may cost in a UTC day, in nano-USD."),
        both("cost_cap_usd", POSITIVE_USD, "The same in USD."),
    ],
};

static GROUP: Object = Object {
    name: "Group",
    fields: &[
        read("id", Shape::Id("grp_"), "Id."),
        fixed("name", NAME, "Unique."),
        both("visibility", Shape::Word(&["public", "private"]), "private: for members it was granted to."),
        both("channels", Shape::List { of: &NAME, most: 1_000 }, "Names of the channels it may use."),
        both(
            "models",
            Shape::List { of: &Shape::Text { least: 1, most: 256 }, most: 1_000 },
            "Names and globs out of what they serve.",
        ),
        both("sale_multiplier", FACTOR, "Factor on sale prices."),
        both("translation", Shape::Word(&["strict", "lenient"]), "What happens with what another protocol cannot express."),
        both("stream_break", Shape::Word(&["provider_usage", "delivered", "none_if_empty"]), "What a broken answer costs."),
        PRICE_LIMIT,
        both("routing", Shape::Word(&["weighted", "cheapest", "fastest"]), "What orders usable accounts."),
        both("hedge", Shape::Of(&HEDGE), "A second attempt where the first token is late.").or_null(),
        both("signatures_in_ids", Shape::Flag, "Whether thought signatures travel behind the ids of tool calls.").or_null(),
        both("trace", Shape::Flag, "Whether callers may ask how their accounts were chosen."),
        RPM,
        TPM,
        CONCURRENCY,
        BUDGETS,
        OWNER,
        CREATED_AT,
        REVISION,
        previews::WITH_ROW,
        previews::CUT_WITH_ROW,
    ],
};

pub(super) static ROUTES: &[Route] = &named_routes!(
    Groups,
    &GROUP,
    "groups",
    "groups",
    ["list_groups", "make_group", "get_group", "change_group", "remove_group"],
    AdminScope::Operator,
    "group"
);

/// The resource.
struct Groups;

impl Named for Groups {
    type Spec = GroupSpec;
    const KIND: Kind = Kind::Group;
    const CHANGE_QUERY: &'static [Field] = previews::QUERY;

    fn name(spec: &GroupSpec) -> &str {
        &spec.name
    }

    fn show(spec: &GroupSpec) -> Map<String, Value> {
        let GroupSpec {
            name,
            visibility,
            channels,
            models,
            sale_multiplier,
            translation,
            stream_break,
            price_limit,
            routing,
            hedge,
            signatures_in_ids,
            trace,
            limits,
            budgets,
        } = spec;
        let hedge =
            hedge.map(|Hedge { cost_cap }| json!({"cost_cap_nano_usd": cost_cap, "cost_cap_usd": cost_cap.to_usd_string()}));
        let mut members = form::members(json!({
            "name": name,
            "visibility": visibility,
            "channels": channels,
            "models": models,
            "sale_multiplier": sale_multiplier.to_decimal(),
            "translation": translation,
            "stream_break": stream_break,
            "price_limit": form::show_price_limit(price_limit.as_ref()),
            "routing": routing,
            "hedge": hedge,
            "signatures_in_ids": signatures_in_ids,
            "trace": trace,
            "budgets": form::show_budgets(budgets),
        }));
        form::show_limits(limits, &mut members);
        members
    }

    fn take(sent: &Members, spec: &mut GroupSpec) -> Result<(), Problem> {
        sent.set_text("name", &mut spec.name);
        sent.set_word("visibility", &mut spec.visibility);
        sent.set_texts("channels", &mut spec.channels);
        form::set_globs(sent, &mut spec.models);
        sent.set_factor("sale_multiplier", &mut spec.sale_multiplier)?;
        sent.set_word("translation", &mut spec.translation);
        sent.set_word("stream_break", &mut spec.stream_break);
        form::set_price_limit(sent, &mut spec.price_limit)?;
        sent.set_word("routing", &mut spec.routing);
        if sent.has("hedge") {
            spec.hedge = match sent.0.get("hedge").filter(|hedge| !hedge.is_null()) {
                None => None,
                Some(hedge) => {
                    let cap: Option<NanoUsd> = form::amount(&Members::of(hedge), "cost_cap", "hedge")?;
                    Some(Hedge { cost_cap: cap.ok_or_else(|| form::missing_amount("cost_cap", "hedge"))? })
                }
            };
        }
        if sent.has("signatures_in_ids") {
            spec.signatures_in_ids = sent.0.get("signatures_in_ids").and_then(Value::as_bool);
        }
        sent.set_flag("trace", &mut spec.trace);
        form::read_limits(sent, &mut spec.limits);
        form::set_budgets(sent, &mut spec.budgets)
    }

    fn begin(_sent: &Members) -> GroupSpec {
        GroupSpec { models: vec![Glob("*".to_owned())], ..GroupSpec::default() }
    }

    fn put(spec: GroupSpec) -> Change {
        Change::PutGroup(Box::new(spec))
    }

    fn remove(group: String) -> Change {
        Change::RemoveGroup { group }
    }
}
