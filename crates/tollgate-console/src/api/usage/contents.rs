//! The stored contents of a request. Its member and admins may read them. Reads by admins are recorded in the audit log.

use serde_json::{Value, json};
use tollgate_core::{Excerpt, MemberId, RequestId};
use tollgate_store::{
    AdminScope, Change, ContentAction, ObjectScope, RowKind,
    fields::{FieldShape, Kind, Object},
};

use super::super::{
    request_context::RequestContext,
    route::{Needs, Resource},
    schema::{COUNT, TEXT, read},
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

pub(super) static EXCERPT: Object = Object::of(
    "Excerpt",
    &[
        read("text", TEXT, "The text: media in base64 are cut short, and what `contents.redact` matches is `[redacted]`."),
        read("bytes", COUNT, "Length of the whole text in bytes."),
        read("is_cut", Kind::Flag, "Whether its end is missing, because it is longer than `contents.max_bytes`."),
    ],
);
const FIELDS: &[FieldShape] = &[
    read("id", Kind::Id("req_"), "Request id."),
    read("at", Kind::Time, "Arrival of the request."),
    read("key", Kind::Id("key_"), "Key id."),
    read("member", Kind::Id("mbr_"), "Member id."),
    read("request", Kind::Object(&EXCERPT), "The body, as the caller sent it."),
    read("answer", Kind::Object(&EXCERPT), "The answer as it was sent: JSON, or the events of a stream. Empty for a refusal."),
];
pub(super) static CONTENTS: Object = Object::of("UsageContents", FIELDS);

/// Operators see the usage of all members, but only their own contents.
pub(super) const RESOURCE: Resource = Resource { tag: "usage", needs: Needs::Own { all: AdminScope::Admin } };

/// Whether the principal may read the contents of this member's requests.
pub(super) fn may_read(context: &RequestContext, member: MemberId) -> bool {
    context.principal.scope() == AdminScope::Admin || is_member(context, member)
}

fn is_member(context: &RequestContext, member: MemberId) -> bool {
    context.principal.member().is_some_and(|(own, _)| own == member)
}

fn missing() -> ApiError {
    ApiError::not_found("request with stored contents")
}

fn request_id(context: &RequestContext) -> Result<RequestId, ApiError> {
    RequestId::parse(context.path_param("record")).ok_or_else(missing)
}

pub(super) async fn show(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let id = request_id(&context)?;
    let found = context.with_query_timeout(context.state.store.contents.contents(id)).await?;
    let contents = found.filter(|contents| context.objects.contains(contents.member)).ok_or_else(missing)?;
    record_read(&context, id, contents.member).await?;
    Ok(ApiResponse::ok(json!({
        "id": id.to_string(), "at": time_value(contents.at), "key": contents.key.to_string(), "member": contents.member.to_string(),
        "request": excerpt(&contents.request), "answer": excerpt(&contents.answer),
    })))
}

pub(super) fn excerpt(Excerpt { text, bytes, is_cut }: &Excerpt) -> Value {
    json!({"text": text, "bytes": bytes, "is_cut": is_cut})
}

/// Records a read of the contents of another member's request in the audit log.
pub(super) async fn record_read(context: &RequestContext, request: RequestId, member: MemberId) -> Result<(), ApiError> {
    if is_member(context, member) { Ok(()) } else { record(context, request, member, ContentAction::Read).await }
}

pub(super) async fn remove(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let id = request_id(&context)?;
    let record_of = context.with_query_timeout(context.state.store.usage.find(id)).await?;
    // Once the record was removed, the member is unknown. Admins may still remove the contents.
    let member = record_of.map(|record| record.member);
    let is_own = member.map_or(context.objects == ObjectScope::Everything, |member| context.objects.contains(member));
    if !is_own || !context.state.store.contents.remove_contents(id).await? {
        return Err(missing());
    }
    if let Some(member) = member {
        record(&context, id, member, ContentAction::Remove).await?;
    }
    Ok(ApiResponse::no_content())
}

/// Records the action in the audit log.
async fn record(context: &RequestContext, request: RequestId, member: MemberId, action: ContentAction) -> Result<(), ApiError> {
    let row = context.state.store.listing.row(RowKind::Member, &member.to_string(), ObjectScope::Everything).await?;
    let member = row.map_or_else(|| member.to_string(), |row| row.name);
    context.apply(&[Change::RecordContents { request, member, action }]).await.map(drop)
}

/// Whether there are stored contents that the principal may read.
pub(super) async fn is_readable(context: &RequestContext, id: RequestId, member: MemberId) -> Result<Value, ApiError> {
    let is_there = may_read(context, member) && context.with_query_timeout(context.state.store.contents.has_contents(id)).await?;
    Ok(is_there.into())
}
