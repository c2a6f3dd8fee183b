//! Installs and starts the peers.
//!
//! Each has one upstream and its default logging. Options that would fetch anything from the network are switched off.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::{BenchTarget, Peer, start_in};
use crate::{bench::targets::KEY, shell};

const LITELLM: &str = "1.106.2";
const PORTKEY: &str = "1.15.2";
/// The HTTP server below Portkey. Its streams fail with newer versions, which its package also allows.
const PORTKEY_SERVER: &str = "1.13.7";

/// LiteLLM's keys begin with `sk-`.
const LITELLM_KEY: &str = "sk-bench-key-0123456789abcdefghijklmnop";

/// Settings of LiteLLM that make it use the lists in its package instead of those on the network.
const LITELLM_OFFLINE: [&str; 5] = [
    "LITELLM_LOCAL_MODEL_COST_MAP",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS",
    "LITELLM_LOCAL_BLOG_POSTS",
    "LITELLM_LOCAL_POLICY_TEMPLATES",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS",
];

/// Portkey listens on every address; this makes it listen on loopback.
const LOOPBACK_ONLY: &str = "const { Server } = require('node:net');\n\
    const listen = Server.prototype.listen;\n\
    Server.prototype.listen = function (port, ...rest) {\n\
    \x20 return listen.call(this, port, '127.0.0.1', ...rest.filter((each) => typeof each === 'function'));\n\
    };\n";

/// LiteLLM with one worker for each core, a master key and no database.
pub(super) fn start_litellm(folder: &Path, port: u16, upstream: &str, workers: usize) -> Result<Peer> {
    let home = installed("litellm", LITELLM, install_litellm)?;
    let folder = new_folder(folder, "litellm")?;
    let config = format!(
        "model_list:\n  - model_name: bench-chat\n    litellm_params:\n      model: openai/bench-chat\n      \
         api_base: http://{upstream}/v1\n      api_key: bench\ngeneral_settings:\n  master_key: {LITELLM_KEY}\n"
    );
    fs::write(folder.join("config.yaml"), config)?;
    let mut command = Command::new(home.join("bin/litellm"));
    command.args(["--config", "config.yaml", "--host", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--num_workers", &workers.to_string(), "--timeout_worker_healthcheck", "300"]);
    command.envs(LITELLM_OFFLINE.map(|name| (name, "True"))).env_remove("DATABASE_URL").env_remove("REDIS_URL");
    let process = start_in(&folder, &mut command)?;
    wait_for_workers(&folder.join("log"), workers)?;
    let mut target = BenchTarget::new("LiteLLM", &format!("127.0.0.1:{port}"), Some(process.0.id()), "bench-chat");
    target.key = LITELLM_KEY;
    let python = shell::output(Command::new(home.join("bin/python")).arg("--version"))?;
    Ok(Peer { target, version: format!("{LITELLM}, {}", python.trim()), process })
}

/// Portkey as one process, without its console. It has no keys of its own and passes on the caller's.
pub(super) fn start_portkey(folder: &Path, port: u16, upstream: &str) -> Result<Peer> {
    let home = installed("portkey", PORTKEY, install_portkey)?;
    let folder = new_folder(folder, "portkey")?;
    fs::write(folder.join("loopback.cjs"), LOOPBACK_ONLY)?;
    let mut command = Command::new("node");
    command.args(["--require", "./loopback.cjs"]).arg(home.join("node_modules/@portkey-ai/gateway/build/start-server.js"));
    command.args([&format!("--port={port}"), "--headless"]).env("NODE_ENV", "production");
    let process = start_in(&folder, &mut command)?;
    let mut target = BenchTarget::new("Portkey", &format!("127.0.0.1:{port}"), Some(process.0.id()), "bench-chat");
    target.key = KEY;
    target.headers = vec!["x-portkey-provider: openai".to_owned(), format!("x-portkey-custom-host: http://{upstream}/v1")];
    let node = shell::output(Command::new("node").arg("--version"))?;
    Ok(Peer { target, version: format!("{PORTKEY}, Node.js {}", node.trim().trim_start_matches('v')), process })
}

fn install_litellm(home: &Path) -> Result<()> {
    shell::output(Command::new("python3").args(["-m", "venv"]).arg(home))?;
    let mut pip = Command::new(home.join("bin/pip"));
    shell::output(pip.args(["install", "--quiet", "--disable-pip-version-check", &format!("litellm[proxy]=={LITELLM}")])).map(drop)
}

fn install_portkey(home: &Path) -> Result<()> {
    fs::create_dir_all(home)?;
    let manifest = json!({
        "private": true,
        "dependencies": {"@portkey-ai/gateway": PORTKEY},
        "overrides": {"@hono/node-server": PORTKEY_SERVER},
    });
    fs::write(home.join("package.json"), manifest.to_string())?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]);
    shell::output(npm.current_dir(home)).map(drop)
}

/// The folder of a package, which is installed first unless this version is there.
fn installed(name: &str, version: &str, install: fn(&Path) -> Result<()>) -> Result<PathBuf> {
    let home = shell::work_folder().join(name);
    let mark = home.join("installed-version");
    if fs::read_to_string(&mark).is_ok_and(|own| own == version) {
        return Ok(home);
    }
    println!("installing {name} {version}");
    let _ = fs::remove_dir_all(&home);
    install(&home).with_context(|| format!("cannot install {name} {version}"))?;
    fs::write(mark, version)?;
    Ok(home)
}

fn new_folder(folder: &Path, name: &str) -> Result<PathBuf> {
    let folder = folder.join(name);
    fs::create_dir(&folder)?;
    Ok(folder)
}

/// Waits until each worker says that it has started.
fn wait_for_workers(log: &Path, workers: usize) -> Result<()> {
    for _ in 0..600 {
        let text = fs::read_to_string(log).unwrap_or_default();
        if text.matches("Application startup complete").count() >= workers {
            return Ok(());
        }
        sleep(Duration::from_millis(500));
    }
    bail!("its workers did not start within 5 minutes")
}
