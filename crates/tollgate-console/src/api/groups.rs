//! Groups: which models and channels their keys reach, at which prices, within which limits.

use serde_json::{Map, Value, json};
use tollgate_core::{Glob, Hedge, NanoUsd};
use tollgate_store::{AdminScope, Change, GroupSpec, RowKind};

use super::{
    named_resource::{self, NamedResource, named_routes},
    previews,
    request_context::InputFields,
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route},
    schema::{
        CREATED_AT, FACTOR, FieldSchema, NAME, OWNER, ObjectSchema, POSITIVE_NANO_USD, POSITIVE_USD, REVISION, ValueSchema,
        WriteMode, both, fixed, read,
    },
    shared_fields::{self, BUDGETS, CONCURRENCY, PRICE_LIMIT, RPM, TPM},
};
use crate::api_error::ApiError;

static HEDGE: ObjectSchema = ObjectSchema {
    name: "Hedge",
    fields: &[
        both("cost_cap_nano_usd", POSITIVE_NANO_USD, "What second attempts may cost in a UTC day, in nano-USD."),
        both("cost_cap_usd", POSITIVE_USD, "The same in USD."),
    ],
};

static GROUP: ObjectSchema = ObjectSchema {
    name: "Group",
    fields: &[
        read("id", ValueSchema::Id("grp_"), "Id."),
        fixed("name", NAME, "Unique."),
        both("visibility", ValueSchema::Enum(&["public", "private"]), "private: for members it was granted to."),
        both("channels", ValueSchema::List { of: &NAME, most: 1_000 }, "Names of the channels it may use."),
        both(
            "models",
            ValueSchema::List { of: &ValueSchema::String { least: 1, most: 256 }, most: 1_000 },
            "Names and globs out of what they serve.",
        ),
        both("sale_multiplier", FACTOR, "Factor on sale prices."),
        both("translation", ValueSchema::Enum(&["strict", "lenient"]), "What happens with what another protocol cannot express."),
        both("stream_break", ValueSchema::Enum(&["provider_usage", "delivered", "none_if_empty"]), "What a broken answer costs."),
        PRICE_LIMIT,
        both("routing", ValueSchema::Enum(&["weighted", "cheapest", "fastest"]), "What orders usable accounts."),
        both("hedge", ValueSchema::Object(&HEDGE), "A second attempt where the first token is late.").or_null(),
        both("signatures_in_ids", ValueSchema::Boolean, "Whether thought signatures travel behind the ids of tool calls.")
            .or_null(),
        both("trace", ValueSchema::Boolean, "Whether callers may ask how their accounts were chosen."),
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
    GroupResource,
    &GROUP,
    "groups",
    "groups",
    ["list_groups", "make_group", "get_group", "change_group", "remove_group"],
    AdminScope::Operator,
    "group"
);

/// The resource.
struct GroupResource;

impl NamedResource for GroupResource {
    type Spec = GroupSpec;
    const KIND: RowKind = RowKind::Group;
    const CHANGE_QUERY: &'static [FieldSchema] = previews::QUERY;

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
        let mut members = shared_fields::members(json!({
            "name": name,
            "visibility": visibility,
            "channels": channels,
            "models": models,
            "sale_multiplier": sale_multiplier.to_decimal(),
            "translation": translation,
            "stream_break": stream_break,
            "price_limit": shared_fields::show_price_limit(price_limit.as_ref()),
            "routing": routing,
            "hedge": hedge,
            "signatures_in_ids": signatures_in_ids,
            "trace": trace,
            "budgets": shared_fields::show_budgets(budgets),
        }));
        shared_fields::show_limits(limits, &mut members);
        members
    }

    fn take(sent: &InputFields, spec: &mut GroupSpec) -> Result<(), ApiError> {
        sent.set_text("name", &mut spec.name);
        sent.set_word("visibility", &mut spec.visibility);
        sent.set_texts("channels", &mut spec.channels);
        shared_fields::set_globs(sent, &mut spec.models);
        sent.set_factor("sale_multiplier", &mut spec.sale_multiplier)?;
        sent.set_word("translation", &mut spec.translation);
        sent.set_word("stream_break", &mut spec.stream_break);
        shared_fields::set_price_limit(sent, &mut spec.price_limit)?;
        sent.set_word("routing", &mut spec.routing);
        if sent.has("hedge") {
            spec.hedge = match sent.0.get("hedge").filter(|hedge| !hedge.is_null()) {
                None => None,
                Some(hedge) => {
                    let cap: Option<NanoUsd> = shared_fields::amount(&InputFields::of(hedge), "cost_cap", "hedge")?;
                    Some(Hedge { cost_cap: cap.ok_or_else(|| shared_fields::missing_amount("cost_cap", "hedge"))? })
                }
            };
        }
        if sent.has("signatures_in_ids") {
            spec.signatures_in_ids = sent.0.get("signatures_in_ids").and_then(Value::as_bool);
        }
        sent.set_flag("trace", &mut spec.trace);
        shared_fields::read_limits(sent, &mut spec.limits);
        shared_fields::set_budgets(sent, &mut spec.budgets)
    }

    fn begin(_sent: &InputFields) -> GroupSpec {
        GroupSpec { models: vec![Glob("*".to_owned())], ..GroupSpec::default() }
    }

    fn put(spec: GroupSpec) -> Change {
        Change::PutGroup(Box::new(spec))
    }

    fn remove(group: String) -> Change {
        Change::RemoveGroup { group }
    }
}
