//! What a change does beyond its own rows, told before it is saved: accounts that price limits would exclude.

use std::io::{IsTerminal as _, Write as _};

use serde_json::Value;

use crate::{failure::Failure, output};

/// Rows for people; JSON has all.
const MOST_ROWS: usize = 40;

/// For people, of an answer or a plan; nothing where there is nothing.
pub(crate) fn print(answer: &Value) {
    let effects = answer["effects"].as_array().map(Vec::as_slice).unwrap_or_default();
    if answer["effects_cut"] == true {
        output::line("");
        output::line("too many keys have price limits of their own to look at all of them: more may be excluded than is told");
    }
    if effects.is_empty() {
        return;
    }
    output::line("");
    output::line("price limits would exclude what they do not exclude now:");
    let mut rows = vec![["whose", "model", "channel", "account", "why"].map(str::to_owned).to_vec()];
    for effect in effects {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let (whose, model) = (whose(effect), text(&effect["model"]));
        for it in effect["excluded"].as_array().into_iter().flatten() {
            let account = it["account"].as_str().unwrap_or("all").to_owned();
            let why = it["detail"].as_str().map_or_else(|| text(&it["code"]), str::to_owned);
            rows.push(vec![whose.clone(), model.clone(), text(&it["channel"]), account, why]);
        }
        if effect["nothing_left"] == true {
            let why = "nothing is left: callers get 503 (E41)".to_owned();
            rows.push(vec![whose, model, "–".to_owned(), "–".to_owned(), why]);
        }
    }
    let more = rows.len().saturating_sub(MOST_ROWS + 1);
    rows.truncate(MOST_ROWS + 1);
    output::table(&rows);
    if more > 0 {
        output::line(&format!("… {more} more; --json has all"));
    }
}

/// Asks on a terminal; without one `--yes` is needed.
pub(crate) fn confirmed(question: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage("there is no terminal to confirm on; look at the plan and repeat with --yes".to_owned()));
    }
    output::raw(format!("{question} [y/N] ").as_bytes());
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn whose(effect: &Value) -> String {
    let text = |member: &str| effect[member].as_str().unwrap_or_default();
    match text("subject") {
        "group" => format!("group {}", text("name")),
        _ => format!("key {} of {}", text("name"), text("member")),
    }
}
