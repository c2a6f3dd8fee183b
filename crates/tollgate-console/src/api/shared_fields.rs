//! Parts that several resources have: limits, budgets, prices, price limits. Each as its description, and both ways
//! between JSON and the store's types. Members are spelled as in a catalog file; amounts are an integer of nano-USD and
//! beside it the same in USD, and a request may send either.

use serde_json::{Map, Value, json};
use tollgate_core::{
    Budget, BudgetAction, Glob, Limits, Multiplier, NanoUsd, Price, PriceLimit, PriceLimitMode, PriceLimitOn, PriceSchedule,
    PriceTier, ScheduledPrice, Window,
};
use tollgate_store::StoredRow;

use super::{
    request_context::{InputFields, RequestContext},
    schema::{
        COUNT, COUNT_32, FACTOR, FieldAccess, FieldSchema, ObjectSchema, POSITIVE_NANO_USD, POSITIVE_USD, ValueSchema, both, needed,
    },
};
use crate::{api_error::ApiError, time::time_value};

pub(super) const RPM: FieldSchema = both("rpm", COUNT_32, "Requests a minute; 0: no bound.");
pub(super) const TPM: FieldSchema = both("tpm", COUNT, "Tokens a minute; 0: no bound.");
pub(super) const CONCURRENCY: FieldSchema = both("concurrency", COUNT_32, "Requests at once; 0: no bound.");
pub(super) const BUDGETS: FieldSchema = both("budgets", BUDGET_LIST, "Money over time.");
pub(super) const PRICE_LIMIT: FieldSchema =
    both("price_limit", ValueSchema::Object(&PRICE_LIMIT_OBJECT), PRICE_LIMIT_DOC).or_null();

const PRICE_LIMIT_DOC: &str = "Which channels are accepted by price, such as {\"mode\":\"ceiling\",\"max_input\":\"1.5\",\
                               \"max_output\":\"6\",\"on\":\"cost\"}, {\"mode\":\"min_margin\",\"min_margin\":\"0.2\"} or \
                               {\"mode\":\"priced_only\"}.";

const BUDGET_LIST: ValueSchema = ValueSchema::List { of: &BUDGET_ITEM, most: 8 };
static BUDGET_ITEM: ValueSchema = ValueSchema::Object(&BUDGET);
pub(super) static BUDGET: ObjectSchema = ObjectSchema {
    name: "Budget",
    fields: &[
        both("amount_nano_usd", POSITIVE_NANO_USD, "How much, in nano-USD."),
        both("amount_usd", POSITIVE_USD, "The same in USD."),
        needed("window", ValueSchema::Enum(&["day", "month", "total"]), "UTC days and months, or for ever."),
        both("action", ValueSchema::Enum(&["block", "alert"]), "What happens when it is spent; `block` where it is left out."),
    ],
};

static PRICE_LIMIT_OBJECT: ObjectSchema = ObjectSchema {
    name: "PriceLimit",
    fields: &[
        needed("mode", ValueSchema::Enum(&["priced_only", "ceiling", "min_margin"]), "The rule."),
        both("on", ValueSchema::Enum(&["sale", "cost"]), "Which price it looks at; `sale` where it is left out."),
        both("max_input_nano_usd", POSITIVE_NANO_USD, "Bound of `ceiling` on input, nano-USD per million tokens.").or_null(),
        both("max_input_usd", POSITIVE_USD, "The same in USD.").or_null(),
        both("max_input", POSITIVE_USD, "As `max_input_usd`, in the catalog file's word.").or_null().with(FieldAccess::Write),
        both("max_output", POSITIVE_USD, "As `max_output_usd`, in the catalog file's word.").or_null().with(FieldAccess::Write),
        both("max_output_nano_usd", POSITIVE_NANO_USD, "Bound of `ceiling` on output, nano-USD per million tokens.").or_null(),
        both("max_output_usd", POSITIVE_USD, "The same in USD.").or_null(),
        both("min_margin", FACTOR, "Of `min_margin`: (sale - cost) / sale, between 0 and 1.").or_null(),
    ],
};

