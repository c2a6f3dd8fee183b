//! Several nodes on one PostgreSQL and one Redis: budgets, changes, revocations and outages, with three real processes.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use tollgate_testkit::{Postgres, Redis, Request, ScriptedResponse, TestGateway, TestGatewayBuilder, Upstream, wait_for};

use crate::{
    admin::Admin,
    load,
    support::{self, PROGRAM},
};

pub(crate) const MASTER_KEY: &str = "tgm1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// Output limit of a request; priced at 20 USD per million tokens (`support::prices`).
const OUTPUT_TOKENS: u64 = 100;

pub(crate) struct Services {
    pub(crate) postgres: Postgres,
    pub(crate) redis: Redis,
    pub(crate) upstream: Upstream,
}

impl Services {
    pub(crate) fn start(test: &str) -> Option<Self> {
        let (postgres, redis) = (Postgres::start(test)?, Redis::start(test)?);
        let upstream = Upstream::start();
        upstream.set_default(ScriptedResponse::chat("hello"));
        Some(Self { postgres, redis, upstream })
    }

    pub(crate) fn builder(&self, keys: &str) -> TestGatewayBuilder {
        TestGateway::builder(PROGRAM)
            .catalog(&(support::catalog(&self.upstream, "cooling = false") + keys))
            .env("DATABASE_URL", &self.postgres.url())
            .env("REDIS_URL", &self.redis.url())
            .env("TOLLGATE_MASTER_KEY", MASTER_KEY)
            .env("TOLLGATE_SERVER__CORES", "1")
            .without_record_check()
    }

    /// Three nodes, started concurrently as by an orchestrator.
    pub(crate) fn nodes(&self, keys: &str) -> Vec<TestGateway> {
        thread::scope(|scope| {
            let starting: Vec<_> = (0..3).map(|_| scope.spawn(|| self.builder(keys).spawn())).collect();
            starting.into_iter().map(|gateway| gateway.join().unwrap()).collect()
        })
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.postgres.sql(what).parse().unwrap()
    }
}

pub(crate) fn key(name: &str, secret: &str, lines: &str) -> String {
    format!("[[key]]\nname = \"{name}\"\ngroups = [\"default\"]\nsecret = \"{secret}\"\n{lines}\n")
}

fn chat_request(secret: &str) -> Request {
    let mut body = support::chat("chat-model");
    body["max_tokens"] = OUTPUT_TOKENS.into();
    Request::post("/v1/chat/completions", &body).bearer(secret)
}

pub(crate) fn assert_verified(gateway: &TestGateway) {
    let out = gateway.run(&["verify"]);
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
}

