//! Every documented bound is shared, or there is a reason why it is not.

mod sources;

use super::*;

const EACH_REQUEST: &str = "each request or connection has its own";
const OF_OPERATORS: &str = "set and used by operators";
const OF_THE_UPSTREAM: &str = "a bound on an upstream or a service, not on a caller";

/// Bounds that one caller cannot use up for another, with the reason.
#[rustfmt::skip]
const NOT_SHARED: &[(&str, &str)] = &[
    ("request head", EACH_REQUEST),
    ("request target", EACH_REQUEST),
    ("trusted proxies in a row in `X-Forwarded-For`", EACH_REQUEST),
    ("origins of pages that may call the model API", OF_OPERATORS),
    ("request body", EACH_REQUEST),
    ("complete answer while the caller reads it", EACH_REQUEST),
    ("answer kept for a caller that does not read", EACH_REQUEST),
    ("concurrent streams of an HTTP/2 connection", EACH_REQUEST),
    ("JSON", EACH_REQUEST),
    ("idle connection", EACH_REQUEST),
    ("the model square", "it is computed for all together, and its requests are counted by address"),
    ("token counts of a key", "they are the key's own"),
    ("keys cached", "a key takes one entry, and wrong keys have entries of their own"),
    ("refused connections that are read on", "others are closed"),
    ("refusals that are delayed", "others are sent at once"),
    ("attempts of a request", EACH_REQUEST),
    ("limits, budgets and balances of keys, members, groups, channels", "they are the caller's own"),
    ("reservations of a request", EACH_REQUEST),
    ("probe or test of an account", OF_THE_UPSTREAM),
    ("alerts", "a rule has one alert about a subject; those of callers are about their budgets, balances and keys"),
    ("mails to members about their budgets", "a member gets one for each threshold and period"),
    ("messages about alerts", "an alert is one message for each destination"),
    ("exports to the collector", OF_THE_UPSTREAM),
    ("ledger postings made outside the running gateway", OF_OPERATORS),
    ("probes of accounts", OF_OPERATORS),
    ("changes of account health that wait to be recorded", "what finds no space is found by comparison"),
    ("history of health", OF_OPERATORS),
    ("stored contents of a request", EACH_REQUEST),
    ("stored contents", "the oldest of the keys that have the most make room"),
    ("edits of parameters of a channel", OF_OPERATORS),
    ("connect, first byte, idle", EACH_REQUEST),
    ("request that is not streamed, and stream before its status", EACH_REQUEST),
    ("stream before its first content, whose upstream shows [signs of life](api.md#streams)", EACH_REQUEST),
    ("stream that delivers only signs of life (comments, pings, empty deltas)", EACH_REQUEST),
    ("upstream answer, not streamed", EACH_REQUEST),
    ("stream before its content", EACH_REQUEST),
    ("one event of a stream", EACH_REQUEST),
    ("calls of a translated answer", EACH_REQUEST),
    ("keep-alive on a silent stream", EACH_REQUEST),
    ("idle upstream connections", OF_THE_UPSTREAM),
    ("a Redis that does not answer", OF_THE_UPSTREAM),
    ("messages to Redis", OF_THE_UPSTREAM),
    ("requests whose charges a node keeps for a Redis that loses its data", "only answered requests with a price are kept, and they are booked within a second"),
    ("nodes that are waited for after such a loss", OF_THE_UPSTREAM),
    ("revoked and disabled keys and suspended members shared by nodes", OF_OPERATORS),
    ("answers that run when the drain time is over", EACH_REQUEST),
    ("an upgrade", OF_OPERATORS),
    ("connections and records on their way to a new process", "others wait until there is space"),
    ("`cache.sealed`", OF_OPERATORS),
    ("a PostgreSQL that does not answer", OF_THE_UPSTREAM),
    ("lines of requests that wait for the log", "a line that finds no space is counted; the usage record has the request"),
    ("records in memory that wait for the database", "a record that finds no space is read back from the journal"),
    ("records quarantined because the database refuses them", OF_OPERATORS),
    ("usage records kept", OF_OPERATORS),
    ("booking", OF_OPERATORS),
    ("admin API", "unauthenticated clients and members have shares, in rows of their own"),
    ("requests before a sign-in", "an address has a quarter of them; 10 failed attempts end what a name may try"),
    ("requests of a member to the admin API", "they are the member's own"),
    ("attempts to sign in", "they are counted by name and address"),
    ("registrations of visitors", "they are counted by address; members do not register"),
    ("passkeys", "they are the member's own; a challenge is stored with the sign-in that answers it"),
    ("password hashes", "only requests before a sign-in and of one member wait for them, which have shares"),
    ("sessions", "they are the member's own"),
    ("sign-ins at an OpenID provider", OF_THE_UPSTREAM),
    ("invites, one-time links", OF_OPERATORS),
    ("imported price list", OF_OPERATORS),
    ("queries for records of the usage log", "callers run one of them at a time"),
    ("sums of the usage log", "callers run one query of the log at a time"),
    ("jobs", OF_OPERATORS),
    ("requests of callers about their key", "of a key two at a time, of a member four; they delay no model request"),
    ("tags of a request", EACH_REQUEST),
    ("tags that have sums", "a member may have three times what is free; the store counts them as records are booked"),
    ("channels that are changed or removed at once", OF_OPERATORS),
    ("exports of the audit log and of the ledger", OF_OPERATORS),
    ("exports of Parquet files", "a member has one of them, all members together two of three"),
    ("live tails of the usage log", "a member has two of them"),
    ("backups on the gateway's disk", OF_OPERATORS),
    ("exports to [storage](export.md)", OF_OPERATORS),
    ("usage records kept until they are exported", OF_OPERATORS),
    ("the console's own address", OF_OPERATORS),
    ("idempotency keys of admin requests", OF_OPERATORS),
    ("requests a minute, tokens a minute and concurrent requests of an account, or of all accounts of a channel", "requests that wait for it take turns"),
];

