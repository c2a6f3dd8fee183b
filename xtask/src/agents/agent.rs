//! The differences between agents.

use std::{net::SocketAddr, path::Path, process::Command};

use anyhow::Result;
use tollgate_testkit::ReceivedRequest;

/// A turn of a conversation, as its command needs it.
pub(crate) struct Turn<'a> {
    pub(crate) prompt: &'a str,
    pub(crate) model: &'a str,
    /// Whether the agent continues the conversation of this folder.
    pub(crate) continues: bool,
    pub(crate) gateway: SocketAddr,
    pub(crate) key: &'a str,
    /// Home of the agent, with its stored state.
    pub(crate) home: &'a Path,
}

/// A coding agent.
pub(crate) struct Agent {
    pub(crate) name: &'static str,
    /// Folder of its pinned package below `sdk-tests/agents`.
    pub(crate) folder: &'static str,
    /// Program of that package.
    pub(crate) program: &'static str,
    /// Its protocol, as records name it.
    pub(crate) protocol: &'static str,
    /// The line that makes the scripted model read a file with a tool of this agent.
    pub(crate) read_file: fn(&Path) -> String,
    /// Arguments, environment and files of a turn.
    pub(crate) arguments: fn(&mut Command, &Turn<'_>) -> Result<()>,
    /// The answer in the agent's output; an error if the output says that the turn failed.
    pub(crate) answer: fn(&str) -> Result<String>,
    /// Whether it requests the text of thinking, and keeps it with the conversation.
    pub(crate) shows_thinking: bool,
    /// Checks the members and headers of the agent, which only an upstream of its own protocol gets unchanged.
    pub(crate) check_forwarded: fn(&ReceivedRequest) -> Result<()>,
}
