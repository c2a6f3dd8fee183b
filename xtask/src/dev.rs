//! `cargo xtask dev`: runs a gateway with a scripted provider until Ctrl-C.

use std::{fs, path::Path};

use anyhow::Result;
use clap::Args;

use crate::{
    demo::{ADMIN, DemoPrograms, KEY, MEMBER, PASSWORD},
    shell,
};

const CATALOG: &str = include_str!("dev/catalog.toml");
const LISTEN: &str = "127.0.0.1:8080";
const PROVIDER: &str = "127.0.0.1:4010";

#[derive(Args)]
pub(crate) struct DevOptions {
    /// Four lines of catalog and an empty log instead of a month of history.
    #[arg(long)]
    empty: bool,
    /// Continue with the history of the last run, to which the gateway may have added.
    #[arg(long, conflicts_with = "empty")]
    keep: bool,
}

/// Runs both until the gateway exits.
pub(crate) fn run(options: &DevOptions) -> Result<()> {
    let programs = DemoPrograms::build()?;
    let folder = shell::work_folder().join("dev");
    fs::create_dir_all(&folder)?;
    let (_provider, _) = programs.provider(PROVIDER)?;
    let mut gateway = programs.serving(LISTEN);
    if options.empty {
        let catalog = folder.join("catalog.toml");
        fs::write(&catalog, CATALOG)?;
        gateway.arg("--catalog").arg(catalog).arg("--data").arg(folder.join("empty"));
        println!("key: {KEY}   models: chat-model, native-model, messages-model");
    } else {
        let data = folder.join("data");
        if !options.keep || !data.join("tollgate.db").exists() {
            programs.write_history(&data, PROVIDER)?;
        }
        gateway.arg("--data").arg(&data);
        announce(&data);
    }
    // Ctrl-C reaches the gateway too, which then ends.
    gateway.status()?;
    Ok(())
}

fn announce(data: &Path) {
    println!("console: http://{LISTEN}   sign in as {ADMIN} (admin) or {MEMBER} (member) with {PASSWORD}");
    println!("key:     {KEY}   models: claude-sonnet-5-5, gpt-6.1-sol, gemini-3.8-flash and more");
    println!("data:    {}   with --keep it is not written again", data.display());
}
