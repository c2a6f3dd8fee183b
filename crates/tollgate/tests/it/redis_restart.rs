//! Redis that restarts without its data, or loses it while it runs: budgets and balances hold on three nodes under load. Also a
//! node that restarts: its reservations are released.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use tollgate_testkit::{Request, ScriptedResponse, TestGateway, wait_for};

use crate::{
    nodes::{Services, assert_verified, key},
    support,
};

/// How Redis loses its data in each round: ten times by a restart, three times while it runs. A round takes about seven seconds.
const ROUNDS: [Loss; 13] = {
    let mut rounds = [Loss::Restart; 13];
    (rounds[2], rounds[6], rounds[10]) = (Loss::Flush, Loss::Flush, Loss::Flush);
    rounds
};
/// Keys and members of each round. Each round has its own, because it spends all their money.
const KEYS: usize = 60;
const MEMBERS: usize = 12;
/// Ten requests at 0.01 USD each.
const BUDGET_NANO_USD: i64 = 100_000_000;
/// Requests of a caller before Redis loses its data.
const SPENT_BEFORE: [usize; 7] = [1, 9, 5, 10, 7, 2, 9];
/// How many of the requests before it are sent at once.
const AT_ONCE: usize = 8;

#[derive(Clone, Copy, Debug)]
enum Loss {
    Restart,
    Flush,
}

/// A subject of a round: the secret of its key, and the name of its member.
struct Caller {
    secret: String,
    member: Option<String>,
}

fn callers() -> Vec<Vec<Caller>> {
    let round = |round: usize| {
        let keys =
            (0..KEYS).map(move |number| Caller { secret: format!("tk-r{round:02}-k{number:02}-0123456789abcdef"), member: None });
        let members = (0..MEMBERS).map(move |number| Caller {
            secret: format!("tk-r{round:02}-m{number:02}-0123456789abcdef"),
            member: Some(format!("member-{round:02}-{number:02}")),
        });
        keys.chain(members).collect()
    };
    (0..ROUNDS.len()).map(round).collect()
}

/// An echo channel at 0.01 USD a request, one key per caller with a budget of ten requests or a prepaid member.
fn catalog(callers: &[Vec<Caller>]) -> String {
    let mut text = "[[channel]]\nname = \"echo\"\nprovider = \"echo\"\n[[channel.account]]\nname = \"echo\"\n\
                    [[channel.serves]]\nmodel = \"echo\"\n[[model]]\nname = \"echo\"\nprice = { per_request = \"0.01\" }\n\
                    [[group]]\nname = \"default\"\nchannels = [\"echo\"]\n"
        .to_owned();
    for caller in callers.iter().flatten() {
        let name = &caller.secret[3..10];
        match &caller.member {
            Some(member) => {
                text += "[[member]]\nbilling = \"prepaid\"\nname = \"";
                text += member;
                text += "\"\n";
                text += &key(name, &caller.secret, &format!("member = \"{member}\""));
            }
            None => text += &key(name, &caller.secret, "budget = { amount = \"0.10\", window = \"month\" }"),
        }
    }
    text + &key("caller", tollgate_testkit::SERVICE_KEY, "")
}

fn status(gateway: &TestGateway, caller: &Caller) -> u16 {
    let request = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&caller.secret);
    gateway.start_request(&request).read().map_or(0, |answer| answer.status)
}

/// Sends requests of every caller to every node from `begin` on, while `during` runs.
fn ask_all(nodes: &[TestGateway], callers: &[Caller], begin: Duration, during: impl FnOnce()) -> BTreeMap<u16, usize> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking: Vec<_> = nodes
            .iter()
            .flat_map(|node| callers.iter().map(move |caller| (node, caller)))
            .map(|(node, caller)| {
                let stop = &stop;
                scope.spawn(move || {
                    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
                    thread::sleep(begin);
                    while !stop.load(Ordering::Relaxed) {
                        *statuses.entry(status(node, caller)).or_default() += 1;
                        thread::sleep(Duration::from_millis(150));
                    }
                    statuses
                })
            })
            .collect();
        during();
        stop.store(true, Ordering::Relaxed);
        let mut all: BTreeMap<u16, usize> = BTreeMap::new();
        for (status, count) in asking.into_iter().flat_map(|one| one.join().unwrap()) {
            *all.entry(status).or_default() += count;
        }
        all
    })
}

/// Sends the requests of each caller before Redis loses its data.
fn spend_before(node: &TestGateway, callers: &[Caller]) {
    let spending: Vec<(&Caller, usize)> = callers.iter().zip(SPENT_BEFORE.into_iter().cycle()).collect();
    thread::scope(|scope| {
        for some in spending.chunks(spending.len().div_ceil(AT_ONCE)) {
            scope.spawn(move || {
                for (caller, spent) in some {
                    (0..*spent).for_each(|_| assert_eq!(status(node, caller), 200));
                }
            });
        }
    });
}

