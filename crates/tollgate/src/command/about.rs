//! `completions`, `man`, `version`.

use clap::CommandFactory;
use serde_json::json;

use crate::{
    cli::{Cli, Common},
    failure::Failure,
    output,
};

#[expect(clippy::unnecessary_wraps, reason = "all commands have this signature")]
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tollgate", &mut script);
    output::raw(&script);
    Ok(())
}

pub(crate) fn man() -> Result<(), Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut page)
        .map_err(|error| Failure::Machine(format!("cannot write the manual page: {error}")))?;
    output::raw(&page);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "all commands have this signature")]
pub(crate) fn version(common: &Common) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    output::result(common, &json!({"version": version}), &format!("tollgate {version}"));
    Ok(())
}