/// Price members by kind: nano-USD and USD.
macro_rules! price_fields {
    ($($nano:literal, $usd:literal, $doc:literal;)+ ; $($more:expr),*) => {
        &[
            $($more,)*
            $(
                both($nano, POSITIVE_NANO_USD, $doc).or_null(),
                both($usd, POSITIVE_USD, "The same in USD.").or_null(),
            )+
        ]
    };
}
macro_rules! price_object {
    ($name:literal, $($more:expr),*) => {
        ObjectSchema {
            name: $name,
            fields: price_fields!(
                "input_nano_usd", "input_usd", "Nano-USD per million input tokens.";
                "output_nano_usd", "output_usd", "Nano-USD per million output tokens.";
                "cache_read_nano_usd", "cache_read_usd", "Per million tokens read from a cache; else as input.";
                "cache_write_nano_usd", "cache_write_usd", "Per million tokens written to a cache; else as input.";
                "thinking_nano_usd", "thinking_usd", "Per million thinking tokens; else as output.";
                "image_nano_usd", "image_usd", "Per million image tokens; else as input.";
                "audio_nano_usd", "audio_usd", "Per million audio tokens; else as input.";
                "per_request_nano_usd", "per_request_usd", "For each request.";
                ; $($more),*
            ),
        }
    };
}

static TIER: ObjectSchema = price_object!("PriceTier", needed("above", COUNT, "Applies to prompts of more tokens than this."));
static PRICE: ObjectSchema = price_object!(
    "Price",
    both("valid_from", ValueSchema::Time, "From when on; `null`: always.").or_null(),
    both(
        "tiers",
        ValueSchema::List { of: &ValueSchema::Object(&TIER), most: 16 },
        "Other prices for long prompts, lowest bound first."
    )
);
/// Prices over time.
pub(super) const SCHEDULE: ValueSchema = ValueSchema::List { of: &ValueSchema::Object(&PRICE), most: 64 };

/// A row that is made to have ended already is a typing error.
pub(super) fn require_future(context: &RequestContext, name: &str) -> Result<(), ApiError> {
    match context.body.time(name) {
        Some(at) if at <= context.now() => Err(ApiError::value(name, "it lies in the past; what is made now would never work")),
        Some(_) | None => Ok(()),
    }
}

// === what every row has ===

/// An object with what every row shows, to be filled up.
pub(super) fn row_of(row: &StoredRow) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("id".to_owned(), row.id.clone().into());
    members.insert("owner".to_owned(), json!(row.owner));
    members.insert("created_at".to_owned(), time_value(row.created_at));
    members.insert("revision".to_owned(), row.revision.0.into());
    members
}

/// The members of an object.
pub(super) fn members(object: Value) -> Map<String, Value> {
    if let Value::Object(members) = object { members } else { Map::new() }
}

/// Names and globs of models.
pub(super) fn set_globs(from: &InputFields, to: &mut Vec<Glob>) {
    if let Some(globs) = from.list("models") {
        *to = globs.iter().filter_map(Value::as_str).map(|glob| Glob(glob.to_owned())).collect();
    }
}

// === limits and budgets ===

pub(super) fn show_limits(limits: &Limits, to: &mut Map<String, Value>) {
    let Limits { rpm, tpm, concurrency } = *limits;
    to.extend(
        [("rpm", json!(rpm)), ("tpm", json!(tpm)), ("concurrency", json!(concurrency))].map(|(name, it)| (name.to_owned(), it)),
    );
}

pub(super) fn read_limits(from: &InputFields, to: &mut Limits) {
    from.set_number("rpm", &mut to.rpm);
    from.set_number("tpm", &mut to.tpm);
    from.set_number("concurrency", &mut to.concurrency);
}

pub(super) fn show_budget(budget: &Budget) -> Value {
    let Budget { amount, window, action } = budget;
    json!({"amount_nano_usd": amount.0, "amount_usd": amount.to_usd_string(), "window": window, "action": action})
}

pub(super) fn show_budgets(budgets: &[Budget]) -> Value {
    budgets.iter().map(show_budget).collect()
}

/// Budgets in a list that was checked.
pub(super) fn read_budgets(items: &[Value], at: &str) -> Result<Vec<Budget>, ApiError> {
    let read = |(i, item): (usize, &Value)| {
        let members = InputFields::of(item);
        let at = format!("{at}[{i}]");
        let mut budget = Budget { amount: NanoUsd::ZERO, window: Window::Day, action: BudgetAction::Block };
        budget.amount = amount(&members, "amount", &at)?.ok_or_else(|| missing_amount("amount", &at))?;
        members.set_word("window", &mut budget.window);
        members.set_word("action", &mut budget.action);
        Ok(budget)
    };
    items.iter().enumerate().map(read).collect()
}

pub(super) fn set_budgets(from: &InputFields, to: &mut Vec<Budget>) -> Result<(), ApiError> {
    if let Some(items) = from.list("budgets") {
        *to = read_budgets(items, "budgets")?;
    }
    Ok(())
}

