//! Tests of the names and labels of metrics.

use super::*;

#[test]
fn metric_names_match_the_documentation() {
    let metrics = Metrics::new("1.2.3");
    metrics.refused("E10");
    metrics.account_usable("main", "a", true);
    metrics.journal(12, Duration::from_millis(1_500));
    metrics.booked(3);
    metrics.unrecorded();
    metrics.store_error("append");
    metrics.connections_evicted(2);
    let connection = metrics.connection();
    let _request = metrics.in_flight();
    drop(connection);
    let text = metrics.render();
    for line in [
        r#"tollgate_refusals_total{error="E10"} 1"#,
        r#"tollgate_account_usable{channel="main",account="a"} 1"#,
        "tollgate_journal_bytes 12",
        "tollgate_journal_oldest_seconds 1.5",
        "tollgate_till_records_total 3",
        "tollgate_unrecorded_total 1",
        r#"tollgate_store_errors_total{operation="append"} 1"#,
        r#"tollgate_build_info{version="1.2.3"} 1"#,
        "tollgate_connections 0",
        "tollgate_connections_evicted_total 2",
        "tollgate_in_flight 1",
        "tollgate_request_duration_seconds_count 0",
        "tollgate_overhead_seconds_count 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn unknown_names_are_counted_as_other() {
    let metrics = Metrics::new("1.2.3");
    let record = crate::testing::usage_record("made-up-by-a-caller");
    metrics.observe(&record, &Arc::default(), &MetricHandles::default());
    let text = metrics.render();
    assert!(!text.contains("made-up-by-a-caller"));
    for line in [
        r#"tollgate_requests_total{protocol="openai",model="other",group="default",outcome="completed",status="200"} 1"#,
        r#"tollgate_tokens_total{model="other",kind="input"} 10"#,
        r#"tollgate_sale_usd_total{model="other",group="default"} 0.5"#,
        r#"tollgate_cost_usd_total{channel="main"} 0.25"#,
        r#"tollgate_attempts_total{channel="main",account="a",result="answered"} 1"#,
        "tollgate_request_duration_seconds_sum 2.0",
        "tollgate_overhead_seconds_sum 0.5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn metric_labels_use_the_names_of_the_current_catalog() {
    let (metrics, handles) = (Metrics::new("1.2.3"), MetricHandles::default());
    let mut record = crate::testing::usage_record("m");
    let count = |record: &UsageRecord, catalog: &Arc<Catalog>| {
        for _ in 0..2 {
            metrics.observe(record, catalog, &handles);
        }
    };
    count(&record, &Arc::default());
    let channel = crate::testing::channel("http://127.0.0.1:1/v1");
    let catalog = Arc::new(Catalog::from_parts(tollgate_core::Revision(2), vec![channel], Vec::new(), Vec::new()));
    count(&record, &catalog);
    // Like a request that began before group, channel and account were renamed.
    record.group_name = Some("renamed".into());
    record.attempts[0].channel_name = "renamed".into();
    count(&record, &catalog);
    record.status = 499;
    count(&record, &catalog);
    let text = metrics.render();
    for line in [
        r#"tollgate_requests_total{protocol="openai",model="other",group="default",outcome="completed",status="200"} 2"#,
        r#"tollgate_requests_total{protocol="openai",model="m",group="default",outcome="completed",status="200"} 2"#,
        r#"tollgate_requests_total{protocol="openai",model="m",group="renamed",outcome="completed",status="200"} 2"#,
        r#"tollgate_requests_total{protocol="openai",model="m",group="renamed",outcome="completed",status="499"} 2"#,
        r#"tollgate_tokens_total{model="other",kind="input"} 20"#,
        r#"tollgate_tokens_total{model="m",kind="input"} 60"#,
        r#"tollgate_sale_usd_total{model="m",group="renamed"} 2.0"#,
        r#"tollgate_attempts_total{channel="main",account="a",result="answered"} 4"#,
        r#"tollgate_attempts_total{channel="renamed",account="a",result="answered"} 4"#,
        r#"tollgate_cost_usd_total{channel="renamed"} 1.0"#,
        "tollgate_request_duration_seconds_count 8",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("kind=\"image\""), "nothing is counted that did not occur");
}
