//! Complete replies: validated, summarised, and forwarded with the caller's model name.

use bytes::Bytes;

use super::{
    problem,
    reply_scan::{ChatReplyScan, Choices},
};
use crate::{
    CheckedReply, InvalidReply, Method, ReplyEdits,
    edits::{self, Edits},
};

/// Validates and summarises a 2xx body (E58).
pub(super) fn read_reply(method: Method, body: &Bytes, edits: &ReplyEdits) -> Result<CheckedReply, InvalidReply> {
    crate::reply_summary::reject_non_json(body)?;
    let Ok(mut answer) = ChatReplyScan::read(body) else {
        return Err(error_in_list(body).unwrap_or(InvalidReply::Unreadable("not a JSON object")));
    };
    if answer.error {
        return Err(InvalidReply::Problem(Box::new(problem::decode(200, body))));
    }
    if method == Method::Embeddings {
        if !answer.vectors {
            return Err(InvalidReply::Unreadable("no embeddings"));
        }
        answer.summary.content = true;
    } else {
        match answer.choices {
            Choices::Listed(length) if length > 0 && !answer.bare_choice => {}
            Choices::Listed(0) => return Err(InvalidReply::Unreadable("no choices")),
            Choices::Missing => return Err(InvalidReply::Unreadable("no member 'choices'")),
            Choices::Null(_) => return Err(InvalidReply::Unreadable("'choices' is null")),
            Choices::Wrong => return Err(InvalidReply::Unreadable("'choices' is not an array")),
            Choices::Listed(_) | Choices::Unusable => return Err(InvalidReply::Unreadable("a choice without a message")),
        }
    }
    let model = edits.caller_model.as_deref().map(edits::literal);
    let mut changes = Edits::new();
    changes.replace_all(answer.models, model.as_deref());
    Ok(CheckedReply { body: changes.apply_to(body), summary: answer.summary })
}

