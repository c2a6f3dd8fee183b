//! `verify`: checks that ledger, balances, usage records and journal agree. Exit code 1 with a list of differences if they do not,
//! or if the journal has records that cannot be written to the database.

use serde_json::json;

use crate::{
    cli::Common,
    command::job,
    compose,
    failure::Failure,
    output,
    work::verify::{VerifyOutcome, verify},
};

/// Maximum number of rejected records listed in the output.
const MAX_LISTED: usize = 100;

pub(crate) fn run(common: &Common) -> Result<(), Failure> {
    let here = |control: &_| verify(&compose::settings(common, &[])?, control);
    let outcome: VerifyOutcome = job::run(common, &json!({"kind": "verify"}), here)?;
    if common.json {
        output::json(&serde_json::to_value(&outcome).expect("texts and numbers are valid JSON"));
    } else {
        print(&outcome);
    }
    outcome.failure().map_or(Ok(()), Err)
}

fn print(outcome: &VerifyOutcome) {
    output::line(&format!(
        "{}, {}, {}, {}",
        output::counted(outcome.members, "balance", "balances"),
        output::counted(outcome.ledger_entries, "ledger entry", "ledger entries"),
        output::counted(outcome.records, "record", "records"),
        output::counted(outcome.attempts, "attempt", "attempts")
    ));
    if let Some(message) = &outcome.removed_message {
        output::line(message);
    }
    let waiting = outcome.waiting_in_journal;
    if waiting > 0 {
        let writer = if outcome.served { "the running gateway" } else { "the next start" };
        let (waits, them) = if waiting == 1 { ("record waits", "it") } else { ("records wait", "them") };
        output::line(&format!("{waiting} {waits} in the journal; {writer} writes {them} to the database"));
    }
    if outcome.begun_in_journal > 0 {
        let what = match (outcome.served, outcome.begun_in_journal) {
            (true, 1) => "request is in progress",
            (true, _) => "requests are in progress",
            (false, 1) => "request was cut by a kill; the next start records it",
            (false, _) => "requests were cut by a kill; the next start records them",
        };
        output::line(&format!("{} {what}", outcome.begun_in_journal));
    }
    if outcome.in_memory_only > 0 {
        output::line(&format!(
            "{} more requests are recorded in the running gateway's memory only, because its journal is full",
            outcome.in_memory_only
        ));
    }
    if outcome.agrees {
        output::line("everything agrees");
    }
}

impl VerifyOutcome {
    /// The error of the command when something is wrong.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let mut lines = Vec::new();
        if !self.differences.is_empty() {
            lines.push("the books do not agree:".to_owned());
            lines.extend(self.differences.iter().map(|difference| difference.message.clone()));
            if self.more_differences > 0 {
                lines.push(format!("and {} more", self.more_differences));
            }
        }
        lines.extend(self.journal_faults.iter().cloned());
        if !self.refused_by_database.is_empty() {
            let (count, named) = (self.refused_by_database.len(), self.refused_by_database.iter().take(MAX_LISTED));
            let named: Vec<&str> = named.map(String::as_str).collect();
            lines.push(format!(
                "{count} records wait in the journal because the database rejects them (see the log; each start tries them again): {}",
                named.join(" ")
            ));
        }
        (!lines.is_empty()).then(|| Failure::Machine(lines.join("\n")))
    }
}
