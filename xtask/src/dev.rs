//! `cargo xtask dev`: runs a gateway with a scripted provider until Ctrl-C.

use std::{fs, process::Command};

use anyhow::Result;

use crate::shell;

const CATALOG: &str = include_str!("dev/catalog.toml");

/// Runs both until the gateway exits.
pub(crate) fn run() -> Result<()> {
    shell::run(&mut shell::cargo(&["build", "--package", "tollgate", "--package", "tollgate-testkit", "--bins"]))?;
    let programs = shell::target_dir().join("debug");
    let folder = shell::workshop().join("dev");
    fs::create_dir_all(&folder)?;
    let catalog = folder.join("catalog.toml");
    fs::write(&catalog, CATALOG)?;
    let mut provider = Command::new(programs.join("scripted-provider")).args(["--listen", "127.0.0.1:4010"]).spawn()?;
    println!("key: dev-key-0123456789abcdef   models: chat-model, native-model, messages-model");
    let served = Command::new(programs.join("tollgate"))
        .args(["serve", "--catalog"])
        .arg(&catalog)
        .arg("--data")
        .arg(folder.join("data"))
        .status();
    provider.kill()?;
    provider.wait()?;
    served?;
    Ok(())
}
