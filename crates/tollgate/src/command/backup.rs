//! `backup` and `restore`: a gateway in one file, made while it serves.

use serde_json::json;
use tollgate_core::Secret;
use tollgate_store::{BackupReport, BackupSource, RandomSource, RestoreReport, RestoreTarget, StoreUrl, back_up, restore};

use crate::{
    cli::{Backup, Common, Restore},
    compose, config,
    failure::Failure,
    output, traffic_snapshot,
};

/// Makes a backup.
pub(crate) fn run_backup(common: &Common, arguments: &Backup) -> Result<(), Failure> {
    let config = compose::settings(common, &[])?;
    let passphrase = passphrase(arguments.passphrase.as_deref())?;
    if arguments.with_secrets && passphrase.is_none() {
        return Err(Failure::Usage(
            "--with-secrets seals the master key under a passphrase: name it with --passphrase file:PATH".to_owned(),
        ));
    }
    if !arguments.with_secrets && passphrase.is_some() {
        return Err(Failure::Usage("--passphrase is for --with-secrets".to_owned()));
    }
    let source = BackupSource {
        url: compose::store_url(&config)?,
        data: config.data.clone(),
        master: compose::master_key(&config)?,
        passphrase,
        random: RandomSource::system(),
        now: compose::now(),
    };
    if let StoreUrl::Sqlite(path) = &source.url
        && !path.exists()
    {
        return Err(Failure::Machine(format!("there is no database at {}; check --data", path.display())));
    }
    let in_memory_only = traffic_snapshot::read(&config.data, compose::now()).in_memory_only;
    let report = back_up(&source, &arguments.file)?;
    print_backup(common, arguments, &source, &report, in_memory_only);
    Ok(())
}

fn passphrase(reference: Option<&str>) -> Result<Option<Secret>, Failure> {
    let Some(reference) = reference else { return Ok(None) };
    if !["env:", "file:"].iter().any(|prefix| reference.starts_with(prefix)) {
        return Err(Failure::Usage(
            "--passphrase takes env:NAME or file:PATH, so that it does not show in process lists".to_owned(),
        ));
    }
    let text = config::reference(reference).map_err(|fault| Failure::invalid(format!("--passphrase: {fault}")))?;
    if text.is_empty() {
        return Err(Failure::invalid("--passphrase: it is empty"));
    }
    Ok(Some(Secret::new(text)))
}

fn print_backup(common: &Common, arguments: &Backup, source: &BackupSource, report: &BackupReport, in_memory_only: usize) {
    let BackupReport { records, segments, has_master_key, bytes } = report;
    let file = arguments.file.display().to_string();
    if common.json {
        output::json(&json!({
            "file": file, "bytes": bytes, "records": records, "journal_segments": segments, "master_key": has_master_key,
            "database": records.is_some(), "in_memory_only": in_memory_only,
        }));
        return;
    }
    let database = records.map_or_else(String::new, |records| format!("database with {records} records, checked; "));
    output::line(&format!("{file}: {database}journal with {segments} segments; {bytes} bytes"));
    if common.quiet {
        return;
    }
    if in_memory_only > 0 {
        output::line(&format!(
            "{in_memory_only} requests are not in it: the running gateway has them in memory only, because its journal is full"
        ));
    }
    if records.is_none() {
        output::line(&format!(
            "the database is not in it: copy it now with PostgreSQL's own tools, such as: pg_dump --format=custom --file=tollgate.dump {}",
            source.url.shown()
        ));
        output::line("make a backup of every node first and of the database last: then no record is in neither");
    }
    if !has_master_key {
        output::line("the master key is not in it: keep a separate copy, or use --with-secrets");
    }
}

/// Restores a backup.
pub(crate) fn run_restore(common: &Common, arguments: &Restore) -> Result<(), Failure> {
    let config = compose::settings(common, &[])?;
    let target = RestoreTarget {
        url: compose::store_url(&config)?,
        data: config.data.clone(),
        master: compose::master_key(&config)?,
        passphrase: passphrase(arguments.passphrase.as_deref())?,
        random: RandomSource::system(),
    };
    let report = restore(&arguments.file, &target)?;
    let RestoreReport { made_at, records, segments, has_master_key, left_master_key } = report;
    let data = config.data.display().to_string();
    if common.json {
        output::json(&json!({
            "data": data, "made_at": made_at.to_string(), "records": records, "journal_segments": segments, "master_key": has_master_key,
        }));
        return Ok(());
    }
    let database = records.map_or_else(String::new, |records| format!("database with {records} records, "));
    output::line(&format!("restored into {data}, as of {made_at}: {database}journal with {segments} segments"));
    if common.quiet {
        return Ok(());
    }
    if !has_master_key {
        let from = if left_master_key { ", or restore again into another folder with --passphrase" } else { "" };
        output::line(&format!("the master key is missing: put it at {data}/master.key, or set TOLLGATE_MASTER_KEY{from}"));
    }
    output::line("check it with `tollgate verify`, then start the gateway with `tollgate serve`");
    Ok(())
}
