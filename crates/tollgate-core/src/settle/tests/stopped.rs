//! Records of requests interrupted by a killed gateway.

use std::borrow::Cow;

use super::*;
use crate::{AttemptRecord, samples::channel_id};
use serde_json::json;

fn begin() -> AttemptStart<'static> {
    let key = key(&[]);
    let group = group("default", &["c"]);
    AttemptStart {
        id: RequestId::from_parts(NOW, [1; 10]),
        at: NOW,
        key: key.id,
        key_name: key.name.into(),
        member: key.member.id,
        group: group.id,
        group_name: group.name.into(),
        protocol_in: Protocol::Gemini,
        method: Method::StreamGenerate,
        model: "m".into(),
        stream: true,
        address: Some("192.0.2.1".into()),
        client_request_id: None,
        dropped: Cow::default(),
        price_version: Revision(7),
        sale: Some(Cow::Owned(sale())),
        sale_multiplier: Multiplier::ONE,
        policy: StreamBreak::Delivered,
        input: InputCount { tokens: 100, source: Counted },
        bounds: UsageBounds::default(),
        earlier: Vec::new(),
        attempt: StartedAttempt {
            channel: channel_id("c"),
            channel_name: "c".into(),
            account: account("c", 0).id,
            account_name: "c/0".into(),
            protocol: Protocol::OpenAi,
            upstream_model: "m-up".into(),
            at: NOW.plus_ms(2),
            cost: Some(Cow::Owned(price("0.5", "1"))),
            cost_multiplier: Multiplier::ONE,
        },
        tags: Cow::default(),
    }
}

fn progress(tokens: u64) -> StreamProgress {
    StreamProgress { id: begin().id, at: NOW.plus_ms(2_000), delivered: delivered(tokens), usage: None }
}

#[test]
fn without_progress_sale_is_zero_and_cost_is_estimated_input() {
    for policy in POLICIES {
        let record = settle_stopped(&[AttemptStart { policy, ..begin() }], None).unwrap();
        assert_eq!((record.sale, record.cost), (Some(NanoUsd(0)), Some(NanoUsd(50_000))), "{policy:?}");
        assert_eq!((record.outcome, record.status), (Outcome::GatewayStopped, 0));
        assert_eq!(record.attempts[0].tokens.source, Estimated);
        assert_eq!(record.attempts[0].result, AttemptResult::Failed);
    }
}

#[test]
fn with_progress_sale_is_input_and_delivered_output() {
    for policy in POLICIES {
        let record = settle_stopped(&[AttemptStart { policy, ..begin() }], Some(&progress(10))).unwrap();
        assert_eq!((record.sale, record.cost), (Some(NanoUsd(120_000)), Some(NanoUsd(60_000))), "{policy:?}");
        assert_eq!((record.tokens.input, record.tokens.output, record.tokens.source), (100, 10, Counted));
        assert_eq!(record.duration_us, 2_000_000);
        assert_eq!(record.attempts[0].result, AttemptResult::Broke);
    }
}

#[test]
fn progress_without_content_is_ignored() {
    assert_eq!(settle_stopped(&[begin()], Some(&progress(0))).unwrap().sale, Some(NanoUsd(0)));
}

#[test]
fn provider_usage_policy_charges_the_reported_usage() {
    let reported = StreamProgress { usage: Some(usage(50, 12)), ..progress(10) };
    let sale = |policy| settle_stopped(&[AttemptStart { policy, ..begin() }], Some(&reported)).unwrap().sale;
    assert_eq!(sale(StreamBreak::ProviderUsage), Some(NanoUsd(74_000)));
    assert_eq!(sale(StreamBreak::Delivered), Some(NanoUsd(70_000)));
}

#[test]
fn earlier_attempts_keep_their_settled_records() {
    let first: AttemptRecord = settle_attempt(&attempt(AttemptResult::Refused, None), &size());
    let begins = [begin(), AttemptStart { earlier: vec![first], ..begin() }];
    let record = settle_stopped(&begins, Some(&progress(10))).unwrap();
    assert_eq!(record.attempts.len(), 2);
    assert_eq!((record.attempts[0].result, record.attempts[1].result), (AttemptResult::Refused, AttemptResult::Broke));
    assert_eq!(record.cost, Some(NanoUsd(60_000)));
}

#[test]
fn attempt_without_a_recorded_end_is_charged_as_sent() {
    let record = settle_stopped(&[begin(), begin()], None).unwrap();
    assert_eq!(record.attempts.len(), 2);
    assert_eq!(record.cost, Some(NanoUsd(100_000)));
}

#[test]
fn recovery_is_deterministic() {
    let once = settle_stopped(&[begin()], Some(&progress(10)));
    let stored: AttemptStart<'_> = serde_json::from_str(&serde_json::to_string(&begin()).unwrap()).unwrap();
    let stored_progress: StreamProgress = serde_json::from_str(&serde_json::to_string(&progress(10)).unwrap()).unwrap();
    assert_eq!(settle_stopped(&[stored], Some(&stored_progress)), once);
}

#[test]
fn unknown_prices_stay_unknown() {
    let mut bare = AttemptStart { sale: None, ..begin() };
    bare.attempt.cost = None;
    let record = settle_stopped(&[bare], Some(&progress(10))).unwrap();
    assert_eq!((record.sale, record.cost, record.tokens.output), (None, None, 10));
}

#[test]
fn no_begin_entry_gives_no_record() {
    assert_eq!(settle_stopped(&[], Some(&progress(10))), None);
}

#[test]
fn absent_values_are_omitted_but_accepted() {
    let mut stored = serde_json::to_value(begin()).unwrap();
    let members = stored.as_object_mut().unwrap();
    assert!(members.remove("address").is_some());
    for (name, nothing) in [("client_request_id", json!(null)), ("dropped", json!([])), ("earlier", json!([]))] {
        assert_eq!(members.insert(name.to_owned(), nothing), None, "{name} is written although it is absent");
    }
    let read: AttemptStart<'_> = serde_json::from_value(stored).unwrap();
    assert_eq!(read, AttemptStart { address: None, ..begin() });
}