// === amounts ===

/// An amount sent as `<name>_nano_usd`, as `<name>_usd`, or as both when they agree.
pub(super) fn amount(from: &InputFields, name: &str, at: &str) -> Result<Option<NanoUsd>, ApiError> {
    let path = |unit: &str| if at.is_empty() { format!("{name}_{unit}") } else { format!("{at}.{name}_{unit}") };
    let nano = from.whole(&format!("{name}_nano_usd")).map(NanoUsd);
    let usd = match from.text(&format!("{name}_usd")) {
        None => None,
        Some(text) => Some(NanoUsd::parse(text).map_err(|error| ApiError::value(&path("usd"), error))?),
    };
    match (nano, usd) {
        (Some(nano), Some(usd)) if nano != usd => {
            Err(ApiError::value(&path("usd"), format_args!("it is not the same as '{}'; send one of them", path("nano_usd"))))
        }
        (nano, usd) => Ok(nano.or(usd)),
    }
}

/// Neither form of an amount was sent.
pub(super) fn missing_amount(name: &str, at: &str) -> ApiError {
    let at = if at.is_empty() { format!("{name}_nano_usd") } else { format!("{at}.{name}_nano_usd") };
    let message = format!("Missing required parameter: '{at}' (or the same as '{name}_usd').");
    ApiError::invalid("missing_required_parameter", at, message)
}

/// Members of an amount in answers.
pub(super) fn show_amount(name: &str, amount: Option<NanoUsd>, to: &mut Map<String, Value>) {
    to.insert(format!("{name}_nano_usd"), json!(amount));
    to.insert(format!("{name}_usd"), json!(amount.map(NanoUsd::to_usd_string)));
}

// === prices ===

pub(super) fn show_schedule(schedule: Option<&PriceSchedule>) -> Value {
    let show = |priced: &ScheduledPrice| {
        let mut members = Map::new();
        members.insert("valid_from".to_owned(), priced.valid_from.map_or(Value::Null, time_value));
        show_kinds(&priced.price, &mut members);
        let tier = |tier: &PriceTier| {
            let mut members = Map::new();
            members.insert("above".to_owned(), tier.above.into());
            show_kinds(&tier.price, &mut members);
            Value::Object(members)
        };
        members.insert("tiers".to_owned(), priced.price.tiers.iter().map(tier).collect());
        Value::Object(members)
    };
    schedule.map_or(Value::Null, |schedule| schedule.0.iter().map(show).collect())
}

fn show_kinds(price: &Price, to: &mut Map<String, Value>) {
    let Price { input, output, cache_read, cache_write, thinking, image, audio, per_request, tiers: _ } = price;
    for (kind, figure) in [
        ("input", input),
        ("output", output),
        ("cache_read", cache_read),
        ("cache_write", cache_write),
        ("thinking", thinking),
        ("image", image),
        ("audio", audio),
        ("per_request", per_request),
    ] {
        show_amount(kind, figure.map(NanoUsd), to);
    }
}

/// Prices in a list that was checked; an empty one is "not priced".
pub(super) fn read_schedule(items: &[Value], at: &str) -> Result<Option<PriceSchedule>, ApiError> {
    let read = |(i, item): (usize, &Value)| {
        let (members, at) = (InputFields::of(item), format!("{at}[{i}]"));
        let mut price = read_kinds(&members, &at)?;
        if price == Price::default() {
            // It would sell everything for nothing, which nobody means by it.
            return Err(ApiError::value(&at, "no figure at all; leave it out for not priced, or send \"0\" for free"));
        }
        for (j, tier) in members.list("tiers").into_iter().flatten().enumerate() {
            let members = InputFields::of(tier);
            let above = members.whole("above").and_then(|above| u64::try_from(above).ok()).unwrap_or_default();
            price.tiers.push(PriceTier { above, price: read_kinds(&members, &format!("{at}.tiers[{j}]"))? });
        }
        Ok(ScheduledPrice { valid_from: members.time("valid_from"), price })
    };
    let prices = items.iter().enumerate().map(read).collect::<Result<Vec<_>, ApiError>>()?;
    Ok((!prices.is_empty()).then_some(PriceSchedule(prices)))
}

/// Prices into a field of a spec; `null` or an empty list: not priced.
pub(super) fn set_schedule(from: &InputFields, name: &str, to: &mut Option<PriceSchedule>) -> Result<(), ApiError> {
    if let Some(items) = from.list(name) {
        *to = read_schedule(items, name)?;
    } else if from.has(name) {
        *to = None;
    }
    Ok(())
}

