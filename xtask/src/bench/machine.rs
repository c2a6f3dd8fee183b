//! The machine that figures were taken on, and the day.

use std::{fs, process::Command, thread::available_parallelism};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::shell;

/// Processor, cores and kernel.
#[derive(Serialize, Deserialize)]
pub(super) struct Machine {
    cpu: String,
    pub(super) cores: usize,
    is_virtual: bool,
    kernel: String,
}

impl Machine {
    pub(super) fn of_this_process() -> Result<Self> {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| text.lines().find_map(|line| line.split_once(':').filter(|(own, _)| own.trim() == name));
        Ok(Self {
            cpu: field("model name").map_or("unknown processor", |(_, model)| model.trim()).to_owned(),
            cores: available_parallelism()?.get(),
            is_virtual: field("flags").is_some_and(|(_, flags)| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        })
    }

    /// In a sentence.
    pub(super) fn description(&self) -> String {
        let Self { cpu, cores, kernel, .. } = self;
        let kind = if self.is_virtual { " of a virtual machine" } else { "" };
        // The part after the dash names the distribution's build.
        format!("{cpu}, {cores} cores{kind}, Linux {}", kernel.split('-').next().unwrap_or_default())
    }
}

/// Memory of the machine, in bytes.
pub(super) fn memory_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.context("/proc/meminfo does not have MemTotal")? * 1024)
}

/// Today, as `23 November 2026`.
pub(super) fn today() -> Result<String> {
    Ok(shell::output(Command::new("date").args(["-u", "+%-d %B %Y"]).env("LC_ALL", "C"))?.trim().to_owned())
}
