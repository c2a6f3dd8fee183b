//! `/models.json`.

use std::{collections::HashMap, sync::Arc};

use serde::Serialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use tollgate_core::{Group, Modality, ModelBadge, OfferState, ScheduledPrice, Timestamp, VisibleModel, visible_offers};
use tollgate_protocol::Protocol;
use tollgate_store::{
    RowKind,
    fields::{Kind, Object, Row, time_text},
};

use super::{
    Feed,
    conditional::Representation,
    offers::{OfferPart, ProtocolPart, set_id},
    snapshot::{self, SquareSnapshot},
    traffic::{TrafficFigures, TrafficPart},
    viewer::Viewer,
};
use crate::{
    api::schema::{COUNT, MODEL_NAME, NAME, TEXT, read},
    api_error::ApiError,
    state::ConsoleState,
};

const MODALITIES: Kind = Kind::List { of: &Kind::Word(&["text", "image", "audio", "video", "document"]), max: 1_000 };
const PRICE: Kind = Kind::Object(<ScheduledPrice as Row>::OBJECT);
/// Milliseconds.
const MS: Kind = Kind::Number { max: i64::MAX };
const TEXTS: Kind = Kind::List { of: &TEXT, max: 1_000 };

static FIRST_CONTENT: Object = Object::of(
    "FirstContent",
    &[read("p50", MS, "Half of the answers began within this time."), read("p95", MS, "95 % of them did.")],
);
static FIGURES: Object = Object::of(
    "TrafficFigures",
    &[
        read(
            "availability",
            Kind::Number { max: 1 },
            "Share of answered requests, without failures that were the caller's fault; null: too few requests.",
        )
        .or_null(),
        read("first_content_ms", Kind::Object(&FIRST_CONTENT), "Times to the first content of an answer; null: too few answers.")
            .or_null(),
        read(
            "output_tokens_per_s",
            Kind::Number { max: i64::MAX },
            "Output tokens per second of streamed answers, after their first content; null: too few of them.",
        )
        .or_null(),
        read(
            "buckets",
            Kind::List { of: &Kind::NumberOrNull { max: 1 }, max: 31 },
            "Availability by UTC hour (`day`) or UTC day (`week`, `month`), the current one last; null: too few requests.",
        ),
    ],
);
static STATE: Object = Object::of(
    "OfferState",
    &[
        read(
            "now",
            Kind::Word(&["available", "degraded", "unavailable"]),
            "degraded: some requests may fail; unavailable: no account can serve it, or nine of ten of its latest requests failed.",
        ),
        read("since", Kind::Time, "Start of the state; null: for as long as is known.").or_null(),
        read("until", Kind::Time, "Of `unavailable`: when it may work again; null: unknown.").or_null(),
    ],
);
static PROTOCOL: Object = Object::of(
    "OfferedProtocol",
    &[
        read("protocol", Kind::Word(&Protocol::WORDS), "Protocol of callers."),
        read("endpoints", TEXTS, "Paths that requests are sent to."),
        read("translated", Kind::Flag, "true: requests are translated to another protocol."),
        read("parameters", TEXT, "Id of an entry of `parameter_sets`."),
    ],
);
static OFFER: Object = Object::of(
    "Offer",
    &[
        read("group", NAME, "Group name."),
        read("kind", Kind::Word(&["generation", "embedding"]), "What it is offered for."),
        read("multiplier", Kind::Factor { max: i64::MAX }, "Factor of the group on the price of this model."),
        read("price", PRICE, "Price in force, after the group's multiplier; null: not priced.").or_null(),
        read("base_price", PRICE, "The same before the multiplier.").or_null(),
        read("next_price", PRICE, "Price that is announced, after the multiplier, from its `valid_from` on.").or_null(),
        read("protocols", Kind::List { of: &Kind::Object(&PROTOCOL), max: 10 }, "Protocols of callers that it is offered over."),
        read("state", Kind::Object(&STATE), "Whether it can be used now."),
        read("day", Kind::Object(&FIGURES), "Traffic of the last 24 UTC hours."),
        read("week", Kind::Object(&FIGURES), "Traffic of the last 7 UTC days."),
        read("month", Kind::Object(&FIGURES), "Traffic of the last 30 UTC days."),
    ],
);
static MODEL: Object = Object::of(
    "SquareModel",
    &[
        read("id", MODEL_NAME, "Name that requests use."),
        read("display_name", TEXT, "Name for people.").or_null(),
        read("vendor", TEXT, "Who made it.").or_null(),
        read("description", TEXT, "One-line description.").or_null(),
        read("context", COUNT, "Context length in tokens.").or_null(),
        read("max_output", COUNT, "Maximum number of output tokens.").or_null(),
        read("input_modalities", MODALITIES, "What it reads; null: not stated.").or_null(),
        read("output_modalities", MODALITIES, "What it writes; null: not stated.").or_null(),
        read("added_at", Kind::Time, "When it was added to these groups; null: unknown.").or_null(),
        read(
            "tags",
            Kind::List { of: &Kind::Word(&["new", "deprecated", "limited"]), max: 3 },
            "`new`: added within 14 days, and after the first day of the gateway; the others are set by the operator.",
        ),
        read("popularity", COUNT, "Rank by answered requests of the last 7 days, 1 for most; null: too few.").or_null(),
        read(
            "groups",
            Kind::List { of: &Kind::Object(&OFFER), max: 1_000 },
            "The groups that offer it. The first one serves the requests of a key that has several.",
        ),
    ],
);
static GROUP: Object = Object::of(
    "SquareGroup",
    &[
        read("name", NAME, "Group name."),
        read("description", TEXT, "What the group is for, in its operator's words.").or_null(),
        read("multiplier", Kind::Factor { max: i64::MAX }, "Factor on prices of models without a separate one."),
        read("multiplier_varies", Kind::Flag, "Whether some of the models have a separate factor."),
    ],
);
static PARAMETER_SET: Object = Object::of(
    "ParameterSet",
    &[
        read("id", TEXT, "What `parameters` of a protocol refers to."),
        read("supported", TEXTS, "Optional parameters that are passed on."),
        read("dropped", TEXTS, "Optional parameters that are accepted and dropped; `x-tollgate-dropped` names them."),
        read("unsupported", TEXTS, "Optional parameters that are refused."),
        read(
            "partly",
            TEXTS,
            "Those of `supported` that some channels refuse: requests with them are sent to the others; and those of `dropped` that \
             some channels pass on.",
        ),
    ],
);

