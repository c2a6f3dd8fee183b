//! Runs the commands of `docs/many-nodes.md` on a real PostgreSQL and a real Redis and compares their output with the page.
//! Only addresses and ports differ.

use std::{
    fmt::Write as _,
    fs,
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tollgate_testkit::{Postgres, Redis};

use crate::support::PROGRAM;

const PAGE: &str = include_str!("../../../../docs/many-nodes.md");
/// Separates the output of two steps.
const SEPARATOR: &str = "=== next step ===";

/// A block of commands and the output that the page shows for it.
struct Step {
    commands: String,
    output: Option<String>,
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if !line.starts_with("```") {
            continue;
        }
        let block: String = lines.by_ref().take_while(|line| *line != "```").fold(String::new(), |block, line| block + line + "\n");
        match line {
            "```sh" => steps.push(Step { commands: block, output: None }),
            "```" => steps.last_mut().expect("commands come first").output = Some(block),
            other => panic!("a block of another kind: {other}"),
        }
    }
    steps
}

/// Removes keys, ids and revisions, which differ in each run.
fn without_varying_parts(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if let [row @ .., p50, p99, id] = line.split_whitespace().collect::<Vec<_>>().as_slice()
            && [p50, p99].iter().all(|ms| ms.parse::<u32>().is_ok())
            && id.starts_with("key_")
        {
            writeln!(out, "{} and how long they took", row.join(" ")).expect("writing to a string cannot fail");
            continue;
        }
        let words = line.trim_end().split(' ').map(|word| {
            let prefix = ["key_", "sk-tg-", "postgres://", "(sk-tg-"].iter().find(|prefix| word.starts_with(**prefix));
            prefix.map_or(word, |prefix| *prefix)
        });
        let line = words.collect::<Vec<_>>().join(" ");
        let line = line.split(", catalog revision").next().unwrap_or_default();
        // The limits and ports of the machine.
        let limits = [
            ("ok    open files", "open files"),
            ("note  open files", "open files"),
            ("ok    disk", "disk"),
            ("ok    address      127.0.0.1:", "address"),
        ];
        let line = limits.into_iter().find(|(check, _)| line.starts_with(check)).map_or(line, |(_, what)| what);
        // Booked records so far, and their batches.
        let counted = [" ended requests", " ledger entries"].into_iter().find_map(|what| line.find(what));
        match counted.and_then(|end| line[..end].rfind(' ').map(|begin| (begin, end))) {
            Some((begin, end)) => writeln!(out, "{}{}", &line[..begin], &line[end..]),
            None => writeln!(out, "{line}"),
        }
        .expect("writing to a string cannot fail");
    }
    out
}

#[test]
fn commands_of_the_many_nodes_page_print_the_documented_output() {
    const NAME: &str = "commands_of_the_many_nodes_page_print_the_documented_output";
    // The page starts its own Redis; this one only decides whether tests with Redis run.
    let (Some(postgres), Some(_)) = (Postgres::start(NAME), Redis::start(NAME)) else { return };
    let folder = TempDir::new().unwrap();
    let held: Vec<TcpListener> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = held.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    drop(held);

    let steps = steps();
    let mut script = String::from("set -u\n");
    for step in &steps {
        writeln!(script, "{}\necho; echo '{SEPARATOR}'", step.commands).expect("writing to a string cannot fail");
    }
    script = script.replace("postgres://postgres@127.0.0.1:47459/walk", &postgres.url()).replace("47912", &ports[0].to_string());
    for (n, port) in ports.iter().enumerate().skip(1) {
        script = script.replace(&format!("1808{n}"), &port.to_string());
    }
    // Loops on the page vary the last digit of a port.
    script = script.replace("1808$n", "${PORT[$n]}").replace("1808$1", "${PORT[$1]}");
    let script = format!("PORT=(0 {} {} {})\n{script}", ports[1], ports[2], ports[3]);
    let printed = run(&script, folder.path());

    let parts: Vec<&str> = printed.split(SEPARATOR).collect();
    for (step, part) in steps.iter().zip(parts) {
        let Some(output) = &step.output else { continue };
        let printed = without_varying_parts(part.trim());
        assert_eq!(printed, without_varying_parts(output.trim()), "of\n{}\nall of it:\n{}", step.commands, logs(folder.path()));
    }
}

fn run(script: &str, folder: &Path) -> String {
    let path = format!("{}:{}", Path::new(PROGRAM).parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let output = fs::File::create(folder.join("printed")).unwrap();
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(script).process_group(0).current_dir(folder).env("PATH", path).env_remove("TOLLGATE_MASTER_KEY");
    let mut bash =
        bash.stdin(Stdio::null()).stdout(output).stderr(fs::File::create(folder.join("errors")).unwrap()).spawn().unwrap();
    let begin = Instant::now();
    while bash.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_mins(2) {
            // Kill the process group, including background processes of the page.
            let _ = Command::new("kill").args(["-9", "--", &format!("-{}", bash.id())]).status();
            panic!("the commands do not end\n{}", logs(folder));
        }
        thread::sleep(Duration::from_millis(50));
    }
    fs::read_to_string(folder.join("printed")).unwrap()
}

fn logs(folder: &Path) -> String {
    let names = ["printed", "errors", "node-1.log", "node-2.log", "node-3.log"];
    names.iter().map(|name| format!("--- {name}\n{}", fs::read_to_string(folder.join(name)).unwrap_or_default())).collect()
}
