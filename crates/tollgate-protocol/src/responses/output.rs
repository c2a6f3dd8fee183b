//! Writes the response object and its output items.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use super::decode_request::no_echo;
use crate::{
    Usage,
    json_text::{write_separator, write_string},
    neutral::{Citation, NamespacedTool, ReplyContext, RequestEcho, TextMap},
    shared_pieces::SharedPieces,
};

/// The constant members of the response object of one answer.
#[derive(Debug)]
pub(super) struct ResponseFrame {
    pub(super) request_id: String,
    created_at: i64,
    model: String,
    echo: Arc<RequestEcho>,
}

/// Status of a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum Status<'a> {
    InProgress,
    Completed,
    /// With the reason.
    Incomplete(&'static str),
    Failed {
        code: &'a str,
        message: &'a str,
    },
}

impl ResponseFrame {
    pub(super) fn new(context: &ReplyContext) -> Self {
        Self {
            request_id: context.request_id.clone(),
            created_at: context.now,
            model: context.model.clone(),
            echo: context.echo.clone().unwrap_or_else(|| Arc::new(no_echo())),
        }
    }

    /// The namespaced tool that this name stands for.
    pub(super) fn namespaced(&self, flat: &str) -> Option<&NamespacedTool> {
        self.echo.namespaced.iter().find(|tool| tool.flat == flat)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.echo.members.len() + self.echo.instructions.len() + self.echo.tools.len()
    }

    /// Writes the response object, with the output that `items` writes. Instructions and tools may be large, so they are left out while
    /// the response is in progress.
    pub(super) fn write(
        &self,
        out: &mut SharedPieces,
        status: Status<'_>,
        items: impl FnOnce(&mut SharedPieces),
        usage: Option<&Usage>,
    ) {
        let in_progress = matches!(status, Status::InProgress);
        out.put_slice(b"{\"id\":");
        write_string(out, &format!("resp_{}", self.request_id));
        out.put_slice(format!(",\"object\":\"response\",\"created_at\":{},\"status\":", self.created_at).as_bytes());
        let word = match status {
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Incomplete(_) => "incomplete",
            Status::Failed { .. } => "failed",
        };
        write_string(out, word);
        out.put_slice(b",\"background\":false,\"error\":");
        if let Status::Failed { code, message } = status {
            out.put_slice(b"{\"code\":");
            write_string(out, code);
            out.put_slice(b",\"message\":");
            write_string(out, message);
            out.put_u8(b'}');
        } else {
            out.put_slice(b"null");
        }
        out.put_slice(b",\"incomplete_details\":");
        match status {
            Status::Incomplete(reason) => out.put_slice(format!("{{\"reason\":\"{reason}\"}}").as_bytes()),
            Status::InProgress | Status::Completed | Status::Failed { .. } => out.put_slice(b"null"),
        }
        out.put_slice(b",\"instructions\":");
        out.put_slice(if in_progress { b"null" } else { self.echo.instructions.as_bytes() });
        out.put_u8(b',');
        out.put_slice(self.echo.members.as_bytes());
        out.put_slice(b",\"model\":");
        write_string(out, &self.model);
        out.put_slice(b",\"output\":[");
        items(out);
        out.put_slice(b"],\"previous_response_id\":null,\"store\":false,\"tools\":");
        out.put_slice(if in_progress { b"[]" } else { self.echo.tools.as_bytes() });
        out.put_slice(b",\"usage\":");
        match usage {
            Some(usage) => write_usage(out, usage),
            None => out.put_slice(b"null"),
        }
        out.put_u8(b'}');
    }
}

fn write_usage(out: &mut BytesMut, usage: &Usage) {
    let text = format!(
        "{{\"input_tokens\":{},\"input_tokens_details\":{{\"cached_tokens\":{},\"cache_write_tokens\":{}}},\"output_tokens\":{},\
         \"output_tokens_details\":{{\"reasoning_tokens\":{}}},\"total_tokens\":{}}}",
        usage.prompt_total,
        usage.cached,
        usage.cache_write,
        usage.completion_total,
        usage.reasoning,
        usage.prompt_total + usage.completion_total,
    );
    out.put_slice(text.as_bytes());
}

/// JSON as text that `write` writes.
pub(super) fn text_of(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    String::from_utf8(out.into()).expect("writers of JSON write UTF-8")
}

