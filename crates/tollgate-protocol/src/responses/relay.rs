//! Relays streamed responses (OpenAI API reference, "Streaming events"): named events that end with one that has the whole response.

use bytes::{BufMut, Bytes, BytesMut};

use super::{output::ResponseFrame, problem, reply_scan::ResponsesReplyScan, stream_encoder::ErrorBody};
use crate::{
    Framing, Problem, ReplyEdits, ReplySummary, StreamError, StreamRelay, UpstreamProblem,
    edits::{self, Edits},
    json_text::write_separator,
    named_events::{NamedEventRelay, NamedEvents},
    neutral::ReplyContext,
    openai::encode_problem,
    passthrough::{ChunkWriter, one_line},
    shared_pieces::SharedPieces,
    sse::{self, SseEvent},
};

/// Bytes of the items that are kept for the response that ends a broken stream.
const KEPT_ITEM_BYTES: usize = 256 * 1024;

/// A relay for one answer. The protocol has a single framing.
pub(super) fn relay(_framing: Framing, edits: &ReplyEdits) -> Box<dyn StreamRelay> {
    let name = edits.caller_model.clone();
    let model = name.as_deref().map(edits::literal);
    Box::new(NamedEventRelay::new(ResponsesEvents { name, model, ..ResponsesEvents::default() }))
}

#[derive(Default)]
struct ResponsesEvents {
    /// The caller's name of the model, and the same as a JSON literal.
    name: Option<String>,
    model: Option<String>,
    summary: ReplySummary,
    /// Id and time of the response, which an error repeats.
    id: String,
    created_at: u64,
    /// Number of the next event.
    sequence: u64,
    ended: bool,
    done: DoneItems,
}

/// The first finished items, as far as they fit.
#[derive(Default)]
struct DoneItems {
    items: Vec<String>,
    bytes: usize,
    is_full: bool,
}

impl DoneItems {
    fn push(&mut self, item: &[u8]) {
        let bytes = item.len() + size_of::<String>();
        self.is_full |= self.bytes + bytes > KEPT_ITEM_BYTES;
        if !self.is_full {
            self.bytes += bytes;
            self.items.push(String::from_utf8_lossy(item).into_owned());
        }
    }

    fn write(&self, out: &mut BytesMut) {
        for (at, item) in self.items.iter().enumerate() {
            write_separator(out, at);
            out.put_slice(item.as_bytes());
        }
    }
}

impl NamedEvents for ResponsesEvents {
    const KEEP_ALIVE: &'static [u8] = b": keep-alive\n\n";

    fn event(&mut self, event: &SseEvent<'_>, out: &mut ChunkWriter<'_>) -> Result<(), StreamError> {
        if self.ended || event.data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let Ok(answer) = ResponsesReplyScan::read(event.data) else {
            return Err(StreamError::Malformed("an event that is not a JSON object"));
        };
        // The data has the name too, and some servers send it only there.
        let name = if answer.kind.is_empty() { String::from_utf8_lossy(event.name).into_owned() } else { answer.kind };
        // Servers in front of the upstream send errors without a type.
        if name == "error" || name == "response.failed" || (name.is_empty() && answer.error) {
            if self.summary.content {
                // Usage up to the point where the answer broke off.
                self.summary.usage = answer.summary.usage.or(self.summary.usage);
            }
            return Err(StreamError::Problem(Box::new(problem::decode(200, event.data))));
        }
        if !sse::is_name(&name) {
            return Err(StreamError::Malformed("an event without a type"));
        }
        self.sequence = answer.sequence.map_or(self.sequence, |sequence| sequence + 1);
        if name == "response.created" {
            (self.id, self.created_at) = (answer.id, answer.created_at.unwrap_or_default());
        }
        if name == "response.output_item.done"
            && let Some(item) = answer.item.and_then(|range| event.data.get(range))
        {
            self.done.push(item);
        }
        let is_end = matches!(name.as_str(), "response.completed" | "response.incomplete");
        let mut facts = answer.summary;
        if is_end {
            // The texts of the whole response already arrived in pieces.
            facts.text_bytes = facts.text_bytes.saturating_sub(self.summary.text_bytes);
            self.ended = true;
        } else {
            facts.finish = None;
            // Items are counted when they end. The final response object contains all of them again.
            let so_far = self.summary.searches.unwrap_or(0);
            let is_done = name == "response.output_item.done";
            facts.searches = facts.searches.filter(|_| is_done).map(|searches| so_far.saturating_add(searches));
        }
        self.summary.add(&facts);
        let mut changes = Edits::new();
        changes.replace_all(answer.models, self.model.as_deref());
        if changes.is_empty() {
            out.forward_named(&name, event);
        } else {
            out.write(sse::named_event(&name, &one_line(&changes.apply(event.data))));
        }
        Ok(())
    }

