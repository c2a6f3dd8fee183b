//! Alerts, the rules that raise them, and the destinations that messages go to. Responses never contain secrets.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use tollgate_core::{AlertId, AlertRule};
use tollgate_store::{
    AdminScope, Alert, AlertDestination, AlertDestinationSpec, AlertFilter, CONFIGURED_DESTINATION, Change, RowKind, StoredRow,
    fields::{DestinationInput, Kind, Object, Row as _, WriteMode, private_host, whole},
};

use super::{
    check,
    request_context::{ApplyOutcome, RequestContext},
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    row_names::rows_by_id,
    rows,
    schema::{COUNT, CREATED_AT, NAME, REVISION, TEXT, both, read, row_object},
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

const RULE: Kind = Kind::Word(AlertRule::WORDS);
const MESSAGES: Kind = Kind::List { of: &Kind::Object(&MESSAGE), max: 1_000 };
const SETTINGS: Kind = Kind::List { of: &Kind::Object(&THRESHOLD), max: 10 };

static MESSAGE: Object = Object::of(
    "AlertMessage",
    &[
        read("destination", NAME, "Name of the destination; its id if it was removed."),
        read("kind", Kind::Word(&["raised", "ended"]), "What it tells."),
        read("state", Kind::Word(&["waiting", "sent", "failed"]), "`waiting`: it is sent, or sent again, in a moment."),
        read("attempts", COUNT, "How often it was sent."),
        read("fault", TEXT, "Why the last attempt failed; null: it succeeded.").or_null(),
    ],
);
static ALERT: Object = Object::of(
    "Alert",
    &[
        read("id", Kind::Id("alt_"), "Id."),
        read("rule", RULE, "The rule that raised it."),
        read("state", Kind::Word(&["open", "ended"]), "`ended`: the condition is over."),
        read("raised_at", Kind::Time, "When it was raised."),
        read("ended_at", Kind::Time, "When it ended; null: it is open.").or_null(),
        read("subject", TEXT, "The subject of the alert. A rule has at most one open alert about a subject."),
        read("text", TEXT, "What was found."),
        read("detail", Kind::Any, "Its facts as texts."),
        read("node", TEXT, "The node that raised it."),
        read("messages", MESSAGES, "The messages about it."),
    ],
);
static THRESHOLD: Object = Object::of(
    "AlertThreshold",
    &[
        read("name", NAME, "Name of the setting."),
        read("value", TEXT, "Its value in force; null: none.").or_null(),
        read("unit", TEXT, "Its unit; null: a count.").or_null(),
        read("doc", TEXT, "Description."),
    ],
);
static RULE_ROW: Object = Object::of(
    "AlertRule",
    &[
        read("name", RULE, "Name."),
        read("doc", TEXT, "What raises its alerts."),
        read("settings", SETTINGS, "The settings with its thresholds; none: it is always on."),
        read("open", COUNT, "Its open alerts."),
    ],
);
static DESTINATION: Object = row_object!(
    DestinationInput,
    [read("id", Kind::Id("dst_"), "Id.")],
    [read("has_secret", Kind::Flag, "Whether a secret is stored."), CREATED_AT, REVISION]
);
static TEST: Object = Object::of(
    "AlertTest",
    &[
        read("destination", NAME, "Name of the destination."),
        read("delivered", Kind::Flag, "Whether it has accepted the message."),
        read("fault", TEXT, "Why not; null: it was accepted.").or_null(),
    ],
);

const ALERTS: Resource = Resource { tag: "alerts", needs: Needs::Scope(AdminScope::Operator) };
const DESTINATIONS: Resource = Resource { tag: "alerts", needs: Needs::Scope(AdminScope::Admin) };
const ALL: &str = "/admin/v1/alert-destinations";
const ONE: &str = "/admin/v1/alert-destinations/{name}";

pub(super) static ROUTES: &[Route] = &[
    ALERTS
        .route(Method::Get, "/admin/v1/alerts", "list_alerts", "Alerts, newest first.", handler!(list))
        .query(&[
            LIMIT,
            AFTER,
            both("state", Kind::Word(&["open", "ended"]), "Only open alerts, or only ended ones."),
            both("rule", RULE, "Only alerts of this rule."),
        ])
        .returns(ResponseSchema::Page(&ALERT)),
    ALERTS
        .route(Method::Get, "/admin/v1/alerts/{alert}", "get_alert", "One alert.", handler!(one))
        .returns(ResponseSchema::Object(&ALERT)),
    ALERTS
        .route(
            Method::Get,
            "/admin/v1/alert-rules",
            "list_alert_rules",
            "The rules with their thresholds, on one page.",
            handler!(rules),
        )
        .returns(ResponseSchema::Page(&RULE_ROW)),
    DESTINATIONS
        .route(Method::Get, ALL, "list_destinations", "Destinations of alerts.", handler!(list_destinations))
        .query(&[LIMIT, AFTER])
        .returns(ResponseSchema::Page(&DESTINATION)),
    DESTINATIONS
        .route(Method::Post, ALL, "make_destination", "Makes a destination.", handler!(make))
        .takes(&DESTINATION, WriteMode::Create)
        .once()
        .returns(ResponseSchema::Created(&DESTINATION)),
    DESTINATIONS
        .route(Method::Get, ONE, "get_destination", "One destination, by name or id.", handler!(one_destination))
        .returns(ResponseSchema::Object(&DESTINATION)),
    DESTINATIONS
        .route(
            Method::Patch,
            ONE,
            "change_destination",
            "Changes the fields that are sent; the others, such as secrets, are unchanged.",
            handler!(change),
        )
        .takes(&DESTINATION, WriteMode::Update)
        .at_revision()
        .returns(ResponseSchema::Object(&DESTINATION)),
    DESTINATIONS.route(Method::Delete, ONE, "remove_destination", "Removes a destination.", handler!(remove)).at_revision(),
    DESTINATIONS
        .route(
            Method::Post,
            "/admin/v1/alert-destinations/{name}/test",
            "test_destination",
            "Sends a test message to a destination now, even if it is off. The destination of the settings is `alerts.webhook`.",
            handler!(test),
        )
        .returns(ResponseSchema::Object(&TEST)),
];

// === alerts and rules ===

/// The destinations of these messages by id, removed ones included.
async fn names(context: &RequestContext, alerts: &[Alert]) -> Result<HashMap<String, StoredRow>, ApiError> {
    let ids = alerts.iter().flat_map(|alert| &alert.messages).map(|message| message.destination.clone());
    rows_by_id(context, RowKind::AlertDestination, ids.collect()).await
}

fn show_alert(alert: &Alert, names: &HashMap<String, StoredRow>) -> Value {
    let configured = AlertDestination::configured_id().to_string();
    let name = |id: &String| match names.get(id) {
        Some(row) => row.name.clone(),
        None if *id == configured => CONFIGURED_DESTINATION.to_owned(),
        None => id.clone(),
    };
    let messages = alert.messages.iter().map(|message| {
        let fault = Some(&message.fault).filter(|fault| !fault.is_empty());
        json!({
            "destination": name(&message.destination), "kind": message.kind.as_str(), "state": message.state.as_str(),
            "attempts": message.attempts, "fault": fault,
        })
    });
    json!({
        "id": alert.id, "rule": alert.rule.as_str(), "state": if alert.ended_at.is_some() { "ended" } else { "open" },
        "raised_at": time_value(alert.raised_at), "ended_at": alert.ended_at.map(time_value), "subject": alert.subject,
        "text": alert.text, "detail": serde_json::from_str::<Value>(&alert.detail).unwrap_or_else(|_| json!({})),
        "node": alert.node, "messages": messages.collect::<Vec<_>>(),
    })
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let before = match context.query.text("after") {
        None => None,
        Some(text) => Some(AlertId::parse(text).ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))?),
    };
    let filter = AlertFilter {
        is_open: context.query.text("state").map(|state| state == "open"),
        rule: context.query.text("rule").and_then(AlertRule::parse),
        before,
        limit: context.limit() + 1,
    };
    let found = context.with_query_timeout(context.state.store.alerts.alerts(&filter)).await?;
    let names = names(&context, &found).await?;
    Ok(rows::page(found, context.limit(), |alert| alert.id.to_string(), |alert| show_alert(alert, &names)))
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let id = AlertId::parse(context.path_param("alert")).ok_or_else(|| ApiError::not_found("alert"))?;
    let found = context.with_query_timeout(context.state.store.alerts.alert(id)).await?;
    let alert = found.ok_or_else(|| ApiError::not_found("alert"))?;
    let names = names(&context, std::slice::from_ref(&alert)).await?;
    Ok(ApiResponse::ok(show_alert(&alert, &names)))
}

