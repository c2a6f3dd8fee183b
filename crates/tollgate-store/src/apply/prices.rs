//! Changes of prices, and the history of prices, which every change of a row adds to.

use std::collections::{BTreeSet, HashMap};

use tollgate_core::{ChannelSpec, ModelSpec, PriceSchedule, Revision};

use super::{Batch, SecretInput, SecretRequirement, checked, refused};
use crate::{
    AuditAction, ChangeRefusal, PriceChange, RowKind, StoreError, fields::check_row, price_history::prices_of, rows::CatalogRow,
};

impl Batch<'_> {
    pub(super) async fn set_price(
        &mut self,
        model: &str,
        price: Option<&PriceSchedule>,
        source: Option<&str>,
    ) -> Result<(), StoreError> {
        let row = self.rows.by_name(RowKind::Model, "", model).await?;
        let mut spec = match &row {
            Some(row) => row.read()?,
            None => ModelSpec { name: model.to_owned(), ..ModelSpec::default() },
        };
        if spec.price.as_ref() == price {
            let Some(row) = row else { return Ok(()) };
            return self.set_source(&row, None, &[(model, price)], source).await;
        }
        spec.price = price.cloned();
        checked(RowKind::Model, model, check_row(&spec))?;
        self.price_source = source.map(str::to_owned);
        let written = self.put(RowKind::Model, "", model, &spec, SecretInput::Keep(SecretRequirement::NeedsNone)).await;
        self.price_source = None;
        written
    }

    pub(super) async fn set_costs(
        &mut self,
        channel: &str,
        costs: &[(String, Option<PriceSchedule>)],
        source: Option<&str>,
    ) -> Result<(), StoreError> {
        let row = self.need(RowKind::Channel, "", channel).await?;
        self.may_write(&row, channel)?;
        let mut spec: ChannelSpec = row.read()?;
        let positions: HashMap<String, usize> =
            spec.serves.iter().zip(0..).map(|(mapping, at)| (mapping.model.clone(), at)).collect();
        let mut same = Vec::new();
        for (model, cost) in costs {
            let mapping = positions.get(model).and_then(|at| spec.serves.get_mut(*at));
            let mapping = mapping.ok_or_else(|| refused(RowKind::Model, model, ChangeRefusal::NotFound))?;
            if mapping.cost == *cost {
                same.push((model.as_str(), cost.as_ref()));
                continue;
            }
            mapping.cost.clone_from(cost);
            checked(RowKind::Channel, channel, check_row(mapping))?;
        }
        self.set_source(&row, Some(channel), &same, source).await?;
        self.price_source = source.map(str::to_owned);
        let written = self.edit_row(row, AuditAction::Price, |before: &mut ChannelSpec| *before = spec).await;
        self.price_source = None;
        written
    }

    /// Records a new source for unchanged prices: an imported price now counts as set by hand, or the reverse.
    async fn set_source(
        &mut self,
        row: &CatalogRow,
        channel: Option<&str>,
        prices: &[(&str, Option<&PriceSchedule>)],
        source: Option<&str>,
    ) -> Result<(), StoreError> {
        let mut changed = Vec::new();
        for (model, price) in prices {
            if self.rows.imported_from(model, channel).await?.as_deref() != source {
                changed.push((*model, *price));
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        self.may_write(row, &row.name)?;
        self.price_source = source.map(str::to_owned);
        self.changed(row, AuditAction::Price, Some(&row.spec.clone()), "set by hand");
        for (model, price) in changed {
            self.note_price(model, channel, price.cloned(), price.cloned());
        }
        self.price_source = None;
        Ok(())
    }

    /// Adds the prices that differ between two states of a row to the history.
    pub(super) fn note_prices(&mut self, row: &CatalogRow, before: Option<&str>, after: Option<&str>) {
        let (mut before, mut after) = (prices_of(row.kind, &row.name, before), prices_of(row.kind, &row.name, after));
        let channel = Some(row.name.as_str()).filter(|_| row.kind == RowKind::Channel);
        let models: BTreeSet<String> = before.keys().chain(after.keys()).cloned().collect();
        for model in models {
            let (before, after) = (before.remove(&model), after.remove(&model));
            if before != after {
                self.note_price(&model, channel, before, after);
            }
        }
    }

    fn note_price(&mut self, model: &str, channel: Option<&str>, before: Option<PriceSchedule>, after: Option<PriceSchedule>) {
        self.prices.push(PriceChange {
            revision: Revision(self.revision.0 + 1),
            at: self.now,
            origin: self.actor.origin.as_str().to_owned(),
            actor: self.actor.name.clone(),
            model: model.to_owned(),
            channel: channel.map(str::to_owned),
            source: self.price_source.clone(),
            before,
            after,
        });
    }
}
