//! Data of the model square: results and speed of the requests for each offer, and changes of offers and their prices. An offer is a
//! model in a group.

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;
use tollgate_core::{GroupId, Multiplier, Revision, Timestamp};

use crate::{
    Percentiles, PriceChange, PriceHistoryPosition, StoreError,
    rollup::{DAY, FIVE_MINUTES, HOUR, Histogram},
};

/// Reads for the model square. Traffic is read from the roll-ups only.
#[async_trait]
pub trait SquareStore: Send + Sync + fmt::Debug {
    /// The traffic of every offer since the beginning of a bucket, by buckets.
    async fn offer_traffic(&self, since: Timestamp, width: TrafficWidth) -> Result<Vec<OfferTraffic>, StoreError>;

    /// The latest changes of what groups offer, newest first; at most 10,000.
    async fn offer_changes(&self, limit: u32) -> Result<Vec<(PriceHistoryPosition, OfferChange)>, StoreError>;

    /// When groups began to offer the models that they offer now, by group and model.
    async fn offered_since(&self) -> Result<Vec<OfferedSince>, StoreError>;

    /// The latest changes of sale prices, newest first; at most 10,000.
    async fn sale_price_changes(&self, limit: u32) -> Result<Vec<(PriceHistoryPosition, PriceChange)>, StoreError>;
}

pub(crate) const MAX_CHANGES: u32 = 10_000;

/// Width of the buckets of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrafficWidth {
    FiveMinutes,
    /// UTC hours.
    Hour,
    /// UTC days.
    Day,
}

impl TrafficWidth {
    /// Microseconds of a bucket.
    pub const fn micros(self) -> i64 {
        match self {
            Self::FiveMinutes => FIVE_MINUTES,
            Self::Hour => HOUR,
            Self::Day => DAY,
        }
    }

    /// The beginning of the bucket that is `back` buckets before that of a time.
    pub const fn bucket(self, at: Timestamp, back: i64) -> Timestamp {
        let width = self.micros();
        Timestamp((at.0.div_euclid(width) - back) * width)
    }
}

/// Traffic of an offer. Requests whose caller was at fault are not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferTraffic {
    pub group: GroupId,
    pub model: String,
    /// In order of time, without those that had no traffic.
    pub buckets: Vec<OfferBucket>,
    /// Times to the first content of answered requests.
    pub first_content: Option<Percentiles>,
}

/// Results of the requests for an offer in a bucket of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferBucket {
    /// Its beginning.
    pub at: Timestamp,
    /// Requests that were answered completely.
    pub answered: u64,
    /// Requests that failed because of the upstream or the gateway.
    pub failed: u64,
    pub streamed: StreamedAnswers,
}

/// Complete answers that were streamed: their speed after the first content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamedAnswers {
    pub answers: u64,
    /// Output tokens without thinking.
    pub tokens: u64,
    /// Microseconds from the first content to the end.
    pub micros: u64,
}

impl OfferBucket {
    /// Adds the figures of another bucket.
    pub fn add(&mut self, other: &Self) {
        let counts = [
            (&mut self.answered, other.answered),
            (&mut self.failed, other.failed),
            (&mut self.streamed.answers, other.streamed.answers),
            (&mut self.streamed.tokens, other.streamed.tokens),
            (&mut self.streamed.micros, other.streamed.micros),
        ];
        for (sum, more) in counts {
            *sum = sum.saturating_add(more);
        }
    }
}

/// The traffic of an offer while it is added up.
#[derive(Debug, Default)]
pub(crate) struct OfferParts {
    buckets: BTreeMap<Timestamp, OfferBucket>,
    pub(crate) first_content: Histogram,
}

impl OfferParts {
    /// Adds figures to the bucket of their time.
    pub(crate) fn add(&mut self, figures: &OfferBucket) {
        let bucket = self.buckets.entry(figures.at);
        bucket.or_insert(OfferBucket { at: figures.at, ..OfferBucket::default() }).add(figures);
    }

    pub(crate) fn into_traffic(self, group: GroupId, model: &str) -> OfferTraffic {
        let first_content = Percentiles::of(&self.first_content);
        OfferTraffic { group, model: model.to_owned(), buckets: self.buckets.into_values().collect(), first_content }
    }
}

/// A change of a group's offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferChange {
    pub revision: Revision,
    pub at: Timestamp,
    pub group: GroupId,
    pub what: OfferChangeKind,
}

/// A change of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfferChangeKind {
    /// Lists of the group begin to show this model.
    Added(String),
    /// Lists of the group no longer show this model.
    Removed(String),
    /// The factor on prices changed: that of the group, or that of a model in the group's lists. A change of the group's factor
    /// is not repeated for each model.
    Multiplier { model: Option<String>, before: Multiplier, after: Multiplier },
}

/// When a group began to offer a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedSince {
    pub group: GroupId,
    pub model: String,
    pub since: Timestamp,
}
