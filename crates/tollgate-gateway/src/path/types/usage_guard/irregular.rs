//! Irregularities in a request's money for the operator: implausible usage, and sales below cost.

use tollgate_core::{Outcome, RequestFacts, UsageExcess, UsageRecord, usage_excess};

use crate::state::{alert_queue::MoneyAlert, shared::Shared};

/// Usage that each upstream reported beyond what the request can account for, by the attempt's position.
pub(super) fn excesses(facts: &RequestFacts) -> Vec<(usize, UsageExcess)> {
    let attempts = facts.attempts.iter().enumerate();
    attempts.filter_map(|(at, attempt)| Some((at, usage_excess(attempt, &facts.bounds)?))).collect()
}

/// Counts, logs and alerts. A free model (`is_free`) is sold below cost on purpose and only counted.
pub(super) fn report(shared: &Shared, record: &UsageRecord, excesses: &[(usize, UsageExcess)], is_free: bool) {
    for (at, excess) in excesses {
        let Some(attempt) = record.attempts.get(*at) else { continue };
        shared.metrics.usage_excess(&attempt.channel_name, excess.tokens());
        shared.money_alert(record, &MoneyAlert::UsageExcess { channel: attempt.channel, name: &attempt.channel_name, excess });
    }
    if record.outcome != Outcome::Completed {
        return;
    }
    if let (Some(sale), Some(cost)) = (record.sale, record.cost)
        && sale < cost
        && let Some(loss) = cost.checked_sub(sale)
    {
        shared.metrics.sold_below_cost(record, loss, &shared.catalog.load());
        if !is_free {
            shared.money_alert(record, &MoneyAlert::SoldBelowCost { sale, cost });
        }
    }
}
