//! Spent budgets of the whole gateway. Callers see that they are spent and when they renew; only operators see amounts.

use serde::Deserialize;

use super::{
    format::{self, TimeText},
    locale::Locale,
};

#[derive(Debug, Deserialize)]
pub(super) struct SpentGatewayBudget {
    renews_at: Option<String>,
}

/// When each of them renews; `None`: never.
pub(super) fn renewals(t: Locale, spent: &[SpentGatewayBudget]) -> Vec<Option<TimeText>> {
    spent.iter().map(|spent| format::time(t, spent.renews_at.as_deref()?)).collect()
}
