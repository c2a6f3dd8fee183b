//! Complete replies: validated, summarised, and forwarded with the caller's model name.

use bytes::Bytes;

use super::{
    problem,
    reply_scan::{self, GeminiReplyScan},
    usage::GeminiUsageCounts,
};
use crate::{
    CheckedReply, InvalidReply, Method, ReplyEdits, Usage,
    edits::{self, Edits},
};

/// Validates and summarises a 2xx body (E58).
pub(super) fn read_reply(method: Method, body: &Bytes, edits: &ReplyEdits) -> Result<CheckedReply, InvalidReply> {
    crate::reply_summary::reject_non_json(body)?;
    let Ok(mut answer) = GeminiReplyScan::read(body, GeminiUsageCounts::default()) else {
        let problem = problem::decode(200, body);
        // Google's front end wraps error objects in an array.
        return Err(if body.trim_ascii_start().starts_with(b"[") && problem.is_error_object {
            InvalidReply::Problem(Box::new(problem))
        } else {
            InvalidReply::Unreadable("not a JSON object")
        });
    };
    if answer.error {
        return Err(InvalidReply::Problem(Box::new(problem::decode(200, body))));
    }
    match method {
        Method::CountTokens => {
            let Some(total) = answer.total_tokens else { return Err(InvalidReply::Unreadable("no member 'totalTokens'")) };
            answer.summary.usage = Some(Usage { prompt_total: total, cached: answer.cached_tokens, ..Usage::default() }.bounded());
            answer.summary.content = true;
        }
        Method::EmbedContent | Method::BatchEmbedContents | Method::Embeddings => {
            if !answer.vectors {
                return Err(InvalidReply::Unreadable("no embeddings"));
            }
            answer.summary.content = true;
        }
        Method::Generate | Method::StreamGenerate | Method::Chat | Method::Compact => generated(&answer)?,
    }
    answer.summary.finish = reply_scan::with_call(answer.summary.finish, answer.call);
    let model = edits.caller_model.as_deref().map(edits::literal);
    let mut changes = Edits::new();
    changes.replace_all(answer.models, model.as_deref());
    Ok(CheckedReply { body: changes.apply_to(body), summary: answer.summary })
}

