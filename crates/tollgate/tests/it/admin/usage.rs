//! The usage log over the admin API: pages, one record, sums, exports.

use parquet::{
    file::reader::{FileReader as _, SerializedFileReader},
    record::{Row, RowAccessor as _},
};
use serde_json::{Value, json};
use tollgate_testkit::Request;

use super::{Admin, ok, refusal, refused, refused_whole, text, within_a_second};
use crate::support;

fn with_records(count: usize) -> (Admin, Vec<String>) {
    let admin = Admin::echo();
    let mut ids: Vec<String> =
        (0..count).map(|_| admin.gateway.chat(&support::chat("echo")).header("x-request-id").unwrap().to_owned()).collect();
    // Ids of the same millisecond are not ordered by time.
    ids.sort_unstable();
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
    assert_eq!(one["pricing"]["cost"].as_array().unwrap().len(), 1, "{one}");
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
    for query in [
        "channel=echo&account=echo/echo".to_owned(),
        "protocol=openai&status=2xx&stream=false".to_owned(),
        "address=127.0.0.1&min_tokens=1".to_owned(),
        "tried_channel=echo&tried_account=echo/echo".to_owned(),
        "outcome=completed,refused".to_owned(),
        "failed_over=false&empty=false".to_owned(),
    ] {
        assert_eq!(admin.get(&format!("/admin/v1/usage?{query}"))["items"].as_array().unwrap().len(), 7, "{query}");
        assert_eq!(admin.get(&format!("/admin/v1/usage/summary?by=nothing&{query}"))["items"][0]["requests"], 7, "{query}");
    }
    let not_completed = "outcome=caller_left,refused,upstream_broke,gateway_stopped";
    for none in ["status=429&min_cost=0.5", "failed_over=true", "empty=true", "tried_channel=echo&tried_failed=true", not_completed]
    {
        assert_eq!(admin.get(&format!("/admin/v1/usage?{none}"))["items"], serde_json::json!([]), "{none}");
    }
    let pairs = admin.get("/admin/v1/usage/summary?by=account,key&sort=requests&rows=1");
    let row = &pairs["items"][0];
    assert_eq!((&row["name"], &row["and"]), (&Value::from("echo/echo"), &Value::from(key)), "{pairs}");
    assert!(row["and_name"].is_string() && row["and_member"] == "owner", "{pairs}");
    let before = admin.get("/admin/v1/usage/summary?by=day&previous=true&since=2026-01-01T00:00:00Z");
    assert!(before["items"].as_array().unwrap().iter().all(|row| row["previous"].is_null()), "{before}");
    let drawn = admin.get("/admin/v1/usage/histogram?buckets=24");
    let bars = drawn["items"].as_array().unwrap();
    assert!(bars.len() <= 24 && bars.iter().map(|bar| bar["completed"].as_u64().unwrap()).sum::<u64>() == 7, "{drawn}");
}

#[test]
fn faults_of_queries_for_usage_are_named() {
    let admin = Admin::echo();
    for (path, expected) in [
        ("usage?limit=999999999", refused(400, "invalid_value", "limit")),
        ("usage?sort=(SELECT%201)", refused(400, "unknown_parameter", "sort")),
        ("usage?since=0000-01-01", refused(400, "invalid_value", "since")),
        ("usage?after=x", refused(400, "invalid_value", "after")),
        ("usage?outcome=good", refused(400, "invalid_value", "outcome")),
        ("usage?outcome=refused,good", refused(400, "invalid_value", "outcome")),
        ("usage?tried_failed=true", refused(400, "invalid_value", "tried_failed")),
        ("usage?model=%00", refused(400, "invalid_value", "model")),
        ("usage?status=4x", refused(400, "invalid_value", "status")),
        ("usage?account=echo", refused(400, "invalid_value", "account")),
        ("usage?tried_account=echo", refused(400, "invalid_value", "tried_account")),
        ("usage/summary?by=day,day", refused(400, "invalid_value", "by")),
        ("usage/summary?by=user", refused(400, "invalid_value", "by")),
        ("usage/summary?previous=true", refused(400, "missing_required_parameter", "since")),
        ("usage/histogram?since=2026-11-02T00:00:00Z&until=2026-11-01T00:00:00Z", refused(400, "invalid_value", "since")),
        ("usage?since=2026-11-02T00:00:00Z&until=2026-11-01T00:00:00Z", refused(400, "invalid_value", "since")),
        ("usage?reason=e999", refused(400, "invalid_value", "reason")),
        ("usage?address=10.0.0.0/8", refused(400, "invalid_value", "address")),
        ("usage?member=unknown", refused(404, "not_found", "member")),
        ("usage/req_00000000000000000000000000", refused_whole(404, "not_found")),
        ("usage/x", refused_whole(404, "not_found")),
    ] {
        assert_eq!(refusal(&admin.call("GET", &format!("/admin/v1/{path}"), None)), expected, "{path}");
    }
}

