//! `backup` and `restore`: a gateway in one file, made while it serves.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde_json::json;
use tollgate_core::Secret;
use tollgate_store::{RandomSource, RestoreReport, RestoreTarget, WorkControl, restore};

use crate::{
    admin::{self, AdminRequest, ApiPath},
    cli::{Backup, Common, Restore},
    command::job,
    compose, config,
    failure::Failure,
    output,
    work::{
        backup::{BackupOutcome, backup},
        backup_check::{BackupCheckOutcome, check},
    },
};

/// Makes a backup.
pub(crate) fn run_backup(common: &Common, arguments: &Backup) -> Result<(), Failure> {
    let is_remote = job::is_remote(common);
    if is_remote && (arguments.with_secrets || arguments.passphrase.is_some()) {
        return Err(Failure::Usage(
            "the master key does not leave its machine over the admin API, so that an admin key cannot read credentials: back up \
             without --with-secrets and keep a copy of the master key elsewhere, or run the command on the gateway's machine"
                .to_owned(),
        ));
    }
    let passphrase = passphrase(arguments.passphrase.as_deref())?;
    if arguments.with_secrets && passphrase.is_none() {
        return Err(Failure::Usage(
            "--with-secrets seals the master key under a passphrase: name it with --passphrase file:PATH".to_owned(),
        ));
    }
    if !arguments.with_secrets && passphrase.is_some() {
        return Err(Failure::Usage("--passphrase is for --with-secrets".to_owned()));
    }
    let outcome = if is_remote {
        remote_backup(common, &arguments.file)?
    } else {
        job::here(common, |control| backup(&compose::settings(common, &[])?, passphrase, &arguments.file, control))?
    };
    print_backup(common, &outcome);
    Ok(())
}

/// Has the gateway make a backup, moves it here, and removes it there.
fn remote_backup(common: &Common, file: &Path) -> Result<BackupOutcome, Failure> {
    if file.exists() {
        let file = file.display();
        return Err(Failure::Machine(format!("the backup {file}: the file exists already and is not replaced; give another name")));
    }
    let outcome: BackupOutcome = job::remote(common, &json!({"kind": "backup"}))?;
    let path = ApiPath::of(&["backups", &outcome.file]);
    admin::run(common, async |admin| {
        let kept = |failure: Failure| {
            let text = format!("{failure}; the backup stays on the gateway's disk as {}", outcome.file);
            if matches!(failure, Failure::Unreachable(_)) { Failure::Unreachable(text) } else { Failure::Machine(text) }
        };
        let draft = named_beside(file, "new");
        let fetched = async {
            let bytes = admin.download(&path, &mut create(&draft)?).await?;
            if bytes != outcome.bytes {
                return Err(Failure::Machine(format!("{bytes} of its {} bytes arrived", outcome.bytes)));
            }
            fs::hard_link(&draft, file).map_err(|error| cannot_write(file, &error))
        };
        let fetched = fetched.await;
        let _ = fs::remove_file(&draft);
        fetched.map_err(kept)?;
        admin.send(AdminRequest::delete(&path)).await?;
        Ok(())
    })?;
    Ok(BackupOutcome { file: file.display().to_string(), ..outcome })
}

fn named_beside(file: &Path, what: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{what}-{}", std::process::id()));
    PathBuf::from(name)
}

fn create(path: &Path) -> Result<File, Failure> {
    File::options().write(true).create_new(true).open(path).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Machine(format!("cannot write {}: {error}", path.display()))
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

fn print_backup(common: &Common, outcome: &BackupOutcome) {
    if common.json {
        output::json(&serde_json::to_value(outcome).expect("texts and numbers are valid JSON"));
        return;
    }
    let BackupOutcome { file, bytes, records, journal_segments, master_key, database_address, in_memory_only, .. } = outcome;
    let database = records.map_or_else(String::new, |records| format!("database with {records} records, checked; "));
    output::line(&format!("{file}: {database}journal with {journal_segments} segments; {bytes} bytes"));
    if common.quiet {
        return;
    }
    if *in_memory_only > 0 {
        output::line(&format!(
            "{in_memory_only} requests are not in it: the running gateway has them in memory only, because its journal is full"
        ));
    }
    if let Some(address) = database_address {
        output::line(&format!(
            "the database is not in it: copy it now with PostgreSQL's own tools, such as: pg_dump --format=custom --file=tollgate.dump \
             {address}"
        ));
        output::line("back up every node first and the database last, so that no record is missing from both");
    }
    if !master_key {
        output::line("the master key is not in it: keep a separate copy, or use --with-secrets");
    }
}

/// Restores a backup.
pub(crate) fn run_restore(common: &Common, arguments: &Restore) -> Result<(), Failure> {
    if arguments.check {
        return run_check(common, &arguments.file);
    }
    let config = compose::settings(common, &[])?;
    let target = RestoreTarget {
        url: compose::store_url(&config)?,
        data: config.data.clone(),
        master: compose::master_key(&config)?,
        passphrase: passphrase(arguments.passphrase.as_deref())?,
        random: RandomSource::system(),
    };
    let report = restore(&arguments.file, &target, &WorkControl::unattended())?;
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

/// Checks a local backup, or one on the disk of a running gateway.
fn run_check(common: &Common, file: &Path) -> Result<(), Failure> {
    let here = |control: &_| check(&compose::settings(common, &[])?, file, named_beside(file, "check"), control);
    let outcome: BackupCheckOutcome = job::run(common, &json!({"kind": "backup_check", "name": file.display().to_string()}), here)?;
    if common.json {
        output::json(&serde_json::to_value(&outcome).expect("texts and numbers are valid JSON"));
    } else {
        print_check(&outcome);
    }
    outcome.failure().map_or(Ok(()), Err)
}

fn print_check(outcome: &BackupCheckOutcome) {
    let BackupCheckOutcome { file, made_at, journal_segments, records, schema, known_schema, verified } = outcome;
    let database = records.map_or_else(String::new, |records| format!("database with {records} records, "));
    output::line(&format!("{file}: whole, as of {made_at}: {database}journal with {journal_segments} segments"));
    match schema {
        Some(schema) if schema == known_schema => output::line(&format!("schema {schema}, that of this tollgate")),
        Some(schema) => output::line(&format!("schema {schema}; this tollgate changes it to {known_schema} when it starts")),
        None => output::line("the database is not in it: it is on PostgreSQL"),
    }
    if verified.as_ref().is_some_and(|verified| verified.agrees) {
        output::line("it can be restored, and its sums agree");
    }
}
