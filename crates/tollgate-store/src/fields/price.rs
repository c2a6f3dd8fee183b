//! Money: prices with tiers and times, budgets, price limits, hedges.

use serde_json::{Map, Value, json};
use tollgate_core::{
    Budget, BudgetAction, Hedge, Multiplier, NanoUsd, Price, PriceLimit, PriceLimitMode, PriceLimitOn, PriceSchedule, PriceTier,
    ScheduledPrice, SharedPrice, Timestamp, Window,
};

use super::{
    Access, Fault, Field, FieldShape, FieldValue, Kind, Row as _, assign, field, table,
    value::{parse_time, read_usd, show_usd},
};

/// Highest price per million tokens, nano-USD: 100,000 USD.
const MAX_PER_MILLION: i64 = 100_000_000_000_000;
/// A free price: zero for every kind of token.
pub const FREE: Price = Price::free();

/// One kind of a price: a figure in USD that may be absent. A free price shows no figures.
macro_rules! figure {
    ($name:literal, $($path:ident).+, $max:expr, $doc:literal) => {
        Field {
            shape: FieldShape::new($name, Kind::Usd { min: 0, max: $max }, $doc).or_null(),
            get: |row: &Self| row.$($path).+.filter(|_| row.price != FREE).map_or(Value::Null, show_usd),
            set: |row: &mut Self, value| {
                row.$($path).+ = if value.is_null() { None } else { Some(read_usd(value)?) };
                Ok(())
            },
        }
    };
}

/// The figures of a price, between the fields in `$first` and those in `$last`.
macro_rules! figures {
    ([$($first:expr),*], [$($last:expr),*]) => {
        &[
            $($first,)*
            figure!("input", price.input, MAX_PER_MILLION, "Per million input tokens."),
            figure!("output", price.output, MAX_PER_MILLION, "Per million output tokens."),
            figure!("cache_read", price.cache_read, MAX_PER_MILLION, "Per million tokens read from a cache; else as `input`."),
            figure!("cache_write", price.cache_write, MAX_PER_MILLION, "Per million tokens written to a cache; else as `input`."),
            figure!(
                "cache_write_1h",
                price.cache_write_1h,
                MAX_PER_MILLION,
                "Per million tokens written to a cache for an hour; else as `cache_write`."
            ),
            figure!("thinking", price.thinking, MAX_PER_MILLION, "Per million thinking tokens; else as `output`."),
            figure!("image", price.image, MAX_PER_MILLION, "Per million image tokens; else as `input`."),
            figure!("audio", price.audio, MAX_PER_MILLION, "Per million audio tokens; else as `input`."),
            figure!("per_request", price.per_request, NanoUsd::MAX_PER_REQUEST.0, "Per request, independent of tokens."),
            figure!(
                "web_search",
                price.web_search,
                NanoUsd::MAX_PER_REQUEST.0,
                "Per web search by the provider, besides `per_request` (docs/money.md)."
            ),
            figure!(
                "server_tools",
                price.server_tools,
                NanoUsd::MAX_PER_REQUEST.0,
                "Per request that uses other tools or plugins that the provider runs, besides `per_request` (docs/money.md)."
            ),
            figure!(
                "output_media",
                price.output_media,
                MAX_PER_MILLION,
                "Per million output tokens of a request that asks for images or audio in the answer; thinking tokens as without \
                 (docs/money.md)."
            ),
            $($last,)*
        ]
    };
}

table!(
    PriceTier,
    "PriceTier",
    PriceTier { above: 0, price: Price::default() },
    figures!([field!("above", above: u64, "Applies to prompts with more tokens than this.").access(Access::Required)], [])
);