#[test]
fn requests_for_unknown_models_are_found_by_the_requested_name() {
    let admin = Admin::echo();
    assert_eq!(admin.gateway.chat(&support::chat("gpt-\"9\"")).status, 404);
    assert_eq!(admin.gateway.chat(&support::chat("gpt-9")).status, 404);
    assert_eq!(admin.gateway.chat(&support::chat("echo")).status, 200);
    let all = || admin.get("/admin/v1/usage")["items"].as_array().unwrap().len();
    within_a_second("everything is booked", || all() == 3);
    let found = |query: &str| admin.get(&format!("/admin/v1/usage?{query}"))["items"].as_array().unwrap().len();
    let numbers = ["unknown_model=gpt-9", "unknown_model=gpt-%229%22", "unknown_model=gpt", "unknown_model=echo", "model=gpt-9"];
    assert_eq!(numbers.map(found), [1, 1, 0, 0, 0]);
    assert_eq!(admin.get("/admin/v1/usage/summary?by=error&unknown_model=gpt-9")["items"][0]["of"], "E13");
}

#[test]
fn records_of_removed_rows_are_found_by_their_former_names() {
    let admin = Admin::echo();
    let member = admin.post("/admin/v1/members", &json!({"name": "leaver"}))["id"].as_str().unwrap().to_owned();
    let key = admin.post("/admin/v1/keys", &json!({"name": "laptop", "member": "leaver", "groups": ["echo"]}));
    let request = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(key["key"].as_str().unwrap());
    let answer = admin.gateway.send(&request);
    assert_eq!(answer.status, 200, "{}", text(&answer));
    let id = answer.header("x-request-id").unwrap().to_owned();
    let items = |query: &str| admin.get(query)["items"].as_array().unwrap().len();
    within_a_second("it is booked", || items("/admin/v1/usage") == 1);
    admin.delete(&format!("/admin/v1/keys/{}", key["id"].as_str().unwrap()));
    admin.delete("/admin/v1/members/leaver");
    admin.delete("/admin/v1/channels/echo");
    for query in ["member=leaver", "key=laptop", "channel=echo", "account=echo/echo", "tried_account=echo/echo"] {
        assert_eq!(items(&format!("/admin/v1/usage?{query}")), 1, "{query}");
        assert_eq!(items(&format!("/admin/v1/usage/summary?by=nothing&{query}")), 1, "{query}");
    }
    assert_eq!(items("/admin/v1/usage/attempts?by=account&account=echo/echo"), 1);
    admin.get("/admin/v1/ledger?member=leaver");
    let one = admin.get(&format!("/admin/v1/usage/{id}"));
    assert_eq!((&one["member_name"], &one["member_removed"]), (&json!("leaver"), &json!(true)));
    let shown = String::from_utf8(admin.gateway.run(&["usage", "show", &id]).stdout).unwrap();
    assert!(shown.contains("leaver (removed)"), "{shown}");

    admin.post("/admin/v1/members", &json!({"name": "leaver"}));
    assert_eq!(items("/admin/v1/usage?member=leaver"), 0, "the row that has the name now");
    admin.delete("/admin/v1/members/leaver");
    let several = admin.call("GET", "/admin/v1/usage?member=leaver", None);
    assert_eq!(refusal(&several), refused(400, "invalid_value", "member"));
    assert!(text(&several).contains(&member), "{}", text(&several));
    assert_eq!(items(&format!("/admin/v1/usage?member={member}")), 1);
    assert_eq!(admin.call("GET", "/admin/v1/usage?member=unknown", None).status, 404);
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

/// The rows of a Parquet file.
pub(crate) fn parquet_rows(file: Vec<u8>) -> Vec<Row> {
    let file = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    file.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

#[test]
fn every_record_is_exported_as_a_parquet_file() {
    let (admin, ids) = with_records(3);
    let ids_of = |file: Vec<u8>| parquet_rows(file).iter().map(|row| row.get_string(0).unwrap().clone()).collect::<Vec<_>>();
    let export = |query: &str| {
        let answer = admin.call("GET", &format!("/admin/v1/usage/export?format=parquet{query}"), None);
        assert_eq!((answer.status, answer.complete), (200, true));
        assert_eq!(answer.header("content-type"), Some("application/vnd.apache.parquet"));
        ids_of(answer.body)
    };
    assert_eq!(export(""), ids);
    assert_eq!(export("&model=other"), Vec::<String>::new());
    let command = admin.gateway.run(&["usage", "export", "--format", "parquet"]);
    assert!(command.status.success(), "{}", String::from_utf8_lossy(&command.stderr));
    assert_eq!(ids_of(command.stdout), ids);
}

/// The ids of the next records of a live tail, and the position after them.
fn followed(admin: &Admin, query: &str, last_event: Option<&str>, count: usize, meanwhile: impl FnOnce()) -> (Vec<String>, String) {
    let request = Request::get(&format!("/admin/v1/usage/tail{query}")).bearer(&admin.key);
    let request = if let Some(id) = last_event { request.header("last-event-id", id) } else { request };
    let (records, position) = follow(admin, &request, count, meanwhile);
    (records.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect(), position)
}

/// The next records that a live tail sends, and the position after them.
pub(crate) fn follow(admin: &Admin, request: &Request, count: usize, meanwhile: impl FnOnce()) -> (Vec<Value>, String) {
    let mut pending = admin.gateway.start_request(request);
    let head = pending.read_head().unwrap();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let (mut received, mut meanwhile) = (String::new(), Some(meanwhile));
    loop {
        received += &String::from_utf8(pending.read_chunk(&head).unwrap().expect("the stream has no end")).unwrap();
        // The first event has the position where the stream begins.
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile();
        }
        let values = |field: &'static str| {
            received.split("\n\n").flat_map(move |event| event.lines().filter_map(move |line| line.strip_prefix(field)))
        };
        let records: Vec<Value> = values("data: {\"").map(|data| serde_json::from_str(&format!("{{\"{data}")).unwrap()).collect();
        if received.ends_with("\n\n") && records.len() >= count {
            return (records, values("id: ").last().unwrap().to_owned());
        }
    }
}

