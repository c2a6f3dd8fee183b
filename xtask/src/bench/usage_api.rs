//! Times that a gateway on a database with many records and keys takes to answer the questions of operators over the admin API,
//! names of keys, members and channels included, and the pages of the console.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    targets::{free_ports, start, wait_for},
    usage_pages, usage_paint,
};
use crate::shell;

/// Requests of each question; the slowest counts.
const RUNS: usize = 5;
/// Questions about everything, thirty days, and the days before them.
pub(super) const MONTH: &str = "since=2026-10-07T00:00:00Z&until=2026-11-06T00:00:00Z";
const QUESTIONS: [&str; 35] = [
    "usage?limit=100",
    "usage?limit=100&model=model-11",
    "usage?limit=100&outcome=upstream_broke",
    "usage?limit=100&outcome=caller_left,upstream_broke,refused,gateway_stopped",
    "usage?limit=100&status=500",
    "usage/summary?by=nothing",
    "usage/summary?by=day",
    "usage/summary?by=month",
    "usage/summary?by=key&MONTH",
    "usage/summary?by=key&sort=sale&rows=20&MONTH",
    "usage/summary?by=key&sort=sale&rows=20&previous=true&MONTH",
    "usage/summary?by=key",
    "usage/summary?by=member",
    "usage/summary?by=member&previous=true&MONTH",
    "usage/summary?by=model",
    "usage/summary?by=model,day&MONTH",
    "usage/summary?by=member,model&rows=100&sort=sale&MONTH",
    "usage/summary?by=key,day&rows=100&sort=sale&MONTH",
    "usage/summary?by=channel,outcome&MONTH",
    "usage/summary?by=account,error&MONTH",
    "usage/summary?by=hour&MONTH",
    "usage/histogram?MONTH",
    "keys?limit=1000",
    "keys?name=key 7",
    "keys?sort=spent&limit=100",
    "keys?sort=last_used&limit=100",
    "members?limit=1000",
    "members?sort=spent&limit=100",
    "members?sort=last_used&limit=100",
    "budgets?subject=key&limit=1000",
    "prices",
    "prices/unpriced",
    "audit?limit=100",
    "health/history",
    "alerts",
];

/// Milliseconds that the slowest of each kind took.
pub(super) struct AnswerTimes {
    /// Questions to the admin API.
    pub(super) api: f64,
    /// Pages of the console.
    pub(super) pages: f64,
    /// First paints of these pages; `None` where there is no browser.
    pub(super) paints: Option<f64>,
}

/// Times of the answers of a gateway on this folder of data, or on the PostgreSQL at `url`.
pub(super) fn ask(programs: &Path, data: &Path, url: Option<&str>) -> Result<AnswerTimes> {
    let tollgate = |arguments: &[&str]| {
        let mut command = Command::new(programs.join("tollgate"));
        command.args(arguments).arg("--data").arg(data).current_dir(data).env("TOLLGATE_LOG__LEVEL", "error");
        if let Some(url) = url {
            command.env("TOLLGATE_DATABASE__URL", url);
        }
        command
    };
    // Databases that are kept may have the key of an earlier run.
    let name = format!("bench-{}", std::process::id());
    let made = shell::output(&mut tollgate(&["--json", "admin-key", "create", &name, "--scope", "admin"]))?;
    let key = serde_json::from_str::<Value>(&made)?["key"].as_str().context("the admin key")?.to_owned();
    if !data.join("tollgate.toml").exists() {
        let mut init = tollgate(&["init", "--admin", usage_pages::ADMIN]);
        init.arg("--file").arg(data.join("tollgate.toml")).env("TOLLGATE_ADMIN_PASSWORD", usage_pages::PASSWORD);
        shell::output(&mut init)?;
        // The pages of the model square are about what a group offers.
        let offered = format!("serves=[{{\"model\":\"{}\"}}]", usage_pages::MODEL);
        shell::output(&mut tollgate(&["channel", "add", "bench", "provider=echo", &offered]))?;
        shell::output(&mut tollgate(&["group", "add", "bench", "visibility=public", "channels=[\"bench\"]"]))?;
    }
    let address = format!("127.0.0.1:{}", free_ports(1)?[0]);
    let _gateway = start(&mut tollgate(&["serve", "--listen", &address]))?;
    wait_for(&address)?;
    let mut slowest = Duration::ZERO;
    for question in QUESTIONS {
        let path = format!("/admin/v1/{}", question.replace("MONTH", MONTH).replace(' ', "%20"));
        let mut longest = Duration::ZERO;
        for _ in 0..RUNS {
            longest = longest.max(get(&address, &path, &key)?);
        }
        println!("  {question}: at most {longest:.1?}");
        slowest = slowest.max(longest);
    }
    Ok(AnswerTimes {
        api: slowest.as_secs_f64() * 1_000.0,
        pages: usage_pages::ask(&address)?,
        paints: usage_paint::measure(&address)?,
    })
}

/// Time until the whole answer is there.
fn get(address: &str, path: &str, key: &str) -> Result<Duration> {
    #[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
    let started = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let status = answer.get(9..12).unwrap_or_default();
    ensure!(status == b"200", "{path} was answered with {}", String::from_utf8_lossy(&answer[..answer.len().min(600)]));
    Ok(started.elapsed())
}
