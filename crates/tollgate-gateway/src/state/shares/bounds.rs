//! Bounds of the gateway, and how each is shared. The rows are those of the bounds in `docs/operating.md`.

/// How a bound is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Each of these holders may hold three times what is free.
    OfFree(&'static str),
    /// Another rule, in the words of the documentation.
    Rule(&'static str),
    /// There is nothing that one caller could take from another, for this reason.
    NotShared(&'static str),
}

use Share::{NotShared, OfFree, Rule};

const EACH_REQUEST: Share = NotShared("each request or connection has its own");
const OF_OPERATORS: Share = NotShared("set and used by operators");
const OF_THE_UPSTREAM: Share = NotShared("a bound on an upstream or a service, not on a caller");

/// Every bound, as `docs/operating.md` names it.
#[rustfmt::skip]
pub(crate) const BOUNDS: &[(&str, Share)] = &[
    (
        "connections",
        Rule(
            "those without a request close when seven eighths are open, first those of the address with the most; the last \
             eighth is for addresses within three times what is free; `server.max_connections_per_address`; 64 more answer only \
             `/healthz`, `/readyz` and `/version`",
        ),
    ),
    ("request head", EACH_REQUEST),
    ("request target", EACH_REQUEST),
    ("trusted proxies in a row in `X-Forwarded-For`", EACH_REQUEST),
    ("request body", EACH_REQUEST),
    ("bodies and complete answers held at once", OfFree("a key and a member")),
    ("complete answer while the caller reads it", EACH_REQUEST),
    ("answer kept for a caller that does not read", EACH_REQUEST),
    ("concurrent streams of an HTTP/2 connection", EACH_REQUEST),
    ("JSON", EACH_REQUEST),
    ("idle connection", EACH_REQUEST),
    ("requests in progress", OfFree("a key and a member")),
    ("wrong keys", Rule("for each address")),
    ("keys cached", NotShared("a key takes one entry, and wrong keys have entries of their own")),
    ("keys looked up in the database", OfFree("an address")),
    ("refused requests of a key that are recorded each", Rule("they are the key's own")),
    ("refused connections that are read on", NotShared("others are closed")),
    ("refusals that are delayed", NotShared("others are sent at once")),
    ("attempts of a request", EACH_REQUEST),
    ("retries", Rule("a fifth of the key's own requests, and ten; beyond, a key has at most three times what is left")),
    ("requests that wait for a busy account", Rule("keys take turns")),
    ("requests a minute, tokens a minute and concurrent requests of an account", Rule("limits of the key, its member or its group")),
    ("limits, budgets and balances of keys, members, groups, channels", NotShared("they are the caller's own")),
    ("reservations of a request", EACH_REQUEST),
    ("alerts for the webhook", NotShared("an alert is sent once for each budget and period")),
    ("ledger postings made outside the running gateway", OF_OPERATORS),
    ("probes of accounts", OF_OPERATORS),
    ("account health", Rule("what one key's requests can provoke holds for the key alone until another key sees it too")),
    ("fields remembered as refused", Rule("for the key alone until another key is refused too")),
    ("connect, first byte, idle", EACH_REQUEST),
    ("request that is not streamed; stream that delivers only comments and empty deltas", EACH_REQUEST),
    ("upstream answer, not streamed", EACH_REQUEST),
    ("one event of a stream", EACH_REQUEST),
    ("calls of a translated answer", EACH_REQUEST),
    ("keep-alive on a silent stream", EACH_REQUEST),
    ("remote media (`fetch_media` of a channel)", OfFree("a key and a member")),
    ("idle upstream connections", OF_THE_UPSTREAM),
    ("a Redis that does not answer", OF_THE_UPSTREAM),
    ("messages to Redis", OF_THE_UPSTREAM),
    (
        "requests whose charges a node keeps for a Redis that loses its data",
        NotShared("only answered requests with a price are kept, and they are booked within a second"),
    ),
    ("nodes that are waited for after such a loss", OF_THE_UPSTREAM),
    ("revoked keys shared by nodes", OF_OPERATORS),
    ("answers that run when the drain time is over", EACH_REQUEST),
    ("an upgrade", OF_OPERATORS),
    ("connections and records on their way to a new process", NotShared("others wait until there is space")),
    ("`cache.sealed`", OF_OPERATORS),
    ("a PostgreSQL that does not answer", OF_THE_UPSTREAM),
    ("journal", OfFree("a key, of the memory that is used when the journal is full")),
    ("lines of requests that wait for the log", NotShared("a line that finds no space is counted; the usage record has the request")),
    ("records in memory that wait for the database", NotShared("a record that finds no space is read back from the journal")),
    ("records quarantined because the database refuses them", OF_OPERATORS),
    ("usage records kept", OF_OPERATORS),
    ("booking", OF_OPERATORS),
    ("admin API", OF_OPERATORS),
    ("jobs", OF_OPERATORS),
    ("backups on the gateway's disk", OF_OPERATORS),
    ("the console's own address", OF_OPERATORS),
    ("idempotency keys of admin requests", OF_OPERATORS),
];

/// The rows of a table in `docs/operating.md`, first column only, below a heading and a table head that begins with `| head |`.
fn documented<'a>(page: &'a str, head: &str) -> Vec<&'a str> {
    let table = page.split_once(&format!("| {head} |")).map_or("", |(_, rest)| rest);
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|line| line.split(" | ").next()).map(|cell| cell.trim_start_matches("| ")).collect()
}

/// The table of shares, as the page shows it.
fn shares() -> String {
    let line = |(what, share): &(&str, Share)| match share {
        OfFree(holders) => Some(format!("| {what} | three times what is free: {holders} |\n")),
        Rule(rule) => Some(format!("| {what} | {rule} |\n")),
        NotShared(_) => None,
    };
    BOUNDS.iter().filter_map(line).collect()
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
    std::fs::read_to_string(path).expect("docs/operating.md can be read")
}

#[test]
fn every_documented_bound_has_a_share_or_a_reason() {
    let (page, known) = (page(), BOUNDS.iter().map(|(what, _)| *what).collect::<Vec<_>>());
    assert_eq!(documented(&page, "what | bound"), known, "the bounds of docs/operating.md and the table of shares");
    let empty = BOUNDS.iter().find(|(_, share)| matches!(share, OfFree(text) | Rule(text) | NotShared(text) if text.is_empty()));
    assert_eq!(empty, None);
}

#[test]
fn shares_are_documented() {
    let (page, shares) = (page(), shares());
    assert!(page.contains(&shares), "docs/operating.md shows other shares than these:\n{shares}");
}
