//! Reads callgrind's files: instructions of each function itself, and calls of allocating functions, by group of threads.
//!
//! The format is described in valgrind's manual, "Callgrind Format Specification". Only what callgrind itself writes is read.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use anyhow::{Context, Result};

/// Threads that do the same kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ThreadGroup {
    /// The path of requests.
    Cores,
    /// Writing usage records into the database.
    Booking,
    /// Everything else: preparing records, flushing the journal, watching files.
    Background,
}

impl ThreadGroup {
    pub(super) const ALL: [Self; 3] = [Self::Cores, Self::Booking, Self::Background];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::Booking => "booking",
            Self::Background => "background",
        }
    }

    fn of(thread: &str) -> Self {
        if thread.starts_with("core-") {
            Self::Cores
        } else if thread == "usage-append" {
            Self::Booking
        } else {
            Self::Background
        }
    }
}

/// Counts of one run.
#[derive(Debug, Default)]
pub(super) struct Profile {
    /// Instructions of each function itself.
    functions: BTreeMap<ThreadGroup, HashMap<String, u64>>,
    allocations: BTreeMap<ThreadGroup, u64>,
}

impl Profile {
    /// Reads the files in `folder` that callgrind wrote for the threads: `files` with a number appended to each.
    pub(super) fn read(folder: &Path, files: &Path, names: &BTreeMap<u32, String>) -> Result<Self> {
        let stem = files.file_name().and_then(|name| name.to_str()).context("a file without a name")?;
        let mut profile = Self::default();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(thread) = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-')?.parse().ok()) else { continue };
            let group = ThreadGroup::of(names.get(&thread).map_or("", String::as_str));
            profile.add(group, &fs::read_to_string(&path)?);
        }
        Ok(profile)
    }

    /// Adds the text of one file.
    fn add(&mut self, group: ThreadGroup, text: &str) {
        let functions = self.functions.entry(group).or_default();
        let allocations = self.allocations.entry(group).or_default();
        // A name is written once and then referred to by its number.
        let mut names = HashMap::<&str, &str>::new();
        let (mut function, mut callee, mut is_call_cost) = ("", "", false);
        for line in text.lines() {
            if let Some(reference) = line.strip_prefix("fn=") {
                function = resolve(reference, &mut names);
            } else if let Some(reference) = line.strip_prefix("cfn=") {
                callee = resolve(reference, &mut names);
            } else if let Some(calls) = line.strip_prefix("calls=") {
                // The next line has the cost of the callee, which is counted at the callee itself.
                is_call_cost = true;
                if allocates(callee) && !allocates(function) {
                    *allocations += calls.split(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
                }
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                if std::mem::take(&mut is_call_cost) {
                    continue;
                }
                let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
                *functions.entry(function.to_owned()).or_default() += cost;
            }
        }
    }

    pub(super) fn instructions(&self, group: ThreadGroup) -> u64 {
        self.functions.get(&group).map_or(0, |functions| functions.values().sum())
    }

    /// Calls of allocating functions, reallocations included.
    pub(super) fn allocations(&self, group: ThreadGroup) -> u64 {
        self.allocations.get(&group).copied().unwrap_or(0)
    }

    pub(super) fn total(&self) -> u64 {
        ThreadGroup::ALL.into_iter().map(|group| self.instructions(group)).sum()
    }

    /// The functions with the most instructions, each with those of all threads and of the cores.
    pub(super) fn top(&self, count: usize) -> Vec<(&str, [u64; 2])> {
        let mut sums = HashMap::<&str, [u64; 2]>::new();
        for (group, functions) in &self.functions {
            for (name, instructions) in functions {
                let sum = sums.entry(name).or_default();
                sum[0] += instructions;
                sum[1] += if *group == ThreadGroup::Cores { *instructions } else { 0 };
            }
        }
        let mut sorted: Vec<_> = sums.into_iter().collect();
        sorted.sort_by_key(|(name, [all, _])| (std::cmp::Reverse(*all), *name));
        sorted.truncate(count);
        sorted
    }
}

/// The name behind `(12) name` or `(12)`, without the mark of a recursion.
fn resolve<'a>(reference: &'a str, names: &mut HashMap<&'a str, &'a str>) -> &'a str {
    let (number, name) = reference.split_once(' ').unwrap_or((reference, ""));
    if !name.is_empty() {
        let plain = name.rsplit_once('\'').filter(|(_, depth)| depth.bytes().all(|byte| byte.is_ascii_digit()));
        names.insert(number, plain.map_or(name, |(plain, _)| plain));
    }
    names.get(number).copied().unwrap_or("")
}

/// Whether a function is one of the allocator that returns memory: of the C library's interface, or jemalloc's own.
fn allocates(function: &str) -> bool {
    const FUNCTIONS: [&str; 8] =
        ["malloc", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc", "mallocx", "rallocx"];
    FUNCTIONS.contains(&function)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "version: 1\npositions: line\nevents: Ir\n\nfn=(1) serve\n0 100\n+2 5\ncfn=(2) mallocx\ncalls=3 0\n\
                        0 60\n* 7\n\nfn=(2)\n0 40\ncfn=(3) imalloc_body\ncalls=3 0\n0 20\n\nfn=(3)\n0 20\n\nfn=(4) serve'2\n0 1\n";

    #[test]
    fn costs_of_callees_are_counted_once() {
        let mut profile = Profile::default();
        profile.add(ThreadGroup::Cores, FILE);
        profile.add(ThreadGroup::Booking, "fn=(1) write\n0 9\n");
        assert_eq!(profile.instructions(ThreadGroup::Cores), 173);
        assert_eq!(profile.total(), 182);
        assert_eq!(profile.top(2), [("serve", [113, 113]), ("mallocx", [40, 40])]);
    }

    #[test]
    fn allocation_is_one_call_into_the_allocator() {
        let mut profile = Profile::default();
        profile.add(ThreadGroup::Cores, FILE);
        assert_eq!(profile.allocations(ThreadGroup::Cores), 3);
    }

    #[test]
    fn threads_are_grouped_by_name() {
        let groups = ["core-0", "usage-append", "background", "journal-sync", ""].map(ThreadGroup::of);
        let background = ThreadGroup::Background;
        assert_eq!(groups, [ThreadGroup::Cores, ThreadGroup::Booking, background, background, background]);
    }
}
