//! Input that the body of a request does not show.

use tollgate_protocol::UnseenInput;

use super::*;

#[test]
fn input_not_in_the_body_is_reserved_up_to_the_context_size() {
    let unseen = [
        UnseenInput { cached_content: true, ..UnseenInput::default() },
        UnseenInput { files: true, ..UnseenInput::default() },
        UnseenInput { tools: true, ..UnseenInput::default() },
        UnseenInput { compaction: true, ..UnseenInput::default() },
    ];
    for unseen in unseen {
        let case = |limit_tokens: u64| {
            Case::new(|it| {
                it.key.budgets = block("5");
                it.key.limits.tpm = limit_tokens;
                let tiers = vec![PriceTier { above: 200_000, price: price("3", "4") }];
                it.model.spec.price = Some(always(Price { image: Some(5_000_000_000), tiers, ..price("1", "2") }));
                it.model.spec.context = Some(1_000_000);
                it.summary.extras.unseen = unseen;
            })
        };
        let reservation = case(0).reservation().unwrap();
        // The unseen input may include images, at 5 USD per million.
        assert!(reservation.amount > NanoUsd::parse("5").unwrap(), "{:?}", reservation.amount);
        let seen = Case::new(|it| it.key.limits.tpm = 10_000).reservation().unwrap().tokens;
        assert_eq!(case(10_000).reservation().unwrap().tokens, seen, "a limit on tokens a minute counts what is seen");
    }
}

#[test]
fn summary_of_the_conversation_is_reserved_beyond_the_output_limit() {
    let amount = |compaction: bool| {
        let case = Case::new(|it| {
            it.key.budgets = block("5");
            it.model.spec.price = Some(always(price("0", "2")));
            it.model.spec.max_output = Some(30_000);
            it.summary.max_output = Some(1_000);
            it.summary.extras.unseen.compaction = compaction;
        });
        case.reservation().unwrap().amount
    };
    assert_eq!(amount(false), NanoUsd::parse("0.002").unwrap());
    assert_eq!(amount(true), NanoUsd::parse("0.062").unwrap());
}