/// The document. It contains only what its viewer may see.
pub(crate) static SQUARE: Object = Object::of(
    "ModelSquare",
    &[
        read("object", Kind::Word(&["model_square"]), "Type of the document."),
        read(
            "audience",
            Kind::Word(&["public", "key", "member", "group"]),
            "Who sees this: everyone, this key, this member, or callers of one group.",
        ),
        read("currency", Kind::Word(&["USD"]), "Currency of all prices."),
        read("groups", Kind::List { of: &Kind::Object(&GROUP), max: 1_000 }, "Groups that are shown, in the order of the key."),
        read("parameter_sets", Kind::List { of: &Kind::Object(&PARAMETER_SET), max: 100_000 }, "Which parameters are supported."),
        read("data", Kind::List { of: &Kind::Object(&MODEL), max: 1_000_000 }, "Models by name."),
    ],
);

#[derive(Serialize)]
struct Document<'a> {
    object: &'static str,
    audience: &'static str,
    currency: &'static str,
    groups: Vec<GroupEntry<'a>>,
    parameter_sets: Vec<ParameterSetEntry<'a>>,
    data: Vec<ModelEntry<'a>>,
}

#[derive(Serialize)]
struct GroupEntry<'a> {
    name: &'a str,
    description: Option<&'a str>,
    multiplier: String,
    multiplier_varies: bool,
}

#[derive(Serialize)]
struct ParameterSetEntry<'a> {
    id: String,
    supported: &'a [&'static str],
    dropped: &'a [&'static str],
    unsupported: &'a [&'static str],
    partly: &'a [&'static str],
}