async fn rules(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let settings = context.state.gateway.settings();
    let open = context.with_query_timeout(context.state.store.alerts.open_alerts(None)).await?;
    let threshold = |name: &&str| {
        let setting = settings.iter().find(|setting| setting.name == *name)?;
        Some(json!({"name": setting.name, "value": setting.value, "unit": setting.unit, "doc": setting.doc}))
    };
    let items = AlertRule::ALL.into_iter().map(|rule| {
        json!({
            "name": rule.as_str(), "doc": rule.doc(), "settings": rule.settings().iter().filter_map(threshold).collect::<Vec<_>>(),
            "open": open.iter().filter(|(of, _)| *of == rule).count(),
        })
    });
    Ok(ApiResponse::ok(json!({"items": items.collect::<Vec<_>>(), "next": null})))
}

// === destinations ===

fn show(row: &StoredRow, spec: AlertDestinationSpec) -> Value {
    let mut members = Map::new();
    members.insert("id".to_owned(), row.id.clone().into());
    let has_secret = spec.has_secret;
    members.extend(whole(&DestinationInput { spec, ..DestinationInput::default() }));
    for (name, value) in
        [("has_secret", json!(has_secret)), ("created_at", time_value(row.created_at)), ("revision", json!(row.revision.0))]
    {
        members.insert(name.to_owned(), value);
    }
    Value::Object(members)
}

