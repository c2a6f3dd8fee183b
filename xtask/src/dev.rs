//! `cargo xtask dev`: runs a gateway with a scripted provider until Ctrl-C.

use std::{fs, process::Command};

use anyhow::Result;

use crate::shell;

const CATALOG: &str = r#"# Written by `cargo xtask dev`; the provider answers on all three protocols.
[[channel]]
name = "chat"
provider = "compatible"
protocol = "openai"
base_url = "http://127.0.0.1:4010/v1"
private_network = true
[[channel.account]]
name = "chat"
credential = "dev-credential"
[[channel.serves]]
model = "chat-model"
cost = { input = "0.25", output = "2.00" }

[[channel]]
name = "native"
provider = "compatible"
protocol = "gemini"
base_url = "http://127.0.0.1:4010/v1beta"
private_network = true
[[channel.account]]
name = "native"
credential = "dev-credential"
[[channel.serves]]
model = "native-model"
cost = { input = "0.25", output = "2.00" }

[[channel]]
name = "messages"
provider = "anthropic"
base_url = "http://127.0.0.1:4010/v1"
private_network = true
[[channel.account]]
name = "messages"
credential = "dev-credential"
[[channel.serves]]
model = "messages-model"
cost = { input = "0.25", output = "2.00" }

[[model]]
name = "chat-model"
price = { input = "0.30", output = "2.40" }

[[group]]
name = "default"
channels = ["chat", "native", "messages"]

[[key]]
name = "dev"
groups = ["default"]
secret = "dev-key-0123456789abcdef"
"#;

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
        .arg("serve")
        .arg("--catalog")
        .arg(&catalog)
        .arg("--data")
        .arg(folder.join("data"))
        .status();
    provider.kill()?;
    provider.wait()?;
    served?;
    Ok(())
}
