//! `cargo xtask docs`: writes the generated parts of pages. In `docs/translation.md` it is the loss matrix, from
//! `fixtures/translation` of `tollgate-protocol`, below a marker line. In `docs/catalog.md` it is the tables of fields, from the
//! tables of `tollgate-store`, each between two markers. In `docs/cli.md` it is the list of commands. In `README.md` and
//! `docs/performance.md` it is the figures of other gateways, with their chart. The rest of the pages is kept.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{bench, shell};

const FILE: &str = "docs/translation.md";
const CATALOG: &str = "docs/catalog.md";
const CLI: &str = "docs/cli.md";
const FIXTURES: &str = "crates/tollgate-protocol/fixtures/translation";

/// Everything after this marker is generated.
const MARKER: &str = "do not edit below this line -->\n";

/// Caller protocol and upstream protocol of each table, in the order of the page.
const DIRECTIONS: [(&str, &str); 12] = [
    ("openai", "gemini"),
    ("openai", "anthropic"),
    ("gemini", "openai"),
    ("gemini", "anthropic"),
    ("anthropic", "openai"),
    ("anthropic", "gemini"),
    ("responses", "openai"),
    ("responses", "gemini"),
    ("responses", "anthropic"),
    ("openai", "responses"),
    ("gemini", "responses"),
    ("anthropic", "responses"),
];

/// A fixture file. Members that the page does not show are ignored.
#[derive(Deserialize)]
struct Matrix {
    row: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    field: String,
    verdict: String,
    #[serde(default)]
    note: String,
}

pub(crate) fn run() -> Result<()> {
    bench::peers::write_pages()?;
    write(FILE, regenerate)?;
    write(CATALOG, |_| page_of(CATALOG, "tollgate-store", "catalog_page"))?;
    write(CLI, |_| page_of(CLI, "tollgate", "cli_page"))
}

/// Writes a page if its generated parts differ.
fn write(file: &str, generate: impl FnOnce(&str) -> Result<String>) -> Result<()> {
    let path = shell::root().join(file);
    let current = fs::read_to_string(&path).with_context(|| file.to_owned())?;
    let generated = generate(&current)?;
    if generated == current {
        println!("{file} is current");
        return Ok(());
    }
    fs::write(&path, generated)?;
    println!("{file} written");
    Ok(())
}

/// A page with the part replaced that an example of a package writes. xtask links none of the packages.
fn page_of(file: &str, package: &str, example: &str) -> Result<String> {
    let page = fs::File::open(shell::root().join(file)).with_context(|| file.to_owned())?;
    shell::output(shell::cargo(&["run", "--quiet", "-p", package, "--example", example]).stdin(page))
}

/// The page with its generated part replaced.
fn regenerate(current: &str) -> Result<String> {
    let (by_hand, _) = current.split_once(MARKER).with_context(|| format!("{FILE} lacks the marker `{}`", MARKER.trim_end()))?;
    Ok(format!("{by_hand}{MARKER}{}", tables()?))
}

/// One Markdown table per direction.
fn tables() -> Result<String> {
    let mut text = String::new();
    for (from, to) in DIRECTIONS {
        let path = shell::root().join(FIXTURES).join(format!("{from}_to_{to}.toml"));
        let matrix = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let matrix: Matrix = toml::from_str(&matrix).with_context(|| path.display().to_string())?;
        let (from, to) = (title(from), title(to));
        write!(text, "\n### {from} caller, {to} upstream\n\n| field | what becomes of it | how |\n|---|---|---|\n")?;
        for row in matrix.row {
            writeln!(text, "| {} | {} | {} |", field(&row.field), row.verdict, escape_cell(&row.note))?;
        }
    }
    Ok(text)
}

fn title(protocol: &str) -> &'static str {
    match protocol {
        "openai" => "Chat completions",
        "gemini" => "Native (Gemini)",
        "responses" => "Responses",
        _ => "Anthropic",
    }
}

/// A field's description as Markdown, wire names set as code.
fn field(words: &str) -> String {
    let sentence = ["any ", "values "].iter().any(|begin| words.starts_with(begin));
    let shown = words.split(' ').enumerate().map(|(index, word)| {
        let (bare, comma) = word.strip_suffix(',').map_or((word, ""), |bare| (bare, ","));
        let is_wire_name = bare.contains(['_', '[', '.', '/']) || bare.chars().skip(1).any(char::is_uppercase) && !is_acronym(bare);
        if is_wire_name || index == 0 && !sentence { format!("`{bare}`{comma}") } else { word.to_owned() }
    });
    escape_cell(&shown.collect::<Vec<_>>().join(" "))
}

/// True for `PDF`, `JSON`, `URL`, and for wire values such as `TEXT`, which are then not set as code.
fn is_acronym(word: &str) -> bool {
    word.chars().all(char::is_uppercase)
}

/// Escapes the column separator.
fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_page_is_current() {
        let current = fs::read_to_string(shell::root().join(FILE)).unwrap();
        assert!(regenerate(&current).unwrap() == current, "{FILE} differs from the fixtures: run `cargo xtask docs`");
    }

    #[test]
    fn wire_names_are_formatted_as_code() {
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
