//! The [`SquareStore`] of the database.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::{Fault, GroupId, Multiplier, Outcome, Revision, Timestamp};

use super::{codes::Coded as _, dialect::read_joined_numbers, price_history, rows::AnyQuery, store::SqlStore};
use crate::{
    OfferBucket, OfferChange, OfferChangeKind, OfferTraffic, OfferedSince, PriceChange, PriceHistoryPosition, SquareStore,
    StoreError, StreamedAnswers, TrafficWidth,
    rollup::{Histogram, MINUTE},
    square::{MAX_CHANGES, OfferParts},
};

const TRAFFIC: &str = "sum up the traffic of models";
const OFFERS: &str = "read the history of offers";

pub(super) fn insert_offer_change(position: i64, change: &OfferChange) -> AnyQuery<'static> {
    let (model, offered, before, after) = match &change.what {
        OfferChangeKind::Added(model) => (model.as_str(), 1_i64, None, None),
        OfferChangeKind::Removed(model) => (model.as_str(), 0, None, None),
        OfferChangeKind::Multiplier { model, before, after } => {
            (model.as_deref().unwrap_or_default(), 1, Some(before.0), Some(after.0))
        }
    };
    sqlx::query(
        "INSERT INTO offer_history (revision, position, at, group_id, model, offered, old_multiplier, new_multiplier) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(change.revision.0)
    .bind(position)
    .bind(change.at.0)
    .bind(change.group.to_string())
    .bind(model.to_owned())
    .bind(offered)
    .bind(before)
    .bind(after)
}

fn group(row: &AnyRow, column: usize) -> Result<GroupId, sqlx::Error> {
    let text: String = row.try_get(column)?;
    GroupId::parse(&text).ok_or_else(|| sqlx::Error::Decode(format!("'{text}' is not a group's id").into()))
}

fn offer_change(row: &AnyRow) -> Result<(PriceHistoryPosition, OfferChange), sqlx::Error> {
    let (revision, model): (Revision, String) = (Revision(row.try_get(0)?), row.try_get(4)?);
    let multiplier = |column: usize| row.try_get::<Option<i64>, _>(column).map(|value| value.map(Multiplier));
    let what = match (multiplier(6)?, multiplier(7)?) {
        (Some(before), Some(after)) => {
            let model = Some(model).filter(|model| !model.is_empty());
            OfferChangeKind::Multiplier { model, before, after }
        }
        _ if row.try_get::<i64, _>(5)? == 1 => OfferChangeKind::Added(model),
        _ => OfferChangeKind::Removed(model),
    };
    let change = OfferChange { revision, at: Timestamp(row.try_get(2)?), group: group(row, 3)?, what };
    Ok((PriceHistoryPosition { revision, position: row.try_get(1)? }, change))
}

/// Figures of one bucket, outcome and reason of an offer.
struct OfferSums {
    group: i64,
    model: i64,
    minute: i64,
    outcome: i64,
    reason: i64,
    requests: u64,
    streamed: StreamedAnswers,
}

fn offer_sums(row: &AnyRow) -> Result<OfferSums, sqlx::Error> {
    let mut number = read_joined_numbers(row)?;
    let (group, model, minute, outcome, reason) = (number()?, number()?, number()?, number()?, number()?);
    let mut count = || number().map(|value| u64::try_from(value).unwrap_or(0));
    let requests = count()?;
    let streamed = StreamedAnswers { answers: count()?, tokens: count()?, micros: count()? };
    Ok(OfferSums { group, model, minute, outcome, reason, requests, streamed })
}

impl SqlStore {
    async fn offer_sums(&self, rows: &str) -> Result<Vec<OfferSums>, StoreError> {
        let figures = ["SUM(requests)", "SUM(streamed)", "SUM(streamed_tokens)", "SUM(streamed_us)"];
        let columns = ["grp", "model", "minute", "outcome", "why"].into_iter().chain(figures).collect::<Vec<_>>();
        // The reasons of answered requests do not affect availability.
        let sql = format!(
            "SELECT {} FROM (SELECT grp, model, minute, outcome, CASE WHEN outcome = 0 THEN 0 ELSE reason END AS why, requests, \
             streamed, streamed_tokens, streamed_us FROM usage_sums WHERE {rows}) AS sums GROUP BY minute, grp, model, outcome, why",
            self.dialect.joined_numbers(&columns)
        );
        self.fetch_as(TRAFFIC, sqlx::query(AssertSqlSafe(sql)), offer_sums).await
    }

