//! Checks and summarises complete responses, and restores the caller's name of the model.

use bytes::Bytes;

use super::{problem, reply_scan::ResponsesReplyScan};
use crate::{
    CheckedReply, FinishReason, InvalidReply, Method, ReplyEdits, Usage,
    edits::{self, Edits},
};

/// Checks and summarises a 2xx body. Bodies that are not an answer are E58 (`docs/errors.md`).
pub(super) fn read_reply(method: Method, body: &Bytes, edits: &ReplyEdits) -> Result<CheckedReply, InvalidReply> {
    crate::reply_summary::reject_non_json(body)?;
    let Ok(mut answer) = ResponsesReplyScan::read(body) else {
        return Err(InvalidReply::Unreadable("not a JSON object"));
    };
    if answer.error || answer.kind == "error" || answer.summary.finish == Some(FinishReason::Fail) {
        return Err(InvalidReply::Problem(Box::new(problem::decode(200, body))));
    }
    if method == Method::CountTokens {
        let Some(count) = answer.input_tokens else { return Err(InvalidReply::Unreadable("no member 'input_tokens'")) };
        answer.summary.usage = Some(Usage { prompt_total: count, ..Usage::default() });
        answer.summary.content = true;
    } else if !answer.output_list {
        return Err(InvalidReply::Unreadable("'output' is not a list"));
    } else if answer.unusable {
        return Err(InvalidReply::Unreadable("an item that is not an object"));
    } else if answer.summary.finish.is_none() {
        // A background response, which the caller polls.
        answer.summary.finish = Some(FinishReason::Other);
    }
    let model = edits.caller_model.as_deref().map(edits::literal);
    let mut changes = Edits::new();
    changes.replace_all(answer.models, model.as_deref());
    Ok(CheckedReply { body: changes.apply_to(body), summary: answer.summary })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReplySummary;

    fn read(body: &str) -> Result<CheckedReply, InvalidReply> {
        read_reply(Method::Chat, &Bytes::copy_from_slice(body.as_bytes()), &ReplyEdits::default())
    }

    #[test]
    fn answer_is_forwarded_unchanged_and_summarised() {
        let body = Bytes::from_static(
            br#"{"id":"resp_1","object":"response","status":"completed","error":null,"model":"up","output":[
                {"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},
                {"type":"message","content":[{"type":"output_text","text":"h\u00e9"}]},
                {"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"}],
                "usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":4},"output_tokens":2}}"#,
        );
        let checked = read_reply(Method::Chat, &body, &ReplyEdits::default()).unwrap();
        assert_eq!(checked.body.as_ptr(), body.as_ptr());
        let usage = Some(Usage { prompt_total: 7, cached: 4, completion_total: 2, ..Usage::default() });
        let finish = Some(FinishReason::Tool);
        assert_eq!(checked.summary, ReplySummary { usage, finish, content: true, text_bytes: 12, ..ReplySummary::default() });
    }

    #[test]
    fn bodies_that_are_not_an_answer_are_unreadable() {
        for (body, why) in [
            ("", "an empty body"),
            ("<html>", "HTML"),
            ("[]", "not a JSON object"),
            ("{\"output\":[", "not a JSON object"),
            ("{}", "'output' is not a list"),
            ("{\"output\":null,\"status\":\"completed\"}", "'output' is not a list"),
            ("{\"output\":[7],\"status\":\"completed\"}", "an item that is not an object"),
        ] {
            assert_eq!(read(body), Err(InvalidReply::Unreadable(why)), "{body}");
        }
        let failed = r#"{"output":[],"status":"failed","error":{"code":"rate_limit_exceeded","message":"m"}}"#;
        assert!(matches!(read(failed), Err(InvalidReply::Problem(problem)) if problem.status == 429));
    }

    #[test]
    fn finish_reasons_are_decoded() {
        let finish = |rest: &str| read(&format!("{{\"output\":[],{rest}}}")).unwrap().summary.finish;
        assert_eq!(finish(r#""status":"completed""#), Some(FinishReason::Stop));
        let cut = |reason: &str| format!(r#""status":"incomplete","incomplete_details":{{"reason":"{reason}"}}"#);
        assert_eq!(finish(&cut("max_output_tokens")), Some(FinishReason::Length));
        assert_eq!(finish(&cut("content_filter")), Some(FinishReason::Filter));
        assert_eq!(finish(r#""status":"queued""#), Some(FinishReason::Other));
    }

    #[test]
    fn token_count_is_read() {
        let body = Bytes::from_static(b"{\"object\":\"response.input_tokens\",\"input_tokens\":12}");
        let checked = read_reply(Method::CountTokens, &body, &ReplyEdits::default()).unwrap();
        assert_eq!(checked.summary.usage, Some(Usage { prompt_total: 12, ..Usage::default() }));
        assert!(read_reply(Method::CountTokens, &Bytes::from_static(b"{}"), &ReplyEdits::default()).is_err());
    }

    #[test]
    fn compaction_reply_counts_as_content() {
        let body = Bytes::from_static(
            br#"{"id":"resp_1","object":"response.compaction","created_at":1,"output":[{"type":"message","role":"user","content":[
                {"type":"input_text","text":"hi"}]},{"type":"compaction","id":"cmp_1","encrypted_content":"gAAAA"}],
                "usage":{"input_tokens":50,"output_tokens":6,"total_tokens":56}}"#,
        );
        let checked = read_reply(Method::Compact, &body, &ReplyEdits::default()).unwrap();
        assert_eq!(checked.body.as_ptr(), body.as_ptr());
        assert!(checked.summary.content);
        assert_eq!(checked.summary.usage, Some(Usage { prompt_total: 50, completion_total: 6, ..Usage::default() }));
    }

    #[test]
    fn model_name_is_restored() {
        let body = Bytes::from_static(br#"{"model":"up","output":[],"status":"completed"}"#);
        let edits = ReplyEdits { caller_model: Some("mine".to_owned()), hide_usage: false };
        let restored = read_reply(Method::Chat, &body, &edits).unwrap().body;
        assert_eq!(restored, r#"{"model":"mine","output":[],"status":"completed"}"#);
    }
}