/// Gives each member 0.10 USD.
fn top_up(node: &TestGateway, callers: &[Vec<Caller>]) {
    let admin = crate::admin::make_key(node, "root", "admin");
    for member in callers.iter().flatten().filter_map(|caller| caller.member.as_ref()) {
        let posting = serde_json::json!({"member": member, "amount": "0.10"});
        let request = Request::post("/admin/v1/ledger/top-ups", &posting).bearer(&admin).header("idempotency-key", member);
        let answer = node.send(&request);
        assert!(answer.status < 300, "{}", answer.text());
    }
}

#[test]
fn spending_survives_a_redis_that_returns_empty() {
    let Some(mut services) = Services::start("spending_survives_a_redis_that_returns_empty") else { return };
    let rounds = callers();
    let catalog = catalog(&rounds);
    let start = || services.builder("").catalog(&catalog).spawn();
    let nodes: Vec<TestGateway> = thread::scope(|scope| {
        let starting: Vec<_> = (0..3).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|gateway| gateway.join().unwrap()).collect()
    });
    top_up(&nodes[0], &rounds);
    thread::sleep(Duration::from_millis(1_500));
    let begin = Instant::now();
    for (round, (loss, callers)) in ROUNDS.into_iter().zip(&rounds).enumerate() {
        // One node spends between a tenth and all of the budget. The others learn this from Redis.
        spend_before(&nodes[usize::from(round % 2 == 0)], callers);
        thread::sleep(Duration::from_millis(500));
        let redis = &mut services.redis;
        if matches!(loss, Loss::Restart) {
            redis.stop();
            thread::sleep(Duration::from_secs(1));
        }
        // Requests begin before, while and after the nodes reconnect to Redis or find it empty.
        let first = Duration::from_millis(80 * u64::try_from(round % 10).unwrap());
        let statuses = ask_all(&nodes, callers, first, || {
            thread::sleep(Duration::from_millis(200));
            match loss {
                Loss::Restart => redis.restart(),
                Loss::Flush => redis.flush(),
            }
            thread::sleep(Duration::from_secs(3));
        });
        println!("round {round}, {loss:?}: {statuses:?}");
        assert!(statuses.keys().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    }
    println!("{} rounds of {KEYS} keys and {MEMBERS} members in {:.0?}", ROUNDS.len(), begin.elapsed());
    let answered = "SELECT COUNT(*) FROM usage WHERE status = 200";
    wait_for("every record", Duration::from_secs(30), || {
        let before = services.count(answered);
        thread::sleep(Duration::from_secs(1));
        before == services.count(answered)
    });
    let over = services.postgres.sql(&format!(
        "SELECT n.name, SUM(u.sale) FROM usage u JOIN names n ON n.ref = u.key GROUP BY n.name \
         HAVING SUM(COALESCE(u.sale, 0)) > {BUDGET_NANO_USD} ORDER BY 1"
    ));
    let served = services
        .postgres
        .sql("SELECT MIN(served), MAX(served) FROM (SELECT COUNT(*) AS served FROM usage WHERE status = 200 GROUP BY key) AS each");
    println!("served {served} of 10 each");
    assert_eq!(over, "", "budgets and balances of ten requests");
    for node in &nodes {
        assert_verified(node);
    }
}

#[test]
fn killed_node_frees_its_permits_when_it_is_back() {
    let Some(services) = Services::start("killed_node_frees_its_permits_when_it_is_back") else { return };
    const SECRET: &str = "tk-two-permits-0123456789abcdef";
    let keys = key("two-permits", SECRET, "concurrency = 2");
    services.upstream.set_default(ScriptedResponse::chat_stream(&["one"]).stall_after(2));
    let (first, other) = (services.builder(&keys).spawn(), services.builder(&keys).spawn());
    let stream = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(SECRET);
    let mut open = [first.start_request(&stream), first.start_request(&stream)];
    for stream in &mut open {
        assert_eq!(stream.read_head().unwrap().status, 200);
    }
    let chat =
        |gateway: &TestGateway| gateway.send(&Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(SECRET));
    assert_eq!(chat(&other).status, 429, "both permits are taken");
    let data = first.kill();
    services.upstream.set_default(ScriptedResponse::chat("hello"));
    let first = services.builder(&keys).data_folder(data).spawn();
    let took = wait_for("its permits are free", Duration::from_secs(1), || chat(&other).status == 200);
    println!("the permits of a killed node were free {took:.1?} after it was back");
    assert!(took < Duration::from_secs(15), "its registration would have expired by itself: {took:.1?}");
    assert_eq!(chat(&first).status, 200);
}
