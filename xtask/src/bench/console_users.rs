//! The throughput that requests at full load lose while people use the console, on a database with many records.

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    CLOSED_LOOP, load,
    report::number,
    targets::{BenchTarget, free_ports, http_get, serve, start, start_upstream, wait_for},
    usage_pages::ConsoleSession,
};
use crate::shell;

/// People with a session each, who read a page before they open the next.
const USERS: usize = 20;
const READING: Duration = Duration::from_secs(5);
/// Pairs of runs, one without these people and one with them. Every other pair begins with the run beside these people, because a
/// gateway slows down while it books the records of the previous run.
const ROUNDS: usize = 6;
const SECONDS: &str = "8";

/// Requests a second beside the users, as a share of those without; the median of the rounds. `data` is a gateway's folder of data with
/// the admin of [`ConsoleSession::sign_in`], `url` its PostgreSQL.
pub(super) fn measure(programs: &Path, data: &Path, url: Option<&str>) -> Result<f64> {
    let ports = free_ports(2)?;
    let [upstream, address] = [ports[0], ports[1]].map(|port| format!("127.0.0.1:{port}"));
    let _upstream = start_upstream(programs, &upstream)?;
    let parent = data.parent().context("the folder of data has a parent")?;
    let name = data.file_name().and_then(|name| name.to_str()).context("the folder of data has a name")?;
    let mut gateway = Command::new(programs.join("tollgate"));
    serve(&mut gateway, parent, name, ports[1], &upstream)?;
    if let Some(url) = url {
        gateway.env("TOLLGATE_DATABASE__URL", url);
    }
    let gateway = start(&mut gateway)?;
    wait_for(&address)?;
    http_get(&upstream, &format!("/set?delay=0&{}", CLOSED_LOOP.upstream))?;
    let target = BenchTarget::new("tollgate", &address, Some(gateway.0.id()), "bench-chat");
    let run = || -> Result<f64> {
        let mut command = load(programs, &target, &CLOSED_LOOP);
        let row: Value = serde_json::from_str(shell::output(command.args(["--seconds", SECONDS]))?.trim())?;
        Ok(number(&row, "/per_second"))
    };
    let sessions: Vec<ConsoleSession> = (0..USERS).map(|_| ConsoleSession::sign_in(&address)).collect::<Result<_>>()?;
    let paths = sessions[0].paths()?;
    let run_beside = || -> Result<(f64, u64)> {
        let (is_over, pages) = (AtomicBool::new(false), AtomicU64::new(0));
        let beside = thread::scope(|scope| {
            for (user, session) in sessions.iter().enumerate() {
                let (paths, is_over, pages) = (&paths, &is_over, &pages);
                scope.spawn(move || read_pages(user, session, paths, is_over, pages));
            }
            let result = run();
            is_over.store(true, Relaxed);
            result
        })?;
        Ok((beside, pages.into_inner()))
    };
    let mut shares = Vec::new();
    for round in 0..ROUNDS {
        let (alone, (beside, pages)) = if round % 2 == 0 {
            (run()?, run_beside()?)
        } else {
            let beside = run_beside()?;
            (run()?, beside)
        };
        println!("  {alone:.0} requests a second alone, {beside:.0} beside {USERS} users who opened {pages} pages");
        shares.push(beside / alone);
    }
    shares.sort_by(f64::total_cmp);
    Ok(f64::midpoint(shares[ROUNDS / 2 - 1], shares[ROUNDS / 2]))
}

/// Opens a page after the other until the run is over. The users begin at different times, and at pages that are evenly spaced, so that
/// together they open all kinds of pages in a run.
fn read_pages(user: usize, session: &ConsoleSession, paths: &[String], is_over: &AtomicBool, pages: &AtomicU64) {
    let step = READING / u32::try_from(USERS).unwrap_or(u32::MAX);
    sleep_until(is_over, step * u32::try_from(user).unwrap_or_default());
    for path in paths.iter().cycle().skip(user * paths.len() / USERS) {
        if is_over.load(Relaxed) {
            return;
        }
        match session.open(path) {
            Ok(_) => _ = pages.fetch_add(1, Relaxed),
            Err(error) => println!("  ! {error:#}"),
        }
        sleep_until(is_over, READING);
    }
}

fn sleep_until(is_over: &AtomicBool, time: Duration) {
    let step = Duration::from_millis(50);
    for _ in 0..time.as_millis() / step.as_millis() {
        if is_over.load(Relaxed) {
            return;
        }
        thread::sleep(step);
    }
}
