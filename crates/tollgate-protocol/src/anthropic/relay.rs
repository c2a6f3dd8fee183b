//! Relays streamed answers (Anthropic API docs, "Streaming messages"): named events that end with `message_stop`.

use bytes::Bytes;

use super::{problem, reply_scan::MessagesReplyScan, usage::MessagesUsageCounts};
use crate::{
    Framing, Problem, ReplyEdits, ReplySummary, StreamError, StreamRelay, UpstreamProblem,
    edits::{self, Edits},
    named_events::{NamedEventRelay, NamedEvents},
    passthrough::{ChunkWriter, one_line},
    sse::{self, SseEvent},
};

/// A relay for one answer. The protocol has a single framing.
pub(super) fn relay(_framing: Framing, edits: &ReplyEdits) -> Box<dyn StreamRelay> {
    let model = edits.caller_model.as_deref().map(edits::literal);
    Box::new(NamedEventRelay::new(MessagesEvents { model, ..MessagesEvents::default() }))
}

#[derive(Default)]
struct MessagesEvents {
    /// The caller's name of the model as a JSON literal.
    model: Option<String>,
    summary: ReplySummary,
    counts: MessagesUsageCounts,
    stopped: bool,
}

impl NamedEvents for MessagesEvents {
    const KEEP_ALIVE: &'static [u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";

    fn event(&mut self, event: &SseEvent<'_>, out: &mut ChunkWriter<'_>) -> Result<(), StreamError> {
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
        let Some(name) = std::str::from_utf8(name).ok().filter(|name| sse::is_name(name)) else {
            return Err(StreamError::Malformed("an event without a type"));
        };
        self.counts = answer.counts;
        let mut facts = answer.summary;
        if name == "content_block_start" && facts.searches > answer.counts.searches() {
            // Search results arrive before the usage that counts them.
            facts.searches = Some(self.summary.searches.unwrap_or(0).saturating_add(1));
        }
        self.summary.add(&facts);
        if name == "message_stop" {
            if self.summary.finish.is_none() {
                return Err(StreamError::Truncated);
            }
            self.stopped = true;
        }
        let mut changes = Edits::new();
        changes.replace_all(answer.models, self.model.as_deref());
        if changes.is_empty() {
            out.forward_named(name, event);
        } else {
            out.write(sse::named_event(name, &one_line(&changes.apply(event.data))));
        }
        Ok(())
    }

    fn summary(&self) -> ReplySummary {
        self.summary
    }

    fn has_ended(&self) -> bool {
        self.stopped
    }

    fn problem(&mut self, problem: &Problem) -> Bytes {
        sse::named_event("error", &one_line(&problem::encode(problem)))
    }

    fn decode_problem(status: u16, body: &[u8]) -> UpstreamProblem {
        problem::decode(status, body)
    }
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
                searches: None,
                account_refused: false
            }
        );
    }

    #[test]
    fn searches_are_taken_from_the_usage_or_counted_from_results() {
        let result = r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"s","content":[]}}"#;
        let failed = r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"s","content":{"type":"web_search_tool_result_error"}}}"#;
        let usage = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9,"server_tool_use":{"web_search_requests":8}}}"#;
        let (start, stop) = (EVENTS[0], EVENTS[9]);
        let searches = |events: &[(&str, &str)]| pass(&stream(events), None).2.searches;
        let result = ("content_block_start", result);
        assert_eq!(searches(&[start, EVENTS[1]]), None);
        assert_eq!(searches(&[start, result, ("content_block_start", failed), result]), Some(2));
        assert_eq!(searches(&[start, result, ("message_delta", usage), stop]), Some(8));
    }

    #[test]
    fn missing_event_names_and_other_framing_are_repaired() {
        let bare: String = EVENTS.iter().map(|(_, data)| [": x\r\ndata:", data, "\r\n\r\n"].concat()).collect();
        assert_eq!(pass(&bare, None).0, stream(EVENTS));
        for unnamed in ["data: {}\n\n", "data: {\"type\":\"ping\\ndata: {}\"}\n\n"] {
            assert!(matches!(pass(unnamed, None).1, Err(StreamError::Malformed(_))), "{unnamed}");
        }
    }

    #[test]
    fn canonical_events_are_forwarded_without_a_copy() {
        let chunk = Bytes::from(stream(EVENTS));
        let mut out = Vec::new();
        relay(Framing::Sse, &ReplyEdits::default()).push(&chunk, &mut out).unwrap();
        assert_eq!(out.iter().map(|bytes| (bytes.as_ptr(), bytes.len())).collect::<Vec<_>>(), [(chunk.as_ptr(), chunk.len())]);
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
