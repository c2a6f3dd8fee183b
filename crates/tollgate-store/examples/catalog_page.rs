//! Regenerates the field tables of `docs/catalog.md`: reads the page from standard input and writes it to standard output.
//! `cargo xtask docs` runs it.

use std::io::{self, Read as _, Write as _};

use tollgate_store::fields::renew_page;

fn main() -> io::Result<()> {
    let mut page = String::new();
    io::stdin().read_to_string(&mut page)?;
    io::stdout().write_all(renew_page(&page).map_err(io::Error::other)?.as_bytes())
}
