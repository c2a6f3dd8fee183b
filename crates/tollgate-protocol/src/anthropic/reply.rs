//! Checks and summarises complete answers, and restores the caller's name of the model.

use bytes::Bytes;

use super::{problem, reply_scan::MessagesReplyScan, usage::MessagesUsageCounts};
use crate::{
    CheckedReply, InvalidReply, Method, ReplyEdits, Usage,
    edits::{self, Edits},
};

/// Checks and summarises a 2xx body. Bodies that are not an answer are E58 (`docs/errors.md`).
pub(super) fn read_reply(method: Method, body: &Bytes, edits: &ReplyEdits) -> Result<CheckedReply, InvalidReply> {
    crate::reply_summary::reject_non_json(body)?;
    let Ok(mut answer) = MessagesReplyScan::read(body, MessagesUsageCounts::default()) else {
        return Err(InvalidReply::Unreadable("not a JSON object"));
    };
    if answer.error || answer.kind == "error" {
        return Err(InvalidReply::Problem(Box::new(problem::decode(200, body))));
    }
    if method == Method::CountTokens {
        let Some(count) = answer.input_tokens else { return Err(InvalidReply::Unreadable("no member 'input_tokens'")) };
        answer.summary.usage = Some(Usage { prompt_total: count, ..Usage::default() });
        answer.summary.content = true;
    } else if !answer.content_list {
        return Err(InvalidReply::Unreadable("'content' is not a list"));
    } else if answer.unusable {
        return Err(InvalidReply::Unreadable("a block that is not an object"));
    } else if answer.summary.finish.is_none() {
        return Err(InvalidReply::Unreadable("no stop reason"));
    }
    let model = edits.caller_model.as_deref().map(edits::literal);
    let mut changes = Edits::new();
    changes.replace_all(answer.models, model.as_deref());
    Ok(CheckedReply { body: changes.apply_to(body), summary: answer.summary })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FinishReason, ReplySummary};

    fn read(body: &str) -> Result<CheckedReply, InvalidReply> {
        read_reply(Method::Chat, &Bytes::copy_from_slice(body.as_bytes()), &ReplyEdits::default())
    }

    #[test]
    fn answer_is_forwarded_unchanged_and_summarised() {
        let body = Bytes::from_static(
            br#"{"id":"msg_1","type":"message","role":"assistant","model":"up","content":[{"type":"thinking","thinking":"hm","signature":"s"},
                {"type":"text","text":"h\u00e9"},{"type":"tool_use","id":"t","name":"f","input":{"a":1}}],"stop_reason":"tool_use",
                "stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2,"cache_read_input_tokens":4}}"#,
        );
        let checked = read_reply(Method::Chat, &body, &ReplyEdits::default()).unwrap();
        assert_eq!(checked.body.as_ptr(), body.as_ptr());
        let usage = Some(Usage { prompt_total: 7, cached: 4, completion_total: 2, ..Usage::default() });
        assert_eq!(
            checked.summary,
            ReplySummary {
                usage,
                finish: Some(FinishReason::Tool),
                content: true,
                text_bytes: 12,
                media: 0,
                unknown: 0,
                surplus_calls: 0,
                searches: None,
                account_refused: false
            }
        );
    }

    #[test]
    fn bodies_that_are_not_an_answer_are_unreadable() {
        for (body, why) in [
            ("", "an empty body"),
            ("<html>", "HTML"),
            ("[]", "not a JSON object"),
            ("{\"content\":[", "not a JSON object"),
            ("{}", "'content' is not a list"),
            ("{\"content\":null}", "'content' is not a list"),
            ("{\"content\":[7],\"stop_reason\":\"end_turn\"}", "a block that is not an object"),
            ("{\"content\":[],\"stop_reason\":null}", "no stop reason"),
        ] {
            assert_eq!(read(body), Err(InvalidReply::Unreadable(why)), "{body}");
        }
        let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#;
        assert!(matches!(read(error), Err(InvalidReply::Problem(problem)) if problem.status == 529));
    }

    #[test]
    fn refusal_may_have_no_content() {
        let summary = read(r#"{"content":[],"stop_reason":"refusal"}"#).unwrap().summary;
        assert_eq!((summary.finish, summary.content), (Some(FinishReason::Filter), false));
    }

    #[test]
    fn token_count_is_read() {
        let body = Bytes::from_static(b"{\"input_tokens\":12}");
        let checked = read_reply(Method::CountTokens, &body, &ReplyEdits::default()).unwrap();
        assert_eq!(checked.summary.usage, Some(Usage { prompt_total: 12, ..Usage::default() }));
        assert!(read_reply(Method::CountTokens, &Bytes::from_static(b"{}"), &ReplyEdits::default()).is_err());
    }

    #[test]
    fn model_name_is_restored() {
        let body = Bytes::from_static(br#"{"model":"up","content":[],"stop_reason":"end_turn"}"#);
        let edits = ReplyEdits { caller_model: Some("mine".to_owned()), hide_usage: false };
        assert_eq!(
            read_reply(Method::Chat, &body, &edits).unwrap().body,
            r#"{"model":"mine","content":[],"stop_reason":"end_turn"}"#
        );
    }
}
