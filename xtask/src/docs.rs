//! `cargo xtask docs`: writes the parts of the documentation that are made from the code. Today that is the loss matrix of
//! `docs/translation.md`, which stands behind a mark; what is in front of it is written by hand.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use tollgate_protocol::{Protocol, neutral::loss_matrix};

use crate::shell;

const FILE: &str = "docs/translation.md";

/// Everything behind the end of this line is generated.
const MARK: &str = "do not edit below this line -->\n";

/// `cargo xtask docs`.
pub(crate) fn run() -> Result<()> {
    let path = shell::root().join(FILE);
    let current = fs::read_to_string(&path).with_context(|| FILE.to_owned())?;
    let wanted = renewed(&current)?;
    if wanted == current {
        println!("{FILE} is current");
        return Ok(());
    }
    fs::write(&path, wanted)?;
    println!("{FILE} written");
    Ok(())
}

/// The file with what is generated made anew.
fn renewed(current: &str) -> Result<String> {
    let (by_hand, _) = current.split_once(MARK).with_context(|| format!("{FILE} has lost the mark `{}`", MARK.trim_end()))?;
    Ok(format!("{by_hand}{MARK}{}", matrix()))
}

/// One table a direction.
fn matrix() -> String {
    let mut text = String::new();
    let mut direction = None;
    for row in loss_matrix() {
        if direction != Some(row.direction) {
            direction = Some(row.direction);
            let (from, to) = row.direction;
            write!(
                text,
                "\n### {} caller, {} upstream\n\n| field | what becomes of it | how |\n|---|---|---|\n",
                name(from),
                name(to)
            )
            .expect("writing to a string cannot fail");
        }
        writeln!(text, "| {} | {} | {} |", field(row.field), row.verdict.as_str(), cell(row.note))
            .expect("writing to a string cannot fail");
    }
    text
}

const fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::OpenAi => "Chat completions",
        Protocol::Gemini => "Native (Gemini)",
        Protocol::Anthropic => "Anthropic",
    }
}

/// A field's words, those that stand on the wire set as code.
fn field(words: &str) -> String {
    let sentence = ["any ", "values "].iter().any(|begin| words.starts_with(begin));
    let shown = words.split(' ').enumerate().map(|(index, word)| {
        let (bare, comma) = word.strip_suffix(',').map_or((word, ""), |bare| (bare, ","));
        let on_the_wire = bare.contains(['_', '[', '.', '/']) || bare.chars().skip(1).any(char::is_uppercase) && !is_acronym(bare);
        if on_the_wire || index == 0 && !sentence { format!("`{bare}`{comma}") } else { word.to_owned() }
    });
    cell(&shown.collect::<Vec<_>>().join(" "))
}

/// `PDF`, `JSON`, `URL`; values such as `TEXT` are read as such too, which does no harm.
fn is_acronym(word: &str) -> bool {
    word.chars().all(char::is_uppercase)
}

/// Text that may stand in a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checked_in_file_is_current() {
        let current = fs::read_to_string(shell::root().join(FILE)).unwrap();
        assert!(renewed(&current).unwrap() == current, "{FILE} is not what the code says: run `cargo xtask docs`");
    }

    #[test]
    fn words_of_the_wire_are_set_as_code() {
        for (words, shown) in [
            ("n above 1", "`n` above 1"),
            ("messages[].content[] image_url, data URL", "`messages[].content[]` `image_url`, data URL"),
            ("tools[].googleSearch and other server tools", "`tools[].googleSearch` and other server tools"),
            ("any other top-level field", "any other top-level field"),
            ("generationConfig.responseMimeType JSON", "`generationConfig.responseMimeType` JSON"),
        ] {
            assert_eq!(field(words), shown);
        }
    }
}