/// Google's OpenAI-compatible endpoint wraps error objects in an array, also in a 200.
fn error_in_list(body: &Bytes) -> Option<InvalidReply> {
    let problem = problem::decode(200, body);
    (body.trim_ascii_start().starts_with(b"[") && problem.is_error_object).then(|| InvalidReply::Problem(Box::new(problem)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FinishReason, ReplySummary, Usage};

    fn read(body: &str) -> Result<CheckedReply, InvalidReply> {
        read_reply(Method::Chat, &Bytes::copy_from_slice(body.as_bytes()), &ReplyEdits::default())
    }

    fn summary(choice: &str) -> ReplySummary {
        read(&format!("{{\"choices\":[{choice}]}}")).unwrap().summary
    }

    #[test]
    fn reply_passes_unchanged_and_is_summarised() {
        let text = r#" {"id":"a","x":1.50,"choices":[{"index":0,"message":{"role":"assistant","content":"h\u00e9llo"},
            "finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}} "#;
        let body = Bytes::from_static(text.as_bytes());
        let passed = read_reply(Method::Chat, &body, &ReplyEdits::default()).unwrap();
        assert_eq!(passed.body.as_ptr(), body.as_ptr());
        assert_eq!(
            passed.summary,
            ReplySummary {
                usage: Some(Usage { prompt_total: 3, completion_total: 2, ..Usage::default() }),
                finish: Some(FinishReason::Stop),
                content: true,
                text_bytes: 6,
                media: 0,
                unknown: 0,
                surplus_calls: 0,
                searches: None,
                account_refused: false,
            }
        );
    }

    #[test]
    fn every_kind_of_content_is_counted() {
        for (message, bytes, media) in [
            (r#"{"content":"abc"}"#, 3, 0),
            (r#"{"content":null,"refusal":"no"}"#, 2, 0),
            (r#"{"content":"","reasoning_content":"hm","reasoning":"hm"}"#, 2, 0),
            (r#"{"content":[{"type":"text","text":"ab"},{"type":"text","text":"c"}]}"#, 3, 0),
            (r#"{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}"#, 2, 0),
            (r#"{"tool_calls":[{"custom":{"name":"f","input":"abc"}}]}"#, 3, 0),
            (r#"{"function_call":{"name":"f","arguments":""}}"#, 0, 0),
            (r#"{"audio":{"data":"AAAA","transcript":"hey"}}"#, 3, 1),
            (r#"{"images":[{"image_url":{"url":"data:"}}]}"#, 0, 1),
        ] {
            let seen = summary(&format!("{{\"message\":{message}}}"));
            assert_eq!((seen.content, seen.text_bytes, seen.media), (true, bytes, media), "{message}");
        }
        for empty in [r#"{"content":""}"#, r#"{"content":null}"#, r#"{"content":[]}"#, r#"{"tool_calls":[]}"#] {
            assert!(!summary(&format!("{{\"message\":{empty}}}")).content, "{empty}");
        }
    }

    #[test]
    fn finish_reasons_are_decoded() {
        for (word, expected) in [
            ("stop", Some(FinishReason::Stop)),
            ("length", Some(FinishReason::Length)),
            ("tool_calls", Some(FinishReason::Tool)),
            ("function_call", Some(FinishReason::Tool)),
            ("content_filter", Some(FinishReason::Filter)),
            ("eos", Some(FinishReason::Stop)),
            ("brand_new", Some(FinishReason::Other)),
            ("", None),
        ] {
            assert_eq!(summary(&format!(r#"{{"message":{{}},"finish_reason":"{word}"}}"#)).finish, expected);
        }
        let second =
            summary(r#"{"index":1,"message":{},"finish_reason":"length"},{"index":0,"message":{},"finish_reason":"stop"}"#);
        assert_eq!(second.finish, Some(FinishReason::Stop));
    }

    #[test]
    fn invalid_replies_are_unreadable() {
        for (body, why) in [
            ("", "an empty body"),
            ("  \n", "an empty body"),
            ("<!DOCTYPE html><html>", "HTML"),
            ("{\"choices\":[{\"message\":{\"content\":\"a", "not a JSON object"),
            ("[]", "not a JSON object"),
            ("\"text\"", "not a JSON object"),
            ("{}", "no member 'choices'"),
            ("{\"choices\":null}", "'choices' is null"),
            ("{\"choices\":{}}", "'choices' is not an array"),
            ("{\"choices\":[]}", "no choices"),
            ("{\"choices\":[null]}", "a choice without a message"),
            ("{\"choices\":[{\"message\":null}]}", "a choice without a message"),
            ("{\"choices\":[{\"index\":0,\"finish_reason\":\"stop\"}]}", "a choice without a message"),
            ("{\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}", "a choice without a message"),
            ("{\"choices\":[{\"message\":{}},{\"finish_reason\":\"stop\"}]}", "a choice without a message"),
            ("{\"choices\":[{\"message\":{}}]} trailing", "not a JSON object"),
            ("{\"candidates\":[]}", "no member 'choices'"),
        ] {
            assert_eq!(read(body), Err(InvalidReply::Unreadable(why)), "{body}");
        }
        let bytes = Bytes::from_static(b"{\"choices\":[{\"message\":{\"content\":\"\xff\"}}]}");
        assert_eq!(read_reply(Method::Chat, &bytes, &ReplyEdits::default()), Err(InvalidReply::Unreadable("not a JSON object")));
    }

    #[test]
    fn error_in_a_200_gets_the_status_it_names() {
        for (body, status) in [
            (r#"{"error":{"message":"m","type":"server_error","code":null}}"#, 500),
            (r#"{"error":{"message":"m","code":429}}"#, 429),
            (r#"{"object":"error","message":"m","type":"BadRequestError","code":400}"#, 400),
            (r#"{"choices":[{"message":{}}],"error":{"message":"m","type":"rate_limit_error"}}"#, 429),
            (r#"{"error":"boom"}"#, 500),
            (r#"[{"error":{"code":403,"message":"m","status":"PERMISSION_DENIED"}}]"#, 403),
        ] {
            let Err(InvalidReply::Problem(problem)) = read(body) else { panic!("{body} is an error") };
            assert_eq!(problem.status, status, "{body}");
        }
        for harmless in ["null", "false", "\"\"", "{}"] {
            assert!(read(&format!(r#"{{"error":{harmless},"choices":[{{"message":{{}}}}]}}"#)).is_ok(), "{harmless}");
        }
    }

    #[test]
    fn only_the_model_name_is_changed() {
        let body =
            Bytes::from_static(br#"{"model" : "up","choices":[{"message":{"model":"up"}}],"mod\u0065l":"up","x":{"model":"up"}}"#);
        let edits = ReplyEdits { caller_model: Some("m\"1".to_owned()), hide_usage: false };
        let expected = r#"{"model" : "m\"1","choices":[{"message":{"model":"up"}}],"mod\u0065l":"m\"1","x":{"model":"up"}}"#;
        assert_eq!(read_reply(Method::Chat, &body, &edits).unwrap().body, expected);
    }

    #[test]
    fn embeddings_without_vectors_are_invalid() {
        let read =
            |body: &'static str| read_reply(Method::Embeddings, &Bytes::from_static(body.as_bytes()), &ReplyEdits::default());
        let passed = read(r#"{"data":[{"embedding":[0.1,2]}],"usage":{"prompt_tokens":5,"total_tokens":5}}"#).unwrap();
        assert_eq!(passed.summary.usage, Some(Usage { prompt_total: 5, ..Usage::default() }));
        assert!(passed.summary.content);
        assert_eq!(read(r#"{"data":[]}"#), Err(InvalidReply::Unreadable("no embeddings")));
        assert_eq!(read(r#"{"choices":[{"message":{}}]}"#), Err(InvalidReply::Unreadable("no embeddings")));
    }
}
