//! Claude Code, which speaks Messages. It leaves out the text of thinking unless its experimental features are off, and then also
//! sends other members and tools: these are two agents for the gateway.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tollgate_testkit::ReceivedRequest;

use super::agent::{Agent, Turn};

pub(super) const AGENT: Agent = Agent {
    name: "Claude Code",
    folder: "claude-code",
    program: "claude",
    protocol: "anthropic",
    read_file,
    arguments: |command, turn| {
        arguments(command, turn);
        Ok(())
    },
    answer,
    shows_thinking: false,
    check_forwarded,
};

pub(super) const WITHOUT_EXPERIMENTS: Agent = Agent {
    name: "Claude Code without experimental features",
    arguments: |command, turn| {
        arguments(command, turn);
        command.env("CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS", "1");
        Ok(())
    },
    shows_thinking: true,
    ..AGENT
};

fn read_file(path: &Path) -> String {
    format!("call: Read {}", json!({"file_path": path}))
}

fn arguments(command: &mut Command, turn: &Turn<'_>) {
    command.env("ANTHROPIC_BASE_URL", format!("http://{}", turn.gateway)).env("ANTHROPIC_AUTH_TOKEN", turn.key);
    for switch in ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY"] {
        command.env(switch, "1");
    }
    command.args(["--print", turn.prompt, "--output-format", "json", "--model", turn.model, "--allowed-tools", "Read"]);
    if turn.continues {
        command.arg("--continue");
    }
}

fn answer(printed: &str) -> Result<String> {
    let result: Value = serde_json::from_str(printed).with_context(|| format!("it printed no JSON: {printed}"))?;
    ensure!(result["type"] == "result" && result["is_error"] == false, "the turn failed: {result}");
    Ok(result["result"].as_str().context("a result without a text")?.to_owned())
}

fn check_forwarded(request: &ReceivedRequest) -> Result<()> {
    let betas = request.header("anthropic-beta").unwrap_or_default();
    ensure!(betas.contains("claude-code-"), "the upstream got the features '{betas}'");
    let body = request.json();
    ensure!(body["metadata"]["user_id"].is_string(), "`metadata` is not in the request");
    let is_cached = body["system"].as_array().is_some_and(|system| system.iter().any(|block| block["cache_control"].is_object()));
    ensure!(is_cached, "no `cache_control` in `system`: {}", body["system"]);
    Ok(())
}