#[test]
fn live_tail_sends_new_records_and_resumes_after_the_last() {
    let (admin, _) = with_records(2);
    let chat = |model: &str| admin.gateway.chat(&support::chat(model)).header("x-request-id").unwrap().to_owned();
    let mut sent = Vec::new();
    let (ids, position) = followed(&admin, "?model=echo", None, 2, || sent = vec![chat("echo"), chat("unknown"), chat("echo")]);
    sent.remove(1);
    assert_eq!(ids, sent, "new ones of the filter, each once");
    let missed = [chat("echo"), chat("echo")];
    // With the filter: the refused request may be booked after the position.
    let (ids, _) = followed(&admin, "?model=echo", Some(&position), 2, || {});
    assert_eq!(ids, missed, "those since the last event");
    let answer = admin.call("GET", "/admin/v1/usage/tail?after=x", None);
    assert_eq!(refusal(&answer), refused(400, "invalid_value", "after"));
}

#[test]
fn callers_query_their_own_key_and_see_no_channel_or_cost() {
    let (admin, ids) = with_records(3);
    let key = admin.gateway.key();
    let get = |path: &str, key: &str| admin.gateway.send(&Request::get(path).bearer(key));
    let own = get("/v1/key", key).json();
    assert!(own["object"] == "key" && own["models"].as_array().unwrap().contains(&"echo".into()), "{own}");
    let sums = get("/v1/usage?by=model", key).json();
    assert_eq!((&sums["data"][0]["of"], &sums["data"][0]["requests"]), (&Value::from("echo"), &Value::from(3)), "{sums}");
    let page = get("/v1/usage/records?limit=2", key).json();
    let received: Vec<&str> = page["data"].as_array().unwrap().iter().map(|record| record["id"].as_str().unwrap()).collect();
    assert_eq!(received, [ids[2].as_str(), ids[1].as_str()]);
    for hidden in ["channel", "account", "cost", "attempts", "trace", "upstream"] {
        assert!(!page.to_string().contains(hidden) && !sums.to_string().contains(hidden), "{hidden} in {page}");
    }
    for prefix in ["", "/v1"] {
        let limit = get(&format!("{prefix}/dashboard/billing/subscription"), key).json();
        assert_eq!((&limit["object"], limit["hard_limit_usd"].as_f64()), (&"billing_subscription".into(), Some(100_000_000.0)));
        let used = get(&format!("{prefix}/dashboard/billing/usage?start_date=2026-01-01&end_date=2026-12-31"), key).json();
        assert_eq!((&used["object"], used["total_usage"].as_f64()), (&"list".into(), Some(0.0)));
    }
    assert_eq!(refusal(&get("/v1/key", "sk-wrong-key")), refused_whole(401, "invalid_api_key"));
    assert_eq!(refusal(&get("/v1/usage", &admin.key)), refused_whole(401, "invalid_api_key"));
    assert_eq!(refusal(&admin.gateway.send(&Request::get("/v1/key"))), refused_whole(401, "missing_api_key"));
    assert_eq!(refusal(&get("/v1/usage?by=channel", key)), refused(400, "invalid_value", "by"));
}

