//! Checks everything that serving needs.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tollgate_store::{AccessMode, JournalEntry, WorkControl};

use crate::{compose, config::Config, descriptors, disk_watch, failure::Failure, health_share, journal_backlog};

/// Output of `doctor`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DoctorOutcome {
    pub(crate) items: Vec<Finding>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) what: String,
    pub(crate) ok: bool,
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn new(what: &str, ok: bool, text: impl Into<String>) -> Self {
        Self { what: what.to_owned(), ok, text: text.into() }
    }
}

impl DoctorOutcome {
    pub(crate) fn wrong(&self) -> usize {
        self.items.iter().filter(|finding| !finding.ok).count()
    }
}

/// Checks folder, open files, database, journal and Redis. The settings are those that were loaded.
pub(crate) fn doctor(config: &Config, control: &WorkControl) -> Result<DoctorOutcome, Failure> {
    let mut checks = Checks { control, items: vec![Finding::new("settings", true, "all values are valid")] };
    let folder = std::fs::metadata(&config.data);
    let shown = config.data.display();
    checks.add("data folder", || match &folder {
        Ok(metadata) if metadata.is_dir() => Ok((true, shown.to_string())),
        Ok(_) => Ok((false, format!("{shown} is not a folder"))),
        Err(_) => Ok((true, format!("{shown} is created on the first start"))),
    })?;
    checks.add("disk", || Ok(disk(config)))?;
    let (connections, requests) = (config.count("server.max_connections"), config.count("limits.in_flight"));
    checks.add("open files", || Ok(descriptors::check(connections, requests)))?;
    if folder.is_ok() {
        checks.add("database", || Ok(database(config)))?;
        checks.add("journal", || journal(&compose::journal_folder(&config.data), control))?;
    }
    if config.redis_url.is_some() {
        let mut skew_us = None;
        checks.add("redis", || {
            Ok(match redis(config) {
                Ok(skew) => {
                    skew_us = Some(skew);
                    (true, "reachable".to_owned())
                }
                Err(failure) => (false, failure.to_string()),
            })
        })?;
        if let Some(skew_us) = skew_us {
            checks.add("clock", || Ok(clock(skew_us)))?;
        }
    }
    Ok(DoctorOutcome { items: checks.items })
}

struct Checks<'a> {
    control: &'a WorkControl,
    items: Vec<Finding>,
}

impl Checks<'_> {
    fn add(&mut self, what: &'static str, check: impl FnOnce() -> Result<(bool, String), Failure>) -> Result<(), Failure> {
        self.control.check()?;
        self.control.report(what, self.items.len() as u64, None);
        let (ok, text) = check()?;
        self.items.push(Finding::new(what, ok, text));
        Ok(())
    }
}

fn disk(config: &Config) -> (bool, String) {
    let reserve = disk_watch::reserve(config);
    let (has_space, kib) = (!reserve.is_full(), reserve.free() / 1024);
    let text = if has_space {
        format!("{kib} KiB free")
    } else {
        format!("full ({kib} KiB free): nothing can be booked, and a start may have to wait; free some space")
    };
    (has_space, text)
}

fn database(config: &Config) -> (bool, String) {
    let opened = compose::block_on(async {
        let store = compose::open_as(config, AccessMode::Command).await?;
        let catalog = store.catalog.load().await;
        store.close().await;
        let catalog = catalog?;
        Ok(format!("{}, catalog revision {}, {} channels", store.database, catalog.revision.0, catalog.channels.len()))
    });
    match opened {
        Ok(text) => (true, text),
        Err(failure) => (false, failure.to_string()),
    }
}

/// How far this machine's clock is ahead of that of Redis, in microseconds.
fn redis(config: &Config) -> Result<i64, Failure> {
    let address = compose::redis_address(config)?;
    compose::block_on(async {
        let Some(address) = &address else { return Ok(0) };
        let before = compose::now();
        let theirs = tollgate_store::check_redis(address).await?;
        Ok(before.0 / 2 + compose::now().0 / 2 - theirs.0)
    })
}

fn clock(ahead_us: i64) -> (bool, String) {
    if ahead_us.abs() <= health_share::MAX_SKEW_US {
        return (true, "agrees with that of Redis".to_owned());
    }
    let side = if ahead_us > 0 { "ahead of" } else { "behind" };
    let seconds = ahead_us.abs() / 1_000_000;
    (false, format!("{seconds} s {side} that of Redis; set the clocks of both machines, by NTP for instance"))
}

/// Reads the whole journal.
fn journal(folder: &Path, control: &WorkControl) -> Result<(bool, String), Failure> {
    let entries = match journal_backlog::entries(folder) {
        Ok(entries) => entries,
        Err(failure) => return Ok((false, failure.to_string())),
    };
    let (mut ended, mut rejected) = (0, 0);
    for (read, entry) in (0..).zip(entries) {
        journal_backlog::checked(control, read)?;
        match entry {
            Ok(JournalEntry::Ended { refused, .. }) => {
                ended += 1;
                rejected += usize::from(refused);
            }
            Ok(JournalEntry::Begun(_)) => {}
            Err(fault) => return Ok((false, fault.to_string())),
        }
    }
    Ok(if rejected > 0 {
        (false, format!("the database rejected {rejected} records; `tollgate verify` lists them"))
    } else {
        (true, format!("readable, {ended} ended requests in it"))
    })
}
