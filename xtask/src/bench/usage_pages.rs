//! Times that a gateway on a database with many records and keys takes to answer the pages of the console.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::usage_api::MONTH;

/// Requests of each page; the slowest counts.
const RUNS: usize = 5;
pub(super) const PAGES: [&str; 34] = [
    "console",
    "overview",
    "overview?range=7d",
    "overview?range=30d",
    "overview?MONTH",
    "log",
    "log?MONTH",
    "log?MONTH&model=model-11",
    "log?MONTH&outcome=upstream_broke",
    "log?MONTH&outcome=not_completed",
    "keys",
    "keys?sort=spent",
    "keys?sort=last_used",
    "keys?search=key 7",
    "keys?unused_days=30",
    "members",
    "members?sort=spent",
    "members?sort=last_used",
    "members?name=member 7",
    "members/member 7",
    "groups",
    "channels",
    "pricing",
    "pricing/unpriced",
    "ledger",
    "ledger?MONTH",
    "audit",
    "alerts",
    "settings",
    "system",
    "models",
    "models/model-11",
    "status",
    "search?q=key 7",
];
/// A model of the records that a group offers.
pub(super) const MODEL: &str = "model-11";
/// Name and password of the admin whose pages are measured. A form needs no escapes for them.
pub(super) const ADMIN: &str = "bench-admin";
pub(super) const PASSWORD: &str = "password-of-the-bench-admin";

/// Milliseconds of the slowest page of the gateway at this address.
pub(super) fn ask(address: &str) -> Result<f64> {
    let cookie = sign_in(address)?;
    let mut slowest = Duration::ZERO;
    for page in PAGES {
        let mut longest = Duration::ZERO;
        for _ in 0..RUNS {
            longest = longest.max(open(address, page, &cookie)?);
        }
        println!("  page /{page}: at most {longest:.1?}");
        slowest = slowest.max(longest);
    }
    Ok(slowest.as_secs_f64() * 1_000.0)
}

/// Time until the whole page is there.
pub(super) fn open(address: &str, page: &str, cookie: &str) -> Result<Duration> {
    let path = format!("/{}", page.replace("MONTH", MONTH).replace(' ', "%20"));
    #[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
    let started = Instant::now();
    let answer = send(address, &format!("GET {path} HTTP/1.1\r\ncookie: {cookie}\r\n"), "")?;
    let took = started.elapsed();
    ensure!(answer.starts_with("HTTP/1.1 200"), "{path} was answered with {}", &answer[..answer.len().min(600)]);
    Ok(took)
}

/// The cookies of a new session.
pub(super) fn sign_in(address: &str) -> Result<String> {
    let form = format!("login={ADMIN}&password={PASSWORD}");
    let head = format!("POST /sign-in HTTP/1.1\r\norigin: http://{address}\r\ncontent-type: application/x-www-form-urlencoded\r\n");
    let answer = send(address, &head, &form)?;
    let cookies = answer.lines().take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("set-cookie").then(|| value.split(';').next().unwrap_or_default())
    });
    let cookies: Vec<&str> = cookies.collect();
    ensure!(!cookies.is_empty(), "the sign-in was answered with {}", &answer[..answer.len().min(600)]);
    Ok(cookies.join("; "))
}

/// Sends a request on a connection of its own and reads the whole answer.
fn send(address: &str, head: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    stream.write_all(format!("{head}host: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    String::from_utf8(answer).context("the answer is not text")
}
