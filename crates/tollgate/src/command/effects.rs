//! Shows the effects of a change before it is saved: accounts that price limits would exclude.

use std::io::{IsTerminal as _, Write as _};

use serde_json::Value;

use crate::{failure::Failure, output};

/// Prints the `effects` of a response as a table.
pub(crate) fn print(response: &Value) {
    let effects = response["effects"].as_array().map(Vec::as_slice).unwrap_or_default();
    if response["effects_cut"] == true {
        output::line("");
        output::line("too many keys have price limits of their own to check all of them: more accounts may be excluded than shown");
    }
    if effects.is_empty() {
        return;
    }
    output::line("");
    output::line("price limits would newly exclude:");
    let mut rows = Vec::new();
    for effect in effects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (subject, model) = (subject(effect), text(&effect["model"]));
        for account in effect["excluded"].as_array().into_iter().flatten() {
            let name = account["account"].as_str().unwrap_or("all").to_owned();
            let why = account["detail"].as_str().map_or_else(|| text(&account["code"]), str::to_owned);
            rows.push(vec![subject.clone(), model.clone(), text(&account["channel"]), name, why]);
        }
        if effect["nothing_left"] == true {
            let why = "nothing is left: callers get 503 (E41 or E42)".to_owned();
            rows.push(vec![subject, model, "–".to_owned(), "–".to_owned(), why]);
        }
    }
    output::long_table(&["requests of", "model", "channel", "account", "reason"], &rows);
}

/// Asks for confirmation on the terminal; fails without one.
pub(crate) fn confirmed(question: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage("there is no terminal to confirm on; check the plan and repeat with --yes".to_owned()));
    }
    output::raw(format!("{question} [y/N] ").as_bytes());
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn subject(effect: &Value) -> String {
    let text = |member: &str| effect[member].as_str().unwrap_or_default();
    match text("subject") {
        "group" => format!("group {}", text("name")),
        _ => format!("key {} of {}", text("name"), text("member")),
    }
}
