//! The usage log over the admin API: pages, one record, sums, exports.

use serde_json::Value;
use tollgate_testkit::Request;

use super::{Admin, refusal, refused, refused_whole, text, within_a_second};
use crate::support;

fn with_records(count: usize) -> (Admin, Vec<String>) {
    let admin = Admin::echo();
    let ids: Vec<String> =
        (0..count).map(|_| admin.gateway.chat(&support::chat("echo")).header("x-request-id").unwrap().to_owned()).collect();
    within_a_second("everything is booked", || admin.get("/admin/v1/usage?limit=1000")["items"].as_array().unwrap().len() == count);
    (admin, ids)
}

#[test]
fn usage_records_are_listed_found_and_summed() {
    let (admin, ids) = with_records(7);
    let (mut received, mut after) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("/admin/v1/usage?limit=3{after}"));
        received.extend(page["items"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    received.reverse();
    assert_eq!(received, ids, "newest first, none twice, none missing");
    let one = admin.get(&format!("/admin/v1/usage/{}", ids[0]));
    assert!(one["outcome"] == "completed" && one["attempts"][0]["channel"] == "echo", "{one}");
    let key = one["key"].as_str().unwrap();
    for query in
        [format!("key={key}"), "member=owner".to_owned(), "group=echo".to_owned(), "model=echo&outcome=completed".to_owned()]
    {
        assert_eq!(admin.get(&format!("/admin/v1/usage?{query}"))["items"].as_array().unwrap().len(), 7, "{query}");
    }
    assert_eq!(admin.get("/admin/v1/usage?until=2020-01-01T00:00:00Z")["items"], serde_json::json!([]));
    let sums = admin.get("/admin/v1/usage/summary?by=model");
    assert_eq!((&sums["items"][0]["of"], &sums["items"][0]["requests"]), (&Value::from("echo"), &Value::from(7)), "{sums}");
    let operator = admin.as_operator("GET", "/admin/v1/usage/summary", None);
    assert_eq!(operator.status, 200);

    for (path, expected) in [
        ("usage?limit=999999999", refused(400, "invalid_value", "limit")),
        ("usage?sort=(SELECT%201)", refused(400, "unknown_parameter", "sort")),
        ("usage?since=0000-01-01", refused(400, "invalid_value", "since")),
        ("usage?after=x", refused(400, "invalid_value", "after")),
        ("usage?outcome=good", refused(400, "invalid_value", "outcome")),
        ("usage?model=%00", refused(400, "invalid_value", "model")),
        ("usage?member=unknown", refused_whole(404, "not_found")),
        ("usage/req_00000000000000000000000000", refused_whole(404, "not_found")),
        ("usage/x", refused_whole(404, "not_found")),
    ] {
        assert_eq!(refusal(&admin.call("GET", &format!("/admin/v1/{path}"), None)), expected, "{path}");
    }
}

#[test]
fn every_record_is_exported_as_json_lines() {
    let (admin, ids) = with_records(5);
    let export = |query: &str| {
        let answer = admin.call("GET", &format!("/admin/v1/usage/export{query}"), None);
        assert!(answer.status == 200 && answer.complete, "{}", text(&answer));
        (answer.header("content-type").unwrap().to_owned(), text(&answer))
    };
    let (media, csv) = export("");
    assert_eq!(media, "text/csv; charset=utf-8");
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines.len() == 6 && lines[0].starts_with("id,at,outcome") && lines[1].starts_with(&ids[0]), "{csv}");
    let (media, jsonl) = export("?format=jsonl&model=echo");
    assert_eq!(media, "application/jsonl; charset=utf-8");
    let records: Vec<Value> = jsonl.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let exported: Vec<&str> = records.iter().map(|record| record["id"].as_str().unwrap()).collect();
    assert_eq!(exported, ids);
    assert_eq!(export("?format=jsonl&model=other").1, "");
    assert_eq!(export("?model=other").1.lines().count(), 1, "the heading alone");
    let without_key = admin.gateway.send(&Request::get("/admin/v1/usage/export"));
    assert_eq!(without_key.status, 401);
}