    /// The times to the first content of the answered requests of each offer, by group and model.
    async fn offer_times(&self, rows: &str) -> Result<Vec<(i64, i64, Histogram)>, StoreError> {
        let sql = format!(
            "SELECT CAST(grp AS BIGINT), CAST(model AS BIGINT), {} FROM usage_sums WHERE {rows} AND outcome = 0 GROUP BY grp, model",
            self.dialect.hex_list("ttft")
        );
        let read = |row: &AnyRow| {
            let mut times = Histogram::default();
            times.merge_hex_list(row.try_get::<Option<&str>, _>(2)?.unwrap_or_default());
            Ok((row.try_get(0)?, row.try_get(1)?, times))
        };
        self.fetch_as(TRAFFIC, sqlx::query(AssertSqlSafe(sql)), read).await
    }
}

#[async_trait]
impl SquareStore for SqlStore {
    async fn offer_traffic(&self, since: Timestamp, width: TrafficWidth) -> Result<Vec<OfferTraffic>, StoreError> {
        let rows = format!("width = {} AND minute >= {} AND grp <> 0", width.micros() / MINUTE, since.0.div_euclid(MINUTE));
        let (sums, times) = (self.offer_sums(&rows).await?, self.offer_times(&rows).await?);
        let refs: BTreeSet<i64> = sums.iter().flat_map(|sums| [sums.group, sums.model, sums.reason]).collect();
        let names = self.names(TRAFFIC, &refs).await?;
        let groups: HashMap<i64, GroupId> =
            names.iter().filter_map(|(number, (id, _))| Some((*number, GroupId::parse(id)?))).collect();
        let key = |group: i64, model: i64| Some((*groups.get(&group)?, names.get(&model)?.1.as_str()));
        let mut offers: BTreeMap<(GroupId, &str), OfferParts> = BTreeMap::new();
        for OfferSums { group, model, minute, outcome, reason, requests, streamed } in sums {
            let (Some(key), Some(outcome)) = (key(group, model), Outcome::of_code(outcome)) else { continue };
            let reason = names.get(&reason).map(|(_, name)| name.as_str());
            let (answered, failed) = match Fault::of(outcome, reason) {
                None => (requests, 0),
                Some(Fault::Upstream | Fault::Gateway) => (0, requests),
                Some(Fault::Caller) => continue,
            };
            let bucket = OfferBucket { at: Timestamp(minute.saturating_mul(MINUTE)), answered, failed, streamed };
            offers.entry(key).or_default().add(&bucket);
        }
        for (group, model, times) in times {
            if let Some(offer) = key(group, model).and_then(|key| offers.get_mut(&key)) {
                offer.first_content.merge(&times);
            }
        }
        Ok(offers.into_iter().map(|((group, model), parts)| parts.into_traffic(group, model)).collect())
    }

    async fn offer_changes(&self, limit: u32) -> Result<Vec<(PriceHistoryPosition, OfferChange)>, StoreError> {
        let sql = "SELECT revision, position, at, group_id, model, offered, old_multiplier, new_multiplier FROM offer_history \
                   ORDER BY revision DESC, position DESC LIMIT $1";
        self.fetch_as(OFFERS, sqlx::query(sql).bind(i64::from(limit.min(MAX_CHANGES))), offer_change).await
    }

    async fn offered_since(&self) -> Result<Vec<OfferedSince>, StoreError> {
        let sql = "SELECT h.group_id, h.model, h.at FROM offer_history h WHERE h.offered = 1 AND h.new_multiplier IS NULL \
                   AND NOT EXISTS (SELECT 1 FROM offer_history n WHERE n.group_id = h.group_id AND n.model = h.model AND \
                   n.new_multiplier IS NULL AND (n.revision > h.revision OR (n.revision = h.revision AND n.position > h.position))) \
                   ORDER BY h.group_id, h.model";
        let read =
            |row: &AnyRow| Ok(OfferedSince { group: group(row, 0)?, model: row.try_get(1)?, since: Timestamp(row.try_get(2)?) });
        self.fetch_as(OFFERS, sqlx::query(sql), read).await
    }

    async fn sale_price_changes(&self, limit: u32) -> Result<Vec<(PriceHistoryPosition, PriceChange)>, StoreError> {
        let query = price_history::latest_sales(limit.min(MAX_CHANGES));
        self.fetch_as("read the history of prices", query, price_history::change).await
    }
}
