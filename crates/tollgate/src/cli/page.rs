//! The list of commands in `docs/cli.md`.

use std::fmt::Write as _;

use clap::{Arg, Command};

const BEGIN: &str = "<!-- commands: `cargo xtask docs` writes this part -->\n";
const END: &str = "<!-- end -->\n";

/// The page with its list of commands regenerated. The error names the missing marker.
pub(crate) fn renew_page(page: &str, program: &Command) -> Result<String, String> {
    let missing = |marker: &str| format!("the page lacks the line `{}`", marker.trim_end());
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| missing(END))?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", list(program)))
}

/// Options of all commands, and each command with its arguments and what it does.
fn list(program: &Command) -> String {
    let mut program = program.clone();
    // Before building, clap does not know which arguments take several values.
    program.build();
    let options = program.get_arguments().filter(|argument| argument.is_global_set());
    let options: Vec<_> = options.map(|option| (format!("  {option}"), first_line(option.get_help()))).collect();
    let mut commands = vec![(program.get_name().to_owned(), first_line(program.get_about()))];
    add_commands(&program, 1, &mut commands);
    format!("```text\n{}\noptions of all commands:\n{}```\n", aligned(&commands), aligned(&options))
}

fn add_commands(parent: &Command, depth: usize, lines: &mut Vec<(String, String)>) {
    for command in parent.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help") {
        let words: Vec<String> =
            std::iter::once(command.get_name().to_owned()).chain(command.get_positionals().map(shown)).collect();
        lines.push((format!("{}{}", "  ".repeat(depth), words.join(" ")), first_line(command.get_about())));
        add_commands(command, depth + 1, lines);
    }
}

/// A positional argument, in brackets if it is optional.
fn shown(argument: &Arg) -> String {
    let name = argument
        .get_value_names()
        .and_then(|names| names.first())
        .map_or_else(|| argument.get_id().as_str().to_uppercase(), ToString::to_string);
    let many = if argument.get_num_args().is_some_and(|count| count.max_values() > 1) { "…" } else { "" };
    if argument.is_required_set() { format!("{name}{many}") } else { format!("[{name}{many}]") }
}

fn first_line(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// Lines of two columns.
fn aligned(lines: &[(String, String)]) -> String {
    let width = lines.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (left, right) in lines {
        let padding = " ".repeat(width - left.chars().count());
        writeln!(text, "{}", format!("{left}{padding}  {right}").trim_end()).expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn page_lists_every_command() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        let page = std::fs::read_to_string(path).expect("docs/cli.md");
        let renewed = renew_page(&page, &Cli::command()).unwrap();
        assert!(renewed == page, "docs/cli.md is not what the commands are: run `cargo xtask docs`");
        assert!(renewed.contains("  key ") && renewed.contains("    create "), "{renewed}");
    }
}
