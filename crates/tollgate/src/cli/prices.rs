//! Arguments of `price`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Price {
    /// List sale prices, costs and margins, and mark what sells below cost
    List {
        /// Only channels of this group, and margins after its multiplier
        #[arg(long)]
        group: Option<String>,
    },
    /// Set the sale price of a model by hand
    Set {
        #[command(flatten)]
        model: PricedModel,
        /// input:0.30,output:2.40 (USD per million tokens), free, none, or '{ input = "0.30", tiers = [{ above = 200000, … }] }'
        price: String,
    },
    /// Import prices from a list; prices that were set by hand are kept
    Import(PriceImport),
    /// Show what an import would change, without changing it
    Diff(PriceImport),
    /// Compute what a request of so many tokens costs, on which accounts, and which of them price limits exclude
    Simulate(PriceSimulation),
    /// List models that are served without a price, with their requests
    Unpriced,
    /// Show every change of a model's sale price and of its channels' costs, newest first
    History(PriceHistory),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PricedModel {
    /// Model name as used by callers
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model: String,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PriceHistory {
    #[command(flatten)]
    pub(crate) model: PricedModel,
    /// Only what this channel's provider charges
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// Number of changes
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,
}

#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("list").required(true).args(["file", "builtin"])))]
pub(crate) struct PriceImport {
    /// Price list: LiteLLM's `model_prices_and_context_window.json`, or CSV (docs/prices.md)
    pub(crate) file: Option<PathBuf>,
    /// Take the list that is built into the program
    #[arg(long)]
    pub(crate) builtin: bool,
    /// Format of the file [default: litellm for .json, else csv]
    #[arg(long, value_enum)]
    pub(crate) format: Option<ListFormat>,
    /// Where the prices come from [default: what the list says, else the name of the file]
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Prices to import
    #[arg(long, value_enum, default_value_t = ImportTarget::Sale)]
    pub(crate) to: ImportTarget,
    /// Only models with these names, `*` and `?` allowed
    #[arg(long, num_args = 1.., value_name = "GLOB")]
    pub(crate) models: Vec<String>,
    /// Replace the prices of this model although they were set by hand; may be repeated
    #[arg(long, value_name = "MODEL")]
    pub(crate) overwrite: Vec<String>,
    /// Show the difference without importing it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Import without confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Format of a price list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    Litellm,
    Csv,
}

/// Prices that an import writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportTarget {
    /// Sale prices of models
    Sale,
    /// What the providers of channels charge
    Cost,
    Both,
}

#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("caller").required(true).args(["key", "group"])))]
pub(crate) struct PriceSimulation {
    /// Model name as sent by callers
    #[arg(long)]
    pub(crate) model: String,
    /// Key id, or key name if it is unambiguous
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Group, for any key of it without limits of its own
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// Protocol of the caller: openai, gemini, anthropic or responses
    #[arg(long, default_value = "openai")]
    pub(crate) protocol: String,
    /// Input tokens of no other kind
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    pub(crate) input: u32,
    /// Output tokens without thinking
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    pub(crate) output: u32,
    /// Tokens read from a cache
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    pub(crate) cache_read: u32,
    /// Tokens written to a cache
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    pub(crate) cache_write: u32,
    /// The part of --cache-write that is kept for an hour
    #[arg(long = "cache-write-1h", default_value_t = 0, value_name = "TOKENS")]
    pub(crate) cache_write_1h: u32,
    /// Thinking tokens
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    pub(crate) thinking: u32,
    /// Image tokens of the input
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    pub(crate) image: u32,
    /// Audio tokens of the input
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    pub(crate) audio: u32,
    /// Service tier of the request: priority or flex
    #[arg(long, value_name = "TIER")]
    pub(crate) service_tier: Option<String>,
    /// The request uses the provider's web search
    #[arg(long)]
    pub(crate) web_search: bool,
    /// The request uses other tools that the provider runs
    #[arg(long)]
    pub(crate) server_tools: bool,
    /// The request asks for images or audio in the answer
    #[arg(long)]
    pub(crate) output_media: bool,
    /// Value of the header `x-tollgate-max-price`, such as `input:1.5,output:6`
    #[arg(long, value_name = "PRICES")]
    pub(crate) max_price: Option<String>,
}