#[test]
fn billing_routes_of_other_gateways_report_what_is_left_of_blocking_budgets() {
    let admin = Admin::echo();
    let budget = |usd: &str, action: &str| json!({"amount": usd, "window": "total", "action": action});
    admin.patch("/admin/v1/groups/echo", &json!({"budget": budget("7", "block"), "rpm": 600}));
    let made = admin.post("/admin/v1/keys", &json!({"name": "billing", "groups": ["echo"], "budget": budget("2", "alert")}));
    let key = made["key"].as_str().unwrap();
    let get = |path: &str| admin.gateway.send(&Request::get(path).header("x-api-key", key)).json();

    within_a_second("the group's limits are in force", || get("/v1/key")["group_limits"] != json!([]));
    let own = get("/v1/key");
    let budgets: Vec<_> = own["budgets"].as_array().unwrap().iter().map(|it| [&it["of"], &it["group"], &it["left"]]).collect();
    assert_eq!(json!(budgets), json!([["key", null, "2.00"], ["group", "echo", "7.00"]]), "{own}");
    assert_eq!(own["group_limits"], json!([{"group": "echo", "rpm": 600, "tpm": null, "concurrency": null}]));

    for prefix in ["", "/v1"] {
        let balance = get(&format!("{prefix}/user/balance"));
        assert_eq!((&balance["is_active"], balance["balance"].as_f64()), (&json!(true), Some(7.0)), "{balance}");
        let info = json!([{"currency": "USD", "total_balance": "7.00", "granted_balance": "0.00", "topped_up_balance": "7.00"}]);
        assert_eq!((&balance["is_available"], &balance["balance_infos"]), (&json!(true), &info));
        assert_eq!(get(&format!("{prefix}/dashboard/billing/subscription"))["hard_limit_usd"].as_f64(), Some(7.0));
    }
    let account = get("/api/user/self");
    assert_eq!((&account["success"], &account["data"]["quota"]), (&json!(true), &json!(3_500_000)), "{account}");
    assert_eq!((&account["data"]["group"], &account["data"]["used_quota"]), (&json!("echo"), &json!(0)));
    for path in ["/api/usage/token", "/api/usage/token/"] {
        let usage = get(path);
        assert_eq!((&usage["code"], &usage["data"]["total_available"]), (&json!(true), &json!(3_500_000)), "{usage}");
        assert_eq!((&usage["data"]["name"], &usage["data"]["unlimited_quota"]), (&json!("billing"), &json!(false)));
    }

    assert_eq!(get("/v1/key")["spent_gateway_budgets"], json!([]));
    ok(&admin.call("PUT", "/admin/v1/settings/budget.total", Some(&json!({"value": "0"}))));
    within_a_second("the gateway's budget is in force", || get("/v1/key")["spent_gateway_budgets"] != json!([]));
    assert_eq!(get("/v1/key")["spent_gateway_budgets"], json!([{"window": "total", "renews_at": null}]));
    let balance = get("/user/balance");
    assert_eq!((&balance["is_available"], balance["balance"].as_f64()), (&json!(false), Some(0.0)), "{balance}");
    assert_eq!(refusal(&admin.gateway.send(&Request::get("/user/balance"))), refused_whole(401, "missing_api_key"));
}