fn read_kinds(from: &InputFields, at: &str) -> Result<Price, ApiError> {
    let figure = |kind: &str| amount(from, kind, at).map(|figure| figure.map(|figure| figure.0));
    Ok(Price {
        input: figure("input")?,
        output: figure("output")?,
        cache_read: figure("cache_read")?,
        cache_write: figure("cache_write")?,
        thinking: figure("thinking")?,
        image: figure("image")?,
        audio: figure("audio")?,
        per_request: figure("per_request")?,
        tiers: Vec::new(),
    })
}

// === price limits ===

pub(super) fn show_price_limit(limit: Option<&PriceLimit>) -> Value {
    let Some(PriceLimit { mode, on }) = limit else { return Value::Null };
    let (word, input, output, margin) = match mode {
        PriceLimitMode::PricedOnly => ("priced_only", None, None, None),
        PriceLimitMode::Ceiling { max_input, max_output } => ("ceiling", *max_input, *max_output, None),
        PriceLimitMode::MinMargin(margin) => ("min_margin", None, None, Some(Multiplier(*margin).to_decimal())),
    };
    let mut members = Map::new();
    members.insert("mode".to_owned(), word.into());
    members.insert("on".to_owned(), json!(on));
    show_amount("max_input", input.map(NanoUsd), &mut members);
    show_amount("max_output", output.map(NanoUsd), &mut members);
    members.insert("min_margin".to_owned(), json!(margin));
    Value::Object(members)
}

pub(super) fn set_price_limit(from: &InputFields, to: &mut Option<PriceLimit>) -> Result<(), ApiError> {
    if !from.has("price_limit") {
        return Ok(());
    }
    let at = "price_limit";
    let Some(sent) = from.0.get(at).filter(|sent| !sent.is_null()) else {
        *to = None;
        return Ok(());
    };
    let members = in_our_words(InputFields::of(sent))?;
    only_of_its_mode(&members)?;
    let mode = match members.text("mode") {
        Some("ceiling") => PriceLimitMode::Ceiling {
            max_input: amount(&members, "max_input", at)?.map(|bound| bound.0),
            max_output: amount(&members, "max_output", at)?.map(|bound| bound.0),
        },
        Some("min_margin") => {
            let Some(text) = members.text("min_margin") else {
                let message = "Missing required parameter: 'price_limit.min_margin', such as \"0.2\".";
                return Err(ApiError::invalid("missing_required_parameter", "price_limit.min_margin", message));
            };
            PriceLimitMode::MinMargin(Multiplier::parse(text).map_err(|error| ApiError::value("price_limit.min_margin", error))?.0)
        }
        Some(_) | None => PriceLimitMode::PricedOnly,
    };
    let mut on = PriceLimitOn::Sale;
    members.set_word("on", &mut on);
    *to = Some(PriceLimit { mode, on });
    Ok(())
}

/// The catalog file's words for bounds as our own.
fn in_our_words(mut members: InputFields) -> Result<InputFields, ApiError> {
    for (theirs, ours, nano) in
        [("max_input", "max_input_usd", "max_input_nano_usd"), ("max_output", "max_output_usd", "max_output_nano_usd")]
    {
        let Some(bound) = members.0.remove(theirs).filter(|bound| !bound.is_null()) else { continue };
        if let Some(twice) = [ours, nano].into_iter().find(|name| members.has(name)) {
            let at = format!("price_limit.{theirs}");
            return Err(ApiError::value(&at, format_args!("'{twice}' says the same; send one of them")));
        }
        members.0.insert(ours.to_owned(), bound);
    }
    Ok(members)
}

/// A bound that the mode does not look at would be taken for one that holds.
fn only_of_its_mode(members: &InputFields) -> Result<(), ApiError> {
    let mode = members.text("mode").unwrap_or_default();
    const BOUNDS: [(&str, &str); 5] = [
        ("max_input_nano_usd", "ceiling"),
        ("max_input_usd", "ceiling"),
        ("max_output_nano_usd", "ceiling"),
        ("max_output_usd", "ceiling"),
        ("min_margin", "min_margin"),
    ];
    let sent = |name: &str| members.0.get(name).is_some_and(|value| !value.is_null());
    match BOUNDS.into_iter().find(|(name, of)| *of != mode && sent(name)) {
        Some((name, of)) => {
            let at = format!("price_limit.{name}");
            Err(ApiError::value(&at, format_args!("it belongs to the mode \"{of}\", and \"{mode}\" does not look at it")))
        }
        None => Ok(()),
    }
}
