//! Relays streamed answers (Anthropic API docs, "Streaming messages"): named events that end with `message_stop`.

use bytes::Bytes;

use super::{problem, reply_scan::MessagesReplyScan, usage::MessagesUsageCounts};
use crate::{
    Framing, Problem, ReplyEdits, ReplySummary, StreamError, StreamRelay,
    edits::{self, Edits},
    passthrough::{self, BodyKind},
    sse::{SseEvent, SseParser},
};

/// A relay for one answer. The protocol has a single framing.
pub(super) fn relay(_framing: Framing, edits: &ReplyEdits) -> Box<dyn StreamRelay> {
    Box::new(Relay {
        body_kind: BodyKind::default(),
        parser: SseParser::new(),
        events: EventRelay { model: edits.caller_model.as_deref().map(edits::literal), ..EventRelay::default() },
    })
}

struct Relay {
    body_kind: BodyKind,
    parser: SseParser,
    events: EventRelay,
}

#[derive(Default)]
struct EventRelay {
    /// The caller's name of the model as a JSON literal.
    model: Option<String>,
    summary: ReplySummary,
    counts: MessagesUsageCounts,
    stopped: bool,
}

impl StreamRelay for Relay {
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        self.body_kind.inspect(chunk)?;
        if let BodyKind::Document(_) = self.body_kind {
            return Ok(());
        }
        let events = &mut self.events;
        self.parser.push(chunk, |event| events.event(&event, out))
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if let BodyKind::Document(body) = &self.body_kind {
            return Err(passthrough::document_error(body, problem::decode));
        }
        let events = &mut self.events;
        let tail = self.parser.finish(|event| events.event(&event, out));
        passthrough::check_stream_end(tail, events.stopped)
    }

    fn summary(&self) -> ReplySummary {
        self.events.summary
    }

    fn held_bytes(&self) -> usize {
        self.body_kind.held_bytes() + self.parser.held_bytes()
    }

    fn complete(&self) -> bool {
        self.events.stopped
    }

    /// The stream ends with `message_stop` in any case, which [`StreamRelay::finish`] checks.
    fn may_end_unmarked(&self, _: u32) -> bool {
        true
    }

    fn problem(&mut self, problem: &Problem) -> Bytes {
        named("error", &problem::encode(problem))
    }

    fn keep_alive(&self) -> &'static [u8] {
        b"event: ping\ndata: {\"type\":\"ping\"}\n\n"
    }
}

impl EventRelay {
    fn event(&mut self, event: &SseEvent<'_>, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if self.stopped || event.data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let Ok(answer) = MessagesReplyScan::read(event.data, self.counts) else {
            return Err(StreamError::Malformed("an event that is not a JSON object"));
        };
        if answer.error || answer.kind == "error" || event.name == b"error" {
            return Err(StreamError::Problem(Box::new(problem::decode(200, event.data))));
        }
        // The SDKs dispatch on the event name; where it is missing, the type in the data replaces it.
        let name = if event.name.is_empty() { answer.kind.as_bytes() } else { event.name };
        let Some(name) = std::str::from_utf8(name).ok().filter(|name| !name.is_empty()) else {
            return Err(StreamError::Malformed("an event without a type"));
        };
        self.counts = answer.counts;
        self.summary.add(&answer.summary);
        if name == "message_stop" {
            if self.summary.finish.is_none() {
                return Err(StreamError::Truncated);
            }
            self.stopped = true;
        }
        let mut changes = Edits::new();
        changes.replace_all(answer.models, self.model.as_deref());
        out.push(if changes.is_empty() { named(name, event.data) } else { named(name, &changes.apply(event.data)) });
        Ok(())
    }
}

fn named(name: &str, json: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(json.len() + name.len() + 16);
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    out.extend_from_slice(&passthrough::one_line(json));
    out.extend_from_slice(b"\n\n");
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        FinishReason, Usage,
        passthrough::tests::{Run, run_cut_everywhere},
    };

    fn pass(stream: &str, model: Option<&str>) -> Run {
        let edits = ReplyEdits { caller_model: model.map(str::to_owned), hide_usage: false };
        run_cut_everywhere(|| relay(Framing::Sse, &edits), stream.as_bytes())
    }

    const EVENTS: &[(&str, &str)] = &[
        (
            "message_start",
            r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"up","content":[],"stop_reason":null,"usage":{"input_tokens":5,"output_tokens":1}}}"#,
        ),
        ("content_block_start", r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#),
        ("ping", r#"{"type":"ping"}"#),
        ("content_block_delta", r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hé"}}"#),
        ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
        (
            "content_block_start",
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
        ),
        (
            "content_block_delta",
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
        ),
        ("content_block_stop", r#"{"type":"content_block_stop","index":1}"#),
        (
            "message_delta",
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}}"#,
        ),
        ("message_stop", r#"{"type":"message_stop"}"#),
    ];

    fn stream(events: &[(&str, &str)]) -> String {
        events.iter().map(|(name, data)| ["event: ", name, "\ndata: ", data, "\n\n"].concat()).collect()
    }

    #[test]
    fn stream_is_forwarded_and_summarised() {
        let text = stream(EVENTS);
        let (out, result, summary) = pass(&text, None);
        assert_eq!((out, result), (text, Ok(())));
        let usage = Some(Usage { prompt_total: 5, completion_total: 9, ..Usage::default() });
        assert_eq!(
            summary,
            ReplySummary {
                usage,
                finish: Some(FinishReason::Tool),
                content: true,
                text_bytes: 5,
                media: 0,
                unknown: 0,
                surplus_calls: 0,
                account_refused: false
            }
        );
    }

    #[test]
    fn missing_event_names_and_other_framing_are_repaired() {
        let bare: String = EVENTS.iter().map(|(_, data)| [": x\r\ndata:", data, "\r\n\r\n"].concat()).collect();
        assert_eq!(pass(&bare, None).0, stream(EVENTS));
        assert!(matches!(pass("data: {}\n\n", None).1, Err(StreamError::Malformed(_))));
    }

    #[test]
    fn model_name_is_restored() {
        let text = stream(EVENTS);
        assert_eq!(pass(&text, Some("mine")).0, text.replace("\"model\":\"up\"", "\"model\":\"mine\""));
    }

    #[test]
    fn stream_without_message_stop_is_truncated() {
        for length in 0..EVENTS.len() {
            assert_eq!(pass(&stream(&EVENTS[..length]), None).1, Err(StreamError::Truncated), "{length} events");
        }
        let (out, result, _) = pass(&stream(&[EVENTS[0], EVENTS[9]]), None);
        assert_eq!((out, result), (stream(&EVENTS[..1]), Err(StreamError::Truncated)), "message_stop without a stop reason");
    }

    #[test]
    fn error_event_is_recognised_with_or_without_name() {
        let data = r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#;
        for event in [format!("event: error\ndata: {data}\n\n"), format!("data: {data}\n\n")] {
            let (_, result, _) = pass(&format!("{}{event}", stream(&EVENTS[..4])), None);
            assert!(matches!(result, Err(StreamError::Problem(problem)) if problem.status == 529));
        }
        assert!(matches!(pass(data, None).1, Err(StreamError::Problem(_))));
    }

    #[test]
    fn aborted_stream_ends_with_an_error_event() {
        let problem = Problem { status: 502, message: "m".to_owned(), request_id: "req_1".to_owned(), ..Problem::default() };
        let mut relay = relay(Framing::Sse, &ReplyEdits::default());
        let expected = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"m\"},\"request_id\":\"req_1\"}\n\n";
        assert_eq!(relay.problem(&problem), expected);
    }
}
