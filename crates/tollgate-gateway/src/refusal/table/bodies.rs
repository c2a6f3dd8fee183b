//! Refusals of the request body.

use tollgate_protocol::{ErrorStyle, FieldViolation, Malformed, MalformedKind, Protocol};

use super::{INVALID_REQUEST, RefusalRow};
use crate::{refusal::text::quoted, request::Head};

/// E19.
pub(super) fn media_type(sent: &str) -> RefusalRow {
    media(format!("Content-Type '{}' is not supported; send application/json.", quoted(sent)))
}

/// E23.
pub(super) fn content_encoding(sent: &str) -> RefusalRow {
    media(format!("Content-Encoding '{}' is not supported; use gzip or none.", quoted(sent)))
}

fn media(message: String) -> RefusalRow {
    RefusalRow::new(415, INVALID_REQUEST, Some("unsupported_media_type"), "INVALID_ARGUMENT", "UNSUPPORTED_MEDIA_TYPE", message)
}

/// E22.
pub(super) fn too_large(limit: usize) -> RefusalRow {
    let message = format!("The request body is larger than {limit} bytes.");
    RefusalRow::new(413, INVALID_REQUEST, Some("request_too_large"), "INVALID_ARGUMENT", "REQUEST_TOO_LARGE", message)
}

/// E18 of a body that cannot be decompressed.
pub(super) fn unreadable(fault: &str) -> RefusalRow {
    RefusalRow::invalid("invalid_json", "INVALID_JSON", format!("The request body is not valid JSON: {fault}."))
}

/// E20, E21 of a header or a query parameter.
pub(super) fn invalid_value(name: &str, message: &str) -> RefusalRow {
    RefusalRow::invalid("invalid_value", "INVALID_VALUE", message.to_owned())
        .param(name)
        .violations(vec![FieldViolation { field: name.to_owned(), description: message.to_owned() }])
}

/// E16, E18, E20, E21.
pub(super) fn malformed(fault: &Malformed, from: Protocol) -> RefusalRow {
    let code = match fault.kind {
        MalformedKind::NotJson => return RefusalRow::invalid("invalid_json", "INVALID_JSON", fault.message.clone()),
        MalformedKind::Missing => "missing_required_parameter",
        MalformedKind::WrongType => "invalid_type",
        MalformedKind::InvalidValue => "invalid_value",
    };
    let mut row = RefusalRow::invalid(code, "INVALID_BODY", fault.message.clone());
    if from.spec().error_style != ErrorStyle::Gemini {
        row.0.openai.param = fault.violations.first().map(|first| first.field.clone());
    }
    row.violations(fault.violations.clone())
}

/// E17.
pub(super) fn unsupported(fields: &[String], model: &str, reason: Option<&str>, head: &Head) -> RefusalRow {
    let names = fields.iter().map(|field| format!("'{}'", quoted(field))).collect::<Vec<_>>().join(", ");
    let (verb, noun) = if fields.len() == 1 { ("is", "parameter") } else { ("are", "parameters") };
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let enough = match head.from.spec().error_style {
        ErrorStyle::Gemini if head.path.ends_with(":embedContent") => "'content' alone is",
        ErrorStyle::Gemini if head.path.ends_with(":batchEmbedContents") => "'requests' alone is",
        ErrorStyle::Gemini => "'contents' alone is",
        ErrorStyle::OpenAi if head.path.ends_with("/embeddings") => "'model' and 'input' alone are",
        ErrorStyle::OpenAi => "'model' and 'messages' alone are",
    };
    let message = format!(
        "Unsupported parameter: {names} {verb} not supported with the model '{}'{reason}. Remove the unsupported {noun}; {enough} \
         enough to verify the call.",
        quoted(model)
    );
    let mut row = RefusalRow::invalid("unsupported_parameter", "UNSUPPORTED_PARAMETER", message).violations(
        fields
            .iter()
            .map(|field| FieldViolation { field: field.clone(), description: "Unsupported parameter.".to_owned() })
            .collect(),
    );
    row.0.openai.param = fields.first().cloned();
    row
}
