//! The [`SquareStore`] in memory: computed from the records.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tollgate_core::{Fault, GroupId, Outcome, Timestamp, UsageRecord};

use super::MemoryStore;
use crate::{
    OfferBucket, OfferChange, OfferChangeKind, OfferTraffic, OfferedSince, PriceChange, PriceHistoryPosition, SquareStore,
    StoreError, StreamedAnswers, TrafficWidth,
    rollup::StreamedSums,
    square::{MAX_CHANGES, OfferParts},
};

fn bucket_of(record: &UsageRecord, width: TrafficWidth) -> Option<OfferBucket> {
    let (answered, failed) = match Fault::of(record.outcome, record.reason.as_deref()) {
        None => (1, 0),
        Some(Fault::Upstream | Fault::Gateway) => (0, 1),
        Some(Fault::Caller) => return None,
    };
    let [answers, tokens, micros] = StreamedSums::of(record).0.map(|sum| u64::try_from(sum).unwrap_or(0));
    let streamed = StreamedAnswers { answers, tokens, micros };
    Some(OfferBucket { at: width.bucket(record.at, 0), answered, failed, streamed })
}

/// The changes of a history with their positions within their revisions, newest first.
fn newest<T: Clone>(
    changes: &[T],
    revision: impl Fn(&T) -> tollgate_core::Revision,
    limit: u32,
    wanted: impl Fn(&T) -> bool,
) -> Vec<(PriceHistoryPosition, T)> {
    let mut found: Vec<(PriceHistoryPosition, T)> = Vec::new();
    let mut last: Option<PriceHistoryPosition> = None;
    for change in changes {
        let revision = revision(change);
        let position = last.filter(|last| last.revision == revision).map_or(0, |last| last.position + 1);
        let position = PriceHistoryPosition { revision, position };
        last = Some(position);
        if wanted(change) {
            found.push((position, change.clone()));
        }
    }
    found.reverse();
    found.truncate(limit.min(MAX_CHANGES) as usize);
    found
}

#[async_trait]
impl SquareStore for MemoryStore {
    async fn offer_traffic(&self, since: Timestamp, width: TrafficWidth) -> Result<Vec<OfferTraffic>, StoreError> {
        let usage = self.usage.lock().await;
        let mut offers: BTreeMap<(GroupId, &str), OfferParts> = BTreeMap::new();
        for record in usage.all().filter(|record| record.at >= since) {
            let (Some(group), Some(model)) = (record.group, record.offered_model()) else { continue };
            let Some(bucket) = bucket_of(record, width) else { continue };
            let parts = offers.entry((group, model)).or_default();
            parts.add(&bucket);
            if let Some(ttft) = record.ttft_us.filter(|_| record.outcome == Outcome::Completed) {
                parts.first_content.add(ttft);
            }
        }
        Ok(offers.into_iter().map(|((group, model), parts)| parts.into_traffic(group, model)).collect())
    }

    async fn offer_changes(&self, limit: u32) -> Result<Vec<(PriceHistoryPosition, OfferChange)>, StoreError> {
        let state = self.catalog.lock().await;
        Ok(newest(&state.offers, |change| change.revision, limit, |_| true))
    }

    async fn offered_since(&self) -> Result<Vec<OfferedSince>, StoreError> {
        let state = self.catalog.lock().await;
        let mut offered: BTreeMap<(GroupId, &str), Timestamp> = BTreeMap::new();
        for change in &state.offers {
            match &change.what {
                OfferChangeKind::Added(model) => drop(offered.insert((change.group, model), change.at)),
                OfferChangeKind::Removed(model) => drop(offered.remove(&(change.group, model.as_str()))),
                OfferChangeKind::Multiplier { .. } => {}
            }
        }
        let shown = |((group, model), since): ((GroupId, &str), Timestamp)| OfferedSince { group, model: model.to_owned(), since };
        Ok(offered.into_iter().map(shown).collect())
    }

    async fn sale_price_changes(&self, limit: u32) -> Result<Vec<(PriceHistoryPosition, PriceChange)>, StoreError> {
        let state = self.catalog.lock().await;
        let is_sale = |change: &PriceChange| change.channel.is_none() && change.before != change.after;
        Ok(newest(&state.prices, |change| change.revision, limit, is_sale))
    }
}