/// Writes a string whose content is escaped already.
pub(super) fn quoted(out: &mut SharedPieces, escaped: &SharedPieces) {
    out.put_u8(b'"');
    out.append(escaped);
    out.put_u8(b'"');
}

/// Members of a content part besides its text.
#[derive(Debug)]
pub(super) struct TextParts<'a> {
    pub(super) annotations: &'a str,
    /// The entries of the list of log probabilities.
    pub(super) logprobs: &'a SharedPieces,
}

/// Writes a content part: text with annotations and log probabilities, or a refusal.
pub(super) fn content_part(out: &mut SharedPieces, text: &SharedPieces, parts: Option<&TextParts<'_>>) {
    let Some(TextParts { annotations, logprobs }) = parts else {
        out.put_slice(b"{\"type\":\"refusal\",\"refusal\":");
        quoted(out, text);
        out.put_u8(b'}');
        return;
    };
    out.put_slice(b"{\"type\":\"output_text\",\"text\":");
    quoted(out, text);
    out.put_slice(b",\"annotations\":");
    out.put_slice(annotations.as_bytes());
    out.put_slice(b",\"logprobs\":[");
    out.append(logprobs);
    out.put_slice(b"]}");
}

/// Writes a message with one content part, or without one yet.
pub(super) fn message(out: &mut SharedPieces, id: &str, status: &str, part: impl FnOnce(&mut SharedPieces)) {
    out.put_slice(b"{\"id\":");
    write_string(out, id);
    out.put_slice(format!(",\"type\":\"message\",\"status\":\"{status}\",\"role\":\"assistant\",\"content\":[").as_bytes());
    part(out);
    out.put_slice(b"]}");
}

/// Writes a reasoning item.
pub(super) fn reasoning(out: &mut SharedPieces, id: &str, status: &str, summary: &SharedPieces, sealed: Option<&str>) {
    out.put_slice(b"{\"id\":");
    write_string(out, id);
    out.put_slice(format!(",\"type\":\"reasoning\",\"status\":\"{status}\",\"summary\":[").as_bytes());
    if !summary.is_empty() {
        summary_part(out, summary);
    }
    out.put_slice(b"],\"encrypted_content\":");
    match sealed {
        Some(sealed) => write_string(out, sealed),
        None => out.put_slice(b"null"),
    }
    out.put_u8(b'}');
}

pub(super) fn summary_part(out: &mut SharedPieces, text: &SharedPieces) {
    out.put_slice(b"{\"type\":\"summary_text\",\"text\":");
    quoted(out, text);
    out.put_u8(b'}');
}

/// Writes an image of the model; `None` while it is being made.
pub(super) fn image(out: &mut SharedPieces, id: &str, status: &str, mime: &str, data: Option<&SharedPieces>) {
    out.put_slice(b"{\"id\":");
    write_string(out, id);
    out.put_slice(format!(",\"type\":\"image_generation_call\",\"status\":\"{status}\",\"result\":").as_bytes());
    match data {
        Some(data) => quoted(out, data),
        None => out.put_slice(b"null"),
    }
    out.put_slice(b",\"output_format\":");
    write_string(out, mime.trim_start_matches("image/"));
    out.put_u8(b'}');
}

/// Annotations of the text in `map`, which begins at byte `start` of the answer's texts. Those of other texts are left out.
pub(super) fn annotations(citations: &[Citation], map: &TextMap, start: usize) -> String {
    text_of(|out| {
        out.put_u8(b'[');
        let mut written = 0;
        for citation in citations {
            let (Some(from), Some(to)) = (citation.start.checked_sub(start), citation.end.checked_sub(start)) else { continue };
            let to = to.min(map.bytes());
            let (Some(from), Some(to)) = (map.character_at(from), map.character_at(to)) else { continue };
            if from >= to {
                continue;
            }
            write_separator(out, written);
            written += 1;
            out.put_slice(format!("{{\"type\":\"url_citation\",\"start_index\":{from},\"end_index\":{to},\"url\":").as_bytes());
            write_string(out, &citation.url);
            out.put_slice(b",\"title\":");
            write_string(out, &citation.title);
            out.put_u8(b'}');
        }
        out.put_u8(b']');
    })
}