fn generated(answer: &GeminiReplyScan) -> Result<(), InvalidReply> {
    if answer.unusable {
        return Err(InvalidReply::Unreadable("a candidate that is not an object"));
    }
    match answer.candidates {
        None | Some(0) if answer.blocked => Ok(()),
        None | Some(0) => Err(InvalidReply::Unreadable("no candidates and no block reason")),
        Some(_) if answer.bare_candidate => Err(InvalidReply::Unreadable("a candidate without content or finish")),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FinishReason, ReplySummary};

    fn read_as(method: Method, body: &str) -> Result<CheckedReply, InvalidReply> {
        read_reply(method, &Bytes::copy_from_slice(body.as_bytes()), &ReplyEdits::default())
    }

    fn read(body: &str) -> Result<CheckedReply, InvalidReply> {
        read_as(Method::Generate, body)
    }

    fn candidate(text: &str) -> ReplySummary {
        read(&format!("{{\"candidates\":[{text}]}}")).unwrap().summary
    }

    #[test]
    fn reply_is_forwarded_unchanged_and_summarised() {
        let body = Bytes::from_static(
            br#"{ "candidates": [ {"content":{"role":"model","parts":[{"text":"think","thought":true},{"text":"h\u00e9"}]},
                "finishReason":"STOP","newThing":null} ], "usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2} }"#,
        );
        let passed = read_reply(Method::Generate, &body, &ReplyEdits::default()).unwrap();
        assert_eq!(passed.body.as_ptr(), body.as_ptr());
        let usage = Some(Usage { prompt_total: 3, completion_total: 2, ..Usage::default() });
        assert_eq!(
            passed.summary,
            ReplySummary {
                usage,
                finish: Some(FinishReason::Stop),
                content: true,
                text_bytes: 8,
                media: 0,
                unknown: 0,
                surplus_calls: 0,
                searches: Some(0),
                account_refused: false
            }
        );
    }

    #[test]
    fn every_kind_of_content_is_counted() {
        for (part, bytes, media) in [
            (r#"{"text":"abc"}"#, 3, 0),
            (r#"{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"x"}"#, 7, 0),
            (r#"{"inlineData":{"mimeType":"image/png","data":"AAAA"}}"#, 0, 1),
            (r#"{"fileData":{"fileUri":"gs://x"}}"#, 0, 1),
            (r#"{"executableCode":{"language":"PYTHON","code":"1+1"}}"#, 3, 0),
            (r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"2"}}"#, 1, 0),
        ] {
            let seen = candidate(&format!("{{\"content\":{{\"parts\":[{part}]}}}}"));
            assert_eq!((seen.content, seen.text_bytes, seen.media), (true, bytes, media), "{part}");
        }
        for empty in [r#"{"parts":[{"text":"","thoughtSignature":"x"}]}"#, r#"{"parts":[]}"#, r#"{"role":"model"}"#] {
            assert!(!candidate(&format!("{{\"content\":{empty}}}")).content, "{empty}");
        }
    }

    #[test]
    fn searches_of_all_candidates_count() {
        let grounded =
            r#"{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP","groundingMetadata":{"webSearchQueries":["x","y"]}}"#;
        let body = format!("{{\"candidates\":[{grounded},{grounded},{{\"finishReason\":\"STOP\"}}]}}");
        let read = read_reply(Method::Generate, &Bytes::from(body), &ReplyEdits::default()).unwrap();
        assert_eq!(read.summary.searches, Some(4));
    }

    #[test]
    fn finish_reasons_are_decoded() {
        for (word, expected) in [
            ("STOP", FinishReason::Stop),
            ("MAX_TOKENS", FinishReason::Length),
            ("SAFETY", FinishReason::Filter),
            ("MALFORMED_FUNCTION_CALL", FinishReason::Fail),
            ("BRAND_NEW", FinishReason::Stop),
        ] {
            assert_eq!(candidate(&format!("{{\"finishReason\":\"{word}\"}}")).finish, Some(expected));
        }
        let call = r#"{"content":{"parts":[{"functionCall":{"name":"f"}}]},"finishReason":"STOP"}"#;
        assert_eq!(candidate(call).finish, Some(FinishReason::Tool));
        let both = r#"{"index":1,"finishReason":"SAFETY"},{"finishReason":"STOP"}"#;
        assert_eq!(candidate(both).finish, Some(FinishReason::Stop));
    }

    #[test]
    fn blocked_prompt_is_a_valid_reply() {
        for body in [
            r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4}}"#,
            r#"{"candidates":[],"promptFeedback":{"blockReason":"OTHER"}}"#,
            r#"{"candidates":null,"promptFeedback":{"blockReason":"OTHER"}}"#,
        ] {
            assert!(read(body).unwrap().summary.content, "{body}");
        }
    }

    #[test]
    fn invalid_replies_are_unreadable() {
        for (body, why) in [
            ("", "an empty body"),
            ("<html>", "HTML"),
            ("[1]", "not a JSON object"),
            ("{\"candidates\":[", "not a JSON object"),
            ("{}", "no candidates and no block reason"),
            ("{\"candidates\":null}", "no candidates and no block reason"),
            ("{\"candidates\":[]}", "no candidates and no block reason"),
            ("{\"candidates\":{}}", "no candidates and no block reason"),
            ("{\"promptFeedback\":{}}", "no candidates and no block reason"),
            ("{\"choices\":[{\"message\":{}}]}", "no candidates and no block reason"),
            ("{\"candidates\":[7]}", "a candidate that is not an object"),
            ("{\"candidates\":[{}]}", "a candidate without content or finish"),
        ] {
            assert_eq!(read(body), Err(InvalidReply::Unreadable(why)), "{body}");
        }
    }

    #[test]
    fn error_in_a_200_gets_the_status_it_names() {
        for (body, status) in [
            (r#"{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}"#, 503),
            (r#"[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]"#, 429),
            (r#"{"error":{"message":"m","status":"NOT_FOUND"}}"#, 404),
            (r#"{"error":"m"}"#, 500),
        ] {
            let Err(InvalidReply::Problem(problem)) = read(body) else { panic!("{body} is an error") };
            assert_eq!(problem.status, status, "{body}");
        }
        assert!(read(r#"{"error":null,"candidates":[{"finishReason":"STOP"}]}"#).is_ok());
    }

    #[test]
    fn counts_and_vectors_are_validated() {
        let count = read_as(Method::CountTokens, r#"{"totalTokens":31,"cachedContentTokenCount":4}"#).unwrap();
        assert_eq!(count.summary.usage, Some(Usage { prompt_total: 31, cached: 4, ..Usage::default() }));
        assert_eq!(read_as(Method::CountTokens, "{}"), Err(InvalidReply::Unreadable("no member 'totalTokens'")));
        for body in [r#"{"embedding":{"values":[0.1]}}"#, r#"{"embeddings":[{"values":[0.1]}]}"#] {
            assert!(read_as(Method::EmbedContent, body).is_ok());
        }
        for body in ["{}", r#"{"embedding":{"values":[]}}"#, r#"{"embedding":null}"#, r#"{"embeddings":[]}"#] {
            assert_eq!(read_as(Method::BatchEmbedContents, body), Err(InvalidReply::Unreadable("no embeddings")), "{body}");
        }
    }

    #[test]
    fn only_the_model_name_is_changed() {
        let body = Bytes::from_static(br#"{"candidates":[{"content":{"parts":[{"text":"up"}]}}], "modelVersion" : "up-001"}"#);
        let edits = ReplyEdits { caller_model: Some("mine".to_owned()), hide_usage: false };
        let expected = r#"{"candidates":[{"content":{"parts":[{"text":"up"}]}}], "modelVersion" : "mine"}"#;
        assert_eq!(read_reply(Method::Generate, &body, &edits).unwrap().body, expected);
    }
}
