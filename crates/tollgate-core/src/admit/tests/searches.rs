//! Web searches that are reserved.

use super::*;

const EACH: i64 = 7;

fn priced_searches() -> Price {
    Price { web_search: Some(EACH), ..price("0", "0") }
}

#[test]
fn most_possible_searches_are_reserved() {
    let reserved = |max_searches: Option<u64>, web_search: bool| {
        let case = Case::new(|it| {
            it.key.budgets = vec![Budget { amount: NanoUsd(1_000_000_000), window: Window::Total, action: BudgetAction::Block }];
            it.model.spec.price = Some(always(priced_searches()));
            (it.summary.extras.web_search, it.summary.max_searches) = (web_search, max_searches);
        });
        case.reservation().unwrap().amount
    };
    assert_eq!([reserved(Some(8), true), reserved(None, true), reserved(Some(8), false)], [NanoUsd(56), NanoUsd(70), NanoUsd(0)]);
    assert_eq!(reserved(Some(u64::MAX), true), NanoUsd(70_000), "more are never billed");
}

#[test]
fn attempt_reserves_no_search_where_the_channel_does_not_search() {
    let mut channel = channel("c", &["m"]);
    channel.spec.budgets = block("1");
    let planned = PlannedAttempt {
        channel: Arc::new(channel),
        account: Arc::new(account("c", 0)),
        mapping_index: 0,
        cost: Some(priced_searches().into()),
        protocol: Protocol::OpenAi,
        last_resort: false,
    };
    let reserved = |from: Protocol, own_search: bool| {
        let case = Case::new(|it| {
            (it.summary.extras.web_search, it.summary.extras.own_search) = (true, own_search);
            it.summary.max_searches = Some(8);
        });
        let (asked, offer) = ((from, &case.summary), case.offer());
        let reservation = reservation_for_attempt(RequestId::from_parts(NOW, [1; 10]), NOW, &planned, asked, &offer).unwrap();
        assert_eq!(max_attempt_cost(&planned, asked, &offer), Some(reservation.amount));
        reservation.amount
    };
    assert_eq!(reserved(Protocol::OpenAi, true), NanoUsd(8 * EACH), "the channel speaks the protocol of the caller");
    assert_eq!(reserved(Protocol::Anthropic, true), NanoUsd::ZERO, "the search is not sent to it");
    assert_eq!(reserved(Protocol::Anthropic, false), NanoUsd(8 * EACH), "every channel gets a search that is not the caller's own");
}
