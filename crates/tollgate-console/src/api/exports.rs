//! `/admin/v1/exports`: which days of usage records were exported to storage, and why others were not. A job of kind `export` exports.

use serde_json::{Value, json};
use tollgate_store::{
    AdminScope, ExportFailure, ExportedDay,
    fields::{Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{COUNT, TEXT, read},
};
use crate::{
    api_error::ApiError,
    export_days,
    response::ApiResponse,
    time::{day_text, time_value},
};

/// Exported days that are listed.
const MAX_DAYS: usize = 366;

static DAY: Object = Object::of(
    "ExportedDay",
    &[
        read("day", TEXT, "UTC day, such as `2026-11-30`."),
        read("records", COUNT, "Records in its files."),
        read("files", COUNT, "Its files."),
        read("bytes", COUNT, "Bytes of all files."),
        read("exported_at", Kind::Time, "When it was exported."),
    ],
);
static FAILURE: Object = Object::of(
    "ExportFailure",
    &[
        read("day", TEXT, "The day that was to be exported."),
        read("since", Kind::Time, "The first failure since a day was exported."),
        read("at", Kind::Time, "The last failure."),
        read("message", TEXT, "The storage's message, and a remedy."),
    ],
);
static EXPORTS: Object = Object::of(
    "Exports",
    &[
        read("target", TEXT, "Bucket and prefix, such as `s3://records/usage`; null: no storage is set (`export.endpoint`).")
            .or_null(),
        read("due", COUNT, "Finished days with records that are not exported."),
        read("first_due", TEXT, "The first of them.").or_null(),
        read("failure", Kind::Object(&FAILURE), "Why the last export failed; null once a day is exported.").or_null(),
        read(
            "days",
            Kind::List { of: &Kind::Object(&DAY), max: MAX_DAYS },
            "Days of the last year that were exported, newest first.",
        ),
    ],
);

const RESOURCE: Resource = Resource { tag: "jobs", needs: Needs::Scope(AdminScope::Operator) };

pub(super) static ROUTES: &[Route] = &[RESOURCE
    .route(
        Method::Get,
        "/admin/v1/exports",
        "get_exports",
        "The state of the export of usage records to S3-compatible storage.",
        handler!(show),
    )
    .returns(ResponseSchema::Object(&EXPORTS))];

fn day(day: &ExportedDay) -> Value {
    json!({
        "day": day_text(day.day), "records": day.records, "files": day.files, "bytes": day.bytes, "exported_at": time_value(day.at),
    })
}

fn failure(failure: &ExportFailure) -> Value {
    json!({
        "day": day_text(failure.day), "since": time_value(failure.since), "at": time_value(failure.at), "message": failure.message,
    })
}

async fn show(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (store, now) = (&context.state.store, context.state.gateway.now());
    let settings = context.state.gateway.settings();
    let setting = |name: &str| settings.iter().find(|setting| setting.name == name).and_then(|setting| setting.value.clone());
    let target = setting("export.endpoint").filter(|text| !text.is_empty()).map(|_| {
        let parts = [setting("export.bucket"), setting("export.prefix")].map(Option::unwrap_or_default);
        format!("s3://{}", parts.join("/").trim_end_matches('/'))
    });
    let due = match (&target, setting("export.delay_minutes").and_then(|text| text.parse().ok())) {
        (Some(_), Some(delay)) => export_days::unexported(store, export_days::first_unfinished(now, delay)).await?,
        (None, _) | (_, None) => Vec::new(),
    };
    let exported = store.exports.exported_days(now.day() - i64::try_from(MAX_DAYS).unwrap_or(0)).await?;
    let last_failure = store.exports.export_failure().await?;
    Ok(ApiResponse::ok(json!({
        "target": target, "due": due.len(), "first_due": due.first().map(|due| day_text(due.day)),
        "failure": last_failure.as_ref().map(failure),
        "days": exported.iter().rev().take(MAX_DAYS).map(day).collect::<Vec<_>>(),
    })))
}
