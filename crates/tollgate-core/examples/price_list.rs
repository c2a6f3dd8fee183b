//! Writes the built-in price list: reads `{"source": …, "about": […], "models": {…}}` with models as in LiteLLM's JSON from standard
//! input, and prints CSV. `cargo xtask prices` runs it.

#![expect(clippy::print_stdout, reason = "the list is its result")]

use std::{collections::HashSet, io::Read as _};

use serde::Deserialize;
use serde_json::value::RawValue;
use tollgate_core::{PriceList, PriceListFormat, write_csv};

#[derive(Deserialize)]
struct Input {
    source: String,
    about: Vec<String>,
    models: Box<RawValue>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let input: Input = serde_json::from_str(&text)?;
    let mut list = PriceList::read(PriceListFormat::LiteLlm, input.models.get()).map_err(|faults| format!("{faults:?}"))?;
    // The list has some models both with and without their provider's name: the first entry counts.
    let mut known = HashSet::new();
    list.entries.retain(|entry| known.insert((entry.provider.clone(), entry.model.clone())));
    list.entries.sort_by(|a, b| (&a.provider, &a.model).cmp(&(&b.provider, &b.model)));
    (list.source, list.about) = (input.source, input.about);
    print!("{}", write_csv(&list));
    Ok(())
}