table!(
    ScheduledPrice,
    "Price",
    ScheduledPrice { valid_from: None, price: SharedPrice::default() },
    figures!(
        [
            field!("valid_from", valid_from: Option<Timestamp>, "Start of validity; absent: always valid."),
            Field {
                shape: FieldShape::new("free", Kind::Flag, "`true`: a price of 0, without figures.").or_null(),
                get: |row: &Self| if row.price == FREE { Value::Bool(true) } else { Value::Null },
                set: |row: &mut Self, value| {
                    if *value == Value::Bool(true) {
                        row.price = FREE.into();
                    }
                    Ok(())
                },
            }
        ],
        [
            field!("priority", price.priority: Option<Multiplier>, "Factor for requests that ask for the service tier `priority`."),
            field!("flex", price.flex: Option<Multiplier>, "Factor for requests that ask for the service tier `flex`."),
            field!(
            "tiers",
            price.tiers: Vec<PriceTier>,
            "Other prices for long prompts, lowest bound first; a tier applies to the whole request."
        )
        .rule(tiers_rise)
        ]
    ),
    example "input:0.30,output:2.40, free or '{ input = \"0.30\", output = \"2.40\" }'",
    short short_price,
    review |price| {
        let has = |name: &str| price.get(name).is_some_and(|value| !value.is_null());
        let figures = ["input", "output", "cache_read", "cache_write", "cache_write_1h", "thinking", "image", "audio", "per_request"];
        let any = figures.into_iter().any(has);
        match price.get("free") {
            Some(Value::Bool(true)) if any || has("tiers") => {
                Some(("free", Fault::Value("a free price has no other figures".to_owned())))
            }
            Some(Value::Bool(true)) => None,
            _ if any => None,
            _ => {
                let message = "a price needs at least one figure (input, output, per_request …), or free = true; leave it out for \
                               not priced";
                Some(("", Fault::Value(message.to_owned())))
            }
        }
    }
);

table!(
    Budget,
    "Budget",
    Budget { amount: NanoUsd::ZERO, window: Window::Total, action: BudgetAction::Block },
    &[
        field!("amount", amount: NanoUsd, "How much may be spent, in USD.").access(Access::Required),
        field!("window", window: Window, "UTC day, UTC month, or `total` (never resets).").access(Access::Required),
        field!("action", action: BudgetAction, "When the budget is spent: `block` refuses requests, `alert` sends an alert."),
    ],
    example "5/month, 0.50/day:alert or '{ amount = \"5\", window = \"month\" }'",
    short short_budget
);

table!(
    Hedge,
    "Hedge",
    Hedge { cost_cap: NanoUsd::ZERO },
    &[field!("cost_cap", cost_cap: NanoUsd, "Maximum cost of losing attempts per UTC day, in USD.")
        .kind(Kind::Usd { min: 1, max: i64::MAX })
        .access(Access::Required)],
    example "cost_cap:1.00 or '{ cost_cap = \"1.00\" }'"
);

macro_rules! bound {
    ($name:literal, $bound:ident, $doc:literal) => {
        Field {
            shape: FieldShape::new($name, Kind::Usd { min: 0, max: i64::MAX }, $doc).or_null(),
            get: |limit: &Self| match limit.mode {
                PriceLimitMode::Ceiling { $bound: Some(bound), .. } => show_usd(bound),
                _ => Value::Null,
            },
            set: |limit: &mut Self, value| {
                if let PriceLimitMode::Ceiling { $bound: bound, .. } = &mut limit.mode {
                    *bound = if value.is_null() { None } else { Some(read_usd(value)?) };
                }
                Ok(())
            },
        }
    };
}

