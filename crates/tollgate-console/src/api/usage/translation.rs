//! The translation of a stored request and its answer: the stored bodies are translated again by the code of the request path, with the
//! catalog in force. For operators, because it shows channels; only contents that they may read.

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_core::{
    Catalog, ParameterOutcome, RequestContents, RequestId, Retranslation, RetranslationFault, TranslatedParameter, UsageRecord,
    retranslate,
};
use tollgate_store::fields::{FieldShape, Kind, Object};

use super::super::{
    request_context::RequestContext,
    schema::{TEXT, read},
};
use super::contents;
use crate::{api_error::ApiError, response::ApiResponse};

const OUTCOMES: &[&str] = &["kept", "renamed", "dropped", "set", "rewritten"];
const STATES: &[&str] = &["stored", "off", "not_selected", "gone"];
const FAULTS: &[&str] = &["no_attempt", "channel_gone", "malformed", "unsupported", "no_counter"];

static PARAMETER: Object = Object::of(
    "TranslatedParameter",
    &[
        read("name", TEXT, "In the caller's spelling; of a parameter that the channel edits, in the upstream's."),
        read("outcome", Kind::Word(OUTCOMES), "How it was handled; `rewritten`: it is in the body in another form."),
        read("upstream_name", TEXT, "Its name in the upstream's body, if it was renamed.").or_null(),
        read("value", TEXT, "The value that the gateway set.").or_null(),
    ],
);
const PARAMETER_ENTRY: Kind = Kind::Object(&PARAMETER);
const FIELDS: &[FieldShape] = &[
    read("id", Kind::Id("req_"), "Request id."),
    read(
        "contents",
        Kind::Word(STATES),
        "Whether its contents are stored, else why not: storing is off; neither its key nor its group enables it; or they were removed, or not stored when it ran.",
    ),
    read("fault", Kind::Word(FAULTS), "Why the body for the upstream cannot be reconstructed.").or_null(),
    read("fault_fields", Kind::List { of: &TEXT, max: 10_000 }, "The fields at fault."),
    read("protocol_in", TEXT, "Protocol of the caller."),
    read("protocol_out", TEXT, "Protocol of the upstream.").or_null(),
    read("channel", TEXT, "Channel of the attempt that answered, or of the last one.").or_null(),
    read("upstream_path", TEXT, "Path below the base URL of the channel.").or_null(),
    read("is_current", Kind::Flag, "Whether the catalog is the one that the request was priced by."),
    read("request", Kind::Object(&contents::EXCERPT), "The body, as the caller sent it.").or_null(),
    read("upstream_request", TEXT, "The reconstructed body for the upstream.").or_null(),
    read("answer", Kind::Object(&contents::EXCERPT), "The answer that the caller got.").or_null(),
    read("upstream_answer", TEXT, "The same answer in the upstream's protocol. The bytes that the upstream sent are not stored.")
        .or_null(),
    read("parameters", Kind::List { of: &PARAMETER_ENTRY, max: 10_000 }, "How each optional parameter was handled."),
];
pub(super) static TRANSLATION: Object = Object::of("UsageTranslation", FIELDS);

pub(super) async fn show(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let missing = || ApiError::not_found("request with stored contents");
    let id = RequestId::parse(context.path_param("record")).ok_or_else(missing)?;
    let found = context.with_query_timeout(context.state.store.usage.find(id)).await?;
    let record = found.filter(|record| contents::may_read(&context, record.member)).ok_or_else(missing)?;
    let catalog = context.with_query_timeout(context.state.gateway.catalog()).await?;
    let stored = context.with_query_timeout(context.state.store.contents.contents(id)).await?;
    let Some(stored) = stored else {
        let state = why_missing(&context, &record, &catalog).await?;
        return Ok(ApiResponse::ok(object(&record, &catalog, state, None)));
    };
    contents::record_read(&context, id, record.member).await?;
    Ok(ApiResponse::ok(object(&record, &catalog, "stored", Some(&stored))))
}

/// Why there are no contents.
async fn why_missing(context: &RequestContext, record: &UsageRecord, catalog: &Catalog) -> Result<&'static str, ApiError> {
    if !context.state.gateway.stores_contents() {
        return Ok("off");
    }
    let group = record.group_name.as_deref().and_then(|group| catalog.group_by_name(group));
    let is_selected = group.is_some_and(|group| group.log_contents)
        || context.with_query_timeout(context.state.store.listing.key(record.key)).await?.is_some_and(|key| key.log_contents);
    Ok(if is_selected { "gone" } else { "not_selected" })
}

fn object(record: &UsageRecord, catalog: &Catalog, state: &str, stored: Option<&RequestContents>) -> Value {
    let attempt = record.subject().and_then(|at| record.attempts.get(at));
    let written = stored.map(|stored| retranslate(catalog, record, &Bytes::copy_from_slice(stored.request.text.as_bytes())));
    let (written, fault) = match written {
        Some(Ok(written)) => (Some(written), None),
        Some(Err(fault)) => (None, Some(fault)),
        None => (None, None),
    };
    let (fault, fields) = fault.map_or((None, Vec::new()), |fault| {
        let (word, fields) = named(fault);
        (Some(word), fields)
    });
    let answer = stored.map(|stored| &stored.answer).filter(|answer| !answer.text.is_empty());
    let upstream_answer = written.as_ref().zip(answer).and_then(|(written, answer)| written.upstream_answer(&answer.text));
    json!({
        "id": record.id.to_string(), "contents": state, "fault": fault, "fault_fields": fields,
        "protocol_in": record.protocol_in.as_str(), "protocol_out": attempt.map(|attempt| attempt.protocol.as_str()),
        "channel": attempt.map(|attempt| attempt.channel_name.to_string()),
        "upstream_path": written.as_ref().map(|written| &written.path),
        "is_current": record.price_version == catalog.revision,
        "request": stored.map(|stored| contents::excerpt(&stored.request)),
        "upstream_request": written.as_ref().map(|written| String::from_utf8_lossy(&written.body)),
        "answer": answer.map(contents::excerpt), "upstream_answer": upstream_answer,
        "parameters": written.as_ref().map_or_else(Vec::new, parameters),
    })
}

fn named(fault: RetranslationFault) -> (&'static str, Vec<String>) {
    match fault {
        RetranslationFault::NoAttempt => ("no_attempt", Vec::new()),
        RetranslationFault::ChannelGone => ("channel_gone", Vec::new()),
        RetranslationFault::Malformed(fields) => ("malformed", fields),
        RetranslationFault::Unsupported(fields) => ("unsupported", fields),
        RetranslationFault::NoCounter => ("no_counter", Vec::new()),
    }
}

fn parameters(written: &Retranslation) -> Vec<Value> {
    let parameter = |TranslatedParameter { name, outcome }: &TranslatedParameter| {
        let (upstream_name, value) = match outcome {
            ParameterOutcome::Renamed(name) => (Some(name), None),
            ParameterOutcome::Set(value) => (None, Some(value)),
            ParameterOutcome::Kept | ParameterOutcome::Dropped | ParameterOutcome::Rewritten => (None, None),
        };
        json!({"name": name, "outcome": outcome.as_str(), "upstream_name": upstream_name, "value": value})
    };
    written.parameters.iter().map(parameter).collect()
}
