//! The text of a record in each format, compared with files.

use tollgate_core::{AccountId, ChannelId, GroupId, Multiplier, Tags};

use super::*;

const AT: Timestamp = Timestamp(1_795_274_278_594_533);

fn attempt(channel: &str) -> AttemptRecord {
    AttemptRecord {
        channel: ChannelId::from_parts(AT, [1; 10]),
        channel_name: channel.into(),
        account: AccountId::from_parts(AT, [2; 10]),
        account_name: "team \"a\"".into(),
        protocol: Protocol::Anthropic,
        upstream_model: "large-1".into(),
        at: Timestamp(AT.0 + 467),
        status: Some(529),
        result: AttemptResult::Failed,
        error: Some("E50".to_owned()),
        tokens: Tokens { input: 1, source: TokenSource::Estimated, ..Tokens::default() },
        cost: Some(NanoUsd(-1)),
        first_byte_us: Some(11),
        duration_us: 12,
        upstream_request_id: Some("up\n1".into()),
        hedged: true,
        cost_multiplier: Multiplier(1_250_000),
        message: Some("no \"room\"".to_owned()),
        sent_us: Some(10),
    }
}

/// A record in which every member has a value of its own.
pub(crate) fn full() -> UsageRecord {
    let planned =
        TraceEntry { channel: "main".into(), account: Some("a".into()), code: "planned".into(), detail: Some("1 of 2".to_owned()) };
    UsageRecord {
        id: RequestId::from_parts(AT, [3; 10]),
        at: AT,
        key: KeyId::from_parts(AT, [4; 10]),
        key_name: "=ci, \u{1f600}".into(),
        member: MemberId::from_parts(AT, [5; 10]),
        group: Some(GroupId::from_parts(AT, [6; 10])),
        group_name: Some("default".into()),
        protocol_in: Protocol::Gemini,
        protocol_out: Some(Protocol::Anthropic),
        method: Method::StreamGenerate,
        model: Some("-fast\u{7}".into()),
        stream: true,
        status: 499,
        outcome: Outcome::CallerLeft,
        reason: Some("E50".to_owned()),
        detail: Some("line one\nline two".to_owned()),
        tokens: Tokens {
            input: 19,
            output: 26,
            cache_read: 3,
            cache_write: 4,
            cache_write_1h: 2,
            thinking: 5,
            image: 6,
            audio: 7,
            source: TokenSource::Provider,
            web_searches: 9,
        },
        cost: Some(NanoUsd(56_750)),
        sale: Some(NanoUsd(12_000_000_000)),
        price_version: Revision(8),
        ttft_us: Some(7_744),
        duration_us: u64::MAX,
        address: Some("2001:db8::1".into()),
        client_request_id: Some("caller's \\ 1".into()),
        client: Some("agent/1 \"x\"".into()),
        request_bytes: 512,
        dropped: vec!["seed".to_owned(), "tool_calls=1".to_owned()],
        trace: vec![planned, TraceEntry { channel: "spare".into(), account: None, code: "cooling".into(), detail: None }],
        tags: Tags::parse_header([b"project=web, team=a b".as_slice()]).unwrap(),
        sale_multiplier: Multiplier(800_000),
        finish: Some(FinishReason::Length),
        attempts: vec![attempt("main"), AttemptRecord { status: None, cost: None, ..attempt("spare") }],
    }
}

/// A record without any optional member.
pub(crate) fn bare() -> UsageRecord {
    UsageRecord {
        group: None,
        group_name: None,
        protocol_out: None,
        model: None,
        reason: None,
        detail: None,
        tokens: Tokens::default(),
        cost: None,
        sale: None,
        ttft_us: None,
        address: None,
        client_request_id: None,
        client: None,
        request_bytes: 0,
        dropped: Vec::new(),
        trace: Vec::new(),
        tags: Tags::default(),
        attempts: Vec::new(),
        finish: None,
        ..full()
    }
}

fn json_line(record: &UsageRecord) -> String {
    let mut out = Vec::new();
    write_json_line(&mut out, record);
    String::from_utf8(out).unwrap()
}

#[test]
fn json_has_every_member_in_a_fixed_order() {
    assert_eq!(json_line(&full()), include_str!("../../fixtures/record-full.json"));
    assert_eq!(json_line(&bare()), include_str!("../../fixtures/record-bare.json"));
}

#[test]
fn value_of_a_record_has_the_same_text() {
    for record in [full(), bare()] {
        assert_eq!(format!("{}\n", json(&record)), json_line(&record));
    }
}

#[test]
fn csv_has_every_column_of_its_header() {
    let mut out = csv_header(ExportView::Operator).into_bytes();
    write_csv_lines(&mut out, ExportView::Operator, &[full(), bare()]);
    assert_eq!(String::from_utf8(out).unwrap(), include_str!("../../fixtures/records.csv"));
}

#[test]
fn csv_for_members_has_no_hidden_columns() {
    let mut out = csv_header(ExportView::Member).into_bytes();
    write_csv_lines(&mut out, ExportView::Member, &[caller_view(full()), caller_view(bare())]);
    let out = String::from_utf8(out).unwrap();
    let header: Vec<&str> = out.lines().next().unwrap().split(',').collect();
    for name in ["attempts", "channel", "account", "upstream_model", "cost", "protocol_out", "overhead_us"] {
        assert!(!header.contains(&name), "{name}");
    }
    for name in ["detail", "price_version", "address", "client_request_id"] {
        assert!(header.contains(&name), "{name}");
    }
    let mut rows = csv::Reader::from_reader(out.as_bytes());
    assert!(rows.records().all(|row| row.unwrap().len() == header.len()));
    assert!(!out.contains("spare") && !out.contains("large-1"), "{out}");
}

#[test]
fn text_that_looks_like_a_formula_is_escaped() {
    for formula in ["=cmd|'/C calc'!A1", "+1", "-1", "@SUM(A1)", "\t=1"] {
        assert_eq!(escape_formula(formula), format!("'{formula}"));
    }
    assert_eq!((escape_formula("gpt-4=x").as_ref(), escape_formula("").as_ref()), ("gpt-4=x", ""));
}
