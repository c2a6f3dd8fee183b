//! A conversation of an agent: three turns, and the checks of printed answers, upstream requests and usage records.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testkit::{ReceivedRequest, TestGateway, Upstream};

use super::{
    Family,
    agent::{Agent, Turn},
};
use crate::shell;

/// Longest time of a turn, in which an agent starts, sends two requests and exits.
const TURN_TIMEOUT: Duration = Duration::from_mins(2);
/// Contents of the two files; prompts do not contain them.
const WORDS: [&str; 2] = ["the first word is heron", "the second word is otter"];
/// Number of a missing file.
const MISSING: usize = 9;
const LAST_WORDS: &str = "that was all of it";

/// An agent in a folder with files, before a gateway.
pub(super) struct Conversation<'a> {
    agent: &'a Agent,
    program: &'a Path,
    upstream: &'a Upstream,
    gateway: &'a TestGateway,
    folder: TempDir,
}

impl<'a> Conversation<'a> {
    pub(super) fn begin(agent: &'a Agent, program: &'a Path, upstream: &'a Upstream, gateway: &'a TestGateway) -> Result<Self> {
        let folder = shell::temp_dir("tollgate-agents-")?;
        for name in ["home", "work"] {
            fs::create_dir(folder.path().join(name))?;
        }
        let conversation = Self { agent, program, upstream, gateway, folder };
        for (number, words) in WORDS.iter().enumerate() {
            fs::write(conversation.file(number), format!("{words}\n"))?;
        }
        Ok(conversation)
    }

    fn file(&self, number: usize) -> PathBuf {
        self.folder.path().join("work").join(format!("note-{number}.txt"))
    }

    /// Two turns with the model of the first family, each with a call, and one with that of the second; returns a summary.
    pub(super) fn hold(&self, [family, next]: [&Family; 2]) -> Result<String> {
        let read = |number: usize| (self.agent.read_file)(&self.file(number));
        // Agents may send the failure first although the call of it is the second.
        for (number, prompt) in [read(0), format!("{}\n{}", read(1), read(MISSING))].iter().enumerate() {
            let answer = self.turn(prompt, family, number > 0)?;
            let results = answer.strip_prefix("results: ").unwrap_or_default().split(" | ");
            ensure!(results.count() == number + 1 && answer.contains(WORDS[number]), "turn {number} answered '{answer}'");
        }
        if self.agent.shows_thinking {
            let kept = self.kept_by_agent()?;
            ensure!(kept.contains("let me think"), "the agent has not kept the text of the thinking");
        }
        let answer = self.turn(&format!("say: {LAST_WORDS}"), next, true)?;
        ensure!(answer.starts_with(LAST_WORDS), "the turn with the model of {} answered '{answer}'", next.protocol);
        let received = self.upstream.received();
        self.check_received(&received, [family, next])?;
        self.check_records(&received, [family, next])?;
        let bytes: usize = received.iter().map(|request| request.body.len()).sum();
        Ok(format!("3 turns, {} requests upstream, {} KB", received.len(), bytes / 1000))
    }

    /// Everything in the agent's home.
    fn kept_by_agent(&self) -> Result<String> {
        let home = self.folder.path().join("home");
        shell::output(Command::new("grep").args(["--recursive", "--no-filename", "--text", ""]).arg(home))
    }

    /// Runs the agent for a turn and returns its answer.
    fn turn(&self, prompt: &str, family: &Family, continues: bool) -> Result<String> {
        let home = self.folder.path().join("home");
        let (gateway, key) = (self.gateway.address(), self.gateway.key());
        let turn = Turn { prompt, model: family.model, continues, gateway, key, home: &home };
        let [output, errors] = ["output", "errors"].map(|name| self.folder.path().join(name));
        let mut command = Command::new(self.program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", &home).current_dir(self.folder.path().join("work"));
        // Only the gateway can be reached, because port 9 of this machine is not a proxy.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("NO_PROXY", "127.0.0.1");
        (self.agent.arguments)(&mut command, &turn)?;
        command.stdin(Stdio::null()).stdout(File::create(&output)?).stderr(File::create(&errors)?);
        let mut process = command.spawn().context("the agent does not start")?;
        #[expect(clippy::disallowed_methods, reason = "developer commands read the clock")]
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = process.try_wait()? {
                break Some(status);
            }
            if begin.elapsed() > TURN_TIMEOUT {
                process.kill()?;
                process.wait()?;
                break None;
            }
            thread::sleep(Duration::from_millis(20));
        };
        let [printed, errors] = [output, errors].map(|file| fs::read_to_string(file).unwrap_or_default());
        match status {
            Some(status) if status.success() => {
                (self.agent.answer)(&printed).with_context(|| format!("the agent's errors:\n{errors}"))
            }
            Some(status) => bail!("the agent ended with {status}:\n{printed}\n{errors}"),
            None => bail!("the agent did not end within {TURN_TIMEOUT:?}:\n{printed}\n{errors}"),
        }
    }

    /// Checks the requests that the upstream got: two requests for each turn with a call, one for the last, each with the conversation so
    /// far.
    fn check_received(&self, received: &[ReceivedRequest], [family, next]: [&Family; 2]) -> Result<()> {
        let lines: Vec<&str> = received.iter().map(|request| request.line.as_str()).collect();
        ensure!(received.len() == 5, "the upstream got {} instead of 5 requests: {lines:?}", received.len());
        for (number, request) in received.iter().enumerate() {
            let family = if number < 4 { family } else { next };
            ensure!(request.line.contains(family.path), "request {number} went to {}", request.line);
            if family.protocol == self.agent.protocol {
                (self.agent.check_forwarded)(request).with_context(|| format!("request {number}"))?;
            }
            let text = String::from_utf8_lossy(&request.body);
            for (words, from) in [(WORDS[0], 1), (WORDS[1], 3)] {
                ensure!(text.contains(words) == (number >= from), "request {number} and '{words}': {text}");
            }
            if let Some(signature) = family.signature.filter(|_| (1..4).contains(&number)) {
                ensure!(text.contains(signature), "request {number} is without the model's signature: {text}");
            }
        }
        Ok(())
    }

    /// Checks for a completed record of each request, with the tokens that the upstream reported.
    fn check_records(&self, received: &[ReceivedRequest], [family, next]: [&Family; 2]) -> Result<()> {
        let mut records = Vec::new();
        tollgate_testkit::wait_for("a record of each request", Duration::from_secs(10), || {
            records = self.gateway.records();
            records.len() >= received.len()
        });
        ensure!(records.len() == received.len(), "{} requests and {} records", received.len(), records.len());
        for (number, record) in records.iter().enumerate() {
            let family = if number < 4 { family } else { next };
            let facts = |record: &Value| {
                ["outcome", "status", "protocol_in", "protocol_out", "model", "stream"].map(|name| record[name].clone())
            };
            let expected = json!(["completed", 200, self.agent.protocol, family.protocol, family.model, true]);
            ensure!(json!(facts(record)) == expected, "record {number} is {record}, not {expected}");
            let tokens = &record["tokens"];
            ensure!(tokens["output"].as_u64().is_some_and(|output| output >= 7), "record {number} has the tokens {tokens}");
        }
        Ok(())
    }
}
