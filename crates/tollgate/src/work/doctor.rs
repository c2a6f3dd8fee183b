//! Checks everything that serving needs.

mod backups;

use std::path::Path;

use serde::{Deserialize, Serialize};
use tollgate_console::{day_text, export_days};
use tollgate_core::{Catalog, catalog_warnings, size_text};
use tollgate_store::{AccessMode, JournalEntry, StoreUrl, WorkControl};

use super::ports;
use crate::{
    address_lists, compose,
    config::Config,
    descriptors, disk_watch,
    export::{ExportTarget, storage::Storage},
    failure::Failure,
    health_share, journal_backlog,
};

/// Warnings about the catalog that are listed.
const MAX_WARNINGS: usize = 5;

/// Output of `doctor`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DoctorOutcome {
    pub(crate) items: Vec<Finding>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) what: String,
    pub(crate) ok: bool,
    /// True for a note: nothing is wrong, but the operator should check it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) note: bool,
    pub(crate) text: String,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Good,
    Note,
    Fault,
}

impl From<bool> for Level {
    fn from(is_good: bool) -> Self {
        if is_good { Self::Good } else { Self::Fault }
    }
}

impl Finding {
    pub(crate) fn new(what: &str, ok: bool, text: impl Into<String>) -> Self {
        Self { what: what.to_owned(), ok, note: false, text: text.into() }
    }
}

impl DoctorOutcome {
    pub(crate) fn wrong(&self) -> usize {
        self.items.iter().filter(|finding| !finding.ok).count()
    }
}

/// Checks folder, disk, open files, addresses, database, channels, journal, the folder of backups, the storage of exports, Redis and the
/// clock beside it. The settings are those that were loaded.
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
    checks.add("open files", || Ok(open_files(connections, requests)))?;
    checks.add("address", || Ok(ports::check(config.listen, "server.listen", &config.data)))?;
    if let Some(address) = config.console {
        checks.add("console", || Ok(ports::check(address, "console.listen", &config.data)))?;
    }
    let mut catalog = None;
    if folder.is_ok() {
        checks.add("database", || Ok(database(config, &mut catalog)))?;
    }
    // The settings, including values changed at run time.
    let current = catalog.as_ref().map(|catalog| config.with_stored(&catalog.stored_settings).0);
    let current = current.as_ref().unwrap_or(config);
    if let Some(catalog) = &catalog {
        checks.add("channels", || Ok(channels(catalog, current)))?;
    }
    if folder.is_ok() {
        checks.add("journal", || journal(&compose::journal_folder(&config.data), control))?;
    }
    // Backups are made of SQLite only.
    if let Ok(StoreUrl::Sqlite(database)) = compose::store_url(current) {
        checks.add("backups", || Ok(backups::check(current, &database, compose::now())))?;
    }
    if config.export_endpoint.is_some() {
        checks.add("export", || Ok(export(config, control)))?;
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
    fn add<L: Into<Level>>(
        &mut self,
        what: &'static str,
        check: impl FnOnce() -> Result<(L, String), Failure>,
    ) -> Result<(), Failure> {
        self.control.check()?;
        self.control.report(what, self.items.len() as u64, None);
        let (level, text) = check()?;
        let level = level.into();
        self.items.push(Finding { note: level == Level::Note, ..Finding::new(what, level != Level::Fault, text) });
        Ok(())
    }
}

fn disk(config: &Config) -> (bool, String) {
    let reserve = disk_watch::reserve(config);
    let (has_space, free) = (!reserve.is_full(), size_text(reserve.free()));
    let text = if has_space {
        format!("{free} free")
    } else {
        format!("full ({free} free): nothing can be booked, and a start may have to wait; free some space")
    };
    (has_space, text)
}

fn open_files(connections: usize, requests: usize) -> (Level, String) {
    let found = descriptors::check(connections, requests);
    match (found.fits, found.may_serve) {
        (true, _) => (Level::Good, found.text),
        (false, true) => (Level::Note, found.text),
        (false, false) => (Level::Fault, found.text),
    }
}

/// Opens the database and reads its catalog.
fn database(config: &Config, loaded: &mut Option<Catalog>) -> (bool, String) {
    let opened = compose::block_on(async {
        let store = compose::open_as(config, AccessMode::Command).await?;
        let catalog = store.catalog.load().await;
        store.close().await;
        let catalog = catalog?;
        Ok((format!("{}, catalog revision {}", store.database, catalog.revision.0), catalog))
    });
    match opened {
        Ok((text, catalog)) => {
            *loaded = Some(catalog);
            (true, text)
        }
        Err(failure) => (false, failure.to_string()),
    }
}

/// Number of enabled channels, and the catalog warnings that `tollgate check` prints.
fn channels(catalog: &Catalog, config: &Config) -> (Level, String) {
    let on = catalog.channels.values().filter(|channel| channel.spec.on).count();
    let text = format!("{on} of {} channels are on", catalog.channels.len());
    let mut warnings = address_lists::warnings(catalog, config);
    warnings.extend(catalog_warnings(catalog, &[], compose::now()));
    if warnings.is_empty() {
        return (Level::Good, text);
    }
    let shown = warnings.iter().take(MAX_WARNINGS).map(String::as_str).collect::<Vec<_>>().join("; ");
    let more = warnings.len().saturating_sub(MAX_WARNINGS);
    let more = if more > 0 { format!("; and {more} more, which `tollgate check` lists") } else { String::new() };
    (Level::Note, format!("{text}; {shown}{more}"))
}

/// Lead of this machine's clock over that of Redis, in microseconds.
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

/// Writes an object to the storage that usage records are exported to, and reports the days that are late.
fn export(config: &Config, control: &WorkControl) -> (Level, String) {
    let checked = compose::block_on(async {
        let target = ExportTarget::required(config)?;
        let checked = Storage::new(&target, config, control).once().check().await;
        checked.map_err(|fault| Failure::Machine(format!("{}: {fault}", target.shown())))?;
        Ok(target.shown())
    });
    let target = match checked {
        Ok(target) => target,
        Err(failure) => return (Level::Fault, failure.to_string()),
    };
    let late = compose::block_on(async {
        let Some(store) = compose::open_existing(config).await? else { return Ok(None) };
        // A day later than they are due.
        let until = export_days::first_unfinished(compose::now(), config.number("export.delay_minutes")) - 1;
        let late = export_days::unexported(&store, until).await;
        let failure = store.exports.export_failure().await;
        store.close().await;
        Ok(late?.first().map(|day| (day.day, failure.ok().flatten())))
    });
    match late {
        Ok(None) => (Level::Good, format!("{target} takes objects")),
        Ok(Some((day, failure))) => {
            let why = failure.map_or_else(|| "the next export adds them".to_owned(), |failure| failure.message);
            (Level::Note, format!("{target} takes objects; records of {} and later are not exported: {why}", day_text(day)))
        }
        // The check of the database reports why it cannot be opened.
        Err(_) => (Level::Note, format!("{target} takes objects; it is not known what is exported")),
    }
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