#[test]
fn budget_is_not_overspent_by_concurrent_requests_on_three_nodes() {
    const ROUNDS: usize = 20;
    const AT_ONCE: usize = 200;
    let Some(services) = Services::start("budget_is_not_overspent_by_concurrent_requests_on_three_nodes") else { return };
    // Ten requests at their largest cost: 100 output tokens and a short prompt each.
    let budget = "0.0215";
    let names: Vec<String> = (0..ROUNDS).map(|round| format!("tk-budget-of-round-{round:02}-0123456789")).collect();
    let keys: String = names
        .iter()
        .map(|secret| key(&secret[3..22], secret, &format!("budget = {{ amount = \"{budget}\", window = \"month\" }}")))
        .collect();
    // Each response uses the whole output limit.
    let answer = serde_json::json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "upstream-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": OUTPUT_TOKENS, "total_tokens": 10 + OUTPUT_TOKENS}
    });
    services.upstream.set_default(ScriptedResponse::json(&answer));
    let nodes = services.nodes(&keys);
    let begin = Instant::now();
    let mut served = Vec::new();
    for secret in &names {
        let statuses: Vec<u16> = thread::scope(|scope| {
            let asking: Vec<_> = (0..AT_ONCE)
                .map(|number| {
                    let gateway = &nodes[number % nodes.len()];
                    scope.spawn(move || gateway.start_request(&chat_request(secret)).read().map_or(0, |answer| answer.status))
                })
                .collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let well = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(well + statuses.iter().filter(|status| **status == 429).count(), AT_ONCE, "{statuses:?}");
        served.push(well);
    }
    let took = begin.elapsed();
    // Refusals that repeat share a record.
    let answered = "SELECT COUNT(*) FROM usage WHERE status = 200";
    wait_for("every record", Duration::from_secs(30), || services.count(answered) == served.iter().sum::<usize>());
    let over = services
        .count("SELECT COUNT(*) FROM (SELECT key FROM usage GROUP BY key HAVING SUM(COALESCE(sale, 0)) > 21500000) AS over");
    println!("{AT_ONCE} at once on 3 nodes, {ROUNDS} rounds in {took:.1?}: served {served:?} each, {over} keys over their budget");
    assert_eq!(over, 0);
    assert!(served.iter().all(|count| (8..=10).contains(count)), "{served:?}");
    assert_verified(&nodes[0]);
}

/// Keys, members and counts of groups are read again only after a change, whichever node made it.
#[test]
fn lists_show_each_change_of_another_node_at_once() {
    let Some(services) = Services::start("lists_show_each_change_of_another_node_at_once") else { return };
    let [one, other, ..] = <[TestGateway; 3]>::try_from(services.nodes("")).unwrap();
    let (one, other) = (Admin::named(one, "one"), Admin::named(other, "other"));
    let names = |path: &str| -> Vec<String> {
        let page = one.get(path);
        page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    let keys = || names("/admin/v1/keys?sort=name&search=listed");
    let operators = || names("/admin/v1/members?sort=name&role=operator");
    let keys_of_group = || {
        let groups = one.get("/admin/v1/groups?use=true");
        groups["items"].as_array().unwrap().iter().find(|group| group["name"] == "default").unwrap()["key_count"].as_u64().unwrap()
    };
    let none: [&str; 0] = [];
    assert_eq!((keys(), operators()), (Vec::new(), Vec::new()));
    let before = keys_of_group();

    let made = other.post("/admin/v1/keys", &json!({"name": "listed b", "member": "owner", "groups": ["default"]}));
    assert_eq!((keys(), keys_of_group()), (vec!["listed b".to_owned()], before + 1));
    other.post("/admin/v1/keys", &json!({"name": "listed a", "member": "owner", "groups": ["default"]}));
    assert_eq!((keys(), keys_of_group()), (vec!["listed a".to_owned(), "listed b".to_owned()], before + 2));
    other.delete(&format!("/admin/v1/keys/{}", made["id"].as_str().unwrap()));
    assert_eq!((keys(), keys_of_group()), (vec!["listed a".to_owned()], before + 1));

    other.post("/admin/v1/members", &json!({"name": "ada", "role": "operator"}));
    assert_eq!(operators(), ["ada"]);
    other.patch("/admin/v1/members/ada", &json!({"role": "member"}));
    assert_eq!(operators(), none);
}

#[test]
fn changes_and_revocations_reach_every_node_in_time() {
    let Some(services) = Services::start("changes_and_revocations_reach_every_node_in_time") else { return };
    let nodes = services.nodes("");
    let made: serde_json::Value = serde_json::from_slice(&nodes[0].run(&["key", "create", "soon-gone", "--json"]).stdout).unwrap();
    let secret = made["key"].as_str().unwrap().to_owned();
    let status = |gateway: &TestGateway| gateway.send(&chat_request(&secret)).status;
    for gateway in &nodes {
        wait_for("the new key", Duration::from_secs(5), || status(gateway) == 200);
    }
    assert!(nodes[1].run(&["key", "revoke", "soon-gone"]).status.success());
    let begin = Instant::now();
    for gateway in &nodes {
        wait_for("the revocation", Duration::from_secs(5), || status(gateway) == 401);
    }
    let revoked = begin.elapsed();

    let more = nodes[2].data().join("more.toml");
    let text = support::channel("more", "openai", &services.upstream.openai_url(), "more-model", "")
        .replace("{credential}", "x-credential")
        + "[[model]]\nname = \"more-model\"\nprice = { input = \"1\", output = \"1\" }\n[[group]]\nname = \"more\"\nchannels = [\"more\"]\n\
           [[key]]\nname = \"more\"\ngroups = [\"more\"]\nsecret = \"tk-more-0123456789abcdef\"\n";
    std::fs::write(&more, text).unwrap();
    assert!(nodes[2].run(&["apply", more.to_str().unwrap(), "--yes"]).status.success());
    let begin = Instant::now();
    let asks = |gateway: &TestGateway| {
        gateway.send(&Request::post("/v1/chat/completions", &support::chat("more-model")).bearer("tk-more-0123456789abcdef")).status
    };
    for gateway in &nodes {
        wait_for("the new channel", Duration::from_secs(2), || asks(gateway) == 200);
    }
    println!("a revocation was in force on 3 nodes after {revoked:.0?}, a new channel after {:.0?}", begin.elapsed());
}

#[test]
fn account_cooldown_is_shared_by_all_nodes() {
    let Some(services) = Services::start("account_cooldown_is_shared_by_all_nodes") else { return };
    let catalog = support::catalog(&services.upstream, "");
    let start = || services.builder("").catalog(&catalog).spawn();
    let nodes = [start(), start()];
    assert_eq!(nodes[0].send(&chat_request(nodes[0].key())).status, 200);
    services
        .upstream
        .set_default(ScriptedResponse::error(429, &serde_json::json!({"error": {"message": "slow"}})).header("retry-after", "60"));
    let _ = nodes[0].send(&chat_request(nodes[0].key()));
    services.upstream.set_default(ScriptedResponse::chat("hello"));
    wait_for("the cooldown on the other node", Duration::from_secs(10), || {
        nodes[1].send(&chat_request(nodes[1].key())).status == 503
    });
}

#[test]
fn redis_outage_fails_no_request_and_spending_is_counted_afterwards() {
    let Some(mut services) = Services::start("redis_outage_fails_no_request_and_spending_is_counted_afterwards") else { return };
    let secret = tollgate_testkit::SERVICE_KEY;
    // A budget and a rate limit apply to every request, so that every request needs Redis.
    let bounded = "[[group]]\nname = \"default\"\nchannels = [\"chat\", \"native\"]\nbudget = { amount = \"1000\", window = \"month\" }\nrpm = 1000000\n";
    let catalog = support::channel("chat", "openai", &services.upstream.openai_url(), "chat-model", "cooling = false")
        + &support::channel("native", "gemini", &services.upstream.gemini_url(), "native-model", "cooling = false")
        + &support::prices(&["chat-model", "native-model"])
        + bounded
        + &key("caller", secret, "");
    let start = || services.builder("").catalog(&catalog).spawn();
    let nodes = [start(), start(), start()];
    let mut loads = Vec::new();
    let redis = &mut services.redis;
    let last = {
        let mut inner = Vec::new();
        let outer = load::during(&nodes[0], "chat-model", 2, || {
            let middle = load::during(&nodes[1], "chat-model", 2, || {
                inner.push(load::during(&nodes[2], "chat-model", 2, || {
                    thread::sleep(Duration::from_secs(2));
                    redis.stop();
                    thread::sleep(Duration::from_secs(4));
                    redis.restart();
                    thread::sleep(Duration::from_secs(4));
                    redis.freeze();
                    thread::sleep(Duration::from_secs(2));
                    redis.thaw();
                    thread::sleep(Duration::from_secs(2));
                }));
            });
            inner.push(middle);
        });
        loads.append(&mut inner);
        outer
    };
    loads.push(last);
    let answered: usize = loads.iter().map(|load| load.statuses.values().sum::<usize>()).sum();
    let failed: usize = loads.iter().map(load::Load::failed).sum();
    let slowest = loads.iter().map(|load| load.within(999)).max().unwrap();
    println!(
        "Redis stopped for 4 s and frozen for 2 s under load on 3 nodes: {answered} requests, {failed} failed, p99.9 {slowest:.0?}"
    );
    assert_eq!(failed, 0, "{:?}", loads.iter().map(|load| &load.statuses).collect::<Vec<_>>());
    wait_for("every record", Duration::from_secs(30), || services.count("SELECT COUNT(*) FROM usage") >= answered);
    for gateway in &nodes {
        assert!(gateway.log().contains("counting in Redis"), "{}", gateway.log());
    }
    assert_verified(&nodes[0]);
}

#[test]
fn one_minute_postgres_outage_under_load_loses_nothing() {
    let Some(mut services) = Services::start("one_minute_postgres_outage_under_load_loses_nothing") else { return };
    let nodes = services.nodes("");
    let postgres = &mut services.postgres;
    let mut loads = Vec::new();
    let outer = load::during(&nodes[0], "chat-model", 1, || {
        let middle = load::during(&nodes[1], "chat-model", 1, || {
            loads.push(load::during(&nodes[2], "chat-model", 1, || {
                thread::sleep(Duration::from_secs(1));
                postgres.stop();
                thread::sleep(Duration::from_mins(1));
                postgres.restart();
            }));
        });
        loads.push(middle);
    });
    let back = Instant::now();
    loads.push(outer);
    let answered: usize = loads.iter().map(|load| load.statuses.values().sum::<usize>()).sum();
    let failed: usize = loads.iter().map(load::Load::failed).sum();
    wait_for("every record", Duration::from_secs(30), || {
        services.count("SELECT COUNT(*) FROM usage WHERE status = 200") >= answered - failed
    });
    println!(
        "PostgreSQL stopped for 60 s under load on 3 nodes: {answered} requests, {failed} failed, all booked {:.1?} after its return",
        back.elapsed()
    );
    assert!(failed * 1_000 <= answered, "{failed} of {answered}");
    let duplicates = services.count("SELECT COUNT(*) FROM (SELECT id FROM usage GROUP BY id HAVING COUNT(*) > 1) AS duplicates");
    assert_eq!((duplicates, services.count("SELECT COUNT(*) FROM usage")), (0, answered));
    assert_verified(&nodes[0]);
}

#[test]
fn nodes_with_and_without_redis_refuse_to_run_together() {
    let Some(services) = Services::start("nodes_with_and_without_redis_refuse_to_run_together") else { return };
    let alone =
        || TestGateway::builder(PROGRAM).env("DATABASE_URL", &services.postgres.url()).env("TOLLGATE_MASTER_KEY", MASTER_KEY);
    let one = services.builder("").spawn();
    let refused = alone().run_to_exit();
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("REDIS_URL"), "{}", String::from_utf8_lossy(&refused.stderr));
    drop(one);
    let one = alone().spawn();
    assert_eq!(services.builder("").run_to_exit().status.code(), Some(3));
    drop(one);
    // Redis without PostgreSQL is refused, and so are two different Redis URLs.
    assert_eq!(TestGateway::builder(PROGRAM).env("REDIS_URL", &services.redis.url()).run_to_exit().status.code(), Some(3));
    let twice = alone().env("REDIS_URL", "redis://a").env("TOLLGATE_REDIS__URL", "redis://b").run_to_exit();
    assert_eq!(twice.status.code(), Some(3));
    let doctor = services.builder("").spawn();
    let said = doctor.run(&["doctor"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("redis"), "{}", String::from_utf8_lossy(&said.stdout));
}
