//! Regenerates the list of commands in `docs/cli.md`: reads the page from standard input and writes it to standard output.
//! `cargo xtask docs` runs it.

#[path = "../src/cli/page.rs"]
mod page;
#[expect(dead_code, unused_imports, reason = "the page needs clap's description of the arguments, not their values")]
#[path = "../src"]
mod program {
    pub(crate) mod cli;
}

use std::io::{self, Read as _, Write as _};

use clap::CommandFactory as _;

fn main() -> io::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    io::stdout().write_all(page::renew_page(&text, &program::cli::Cli::command()).map_err(io::Error::other)?.as_bytes())
}