    fn summary(&self) -> ReplySummary {
        self.summary
    }

    fn held_bytes(&self) -> usize {
        self.done.bytes
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn problem(&mut self, problem: &Problem) -> Bytes {
        let error = ErrorBody::of(&encode_problem(problem));
        let request_id = self.id.strip_prefix("resp_").unwrap_or(&self.id).to_owned();
        let now = i64::try_from(self.created_at).unwrap_or_default();
        let frame = ResponseFrame::new(&ReplyContext::new(&request_id, now, self.name.as_deref().unwrap_or_default()));
        let mut out = BytesMut::new();
        for kind in ["response.failed", "error"] {
            let mut data = SharedPieces::default();
            data.put_slice(format!("{{\"type\":\"{kind}\",\"sequence_number\":{}", self.sequence).as_bytes());
            self.sequence += 1;
            if kind == "error" {
                error.write(&mut data);
            } else {
                data.put_slice(b",\"response\":");
                frame.write(&mut data, error.status(), |out| self.done.write(out), None);
            }
            data.put_u8(b'}');
            out.put_slice(&sse::named_event(kind, &one_line(&data.into_bytes())));
        }
        out.freeze()
    }

    fn decode_problem(status: u16, body: &[u8]) -> UpstreamProblem {
        problem::decode(status, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        FinishReason, OpenAiErrorFields, Usage,
        passthrough::tests::{Run, run_cut_everywhere},
    };

    fn pass(stream: &str, model: Option<&str>) -> Run {
        let edits = ReplyEdits { caller_model: model.map(str::to_owned), hide_usage: false };
        run_cut_everywhere(|| relay(Framing::Sse, &edits), stream.as_bytes())
    }

    const EVENTS: &[(&str, &str)] = &[
        (
            "response.created",
            r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_up","created_at":7,"status":"in_progress","model":"up","output":[],"usage":null}}"#,
        ),
        (
            "response.output_item.added",
            r#"{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"msg_1","type":"message","content":[]}}"#,
        ),
        (
            "response.output_text.delta",
            r#"{"type":"response.output_text.delta","sequence_number":2,"item_id":"msg_1","delta":"h\u00e9"}"#,
        ),
        (
            "response.output_item.done",
            r#"{"type":"response.output_item.done","sequence_number":3,"item":{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"h\u00e9"}]}}"#,
        ),
        (
            "response.completed",
            r#"{"type":"response.completed","sequence_number":4,"response":{"id":"resp_up","status":"completed","model":"up","output":[{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"h\u00e9"}]}],"usage":{"input_tokens":5,"output_tokens":9}}}"#,
        ),
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
        let finish = Some(FinishReason::Stop);
        assert_eq!(summary, ReplySummary { usage, finish, content: true, text_bytes: 3, ..ReplySummary::default() });
    }

    #[test]
    fn searches_are_counted_once_each() {
        let item = |name: &str, action: &str| {
            format!(
                r#"{{"type":"{name}","item":{{"type":"web_search_call","id":"ws","status":"completed","action":{{"type":"{action}"}}}}}}"#
            )
        };
        let [added, done] = ["response.output_item.added", "response.output_item.done"];
        let (begun, searched, opened) = (item(added, "search"), item(done, "search"), item(done, "open_page"));
        let events =
            [EVENTS[0], (added, begun.as_str()), (done, searched.as_str()), (done, opened.as_str()), (done, searched.as_str())];
        assert_eq!(pass(&stream(&events), None).2.searches, Some(2));
        let output =
            r#"{"type":"web_search_call","action":{"type":"search"}},{"type":"web_search_call"},{"type":"file_search_call"}"#;
        let end = EVENTS[4].1.replace("\"output\":[", &format!("\"output\":[{output},"));
        let whole: Vec<_> = events.into_iter().chain([(EVENTS[4].0, end.as_str())]).collect();
        assert_eq!(pass(&stream(&whole), None).2.searches, Some(2), "the response has the same");
        assert_eq!(pass(&stream(EVENTS), None).2.searches, None);
    }

    #[test]
    fn missing_event_names_and_other_framing_are_repaired() {
        let bare: String = EVENTS.iter().map(|(_, data)| [": x\r\nid: 1\r\ndata:", data, "\r\n\r\n"].concat()).collect();
        assert_eq!(pass(&(bare + "data: [DONE]\n\n"), None).0, stream(EVENTS));
        assert!(matches!(pass("data: {}\n\n", None).1, Err(StreamError::Malformed(_))));
    }

    #[test]
    fn model_name_is_restored() {
        let text = stream(EVENTS);
        assert_eq!(pass(&text, Some("mine")).0, text.replace("\"model\":\"up\"", "\"model\":\"mine\""));
    }

    #[test]
    fn stream_without_the_whole_response_is_truncated() {
        for length in 0..EVENTS.len() {
            assert_eq!(pass(&stream(&EVENTS[..length]), None).1, Err(StreamError::Truncated), "{length} events");
        }
    }

    #[test]
    fn failures_are_recognised_in_each_form() {
        for event in [
            "event: error\ndata: {\"type\":\"error\",\"code\":\"server_is_overloaded\",\"message\":\"m\",\"param\":null}\n\n",
            "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_is_overloaded\",\"message\":\"m\"}}}\n\n",
        ] {
            let (_, result, _) = pass(&format!("{}{event}", stream(&EVENTS[..3])), None);
            assert!(matches!(result, Err(StreamError::Problem(problem)) if problem.status == 503), "{event}");
        }
    }

    #[test]
    fn broken_stream_ends_with_a_failed_response_of_the_same_id_and_an_error() {
        let openai = OpenAiErrorFields { kind: "server_error".to_owned(), code: Some("c".to_owned()), param: None };
        let problem = Problem { status: 502, message: "m".to_owned(), openai, ..Problem::default() };
        let mut relay = relay(Framing::Sse, &ReplyEdits::default());
        let begin = stream(&EVENTS[..3]);
        relay.push(&Bytes::from(begin), &mut Vec::new()).unwrap();
        let end = relay.problem(&problem);
        let text = std::str::from_utf8(&end).unwrap();
        let (failed, error) = text.trim_end().split_once("\n\n").unwrap();
        let failed: serde_json::Value = serde_json::from_str(failed.split_once("data: ").unwrap().1).unwrap();
        assert_eq!((&failed["sequence_number"], &failed["response"]["id"]), (&3.into(), &"resp_up".into()));
        assert_eq!(failed["response"]["error"]["message"], "m");
        assert_eq!(failed["response"]["output"], serde_json::json!([]), "no item is done");
        assert_eq!(
            error,
            "event: error\ndata: {\"type\":\"error\",\"sequence_number\":4,\"code\":\"c\",\"message\":\"m\",\"param\":null,\
             \"error\":{\"message\":\"m\",\"type\":\"server_error\",\"param\":null,\"code\":\"c\"}}"
        );
    }

    #[test]
    fn failed_response_contains_completed_items_up_to_a_size_limit() {
        let done = |length: usize| {
            let text = "x".repeat(length);
            format!(
                "event: response.output_item.done\ndata: {{\"type\":\"response.output_item.done\",\"item\":{{\"type\":\"message\",\"content\":[{{\"type\":\"output_text\",\"text\":\"{text}\"}}]}}}}\n\n"
            )
        };
        let mut relay = relay(Framing::Sse, &ReplyEdits::default());
        for event in [stream(&EVENTS[..4]), done(200_000), done(100_000), done(10)] {
            relay.push(&Bytes::from(event), &mut Vec::new()).unwrap();
        }
        assert!((200_000..=KEPT_ITEM_BYTES).contains(&relay.held_bytes()), "{}", relay.held_bytes());
        let end = relay.problem(&Problem { status: 502, message: "m".to_owned(), ..Problem::default() });
        let data = std::str::from_utf8(&end).unwrap().split_once("data: ").unwrap().1.split_once('\n').unwrap().0;
        let failed: serde_json::Value = serde_json::from_str(data).unwrap();
        let output = failed["response"]["output"].as_array().unwrap();
        assert_eq!(
            (output.len(), &output[0]["id"]),
            (2, &"msg_1".into()),
            "the third does not fit, and those behind it are left out"
        );
    }

    #[test]
    fn usage_of_a_response_that_fails_after_content_is_read() {
        let failed = "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\",\"message\":\"m\"},\"usage\":{\"input_tokens\":5,\"output_tokens\":9}}}\n\n";
        let usage = Usage { prompt_total: 5, completion_total: 9, ..Usage::default() };
        let (_, result, summary) = pass(&format!("{}{failed}", stream(&EVENTS[..3])), None);
        assert!(matches!(result, Err(StreamError::Problem(_))));
        assert_eq!(summary.usage, Some(usage));
        assert_eq!(pass(&format!("{}{failed}", stream(&EVENTS[..2])), None).2.usage, None, "another attempt answers");
    }
}