#[derive(Serialize)]
struct ModelEntry<'a> {
    id: &'a str,
    display_name: Option<&'a str>,
    vendor: Option<&'a str>,
    description: Option<&'a str>,
    context: Option<u64>,
    max_output: Option<u64>,
    input_modalities: Option<&'a [Modality]>,
    output_modalities: Option<&'a [Modality]>,
    added_at: Option<String>,
    tags: Vec<&'static str>,
    popularity: Option<usize>,
    groups: Vec<&'a RawValue>,
}

#[derive(Serialize)]
struct OfferEntry<'a> {
    group: &'a str,
    kind: &'static str,
    multiplier: String,
    price: &'a Value,
    base_price: &'a Value,
    next_price: &'a Value,
    protocols: &'a [ProtocolPart],
    state: StateEntry,
    day: TrafficFigures,
    week: TrafficFigures,
    month: TrafficFigures,
}

#[derive(Serialize)]
struct StateEntry {
    now: &'static str,
    since: Option<String>,
    until: Option<String>,
}

/// The part of the document about one offer.
#[derive(Debug)]
pub(super) struct OfferDocument {
    json: Box<RawValue>,
    parameter_sets: Vec<usize>,
}

pub(super) fn offer_document(offer: &OfferPart, state: OfferState, traffic: &TrafficPart) -> OfferDocument {
    let [day, week, month] = traffic.figures(offer.group.id, &offer.model.spec.name);
    let entry = OfferEntry {
        group: &offer.group.name,
        kind: if offer.embeds { "embedding" } else { "generation" },
        multiplier: offer.group.sale_multiplier(&offer.model.spec.name).to_decimal(),
        price: &offer.price,
        base_price: &offer.base_price,
        next_price: &offer.next_price,
        protocols: &offer.protocols,
        state: StateEntry { now: state.condition.as_str(), since: state.since.map(time_text), until: state.until.map(time_text) },
        day,
        week,
        month,
    };
    let json = to_raw_value(&entry).expect("an offer has string keys only");
    OfferDocument { json, parameter_sets: offer.protocols.iter().map(|protocol| protocol.parameter_set).collect() }
}

/// The document for a viewer, optionally of one model or one group.
pub(super) fn represent(
    snapshot: &SquareSnapshot,
    viewer: &Viewer,
    model: Option<&str>,
    group: Option<&str>,
) -> Result<Arc<Representation>, ApiError> {
    let narrowed = match group {
        Some(name) => Some(viewer.within(name).ok_or_else(|| ApiError::not_found(RowKind::Group))?),
        None => None,
    };
    let viewer = narrowed.as_ref().unwrap_or(viewer);
    let write = || Representation::new("application/json; charset=utf-8", write(snapshot, viewer, model));
    match model {
        None => Ok(snapshot.represent(viewer, Feed::Json, write)),
        Some(name) if visible_offers(&snapshot.catalog, viewer.audience()).iter().any(|it| it.model.spec.name == name) => {
            Ok(write())
        }
        Some(_) => Err(ApiError::not_found(RowKind::Model)),
    }
}

/// The document as callers of one group see it, for operators.
pub(crate) async fn document_of_group(state: &Arc<ConsoleState>, group: &str) -> Result<Value, ApiError> {
    let snapshot = snapshot::snapshot(state).await?;
    let group = snapshot.catalog.group_by_name(group).ok_or_else(|| ApiError::not_found(RowKind::Group))?;
    let document = represent(&snapshot, &Viewer::of_group(group), None, None)?;
    serde_json::from_slice(document.body()).map_err(|_| ApiError::internal())
}

/// The models of a document in order of name, each with its groups.
fn by_model(offers: &[VisibleModel]) -> Vec<&[VisibleModel]> {
    offers.chunk_by(|one, next| one.model.spec.name == next.model.spec.name).collect()
}

