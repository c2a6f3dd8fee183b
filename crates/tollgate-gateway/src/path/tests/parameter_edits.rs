//! Edits of parameters that a channel prescribes.

use serde_json::json;
use tollgate_protocol::{ParameterChange, ParameterEdit};

use super::*;

const GEMINI_REPLY: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1,"totalTokenCount":4}}"#;

fn edit(parameter: &str, change: ParameterChange) -> ParameterEdit {
    ParameterEdit { parameter: parameter.to_owned(), change }
}

fn at_most(parameter: &str, max: i32) -> ParameterEdit {
    edit(parameter, ParameterChange::Clamp { min: None, max: Some(max.into()) })
}

#[tokio::test(start_paused = true)]
async fn edits_are_applied_to_the_callers_bytes_and_reported() {
    let mut rig = Rig::with(Script::new().replies(REPLY), 1, |channel| {
        channel.spec.parameter_edits = vec![
            edit("seed", ParameterChange::Drop),
            edit("user", ParameterChange::Rename { to: "safety_identifier".to_owned() }),
            at_most("temperature", 1),
            edit("reasoning_effort", ParameterChange::Force { value: json!("low") }),
        ];
    });
    let body = CHAT.replace("\"m\",", "\"m\",\"seed\":1,\"user\":\"u\",\"temperature\":1.5,\"top_p\":0.10,");
    let got = rig.ask(&body).await;
    let dropped = "seed,user->safety_identifier,temperature=1,reasoning_effort=low";
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some(dropped)), "{}", got.body);
    assert_eq!(rig.record().dropped.join(","), dropped);
    let sent = rig.script.seen()[0].body.clone();
    assert!(sent.contains(r#""safety_identifier":"u","temperature":1,"top_p":0.10"#), "{sent}");
    assert!(sent.ends_with(r#""reasoning_effort":"low"}"#) && !sent.contains("seed"), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn edits_are_those_of_the_channel_that_is_tried() {
    let mut rig = Rig::with(Script::new().refuses(500, &[]).replies(GEMINI_REPLY), 1, |channel| {
        channel.spec.priority = 0;
        channel.spec.parameter_edits = vec![at_most("temperature", 1)];
    });
    rig.add_channel(|channel| {
        speaks(channel, Protocol::Gemini);
        channel.spec.priority = 1;
        channel.spec.parameter_edits = vec![
            at_most("generationConfig.maxOutputTokens", 100),
            edit("generationConfig.thinkingConfig.thinkingBudget", ParameterChange::Force { value: json!(0) }),
        ];
    });
    let body = CHAT.replace("\"m\",", "\"m\",\"temperature\":2,\"max_tokens\":500,");
    let got = rig.ask(&body).await;
    let dropped = "generationConfig.maxOutputTokens=100,generationConfig.thinkingConfig.thinkingBudget=0";
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some(dropped)), "{}", got.body);
    rig.record();
    let seen = rig.script.seen();
    let [first, second] = [&seen[0].body, &seen[1].body];
    assert!(first.contains(r#""temperature":1,"#) && first.contains(r#""max_tokens":500"#), "{first}");
    assert!(second.contains(r#""maxOutputTokens":100"#) && second.contains(r#""thinkingConfig":{"thinkingBudget":0}"#), "{second}");
    assert!(second.contains(r#""temperature":2"#), "{second}");
}

#[tokio::test(start_paused = true)]
async fn token_counts_are_not_edited() {
    let mut rig = Rig::with(Script::new().replies(r#"{"totalTokens":3}"#), 1, |channel| {
        speaks(channel, Protocol::Gemini);
        channel.spec.parameter_edits = vec![edit("generationConfig.seed", ParameterChange::Force { value: json!(1) })];
    });
    let native = r#"{"contents":[{"parts":[{"text":"hi"}]}]}"#;
    let got = read(serve(&rig.core, rig.native(Method::CountTokens, native)).await).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, None), "{}", got.body);
    rig.record();
    assert!(!rig.script.seen()[0].body.contains("seed"), "{}", rig.script.seen()[0].body);
}
