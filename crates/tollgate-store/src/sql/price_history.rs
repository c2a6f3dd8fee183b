//! Queries of the history of prices.

use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::{PriceSchedule, Revision, Timestamp};

use super::rows::AnyQuery;
use crate::{ImportedPrice, PriceChange, PriceHistoryFilter, PriceHistoryPosition, rows::spec_text};

/// The column `channel` of a price's changes.
fn channel_column(channel: Option<&str>) -> String {
    channel.unwrap_or_default().to_owned()
}

pub(super) fn insert(position: i64, change: &PriceChange) -> AnyQuery<'static> {
    let text = |price: Option<&PriceSchedule>| price.map(spec_text);
    sqlx::query(
        "INSERT INTO price_history (revision, position, at, origin, actor, model, channel, source, old_price, new_price) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(change.revision.0)
    .bind(position)
    .bind(change.at.0)
    .bind(change.origin.clone())
    .bind(change.actor.clone())
    .bind(change.model.clone())
    .bind(channel_column(change.channel.as_deref()))
    .bind(change.source.clone())
    .bind(text(change.before.as_ref()))
    .bind(text(change.after.as_ref()))
}

/// The source of a price's last change.
pub(super) fn last_source(model: &str, channel: Option<&str>) -> AnyQuery<'static> {
    sqlx::query("SELECT source FROM price_history WHERE model = $1 AND channel = $2 ORDER BY revision DESC, position DESC LIMIT 1")
        .bind(model.to_owned())
        .bind(channel_column(channel))
}

pub(super) fn page(filter: &PriceHistoryFilter) -> AnyQuery<'static> {
    let before = filter.before.unwrap_or(PriceHistoryPosition { revision: Revision(i64::MAX), position: 0 });
    // An optional condition would prevent the database from using the index of models.
    let of_model = if filter.model.is_some() { "model = $1" } else { "CAST($1 AS TEXT) IS NULL" };
    let sql = format!(
        "SELECT revision, position, at, origin, actor, model, channel, source, old_price, new_price FROM price_history \
         WHERE {of_model} AND (CAST($2 AS TEXT) IS NULL OR channel = $2) \
         AND (revision < $3 OR (revision = $3 AND position < $4)) ORDER BY revision DESC, position DESC LIMIT $5"
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(filter.model.clone())
        .bind(filter.channel.clone())
        .bind(before.revision.0)
        .bind(before.position)
        .bind(i64::try_from(filter.size()).unwrap_or(1_001))
}

/// The latest changes of sale prices that changed a price.
pub(super) fn latest_sales(limit: u32) -> AnyQuery<'static> {
    sqlx::query(
        "SELECT revision, position, at, origin, actor, model, channel, source, old_price, new_price FROM price_history \
         WHERE channel = '' AND (old_price IS NULL OR new_price IS NULL OR old_price <> new_price) \
         ORDER BY revision DESC, position DESC LIMIT $1",
    )
    .bind(i64::from(limit))
}

pub(super) fn change(row: &AnyRow) -> Result<(PriceHistoryPosition, PriceChange), sqlx::Error> {
    let price = |column: usize| -> Result<Option<PriceSchedule>, sqlx::Error> {
        let text: Option<String> = row.try_get(column)?;
        text.map(|text| serde_json::from_str(&text)).transpose().map_err(|error| sqlx::Error::Decode(error.into()))
    };
    let (revision, position) = (Revision(row.try_get(0)?), row.try_get(1)?);
    let change = PriceChange {
        revision,
        at: Timestamp(row.try_get(2)?),
        origin: row.try_get(3)?,
        actor: row.try_get(4)?,
        model: row.try_get(5)?,
        channel: channel(row, 6)?,
        source: row.try_get(7)?,
        before: price(8)?,
        after: price(9)?,
    };
    Ok((PriceHistoryPosition { revision, position }, change))
}

/// The last change of each price that was an import.
pub(super) fn imported() -> AnyQuery<'static> {
    sqlx::query(
        "SELECT model, channel, source, at FROM price_history p WHERE source IS NOT NULL AND NOT EXISTS (SELECT 1 FROM price_history n \
         WHERE n.model = p.model AND n.channel = p.channel \
         AND (n.revision > p.revision OR (n.revision = p.revision AND n.position > p.position))) ORDER BY model, channel",
    )
}

pub(super) fn imported_price(row: &AnyRow) -> Result<ImportedPrice, sqlx::Error> {
    Ok(ImportedPrice { model: row.try_get(0)?, channel: channel(row, 1)?, source: row.try_get(2)?, at: Timestamp(row.try_get(3)?) })
}

fn channel(row: &AnyRow, column: usize) -> Result<Option<String>, sqlx::Error> {
    let name: String = row.try_get(column)?;
    Ok(Some(name).filter(|name| !name.is_empty()))
}
