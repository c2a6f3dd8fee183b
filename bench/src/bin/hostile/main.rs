//! Clients that misuse one key, to measure the effect on the gateway's other callers.
//!
//! `hostile PATTERN --address HOST:PORT --key KEY [--seconds S]` runs one pattern and prints a line of JSON: exchanges that
//! ended, and how many of them ended with status 200. Patterns: `slow-bodies`, `declared-bodies`, `slow-readers`, `flood`,
//! `tarpit-media`, `timeouts`.

mod http1;
mod http2;

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::task::LocalSet;

/// State that all connections of a pattern share.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) key: String,
    pub(crate) counts: Rc<Counts>,
}

/// Exchanges that ended.
#[derive(Default)]
pub(crate) struct Counts {
    ended: Cell<u64>,
    answered: Cell<u64>,
}

impl Counts {
    /// Counts an exchange. `answered`: its status was 200.
    pub(crate) fn exchange(&self, answered: bool) {
        self.ended.set(self.ended.get() + 1);
        self.answered.set(self.answered.get() + u64::from(answered));
    }
}

fn main() {
    let (pattern, target, seconds) = read_arguments();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        start(&pattern, &target).await;
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    });
    #[expect(clippy::print_stdout, reason = "this line is what the program is for")]
    {
        println!("{}", serde_json::json!({"ended": target.counts.ended.get(), "answered": target.counts.answered.get()}));
    }
    // Exit without closing the connections still open.
    std::process::exit(0);
}

async fn start(pattern: &str, target: &Target) {
    let connections = match pattern {
        "slow-bodies" | "declared-bodies" => 64,
        "slow-readers" => 80,
        "flood" => 32,
        "tarpit-media" => 16,
        "timeouts" => 4,
        other => panic!("unknown pattern {other}"),
    };
    let tarpit = if pattern == "tarpit-media" { http1::open_tarpit().await } else { String::new() };
    for number in 0..connections {
        let (target, tarpit) = (target.clone(), tarpit.clone());
        match pattern {
            "slow-bodies" => drop(tokio::task::spawn_local(async move { http2::slow_bodies(&target, number).await })),
            "declared-bodies" => drop(tokio::task::spawn_local(async move { http1::declared_bodies(&target).await })),
            "slow-readers" => drop(tokio::task::spawn_local(async move { http1::slow_reader(&target).await })),
            "flood" => drop(tokio::task::spawn_local(async move { http1::requests(&target, &|_| chat("bench-chat")).await })),
            "timeouts" => drop(tokio::task::spawn_local(async move { http1::requests(&target, &|_| chat("bench-silent")).await })),
            _ => drop(tokio::task::spawn_local(async move {
                http1::requests(&target, &|count| pictures(&tarpit, number, count)).await;
            })),
        }
    }
}

/// The body of a small request for a model.
pub(crate) fn chat(model: &str) -> String {
    serde_json::json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]}).to_string()
}

/// The body of a request with sixteen pictures at addresses that accept connections and never answer.
fn pictures(tarpit: &str, connection: usize, count: u64) -> String {
    let picture = |number: usize| serde_json::json!({"type": "image_url", "image_url": {"url": format!("http://{tarpit}/{connection}/{count}/{number}.png")}});
    let content: Vec<_> = (0..16).map(picture).collect();
    serde_json::json!({"model": "bench-native", "messages": [{"role": "user", "content": content}]}).to_string()
}

fn read_arguments() -> (String, Target, f64) {
    let mut arguments = std::env::args().skip(1);
    let pattern = arguments.next().expect("a pattern");
    let (mut address, mut key, mut seconds) = (String::new(), String::new(), 60.0);
    while let Some(name) = arguments.next() {
        let value = arguments.next().expect("each option has a value");
        match name.as_str() {
            "--address" => address = value,
            "--key" => key = value,
            "--seconds" => seconds = value.parse().expect("a number"),
            other => panic!("unknown option {other}"),
        }
    }
    (pattern, Target { address, key, counts: Rc::default() }, seconds)
}
