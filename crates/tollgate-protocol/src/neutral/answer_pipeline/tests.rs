//! Tests of ids, names, custom tools, finish reasons and bounds.

use super::*;

fn run(context: &ReplyContext, events: Vec<Event>) -> Result<(Vec<Event>, ReplySummary), StreamError> {
    let mut pipeline = AnswerPipeline::new(context, |_| true);
    let mut out = Vec::new();
    for event in events {
        pipeline.push(event, &mut out)?;
    }
    Ok((out, pipeline.summary()))
}

fn open(call: u32, id: &str, name: &str) -> Event {
    Event::CallOpen { candidate: 0, call, id: id.to_owned(), name: name.to_owned(), custom: false, signature: None }
}

fn args(call: u32, fragment: &str) -> Event {
    Event::CallArgs { candidate: 0, call, fragment: fragment.to_owned() }
}

fn end(finish: FinishReason, native: &str) -> Event {
    Event::Finish { candidate: 0, finish, native: Some(native.to_owned()), message: None }
}

#[test]
fn custom_tool_arguments_are_unwrapped_when_complete() {
    let context = ReplyContext { custom_tools: vec!["sh".to_owned()], ..ReplyContext::new("r", 0, "m") };
    let (out, summary) = run(
        &context,
        vec![open(0, "", "sh"), args(0, "{\"input\":"), args(0, "\"ls \\u00e9\"}"), Event::CallDone { candidate: 0, call: 0 }],
    )
    .unwrap();
    assert!(matches!(&out[0], Event::CallOpen { id, custom: true, .. } if id == "call_r_0"));
    assert_eq!(out[1], args(0, "ls é"));
    assert_eq!(summary.text_bytes, 21);
}

#[test]
fn only_the_first_call_is_forwarded_without_parallel_calls() {
    let context = ReplyContext { parallel: false, ..ReplyContext::new("r", 0, "m") };
    let (out, summary) = run(
        &context,
        vec![
            open(0, "a", "f"),
            Event::CallDone { candidate: 0, call: 0 },
            open(1, "b", "f"),
            args(1, "{}"),
            Event::CallDone { candidate: 0, call: 1 },
            end(FinishReason::Stop, "STOP"),
            Event::End,
        ],
    )
    .unwrap();
    assert_eq!(out.len(), 4);
    assert!(matches!(out[2], Event::Finish { finish: FinishReason::Tool, .. }));
    assert_eq!(summary.surplus_calls, 1);
}

#[test]
fn failure_finish_is_an_error_only_without_usable_content() {
    let context = ReplyContext::new("r", 0, "m");
    let think = Event::Think { candidate: 0, text: "hm".to_owned(), redacted: None, signature: None };
    let text = Event::Text { candidate: 0, text: "a".to_owned(), signature: None };
    assert_eq!(
        run(&context, vec![think.clone(), end(FinishReason::Fail, "NO_IMAGE")]).unwrap_err(),
        StreamError::Malformed("NO_IMAGE")
    );
    let (out, summary) = run(&context, vec![think, text, end(FinishReason::Fail, "NO_IMAGE"), Event::End]).unwrap();
    assert!(matches!(out[2], Event::Finish { finish: FinishReason::Stop, .. }));
    assert_eq!(summary.finish, Some(FinishReason::Stop));
    assert!(!summary.account_refused);
    let last = Event::Text { candidate: 0, text: "a".to_owned(), signature: None };
    let (_, summary) = run(&context, vec![last, end(FinishReason::Fail, "PUP_LIMITED_DISABLED"), Event::End]).unwrap();
    assert!(
        summary.account_refused && summary.finish == Some(FinishReason::Stop),
        "content is still an answer, and the account is limited"
    );
    let refused = run(&context, vec![end(FinishReason::Fail, "PUP_LIMITED_DISABLED")]).unwrap_err();
    assert!(matches!(refused, StreamError::Problem(problem) if problem.account_refused && problem.status == 403));
}

#[test]
fn end_before_every_candidate_finished_is_truncated() {
    let context = ReplyContext::new("r", 0, "m");
    let text = |candidate| Event::Text { candidate, text: "a".to_owned(), signature: None };
    let finish = |candidate| Event::Finish { candidate, finish: FinishReason::Stop, native: None, message: None };
    assert_eq!(run(&context, vec![Event::End]).unwrap_err(), StreamError::Truncated);
    assert_eq!(run(&context, vec![text(0), text(1), finish(1), Event::End]).unwrap_err(), StreamError::Truncated);
    let (out, _) = run(&context, vec![text(0), finish(0), text(0), finish(0), Event::End, text(0)]).unwrap();
    assert_eq!(out, [text(0), text(0), finish(0), Event::End], "one finish, in front of the end");
}

#[test]
fn open_calls_and_their_bytes_are_bounded() {
    let context = ReplyContext::new("r", 0, "m");
    let many = (0..=1024).map(|call| open(call, "a", "f")).collect();
    assert_eq!(run(&context, many).unwrap_err(), StreamError::Malformed("too many calls open at once"));
    let large = vec![open(0, "a", "f"), args(0, &"x".repeat(CALL_BYTES_LIMIT))];
    assert_eq!(run(&context, large).unwrap_err(), StreamError::Malformed("calls larger than the limit"));
    let beyond = Event::Text { candidate: 128, text: "a".to_owned(), signature: None };
    assert!(matches!(run(&context, vec![beyond]), Err(StreamError::Malformed(_))));
}
