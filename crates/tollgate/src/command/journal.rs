//! `journal`: prints the entries of the journal, which is binary on disk.

use tollgate_core::RequestId;
use tollgate_store::written_entries;

use crate::{
    cli::{Common, Journal},
    compose,
    failure::Failure,
    output,
};

/// Runs a subcommand.
pub(crate) fn run(common: &Common, subcommand: &Journal) -> Result<(), Failure> {
    match subcommand {
        Journal::Dump { request } => dump(common, request.as_deref()),
    }
}

/// Prints one JSON object a line. Unreadable entries are errors, printed at the end and between the lines.
fn dump(common: &Common, request: Option<&str>) -> Result<(), Failure> {
    let wanted = request.map(request_id).transpose()?;
    let config = compose::settings(common, &[])?;
    let failed = |error| compose::journal_failure(&error);
    let mut damage = None;
    for entry in written_entries(&compose::journal_folder(&config.data)).map_err(failed)? {
        match entry {
            Ok(entry) if wanted.is_none_or(|id| id == entry.id()) => {
                let mut line = serde_json::to_vec(&entry).expect("entries serialise to JSON");
                line.push(b'\n');
                if !output::raw(&line) {
                    return Ok(());
                }
            }
            Ok(_) => {}
            // The caller prints the last one.
            Err(error) => {
                if let Some(earlier) = damage.replace(failed(error)) {
                    output::failure(&earlier);
                }
            }
        }
    }
    damage.map_or(Ok(()), Err)
}

fn request_id(text: &str) -> Result<RequestId, Failure> {
    let example = "a request id looks like req_01k9v2m5x4r7t8w9y0z1a2b3c4";
    RequestId::parse(text).ok_or_else(|| Failure::Usage(format!("'{text}' is not a request id: {example}")))
}
