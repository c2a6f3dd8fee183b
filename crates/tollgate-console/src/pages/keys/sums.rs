//! The total usage of all keys of a filter: requests and charges of this month and of today.

use serde::Deserialize;
use tollgate_core::NanoUsd;

use super::{
    filter::KeyFilter,
    view::{KeyObject, PeriodUse},
};
use crate::{
    api_error::ApiError,
    pages::{
        locale::Locale,
        money, operations,
        request::{ApiPage, PageRequest, get},
    },
};

#[derive(Debug, Deserialize)]
struct Sums {
    keys: u64,
    month: PeriodUse,
    today: PeriodUse,
}

/// The sums in words. `None` without keys, without a filter if there are more keys than on a page, and while the database is busy.
pub(super) async fn of(request: &PageRequest, filter: &KeyFilter, page: &ApiPage<KeyObject>) -> Result<Option<String>, ApiError> {
    let t = request.t();
    if page.items.is_empty() {
        return Ok(None);
    }
    if page.next.is_none() && !request.query.has("after") {
        return Ok(of_page(&page.items).map(|sums| text(t, &sums)));
    }
    if !filter.is_set() {
        return Ok(None);
    }
    let pairs: Vec<(&str, &str)> = filter.pairs().into_iter().filter(|(name, _)| *name != "sort").collect();
    match request.read_kept::<Sums>(operations::SUM_KEYS, get(&pairs)).await {
        Ok(sums) => Ok(Some(text(t, &sums))),
        // With too many keys or a busy database the list is shown without sums.
        Err(error) if error.code() == "server_overloaded" || error.is_about_input() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The sums of a page that has all keys; `None` if their usage is not known.
fn of_page(keys: &[KeyObject]) -> Option<Sums> {
    let sum = |period: fn(&KeyObject) -> Option<&PeriodUse>| {
        let used = keys.iter().map(period).collect::<Option<Vec<_>>>()?;
        let nano = |used: &PeriodUse| NanoUsd::parse(&used.sale).map_or(0, |amount| amount.0);
        let sale = used.iter().fold(0_i64, |sum, used| sum.saturating_add(nano(used)));
        let requests = used.iter().fold(0_u64, |sum, used| sum.saturating_add(used.requests));
        Some(PeriodUse { requests, sale: NanoUsd(sale).to_usd_string() })
    };
    Some(Sums {
        keys: u64::try_from(keys.len()).unwrap_or(u64::MAX),
        month: sum(|key| key.month.as_ref())?,
        today: sum(|key| key.today.as_ref())?,
    })
}

fn text(t: Locale, sums: &Sums) -> String {
    let requests = |used: &PeriodUse| t.say_count("keys.sum_request", "keys.sum_requests", used.requests);
    let amount = |used: &PeriodUse| money::short(t, &used.sale).text;
    let keys = t.say_count("keys.sum_one", "keys.sum_count", sums.keys);
    t.say_with(
        "keys.sums",
        &[
            ("keys", &keys),
            ("month_requests", &requests(&sums.month)),
            ("month", &amount(&sums.month)),
            ("today_requests", &requests(&sums.today)),
            ("today", &amount(&sums.today)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(requests: u64, sale: &str) -> PeriodUse {
        PeriodUse { requests, sale: sale.to_owned() }
    }

    #[test]
    fn sums_name_keys_requests_and_charges() {
        let sums = Sums { keys: 1_200, month: used(34_567, "12.5"), today: used(8, "0.25") };
        let said = text(Locale::EN, &sums);
        for part in ["1,200", "34,567", "$12.50", "8", "$0.25"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(of_page(&[]).is_some_and(|sums| sums.keys == 0 && sums.month.requests == 0));
    }
}