fn write(snapshot: &SquareSnapshot, viewer: &Viewer, only: Option<&str>) -> Vec<u8> {
    let offers = visible_offers(&snapshot.catalog, viewer.audience());
    let models = by_model(&offers);
    let popularity = popularity(snapshot, &models);
    let mut used = vec![false; snapshot.offers.parameter_sets.len()];
    let shown = models.into_iter().filter(|offers| only.is_none_or(|only| offers[0].model.spec.name == only));
    let data: Vec<ModelEntry<'_>> = shown.map(|offers| model_entry(snapshot, offers, &popularity, &mut used)).collect();
    let sets = snapshot.offers.parameter_sets.iter().enumerate().filter(|(index, _)| used[*index]);
    let document = Document {
        object: "model_square",
        audience: viewer.word(),
        currency: "USD",
        groups: viewer
            .groups()
            .iter()
            .map(|group| GroupEntry {
                name: &group.name,
                description: group.description.as_deref(),
                multiplier: group.multipliers.of_group().to_decimal(),
                multiplier_varies: varies(group, &offers),
            })
            .collect(),
        parameter_sets: sets
            .map(|(index, set)| ParameterSetEntry {
                id: set_id(index),
                supported: &set.supported,
                dropped: &set.dropped,
                unsupported: &set.unsupported,
                partly: &set.partly,
            })
            .collect(),
        data,
    };
    serde_json::to_vec(&document).expect("the document has string keys only")
}

/// Whether one of the group's models that the viewer sees has its own factor. Factors of other models are not revealed.
fn varies(group: &Group, offers: &[VisibleModel]) -> bool {
    let mut own = offers.iter().filter(|offer| offer.group.id == group.id).map(|offer| &offer.model.spec.name);
    group.multipliers.vary() && own.any(|model| group.multipliers.own(model).is_some())
}

/// A model with its offers. `used` marks the parameter sets that they refer to.
fn model_entry<'a>(
    snapshot: &'a SquareSnapshot,
    offers: &'a [VisibleModel],
    popularity: &HashMap<&str, usize>,
    used: &mut [bool],
) -> ModelEntry<'a> {
    let spec = &offers[0].model.spec;
    let shown = offers.iter().filter_map(|offer| snapshot.document(offer.group.id, &spec.name));
    let groups = shown.map(|document| {
        document.parameter_sets.iter().for_each(|index| used[*index] = true);
        &*document.json
    });
    let stated = |modalities: &'a Vec<Modality>| Some(&modalities[..]).filter(|modalities| !modalities.is_empty());
    let since = |offer: &VisibleModel| snapshot.history.offered_since.get(&(offer.group.id, spec.name.clone())).copied();
    let added_at: Option<Timestamp> = offers.iter().filter_map(since).min();
    ModelEntry {
        id: &spec.name,
        display_name: spec.display_name.as_deref(),
        vendor: spec.vendor.as_deref(),
        description: spec.description.as_deref(),
        context: spec.context,
        max_output: spec.max_output,
        input_modalities: stated(&spec.input_modalities),
        output_modalities: stated(&spec.output_modalities),
        added_at: added_at.map(time_text),
        tags: tags(spec.badge, added_at.is_some_and(|at| snapshot.is_new(at))),
        popularity: popularity.get(spec.name.as_str()).copied(),
        groups: groups.collect(),
    }
}

fn tags(badge: Option<ModelBadge>, is_new: bool) -> Vec<&'static str> {
    let said = badge.map(|badge| match badge {
        ModelBadge::Deprecated => "deprecated",
        ModelBadge::Limited => "limited",
    });
    is_new.then_some("new").into_iter().chain(said).collect()
}

/// The rank of each model by its answered requests in the viewer's groups.
fn popularity<'a>(snapshot: &SquareSnapshot, models: &[&'a [VisibleModel]]) -> HashMap<&'a str, usize> {
    let answered = |offers: &&'a [VisibleModel]| {
        let name = offers[0].model.spec.name.as_str();
        let counts = offers.iter().filter_map(|offer| snapshot.traffic.answered(offer.group.id, name));
        counts.reduce(u64::saturating_add).map(|answered| (answered, name))
    };
    let mut places: Vec<(u64, &str)> = models.iter().filter_map(answered).collect();
    places.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
    places.into_iter().zip(1..).map(|((_, name), place)| (name, place)).collect()
}