table!(
    PriceLimit,
    "PriceLimit",
    PriceLimit { mode: PriceLimitMode::PricedOnly, on: PriceLimitOn::Sale },
    &[
        Field {
            shape: FieldShape::new(
                "mode",
                Kind::Word(&["priced_only", "ceiling", "min_margin"]),
                "`priced_only`: a price must exist. `ceiling`: at most the given prices. `min_margin`: at least this margin.",
            )
            .with(Access::Required),
            get: |limit: &Self| match limit.mode {
                PriceLimitMode::PricedOnly => "priced_only".into(),
                PriceLimitMode::Ceiling { .. } => "ceiling".into(),
                PriceLimitMode::MinMargin(_) => "min_margin".into(),
            },
            set: |limit: &mut Self, value| {
                limit.mode = match value.as_str() {
                    Some("ceiling") => PriceLimitMode::Ceiling { max_input: None, max_output: None },
                    Some("min_margin") => PriceLimitMode::MinMargin(0),
                    Some(_) | None => PriceLimitMode::PricedOnly,
                };
                Ok(())
            },
        },
        bound!("max_input", max_input, "Bound of `ceiling` on the input price, USD per million tokens."),
        bound!("max_output", max_output, "Bound of `ceiling` on the output price, USD per million tokens."),
        Field {
            shape: FieldShape::new(
                "min_margin",
                Kind::Factor { max: Multiplier::ONE.0 },
                "Of `min_margin`: (sale - cost) / sale, between 0 and 1.",
            )
            .or_null(),
            get: |limit: &Self| match limit.mode {
                PriceLimitMode::MinMargin(margin) => Multiplier(margin).show(),
                PriceLimitMode::PricedOnly | PriceLimitMode::Ceiling { .. } => Value::Null,
            },
            set: |limit: &mut Self, value| {
                if let PriceLimitMode::MinMargin(margin) = &mut limit.mode
                    && !value.is_null()
                {
                    *margin = Multiplier::read(value)?.0;
                }
                Ok(())
            },
        },
        field!("on", on: PriceLimitOn, "Price that is compared."),
    ],
    example "mode:ceiling,max_input:1.5,max_output:6, mode:min_margin,min_margin:0.2 or mode:priced_only",
    review review_price_limit
);

/// A bound that the mode ignores is refused, because it would look effective.
fn review_price_limit(limit: &Map<String, Value>) -> Option<(&'static str, Fault)> {
    const BOUNDS: [(&str, &str); 3] = [("max_input", "ceiling"), ("max_output", "ceiling"), ("min_margin", "min_margin")];
    let mode = limit.get("mode").and_then(Value::as_str).unwrap_or_default();
    let has = |name: &str| limit.get(name).is_some_and(|value| !value.is_null());
    if let Some((name, of)) = BOUNDS.into_iter().find(|(name, of)| *of != mode && has(name)) {
        return Some((name, Fault::Value(format!("it belongs to the mode \"{of}\"; \"{mode}\" ignores it"))));
    }
    match mode {
        "ceiling" if !has("max_input") && !has("max_output") => {
            Some(("", Fault::Value("a ceiling needs max_input, max_output or both".to_owned())))
        }
        "min_margin" if !has("min_margin") => Some(("min_margin", Fault::Missing)),
        _ => None,
    }
}

/// `5/month`, `0.50/day:alert`, or several, separated by commas.
fn short_budget(text: &str) -> Option<Value> {
    let budgets = text.split(',').map(|part| {
        let (amount, rest) = part.trim().split_once('/')?;
        let (window, action) = rest.split_once(':').map_or((rest, None), |(window, action)| (window, Some(action)));
        let mut budget = json!({"amount": amount.trim().trim_start_matches('$'), "window": window.trim()});
        if let Some(action) = action {
            budget["action"] = action.trim().into();
        }
        Some(budget)
    });
    let mut budgets = budgets.collect::<Option<Vec<_>>>()?;
    Some(if budgets.len() == 1 { budgets.remove(0) } else { Value::Array(budgets) })
}

fn short_price(text: &str) -> Option<Value> {
    (text == "free").then(|| json!({"free": true}))
}

// === values made of these tables ===

/// A value of a table: null members are left out.
macro_rules! objects {
    ($($type:ty),+) => {
        $(impl FieldValue for $type {
            const KIND: Kind = Kind::Object(<$type as $crate::fields::Row>::OBJECT);

            fn show(&self) -> Value {
                $crate::fields::sparse(self)
            }

            fn read(value: &Value) -> Result<Self, String> {
                $crate::fields::price::read_object(value)
            }
        })+
    };
}
pub(super) use objects;
objects!(PriceTier, ScheduledPrice, Budget, Hedge, PriceLimit);

