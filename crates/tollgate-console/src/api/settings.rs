//! Settings of the running process. Those that it applies without a restart can be stored in the database; a flag, the environment
//! and the settings file override stored values.

use serde_json::{Value, json};
use tollgate_store::{
    AdminScope, Change, RowFilter, RowKind, StoredRow, StoredSetting,
    fields::{Access, Kind, Object, WriteMode},
};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{COUNT, NAME, TEXT, both, read},
};
use crate::{
    api_error::ApiError,
    appearance::MAX_IMAGE,
    gateway_handle::{CheckedSetting, EffectiveSetting, SettingKind, SettingRefusal},
    response::ApiResponse,
};

const SOURCES: Kind = Kind::Word(&["default", "database", "file", "environment", "flag"]);
const TYPES: Kind = Kind::Word(&[
    "text",
    "address",
    "url",
    "image",
    "time_zone",
    "flag",
    "number",
    "share",
    "pattern",
    "networks",
    "origins",
    "word",
    "usd",
    "rate",
    "percents",
]);
const WORDS: Kind = Kind::List { of: &NAME, max: 100 };
const VALUE: Kind = Kind::Form { expected: "a string, a number, or true or false", schema: value_schema };
/// Longest text of a value, in characters.
const MAX_VALUE: usize = 10_000;

fn value_schema() -> Value {
    let numbers = [("integer", json!(0)), ("number", json!(0.0))];
    let numbers = numbers.map(|(kind, min)| json!({"type": kind, "minimum": min, "maximum": i64::MAX}));
    let [whole, decimal] = numbers;
    json!({"anyOf": [{"type": "string", "maxLength": MAX_VALUE}, whole, decimal, {"type": "boolean"}]})
}

static SETTING: Object = Object::of(
    "Setting",
    &[
        read("name", NAME, "Section and name, such as `server.listen`."),
        read("value", TEXT, "Value in force as text, `***` for a secret; null: not set.").or_null(),
        read(
            "source",
            SOURCES,
            "Source of the value. A flag overrides the environment, which overrides the file, which overrides the database.",
        ),
        read("default", TEXT, "Default; null: none.").or_null(),
        read("variable", TEXT, "Environment variable for this setting."),
        read("secret", Kind::Flag, "Whether the value is masked."),
        read("type", TYPES, "Type of the value."),
        read("min", COUNT, "Smallest number, amount in USD, or length of a text in characters; null: no bound.").or_null(),
        read("max", COUNT, "Largest number, amount in whole USD, or length of a text in characters; null: no bound.").or_null(),
        read("words", WORDS, "Values of a `word`; null: of another type.").or_null(),
        read("unit", TEXT, "Unit of a number or an amount, such as `ms`; null: a count, or no number.").or_null(),
        read("needs_restart", Kind::Flag, "Whether it is read at the start only."),
        read("writable", Kind::Flag, "Whether it can be changed here: it needs no restart, and nothing overrides the database."),
        read("stored", TEXT, "Value in the database; null: none. It is in force only if `source` is `database`.").or_null(),
        read("revision", COUNT, "Last change of the stored value, for `If-Match`; null: none is stored.").or_null(),
        read("doc", TEXT, "Description."),
    ],
);
static NEW_VALUE: Object = Object::of(
    "SettingValue",
    &[both("value", VALUE, "The value, as text or in its JSON type. Its bounds are those of the setting.").with(Access::Required)],
);

const RESOURCE: Resource = Resource { tag: "settings", needs: Needs::Scope(AdminScope::Admin) };
const ONE: &str = "/admin/v1/settings/{name}";

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/settings",
            "list_settings",
            "Every setting with its value and source, on one page.",
            handler!(list),
        )
        .query(&[both("source", SOURCES, "Only settings with this source.")])
        .returns(ResponseSchema::Page(&SETTING)),
    RESOURCE.route(Method::Get, ONE, "get_setting", "One setting.", handler!(one)).returns(ResponseSchema::Object(&SETTING)),
    RESOURCE
        .route(
            Method::Put,
            ONE,
            "set_setting",
            "Stores the value of a setting that needs no restart. It is in force on this node with the answer, on the others within a \
             second.",
            handler!(set),
        )
        .takes(&NEW_VALUE, WriteMode::Create)
        .at_revision()
        .returns(ResponseSchema::Object(&SETTING)),
    RESOURCE
        .route(
            Method::Delete,
            ONE,
            "unset_setting",
            "Removes the stored value of a setting: its default applies again.",
            handler!(unset),
        )
        .at_revision(),
];

/// Largest amount, in whole USD, and largest rate of a setting.
const MAX_USD: u64 = i64::MAX as u64 / 1_000_000_000;
const MAX_RATE: u64 = 1_000_000;
/// More than there are settings.
const MAX_STORED: u32 = 1_000;

