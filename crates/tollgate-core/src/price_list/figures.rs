//! The figures of a price by name, for readers of tables.

use crate::{NanoUsd, Price};

/// Highest price per million tokens in nano-USD, as for prices that are set by hand: 100,000 USD.
const MAX_PER_MILLION: i64 = 100_000_000_000_000;

/// A figure of a price.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) get: fn(&Price) -> Option<i64>,
    pub(super) set: fn(&mut Price, i64),
    /// Upper bound, in nano-USD.
    pub(super) max: i64,
}

macro_rules! figures {
    ($($name:ident: $max:expr),+ $(,)?) => {
        [$(Figure { name: stringify!($name), get: |price| price.$name, set: |price, figure| price.$name = Some(figure), max: $max }),+]
    };
}

/// All figures, in the order of a table.
pub(super) const FIGURES: [Figure; 12] = figures![
    input: MAX_PER_MILLION,
    output: MAX_PER_MILLION,
    cache_read: MAX_PER_MILLION,
    cache_write: MAX_PER_MILLION,
    cache_write_1h: MAX_PER_MILLION,
    thinking: MAX_PER_MILLION,
    image: MAX_PER_MILLION,
    audio: MAX_PER_MILLION,
    per_request: NanoUsd::MAX_PER_REQUEST.0,
    web_search: NanoUsd::MAX_PER_REQUEST.0,
    server_tools: NanoUsd::MAX_PER_REQUEST.0,
    output_media: MAX_PER_MILLION,
];

pub(super) fn figure(name: &str) -> Option<Figure> {
    FIGURES.into_iter().find(|figure| figure.name == name)
}
