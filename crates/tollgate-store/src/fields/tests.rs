//! Compares the tables with the types they describe.

use serde_json::{Value, json};
use tollgate_core::{ChannelSpec, ModelMapping, ModelSpec, Price, PriceTier, ScheduledPrice};
use tollgate_protocol::Profile;

use super::*;
use crate::{GroupSpec, MemberSpec};

fn problems<R: Row>(members: &Value) -> Vec<String> {
    let (mut row, mut problems) = (R::blank(), Vec::new());
    let members = members.as_object().unwrap();
    check_object(R::OBJECT, members, WriteMode::Create, &mut Vec::new(), &mut problems);
    assign(&mut row, members, &mut problems);
    problems.iter().map(|problem| format!("{}: {}", problem.path_text(), problem.below(problem.path.len()))).collect()
}

fn round_trip<R: Row>() {
    let mut blank = R::blank();
    for field in R::FIELDS {
        let shown = (field.get)(&blank);
        if !field.shape.secret && (field.shape.nullable || !shown.is_null()) {
            (field.set)(&mut blank, &shown).unwrap_or_else(|error| panic!("{}: {error}", field.shape.name));
            assert_eq!((field.get)(&blank), shown, "{} of {}", field.shape.name, R::OBJECT.name);
        }
        assert!(field.shape.doc.ends_with('.'), "{}: the doc is a sentence", field.shape.name);
    }
    let names: std::collections::HashSet<_> = R::FIELDS.iter().map(|field| field.shape.name).collect();
    assert_eq!(names.len(), R::FIELDS.len(), "{}", R::OBJECT.name);
}

#[test]
fn every_shown_default_round_trips() {
    round_trip::<ChannelSpec>();
    round_trip::<ModelMapping>();
    round_trip::<AccountInput>();
    round_trip::<ModelSpec>();
    round_trip::<GroupSpec>();
    round_trip::<MemberSpec>();
    round_trip::<KeyInput>();
    round_trip::<Profile>();
    round_trip::<ScheduledPrice>();
    round_trip::<PriceTier>();
}

#[test]
fn names_with_invisible_characters_or_the_form_of_an_id_are_refused() {
    let faults = |name: &str| check_row(&GroupSpec { name: name.to_owned(), ..GroupSpec::blank() }).len();
    for good in ["default", "größe 組 😀", "a/b", "..", "grp_short", "👨\u{200d}👩\u{200d}👧"] {
        assert_eq!(faults(good), 0, "{good:?}");
    }
    for bad in ["a\u{202e}b", "a\u{200b}", "\u{feff}a", "a\u{2066}b", "grp_01m7zpcfdnf1frvedh0bp3pf6m", "a\nb", " a", ""] {
        assert!(faults(bad) > 0, "{bad:?}");
    }
}

#[test]
fn header_given_twice_in_another_case_is_refused() {
    let headers = ["X-A", "x-a"].map(|name| (name.to_owned(), "1".to_owned())).to_vec();
    let spec = ChannelSpec { name: "c".to_owned(), base_url: "https://x/v1".to_owned(), headers, ..ChannelSpec::default() };
    assert!(check_row(&spec).iter().any(|it| it.field == "headers" && it.message.contains("twice")));
}

#[test]
fn invalid_model_factors_are_reported_with_their_reason() {
    let found = |own: Value| problems::<GroupSpec>(&json!({"name": "g", "model_multipliers": own}));
    assert_eq!(found(json!({"gpt-*": "1.5", "gpt-fast": 2, "a:free": "0"})), Vec::<String>::new());
    assert_eq!(found(json!({"*": "2"})), ["model_multipliers: '*' matches every model; set sale_multiplier instead"]);
    let faults = found(json!({"gpt-*": "cheap"}));
    assert!(faults.len() == 1 && faults[0].starts_with("model_multipliers.gpt-*: not a decimal amount"), "{faults:?}");
    assert_eq!(found(json!({" gpt": "1"})), ["model_multipliers. gpt: the name begins or ends with white space"]);
    assert!(found(json!(["gpt-*"]))[0].contains("expected a table of factors"));
    let many: serde_json::Map<_, _> = (0..=200).map(|i| (format!("m-{i}"), "1".into())).collect();
    assert_eq!(found(many.into()), ["model_multipliers: more than 200 entries"]);
}

