//! Codex CLI, which speaks Responses and is configured by a file.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tollgate_testkit::ReceivedRequest;

use super::agent::{Agent, Turn};

pub(super) const AGENT: Agent = Agent {
    name: "Codex",
    folder: "codex",
    program: "codex",
    protocol: "responses",
    read_file,
    arguments,
    answer,
    shows_thinking: true,
    check_forwarded,
};

fn read_file(path: &Path) -> String {
    format!("call: exec_command {}", json!({"cmd": format!("cat {}", path.display())}))
}

fn arguments(command: &mut Command, turn: &Turn<'_>) -> Result<()> {
    let folder = turn.home.join(".codex");
    fs::create_dir_all(&folder)?;
    let Turn { model, gateway, .. } = turn;
    // An effort makes models of every protocol show their thoughts.
    let config = format!(
        "model = \"{model}\"\nmodel_reasoning_effort = \"medium\"\nmodel_provider = \"tollgate\"\n\
         [model_providers.tollgate]\nname = \"tollgate\"\nbase_url = \"http://{gateway}/v1\"\nenv_key = \"TOLLGATE_KEY\"\n\
         wire_api = \"responses\"\n"
    );
    fs::write(folder.join("config.toml"), config)?;
    command.env("TOLLGATE_KEY", turn.key);
    // The kernel of a container has no sandbox; the agent runs only the commands of the scripted model.
    command.args(["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]);
    if turn.continues {
        command.args(["resume", "--last"]);
    }
    command.arg(turn.prompt);
    Ok(())
}

fn answer(printed: &str) -> Result<String> {
    let events: Vec<Value> = printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    ensure!(events.iter().any(|event| event["type"] == "turn.completed"), "the turn failed: {printed}");
    let messages = events.iter().filter(|event| event["item"]["type"] == "agent_message");
    let last = messages.filter_map(|event| event["item"]["text"].as_str()).next_back();
    Ok(last.context("no message of the agent")?.to_owned())
}

fn check_forwarded(request: &ReceivedRequest) -> Result<()> {
    let body = request.json();
    ensure!(body["client_metadata"].is_object() && body["prompt_cache_key"].is_string(), "members of Codex are missing: {body}");
    let kinds: Vec<&str> = body["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["type"].as_str()).collect();
    ensure!(kinds.contains(&"namespace") && kinds.contains(&"web_search"), "the upstream got tools of the kinds {kinds:?}");
    Ok(())
}
