//! Price lists to import: prices by model and provider, read from CSV or from LiteLLM's JSON, and the list built into the program.

mod figures;
mod litellm;
mod table;

use std::fmt;

use crate::Price;

pub use table::write_csv;

/// Size limit of a list, in bytes.
pub const MAX_PRICE_LIST_BYTES: usize = 16 << 20;
/// Limit of the entries of a list.
pub const MAX_PRICE_LIST_ROWS: usize = 100_000;
/// Limit of the tiers of one price in a list.
pub const MAX_PRICE_LIST_TIERS: usize = 16;
/// Most faults reported for one list.
const MAX_FAULTS: usize = 100;

/// A list of prices that can be imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceList {
    /// Source of the prices, such as `LiteLLM 1.109.1, 2026-11-23`; empty if the list does not state it.
    pub source: String,
    /// Notes of the list about itself, such as the pricing pages of providers.
    pub about: Vec<String>,
    pub entries: Vec<ListedPrice>,
    /// Entries whose price cannot be expressed.
    pub skipped: Vec<SkippedPrice>,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPrice {
    /// Name of the provider, as LiteLLM writes it; `None`: any.
    pub provider: Option<String>,
    /// Model name of the provider.
    pub model: String,
    pub price: Price,
    /// Figures that were rounded or left out.
    pub notes: Vec<String>,
}

/// An entry that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedPrice {
    pub provider: Option<String>,
    pub model: String,
    pub reason: String,
}

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceListFormat {
    /// `model_prices_and_context_window.json` of LiteLLM.
    LiteLlm,
    Csv,
}

impl PriceListFormat {
    pub const ALL: [Self; 2] = [Self::LiteLlm, Self::Csv];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LiteLlm => "litellm",
            Self::Csv => "csv",
        }
    }
}

/// A fault of a list, which makes the whole list invalid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PriceListFault {
    /// Line number, from 1; 0: the fault is of the whole list.
    pub line: u64,
    /// Position in the line, from 1: for CSV the column's number, for JSON the character.
    pub column: u64,
    pub message: String,
}

impl fmt::Display for PriceListFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl PriceList {
    /// Reads a list.
    pub fn read(format: PriceListFormat, text: &str) -> Result<Self, Vec<PriceListFault>> {
        let whole = |message: String| vec![PriceListFault { line: 0, column: 0, message }];
        if text.len() > MAX_PRICE_LIST_BYTES {
            return Err(whole(format!("the list has more than {MAX_PRICE_LIST_BYTES} bytes; select the models you serve")));
        }
        match format {
            PriceListFormat::LiteLlm => litellm::read(text),
            PriceListFormat::Csv => table::read(text),
        }
    }

    /// The list that is built into the program.
    ///
    /// # Panics
    /// Never: a test reads the list.
    pub fn built_in() -> Self {
        table::read(include_str!("../data/prices.csv")).expect("a test reads the built-in list")
    }
}

fn too_many_rows() -> PriceListFault {
    let message = format!("the list has more than {MAX_PRICE_LIST_ROWS} entries; select the models you serve");
    PriceListFault { line: 0, column: 0, message }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::{Multiplier, parse_usd};

    fn usd(text: &str) -> Option<i64> {
        parse_usd(text).ok()
    }

    #[test]
    fn built_in_list_names_its_source_and_prices_models_of_the_large_providers() {
        let list = PriceList::built_in();
        assert!(list.source.starts_with("LiteLLM ") && list.skipped.is_empty(), "{}", list.source);
        for provider in ["openai", "gemini", "anthropic"] {
            let of: Vec<_> = list.entries.iter().filter(|entry| entry.provider.as_deref() == Some(provider)).collect();
            assert!(of.len() >= 10, "{provider} has {}", of.len());
            assert!(list.about.iter().any(|line| line.contains(provider) && line.contains("https://")), "the page of {provider}");
        }
        // As on the pricing pages of the providers.
        let of = |model: &str| &list.entries.iter().find(|entry| entry.model == model).unwrap().price;
        let mini = of("gpt-5-mini");
        assert_eq!((mini.input, mini.output, mini.cache_read), (usd("0.25"), usd("2"), usd("0.025")));
        let pro = of("gemini-2.5-pro");
        assert_eq!((pro.input, pro.output, pro.tiers[0].above), (usd("1.25"), usd("10"), 200_000));
        assert_eq!((pro.tiers[0].price.input, pro.tiers[0].price.output), (usd("2.50"), usd("15")));
        let sonnet = of("claude-sonnet-4-5");
        assert_eq!((sonnet.cache_write, sonnet.cache_write_1h), (usd("3.75"), usd("6")));
        assert_eq!(of("gpt-5").priority, Some(Multiplier(2_000_000)));
    }

    #[test]
    fn written_list_reads_as_the_same() {
        let list = PriceList::built_in();
        let again = PriceList::read(PriceListFormat::Csv, &write_csv(&list)).unwrap();
        assert_eq!(again, list);
    }

    #[test]
    fn lists_that_are_too_large_are_refused() {
        let large = " ".repeat(MAX_PRICE_LIST_BYTES + 1);
        for format in PriceListFormat::ALL {
            assert!(PriceList::read(format, &large).unwrap_err()[0].message.contains("bytes"));
        }
        let mut rows = "model,input\n".to_owned();
        for n in 0..=MAX_PRICE_LIST_ROWS {
            writeln!(rows, "m{n},1").unwrap();
        }
        assert_eq!(PriceList::read(PriceListFormat::Csv, &rows).unwrap_err(), [too_many_rows()]);
    }
}