#[test]
fn model_factors_have_a_short_form() {
    let field = GroupSpec::OBJECT.field("model_multipliers").unwrap();
    let expected = json!({"gpt-*": "1.5", "a:free": "0", "o3": "2"});
    assert_eq!(parse_text(field, "gpt-*:1.5, a:free:0,o3=2"), Ok(expected.clone()));
    assert_eq!(parse_text(field, r#"{ "gpt-*" = "1.5", "a:free" = "0", o3 = "2" }"#), Ok(expected));
    assert_eq!(parse_text(field, ""), Ok(json!({})));
    assert!(parse_text(field, "gpt-*").unwrap_err().contains("such as gpt-*:1.5"));
}

#[test]
fn mistyped_price_is_refused() {
    const MAX: i64 = 100_000_000_000_000;
    let problems = |price| {
        let schedule = tollgate_core::PriceSchedule::constant(price);
        check_row(&ModelSpec { name: "m".to_owned(), price: Some(schedule), ..ModelSpec::default() }).len()
    };
    let dear = Price { output: Some(MAX), per_request: Some(10_000_000_000_000), ..Price::default() };
    assert_eq!(problems(dear.clone()), 0);
    assert_eq!(problems(Price { audio: Some(MAX + 1), ..dear.clone() }), 1);
    assert_eq!(problems(Price { per_request: Some(10_000_000_000_001), ..dear.clone() }), 1);
    let tier = PriceTier { above: 1, price: Price { input: Some(-1), ..Price::default() } };
    assert_eq!(problems(Price { tiers: vec![tier], ..dear }), 1);
}

#[test]
fn every_problem_of_a_row_is_reported() {
    let channel = ChannelSpec { name: " x".to_owned(), base_url: "nowhere".to_owned(), weight: 0, ..ChannelSpec::default() };
    let fields: Vec<_> = check_row(&channel).iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["name", "base_url", "weight"]);
}

#[test]
fn problems_name_their_path() {
    assert_eq!(
        problems::<ChannelSpec>(&json!({
            "name": "c", "weight": 0, "probe_interval_s": 5, "serves": [{"model": "m", "cost": {"ouput": 1, "input": "x"}}],
            "budget": [{"amount": 1, "window": "day"}, {"amount": 2, "window": "day"}],
        })),
        [
            "weight: expected a whole number of 1 to 1000000",
            "probe_interval_s: expected 0, or a whole number of 10 to 86400",
            "serves[0].cost.ouput: unknown field; did you mean 'output'?",
            "serves[0].cost.input: not a decimal amount with at most 9 decimals: 'x'",
            "budget: two budgets have the same window and action",
        ]
    );
}

#[test]
fn old_field_names_suggest_the_new_one() {
    assert_eq!(
        problems::<KeyInput>(&json!({"name": "k", "budgets": [], "budget": {"amount_nano_usd": 1, "window": "day"}})),
        [
            "budgets: unknown field; `budgets` is now `budget`, such as {\"amount\": \"5\", \"window\": \"month\"}",
            "budget.amount_nano_usd: unknown field; `amount_nano_usd` is now `amount`, in USD, such as \"5.00\"",
            "budget.amount: is missing",
        ]
    );
}

#[test]
fn short_forms_are_read() {
    let of = |name: &str, text: &str| {
        let fields = KeyInput::OBJECT.fields.iter().chain(ModelSpec::OBJECT.fields).chain(GroupSpec::OBJECT.fields);
        parse_text(fields.into_iter().find(|field| field.name == name).unwrap(), text)
    };
    let month = json!({"amount": "5", "window": "month"});
    assert_eq!(of("budget", "5/month"), Ok(month.clone()));
    assert_eq!(of("budget", "{ amount = \"5\", window = \"month\" }"), Ok(month.clone()));
    assert_eq!(of("budget", "{\"amount\":\"5\",\"window\":\"month\"}"), Ok(month.clone()));
    assert_eq!(of("budget", "5/month,0.50/day:alert"), Ok(json!([month, {"amount": "0.50", "window": "day", "action": "alert"}])));
    assert_eq!(of("budget", "null"), Ok(Value::Null));
    assert_eq!(of("price", "input:0.30,output:2.40"), Ok(json!({"input": "0.30", "output": "2.40"})));
    assert_eq!(of("price", "free"), Ok(json!({"free": true})));
    assert_eq!(of("price_limit", "mode:ceiling,max_input:1.5"), Ok(json!({"mode": "ceiling", "max_input": "1.5"})));
    assert_eq!(of("hedge", "cost_cap:1.00"), Ok(json!({"cost_cap": "1.00"})));
    assert_eq!(of("channels", "a, b"), Ok(json!(["a", "b"])));
    assert_eq!(of("rpm", "many"), Ok(json!("many")));
    assert!(of("budget", "5").unwrap_err().contains("such as 5/month"));
}

#[test]
fn invalid_short_forms_are_answered_with_an_example() {
    let budget = KeyInput::OBJECT.fields.iter().find(|field| field.name == "budget").unwrap();
    for (text, why) in [
        ("5/mo", "'mo' is not one of"),
        ("5$/month", "not a decimal amount"),
        ("5/month:allert", "did you mean 'alert'?"),
        ("amount=5", "window: is missing"),
        ("{\"amount\":5}", "window: is missing"),
        ("5 per month", ""),
    ] {
        let error = parse_text(budget, text).unwrap_err();
        assert!(error.contains("such as 5/month") && error.contains(why), "{text}: {error}");
    }
}
