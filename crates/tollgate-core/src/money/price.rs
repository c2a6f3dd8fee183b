//! Price lists: fallbacks, tiers and schedules.

use super::{Price, PriceSchedule, SharedPrice};
use crate::Timestamp;

/// Prices of all kinds after fallbacks and tier; nano-USD per million tokens, `web_search` and `per_request` in nano-USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    pub input: i64,
    pub output: i64,
    pub cache_read: i64,
    pub cache_write: i64,
    pub cache_write_1h: i64,
    pub thinking: i64,
    pub image: i64,
    pub audio: i64,
    pub web_search: i64,
    pub per_request: i64,
}

impl Price {
    pub const fn free() -> Self {
        Self {
            input: Some(0),
            output: Some(0),
            cache_read: None,
            cache_write: None,
            cache_write_1h: None,
            thinking: None,
            image: None,
            audio: None,
            per_request: None,
            web_search: None,
            server_tools: None,
            output_media: None,
            priority: None,
            flex: None,
            tiers: Vec::new(),
        }
    }

    /// The list for a prompt of this many tokens: the highest tier it exceeds, missing kinds filled from the base list. The
    /// result has no tiers.
    #[must_use]
    pub fn tier(&self, prompt_tokens: u64) -> Self {
        let Some(tier) = self.tiers.iter().filter(|tier| prompt_tokens > tier.above).max_by_key(|tier| tier.above) else {
            return Self { tiers: Vec::new(), ..self.clone() };
        };
        let tier_price = &tier.price;
        Self {
            input: tier_price.input.or(self.input),
            output: tier_price.output.or(self.output),
            cache_read: tier_price.cache_read.or(self.cache_read),
            cache_write: tier_price.cache_write.or(self.cache_write),
            cache_write_1h: tier_price.cache_write_1h.or(self.cache_write_1h),
            thinking: tier_price.thinking.or(self.thinking),
            image: tier_price.image.or(self.image),
            audio: tier_price.audio.or(self.audio),
            per_request: tier_price.per_request.or(self.per_request),
            web_search: tier_price.web_search.or(self.web_search),
            server_tools: tier_price.server_tools.or(self.server_tools),
            output_media: tier_price.output_media.or(self.output_media),
            priority: self.priority,
            flex: self.flex,
            tiers: Vec::new(),
        }
    }

    /// Bound of the tier for a prompt of this many tokens; `None`: the base list applies.
    pub fn tier_bound(&self, prompt_tokens: u64) -> Option<u64> {
        self.tiers.iter().map(|tier| tier.above).filter(|above| prompt_tokens > *above).max()
    }

    /// Prices of all kinds for a prompt of this many tokens: `cache_read`, `cache_write`, `image` and `audio` fall back to
    /// `input`, `cache_write_1h` to `cache_write`, `thinking` to `output`; kinds still missing are free.
    pub fn rates(&self, prompt_tokens: u64) -> Rates {
        // Copies the price only if a tier applies.
        let tier = self.tier_bound(prompt_tokens).map(|_| self.tier(prompt_tokens));
        let list = tier.as_ref().unwrap_or(self);
        let input = list.input.unwrap_or(0);
        let output = list.output.unwrap_or(0);
        Rates {
            input,
            output,
            cache_read: list.cache_read.unwrap_or(input),
            cache_write: list.cache_write.unwrap_or(input),
            cache_write_1h: list.cache_write_1h.or(list.cache_write).unwrap_or(input),
            thinking: list.thinking.unwrap_or(output),
            image: list.image.unwrap_or(input),
            audio: list.audio.unwrap_or(input),
            web_search: list.web_search.unwrap_or(0),
            per_request: list.per_request.unwrap_or(0),
        }
    }
}

impl PriceSchedule {
    /// The price list in effect: the one with the latest start that is not in the future.
    pub fn at(&self, now: Timestamp) -> Option<&Price> {
        self.shared_at(now).map(|price| &**price)
    }

    /// [`Self::at`], to be kept without a copy.
    pub(crate) fn shared_at(&self, now: Timestamp) -> Option<&SharedPrice> {
        self.0
            .iter()
            .filter(|priced| priced.valid_from.is_none_or(|from| from <= now))
            .max_by_key(|priced| priced.valid_from)
            .map(|priced| &priced.price)
    }
}
