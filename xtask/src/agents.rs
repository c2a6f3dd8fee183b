//! `cargo xtask agents`: coding agents from their public packages, run without a terminal, against the real binary. The upstreams
//! are scripted models of each protocol.
//!
//! An agent is a row of [`AGENTS`]. Each reads a file through a tool in one turn, another file and a missing one in the next, and
//! then continues with the model of another protocol, which gets a conversation that another model has led. The answers contain
//! what was in the files, so they show that tools and results passed in both directions. It is not part of `check`, because
//! an agent is a download of hundreds of megabytes.

mod agent;
mod claude_code;
mod codex;
mod conversation;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use tollgate_testkit::{TestGateway, Upstream};

use crate::{npm, shell};
use agent::Agent;
use conversation::Conversation;

/// Every agent.
const AGENTS: [Agent; 3] = [claude_code::AGENT, claude_code::WITHOUT_EXPERIMENTS, codex::AGENT];

/// A kind of upstream, and its model in the catalog of `sdk-tests`.
struct Family {
    protocol: &'static str,
    model: &'static str,
    /// Part of its requests' paths.
    path: &'static str,
    /// The signature that the model gives its turns with calls, and requires in the next request.
    signature: Option<&'static str>,
}

const FAMILIES: [Family; 4] = [
    Family { protocol: "openai", model: "chat-model", path: "/chat/completions", signature: None },
    Family {
        protocol: "gemini",
        model: "native-model",
        path: ":streamGenerateContent",
        signature: Some(tollgate_testkit::provider::GEMINI_SIGNATURE),
    },
    Family {
        protocol: "anthropic",
        model: "messages-model",
        path: "/messages",
        signature: Some(tollgate_testkit::provider::ANTHROPIC_SIGNATURE),
    },
    Family {
        protocol: "responses",
        model: "responses-model",
        path: "/responses",
        signature: Some(tollgate_testkit::provider::RESPONSES_SEAL),
    },
];

/// `cargo xtask agents`.
#[derive(clap::Args)]
pub(crate) struct AgentsOptions {
    /// Only the agents of this package.
    #[arg(long)]
    agent: Option<String>,
    /// Writes the requests that the upstreams got into this folder.
    #[arg(long)]
    save: Option<PathBuf>,
}

/// Installs the agents and runs each over each family.
pub(crate) fn run(options: &AgentsOptions) -> Result<()> {
    let chosen: Vec<&Agent> =
        AGENTS.iter().filter(|agent| options.agent.as_deref().is_none_or(|only| only == agent.folder)).collect();
    ensure!(!chosen.is_empty(), "unknown agent; agents are {}", AGENTS.map(|agent| agent.folder).join(", "));
    shell::build_programs(&["tollgate"])?;
    let mut failures = Vec::new();
    for agent in chosen {
        let source = shell::root().join("sdk-tests/agents").join(agent.folder);
        let installed = npm::install(&source, &format!("agents/{}", agent.folder), agent.name)?;
        let program = installed.context("there is no npm")?.join("node_modules/.bin").join(agent.program);
        let version = shell::output(Command::new(&program).arg("--version")).context("the agent does not start")?;
        println!("{}: {}", agent.name, version.trim());
        for (number, family) in FAMILIES.iter().enumerate() {
            let next = &FAMILIES[(number + 1) % FAMILIES.len()];
            match converse(agent, &program, [family, next], options) {
                Ok(summary) => println!("    {}: {summary}", family.protocol),
                Err(error) => {
                    println!("    {}: {error:#}", family.protocol);
                    failures.push(format!("{} over {}", agent.name, family.protocol));
                }
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { bail!("failed: {}", failures.join(", ")) }
}

/// A conversation of two turns with one model and a third with another, on a gateway of its own.
fn converse(agent: &Agent, program: &Path, families: [&Family; 2], options: &AgentsOptions) -> Result<String> {
    let upstream = Upstream::with_model();
    let catalog = fs::read_to_string(shell::root().join("sdk-tests/catalog.toml"))?;
    let catalog = catalog.replace("PROVIDER", &upstream.address().to_string()).replace("sdk-tests-key-0123456789abcdef", "{key}");
    let tollgate = shell::target_dir().join("debug/tollgate");
    let gateway = TestGateway::builder(&tollgate.to_string_lossy()).catalog(&catalog).spawn();
    let conversation = Conversation::begin(agent, program, &upstream, &gateway)?;
    let result = conversation.hold(families);
    if let Some(folder) = &options.save {
        fs::create_dir_all(folder)?;
        for (number, request) in upstream.received().iter().enumerate() {
            let name = format!("{}-{}-{number}.json", agent.name.replace(' ', "-"), families[0].protocol);
            fs::write(folder.join(name), &request.body)?;
        }
    }
    result.with_context(|| format!("the gateway's log:\n{}", gateway.log()))
}
