//! Times that a gateway on a database with many records and keys takes to answer the pages of the console.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::usage_api::MONTH;

/// Requests of each page; the slowest counts.
const RUNS: usize = 5;
/// The pages; `MONTH` stands for [`MONTH`], `KEY` and `RECORD` for the ids of a key and of the newest record.
const PAGES: [&str; 40] = [
    "console",
    "overview",
    "overview?range=7d",
    "overview?range=30d",
    "overview?MONTH",
    "overview?MONTH&split=key",
    "log",
    "log?MONTH",
    "log?MONTH&model=model-11",
    "log?MONTH&outcome=upstream_broke",
    "log?MONTH&outcome=not_completed",
    "log/RECORD",
    "keys",
    "keys?sort=spent",
    "keys?sort=last_used",
    "keys?search=key 7",
    "keys?unused_days=30",
    "keys/KEY",
    "members",
    "members?sort=spent",
    "members?sort=last_used",
    "members?name=member 7",
    "members/member 7",
    "groups",
    "channels",
    "channels/bench",
    "pricing",
    "pricing/unpriced",
    "pricing/groups",
    "pricing/history",
    "ledger",
    "ledger?MONTH",
    "audit",
    "alerts",
    "settings",
    "system",
    "playground",
    "models",
    "models/model-11",
    "status",
];
/// The text to search for in the palette.
const SEARCHED: &str = "key 7";
/// A model of the records that a group offers.
pub(super) const MODEL: &str = "model-11";
/// Name and password of the admin whose pages are measured. They need no escapes in a form.
pub(super) const ADMIN: &str = "bench-admin";
pub(super) const PASSWORD: &str = "password-of-the-bench-admin";

/// An admin who is signed in to the console of a gateway.
#[derive(Debug)]
pub(super) struct ConsoleSession {
    address: String,
    cookie: String,
}

impl ConsoleSession {
    pub(super) fn sign_in(address: &str) -> Result<Self> {
        let form = format!("login={ADMIN}&password={PASSWORD}");
        let head = format!("POST /sign-in HTTP/1.1\r\norigin: http://{address}\r\n{FORM}");
        let answer = String::from_utf8(send(address, &head, &form)?)?;
        let cookies = answer.lines().take_while(|line| !line.is_empty()).filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("set-cookie").then(|| value.split(';').next().unwrap_or_default())
        });
        let cookies: Vec<&str> = cookies.collect();
        ensure!(!cookies.is_empty(), "the sign-in was answered with {}", beginning(answer.as_bytes()));
        Ok(Self { address: address.to_owned(), cookie: cookies.join("; ") })
    }

    /// The paths of all pages.
    pub(super) fn paths(&self) -> Result<Vec<String>> {
        let (key, record) = (self.first_id("keys")?, self.first_id("usage")?);
        let path = |page: &str| {
            let page = page.replace("MONTH", MONTH).replace("KEY", &key).replace("RECORD", &record);
            format!("/{}", page.replace(' ', "%20"))
        };
        Ok(PAGES.into_iter().map(path).collect())
    }

    /// The id of the first row of a list of the admin API.
    fn first_id(&self, list: &str) -> Result<String> {
        let answer = self.get(&format!("/admin/v1/{list}?limit=1"), "")?;
        let body = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(answer.as_slice(), |at| &answer[at + 4..]);
        let rows: Value = serde_json::from_slice(body).with_context(|| format!("the list of {list}"))?;
        Ok(rows["items"][0]["id"].as_str().with_context(|| format!("there are no {list}"))?.to_owned())
    }

    /// Time until the whole page is there, compressed as browsers ask for it.
    pub(super) fn open(&self, path: &str) -> Result<Duration> {
        timed(|| self.get(path, "accept-encoding: gzip\r\n"))
    }

    /// Time until the results of a search in the palette are there.
    fn search(&self, text: &str) -> Result<Duration> {
        let page = String::from_utf8(self.get("/search", "")?)?;
        let token = page.split_once("name=\"csrf\" value=\"").and_then(|(_, rest)| rest.split('"').next());
        let form = format!("csrf={}&q={}", token.context("the form of the search has a token")?, text.replace(' ', "+"));
        let Self { address, cookie } = self;
        let head = format!("POST /search HTTP/1.1\r\ncookie: {cookie}\r\norigin: http://{address}\r\n{FORM}");
        timed(|| send(address, &head, &form))
    }

    fn get(&self, path: &str, fields: &str) -> Result<Vec<u8>> {
        let answer = send(&self.address, &format!("GET {path} HTTP/1.1\r\ncookie: {}\r\n{fields}", self.cookie), "")?;
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "{path} was answered with {}", beginning(&answer));
        Ok(answer)
    }
}

const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

/// Milliseconds of the slowest page of the gateway at this address.
pub(super) fn ask(address: &str) -> Result<f64> {
    let session = ConsoleSession::sign_in(address)?;
    let mut slowest = Duration::ZERO;
    let mut ask = |name: &str, open: &dyn Fn() -> Result<Duration>| -> Result<()> {
        let mut longest = Duration::ZERO;
        for _ in 0..RUNS {
            longest = longest.max(open()?);
        }
        println!("  page {name}: at most {longest:.1?}");
        slowest = slowest.max(longest);
        Ok(())
    };
    for path in session.paths()? {
        ask(&path, &|| session.open(&path))?;
    }
    ask("/search", &|| session.search(SEARCHED))?;
    Ok(slowest.as_secs_f64() * 1_000.0)
}

fn timed(answer: impl FnOnce() -> Result<Vec<u8>>) -> Result<Duration> {
    #[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
    let started = Instant::now();
    let answer = answer()?;
    let took = started.elapsed();
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "answered with {}", beginning(&answer));
    Ok(took)
}

/// The first part of an answer, for error messages.
fn beginning(answer: &[u8]) -> String {
    String::from_utf8_lossy(&answer[..answer.len().min(600)]).into_owned()
}

/// Sends a request on a connection of its own and reads the whole answer.
fn send(address: &str, head: &str, body: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    stream.write_all(format!("{head}host: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}