/// The rows of a table in `docs/operating.md`, first column only, below a table head that begins with `| head |`.
fn documented<'a>(page: &'a str, head: &str) -> Vec<&'a str> {
    let table = page.split_once(&format!("| {head} |")).map_or("", |(_, rest)| rest);
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|line| line.split(" | ").next()).map(|cell| cell.trim_start_matches("| ")).collect()
}

fn words(part: Part) -> String {
    match part {
        Part::TimesFree => "three times what is free".to_owned(),
        Part::TimesFreeInTurns => "three times what is free, in turns".to_owned(),
        Part::EachMinute(max) => format!("{max} a minute and error"),
        Part::FifthOfOwn => "a fifth of its own requests; beyond, three times what is left".to_owned(),
        Part::Alone => "its failures affect only itself until another one sees them too".to_owned(),
        Part::Setting(name) => format!("`{name}`"),
        Part::SettingThenTimesFree(name) => format!("`{name}`; of the last eighth, and of those beyond, three times what is free"),
    }
}

/// The table of shares, as the page shows it.
fn shares() -> String {
    let line = |bound: &Bound| {
        let [key, member, address] = match bound.share() {
            Share::Callers { key, member } => [words(key), words(member), "–".to_owned()],
            Share::Address(part) => ["–".to_owned(), "–".to_owned(), words(part)],
        };
        format!("| {} | {key} | {member} | {address} |\n", bound.row())
    };
    Bound::ALL.iter().map(line).collect()
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
    std::fs::read_to_string(path).expect("docs/operating.md can be read")
}

#[test]
fn every_documented_bound_has_a_share_or_a_reason() {
    let page = page();
    let mut documented = documented(&page, "what | bound");
    let mut known: Vec<_> = Bound::ALL.iter().map(|bound| bound.row()).collect();
    known.extend(NOT_SHARED.iter().map(|(row, _)| *row));
    documented.sort_unstable();
    known.sort_unstable();
    assert_eq!(documented, known, "the bounds of docs/operating.md and the shares");
    assert!(NOT_SHARED.iter().all(|(_, reason)| !reason.is_empty()));
}

#[test]
fn shares_are_documented() {
    let (page, shares) = (page(), shares());
    assert!(page.contains(&shares), "docs/operating.md shows other shares than these:\n{shares}");
}
