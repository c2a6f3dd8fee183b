//! `docs/many-nodes.md`, run as it stands there, on a real PostgreSQL and a real Redis. Only addresses are others.

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
/// Stands between what two steps print.
const NEXT: &str = "=== next step ===";

/// A block of commands, and what the page says it prints.
struct Step {
    commands: String,
    prints: Option<String>,
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
            "```sh" => steps.push(Step { commands: block, prints: None }),
            "```" => steps.last_mut().expect("commands come first").prints = Some(block),
            other => panic!("a block of another kind: {other}"),
        }
    }
    steps
}

/// A walk has keys, ids and revisions of its own.
fn without_names(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let words = line.trim_end().split(' ').map(|word| {
            let told = ["key_", "sk-tg-", "postgres://", "(sk-tg-"].iter().find(|prefix| word.starts_with(**prefix));
            told.map_or(word, |prefix| *prefix)
        });
        let line = words.collect::<Vec<_>>().join(" ");
        let line = line.split(", catalog revision").next().unwrap_or_default();
        let journal = line.find(" ended requests").and_then(|end| line[..end].rfind(' ').map(|begin| (begin, end)));
        match journal {
            Some((begin, end)) => writeln!(out, "{}{}", &line[..begin], &line[end..]),
            None => writeln!(out, "{line}"),
        }
        .expect("text takes all");
    }
    out
}

#[test]
fn the_page_about_many_nodes_is_run_as_it_stands() {
    const NAME: &str = "the_page_about_many_nodes_is_run_as_it_stands";
    // The page starts a Redis itself; this one only says, aloud, whether there are tests with one.
    let (Some(postgres), Some(_)) = (Postgres::start(NAME), Redis::start(NAME)) else { return };
    let folder = TempDir::new().unwrap();
    let held: Vec<TcpListener> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = held.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    drop(held);

    let steps = steps();
    let mut script = String::from("set -u\n");
    for step in &steps {
        writeln!(script, "{}\necho; echo '{NEXT}'", step.commands).expect("text takes all");
    }
    script = script.replace("postgres://postgres@127.0.0.1:47459/walk", &postgres.url()).replace("47912", &ports[0].to_string());
    for (n, port) in ports.iter().enumerate().skip(1) {
        script = script.replace(&format!("1808{n}"), &port.to_string());
    }
    // The loops of the page count the last digit of a port.
    script = script.replace("1808$n", "${PORT[$n]}").replace("1808$1", "${PORT[$1]}");
    let script = format!("PORT=(0 {} {} {})\n{script}", ports[1], ports[2], ports[3]);
    let printed = run(&script, folder.path());

    let parts: Vec<&str> = printed.split(NEXT).collect();
    for (step, part) in steps.iter().zip(parts) {
        let Some(prints) = &step.prints else { continue };
        let printed = without_names(part.trim());
        assert_eq!(printed, without_names(prints.trim()), "of\n{}\nall of it:\n{}", step.commands, logs(folder.path()));
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
            // The whole group: what the page started in the background too.
            let _ = Command::new("kill").args(["-9", "--", &format!("-{}", bash.id())]).status();
            panic!("it does not end\n{}", logs(folder));
        }
        thread::sleep(Duration::from_millis(50));
    }
    fs::read_to_string(folder.join("printed")).unwrap()
}

fn logs(folder: &Path) -> String {
    let names = ["printed", "errors", "node-1.log", "node-2.log", "node-3.log"];
    names.iter().map(|name| format!("--- {name}\n{}", fs::read_to_string(folder.join(name)).unwrap_or_default())).collect()
}