fn shown(row: &StoredRow) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(show(row, row.read()?)).revision(row.revision))
}

async fn list_destinations(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let filter = rows::filter(&context, RowKind::AlertDestination)?;
    rows::list(&context, &filter, |row, spec: &AlertDestinationSpec| show(row, spec.clone())).await
}

async fn one_destination(context: RequestContext) -> Result<ApiResponse, ApiError> {
    shown(&rows::find(&context, RowKind::AlertDestination, None, context.path_param("name")).await?)
}

/// Refuses an address of this machine or of a private network, to which no message would be sent. A disabled destination may have such an
/// address.
fn check_address(spec: &AlertDestinationSpec) -> Result<(), ApiError> {
    match private_host(&spec.url).filter(|_| spec.on && !spec.private_network) {
        None => Ok(()),
        Some(host) => Err(ApiError::value(
            "url",
            format_args!("{host} does not belong to the public internet; set private_network to send there"),
        )
        .because("private_address")),
    }
}

async fn make(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let mut input = DestinationInput::blank();
    check::write(&context.body.0, &mut input)?;
    check_address(&input.spec)?;
    let name = input.spec.name.clone();
    let mut changes = Vec::from_iter(context.idempotency_change()?);
    changes.push(Change::ExpectNew { kind: RowKind::AlertDestination, parent: String::new(), name: name.clone() });
    changes.push(Change::PutAlertDestination(Box::new(input)));
    if let ApplyOutcome::Replayed(id) = context.apply(&changes).await? {
        let row = rows::find(&context, RowKind::AlertDestination, None, &id).await?;
        return Ok(shown(&row)?.header("idempotent-replayed", "true"));
    }
    let row = rows::written(&context, RowKind::AlertDestination, None, &name).await?;
    Ok(ApiResponse::created(show(&row, row.read()?)).revision(row.revision))
}

async fn change(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let row = rows::edit(&context, RowKind::AlertDestination, None, context.path_param("name"), |row| {
        let mut input = DestinationInput { spec: row.read()?, ..DestinationInput::default() };
        check::write(&context.body.0, &mut input)?;
        check_address(&input.spec)?;
        Ok(vec![Change::PutAlertDestination(Box::new(input))])
    })
    .await?;
    shown(&row)
}

async fn remove(context: RequestContext) -> Result<ApiResponse, ApiError> {
    rows::edit(&context, RowKind::AlertDestination, None, context.path_param("name"), |row| {
        Ok(vec![Change::RemoveAlertDestination { destination: row.name.clone() }])
    })
    .await?;
    Ok(ApiResponse::no_content())
}

/// The destination in the path, or the one that the settings have.
async fn destination_in_path(context: &RequestContext) -> Result<AlertDestination, ApiError> {
    let name = context.path_param("name");
    let found = if name == CONFIGURED_DESTINATION {
        context.state.gateway.configured_destination()
    } else {
        let row = rows::find(context, RowKind::AlertDestination, None, name).await?;
        let destinations = context.with_query_timeout(context.state.store.alerts.destinations()).await?;
        destinations.into_iter().find(|known| known.id.to_string() == row.id)
    };
    found.ok_or_else(|| ApiError::not_found(RowKind::AlertDestination))
}

async fn test(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let destination = destination_in_path(&context).await?;
    let _permit = context.acquire_heavy_permit().await?;
    let fault = context.state.gateway.test_destination(&destination).await.err();
    Ok(ApiResponse::ok(json!({"destination": destination.spec.name, "delivered": fault.is_none(), "fault": fault})))
}