pub(super) fn read_object<R: super::Row>(value: &Value) -> Result<R, String> {
    let mut row = R::blank();
    let mut problems = Vec::new();
    assign(&mut row, value.as_object().ok_or_else(|| "expected a table".to_owned())?, &mut problems);
    problems.first().map_or(Ok(row), |problem| Err(problem.below(0)))
}

/// One entry by itself, several as a list, none as null.
fn show_entries<T: FieldValue>(entries: &[T]) -> Value {
    match entries {
        [] => Value::Null,
        [one] => one.show(),
        several => several.iter().map(T::show).collect(),
    }
}

fn read_entries<T: FieldValue>(value: &Value) -> Result<Vec<T>, String> {
    match value.as_array() {
        Some(entries) => entries.iter().map(T::read).collect(),
        None if value.is_null() => Ok(Vec::new()),
        None => T::read(value).map(|entry| vec![entry]),
    }
}

impl FieldValue for Vec<Budget> {
    const KIND: Kind = Kind::OneOrMore { of: Budget::OBJECT, min: 0, max: 8 };
    const NULLABLE: bool = true;

    fn show(&self) -> Value {
        show_entries(self)
    }

    fn read(value: &Value) -> Result<Self, String> {
        read_entries(value)
    }
}

impl FieldValue for Vec<PriceTier> {
    const KIND: Kind = Kind::OneOrMore { of: PriceTier::OBJECT, min: 0, max: 16 };
    const NULLABLE: bool = true;

    fn show(&self) -> Value {
        if self.is_empty() { Value::Null } else { self.iter().map(PriceTier::show).collect() }
    }

    fn read(value: &Value) -> Result<Self, String> {
        read_entries(value)
    }
}

impl FieldValue for PriceSchedule {
    const KIND: Kind = Kind::OneOrMore { of: ScheduledPrice::OBJECT, min: 1, max: 64 };

    fn show(&self) -> Value {
        show_entries(&self.0)
    }

    fn read(value: &Value) -> Result<Self, String> {
        read_entries(value).map(Self)
    }
}

/// The field `budget` of every row that has budgets.
pub const BUDGET: FieldShape = FieldShape {
    rule: Some(budgets_differ),
    ..FieldShape::new("budget", <Vec<Budget> as FieldValue>::KIND, "Budget, or a list of them.").or_null()
};

/// A field that holds a price, or a list of prices over time.
pub const fn price(name: &'static str, doc: &'static str) -> FieldShape {
    FieldShape { rule: Some(times_rise), ..FieldShape::new(name, <PriceSchedule as FieldValue>::KIND, doc).or_null() }
}

// === rules ===

/// The entries of a value that is one object or a list of them.
fn entries(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

fn tiers_rise(value: &Value) -> Result<(), String> {
    let above = |tier: &Value| tier["above"].as_i64();
    if entries(value).windows(2).all(|pair| above(&pair[0]) < above(&pair[1])) {
        Ok(())
    } else {
        Err("tiers must be in ascending order of 'above'".to_owned())
    }
}

/// The prices of a schedule begin at ascending times.
pub(super) fn times_rise(value: &Value) -> Result<(), String> {
    let from = |price: &Value| price.get("valid_from").and_then(Value::as_str).and_then(|text| parse_time(text).ok());
    if entries(value).windows(2).all(|pair| from(&pair[0]) < from(&pair[1])) {
        Ok(())
    } else {
        Err("valid_from must increase; only the first entry may omit it".to_owned())
    }
}

/// Each window has at most one budget of an action.
pub(super) fn budgets_differ(value: &Value) -> Result<(), String> {
    let of = |budget: &Value| (budget["window"].clone(), budget.get("action").cloned().unwrap_or_else(|| "block".into()));
    let budgets = entries(value);
    let twice = budgets.iter().enumerate().any(|(i, budget)| budgets[..i].iter().any(|other| of(other) == of(budget)));
    if twice { Err("two budgets have the same window and action".to_owned()) } else { Ok(()) }
}