fn show(setting: &EffectiveSetting, stored: Option<&StoredRow>) -> Result<Value, ApiError> {
    let EffectiveSetting { name, value, default, source, variable, secret, kind, unit, needs_restart, writable, doc } = setting;
    let (word, bounds, words) = match *kind {
        SettingKind::Text => ("text", None, None),
        SettingKind::Line(max) => ("text", Some((0, max)), None),
        SettingKind::HttpUrl => ("url", None, None),
        SettingKind::Image => ("image", Some((0, MAX_IMAGE)), None),
        SettingKind::TimeZone => ("time_zone", None, None),
        SettingKind::Address => ("address", None, None),
        SettingKind::Flag => ("flag", None, None),
        SettingKind::Number(min, max) => ("number", Some((min, max)), None),
        SettingKind::Share => ("share", Some((0, 1)), None),
        SettingKind::Pattern => ("pattern", None, None),
        SettingKind::Networks => ("networks", None, None),
        SettingKind::Origins => ("origins", None, None),
        SettingKind::OneOf(words) => ("word", None, Some(words)),
        SettingKind::Usd => ("usd", Some((0, MAX_USD)), None),
        SettingKind::Rate => ("rate", Some((0, MAX_RATE)), None),
        SettingKind::Percents => ("percents", None, None),
    };
    let stored_value = stored.map(StoredRow::read::<StoredSetting>).transpose()?.map(|stored| stored.value);
    Ok(json!({
        "name": name, "value": value, "source": source, "default": default, "variable": variable, "secret": secret, "type": word,
        "min": bounds.map(|(min, _)| min), "max": bounds.map(|(_, max)| max), "words": words, "unit": unit,
        "needs_restart": needs_restart, "writable": writable, "stored": stored_value, "revision": stored.map(|row| row.revision.0),
        "doc": doc,
    }))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let rows = context.with_query_timeout(context.state.store.listing.page(&RowFilter::of(RowKind::Setting, MAX_STORED))).await?;
    let source = context.query.text("source");
    let settings = context.state.gateway.settings();
    let shown = settings.iter().filter(|setting| source.is_none_or(|source| setting.source == source));
    let items = shown.map(|setting| show(setting, rows.iter().find(|row| row.name == setting.name)));
    let items = items.collect::<Result<Vec<Value>, ApiError>>()?;
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}

async fn stored(context: &RequestContext, name: &str) -> Result<Option<StoredRow>, ApiError> {
    let filter = RowFilter { name: Some(name.to_owned()), ..RowFilter::of(RowKind::Setting, 1) };
    Ok(context.with_query_timeout(context.state.store.listing.page(&filter)).await?.pop())
}

/// The setting as it is now.
async fn shown(context: &RequestContext, name: &str) -> Result<ApiResponse, ApiError> {
    let settings = context.state.gateway.settings();
    let setting = settings.iter().find(|setting| setting.name == name).ok_or_else(|| unknown(context, name))?;
    let row = stored(context, name).await?;
    let answer = ApiResponse::ok(show(setting, row.as_ref())?);
    Ok(match row {
        Some(row) => answer.revision(row.revision),
        None => answer,
    })
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    shown(&context, context.path_param("name")).await
}

/// The message suggests a name from the table, and never repeats the requested name.
fn unknown(context: &RequestContext, name: &str) -> ApiError {
    match context.state.gateway.check_setting(name, "") {
        Err(refusal) => refused(&refusal),
        Ok(_) => ApiError::not_found("setting"),
    }
}

fn refused(refusal: &SettingRefusal) -> ApiError {
    let sentence = |text: &str| format!("{}{}.", text[..1].to_uppercase(), &text[1..]);
    match refusal {
        SettingRefusal::Unknown { nearest: None } => ApiError::not_found("setting"),
        SettingRefusal::Unknown { nearest: Some(name) } => ApiError::not_found_near("setting", name),
        SettingRefusal::NeedsRestart(why) => ApiError::conflict("setting_needs_restart", sentence(why)),
        SettingRefusal::SetElsewhere(why) => ApiError::conflict("setting_set_elsewhere", sentence(why)),
        SettingRefusal::Invalid(why) => ApiError::invalid("invalid_value", "value", format!("Invalid value for 'value': {why}.")),
    }
}

async fn set(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let value = match context.body.0.get("value") {
        Some(Value::String(text)) if text.chars().count() > MAX_VALUE => {
            return Err(ApiError::value("value", format_args!("expected at most {MAX_VALUE} characters")));
        }
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => {
            return Err(ApiError::invalid(
                "invalid_type",
                "value",
                "Invalid type for 'value': expected a string, a number, or true or false.",
            ));
        }
    };
    let checked = context.state.gateway.check_setting(context.path_param("name"), &value);
    let CheckedSetting { name, value } = checked.map_err(|refusal| refused(&refusal))?;
    let mut changes = precondition(&context, stored(&context, name).await?.as_ref())?;
    changes.push(Change::SetSetting { name: name.to_owned(), value });
    context.apply(&changes).await?;
    shown(&context, name).await
}

async fn unset(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let name = context.path_param("name");
    let row = stored(&context, name).await?;
    let Some(row) = row else {
        let is_known = context.state.gateway.settings().iter().any(|setting| setting.name == name);
        return Err(if is_known { ApiError::not_found("stored value of a setting") } else { unknown(&context, name) });
    };
    let mut changes = precondition(&context, Some(&row))?;
    changes.push(Change::UnsetSetting { name: row.name.clone() });
    context.apply(&changes).await?;
    Ok(ApiResponse::no_content())
}

/// The precondition of the header `If-Match`.
fn precondition(context: &RequestContext, row: Option<&StoredRow>) -> Result<Vec<Change>, ApiError> {
    match (context.if_match()?, row) {
        (None, _) => Ok(Vec::new()),
        (Some(revision), Some(row)) => Ok(vec![Change::ExpectRow { kind: RowKind::Setting, id: row.id.clone(), revision }]),
        (Some(_), None) => {
            Err(ApiError::conflict("revision_conflict", "No value of the setting is stored; read it again and retry."))
        }
    }
}
