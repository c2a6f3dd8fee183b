//! The choice of the entry for each price, and the prices that are kept.

use super::*;
use crate::{
    Model, PriceListFormat, SkippedPrice,
    samples::{catalog, channel, group, model, price},
};

fn list(csv: &str) -> PriceList {
    PriceList::read(PriceListFormat::Csv, csv).unwrap()
}

fn unpriced(name: &str) -> Model {
    let mut row = model(name);
    (row.spec.price, row.owner) = (None, Some(Owner::Database));
    row
}

/// A channel of a provider that serves `m` as this upstream model.
fn serving(name: &str, provider: Provider, upstream: &str) -> Channel {
    let mut row = channel(name, &["m"]);
    (row.owner, row.spec.provider) = (Owner::Database, provider);
    upstream.clone_into(&mut row.spec.serves[0].upstream);
    row
}

fn catalog_of(channels: Vec<Channel>, row: Model) -> Catalog {
    let names: Vec<String> = channels.iter().map(|channel| channel.spec.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    catalog(channels, vec![group("default", &names)], vec![row])
}

fn plan(list: &PriceList, catalog: &Catalog, overwrite: &[String], is_imported: bool) -> ImportPlan {
    let models = [Glob("*".to_owned())];
    let scope = ImportScope { sale: true, cost: true, models: &models, overwrite, is_imported: &|_, _| is_imported };
    plan_price_import(list, catalog, &scope)
}

/// Each row: its channel or `sale`, its state, and its entry.
fn states(plan: &ImportPlan) -> Vec<String> {
    let shown = |row: &ImportRow| {
        let channel = row.channel.as_deref().unwrap_or("sale");
        format!("{channel} {} {}", row.state.as_str(), row.entry.as_deref().unwrap_or_default())
    };
    plan.rows.iter().map(shown).collect()
}

#[test]
fn price_is_matched_by_provider_and_upstream_name() {
    let list = list("model,provider,input\nbig,openai,1\nbig,azure,2\nother,openai,3\n");
    let catalog = catalog_of(vec![serving("main", Provider::OpenAi, "big")], unpriced("m"));
    let found = plan(&list, &catalog, &[], false);
    assert_eq!(states(&found), ["sale new openai/big", "main new openai/big"]);
    assert_eq!(found.not_served, ["azure/big", "openai/other"]);
    assert_eq!(found.rows[0].after, Some(always(Price { output: None, ..price("1", "0") })));
}

#[test]
fn models_that_are_not_served_have_the_price_that_an_import_would_take() {
    let list = list("model,provider,input\nbig,openai,1\nbig,azure,2\nother,azure,3\n");
    let upstreams = ["big", "other", "unknown"].map(str::to_owned);
    let of = |provider: Provider| listed_prices(&list, &serving("main", provider, "m").spec, &upstreams);
    let always_of = |input: &str| Some(always(Price { output: None, ..price(input, "0") }));
    assert_eq!(of(Provider::OpenAi), [always_of("1"), always_of("3"), None]);
    assert_eq!(of(Provider::Compatible), [None, always_of("3"), None], "two entries with different prices");
}

#[test]
fn provider_of_a_compatible_server_is_recognised_by_its_host() {
    let list = list("model,provider,input\nbig,groq,1\nbig,openai,2\n");
    let mut groq = serving("fast", Provider::Compatible, "big");
    groq.spec.base_url = "https://api.groq.com/openai/v1".to_owned();
    let local = serving("local", Provider::Compatible, "big");
    let found = plan(&list, &catalog_of(vec![groq, local], unpriced("m")), &[], false);
    assert_eq!(states(&found), ["sale new groq/big", "fast new groq/big"]);
}

#[test]
fn list_without_providers_prices_by_upstream_or_public_name() {
    let by_public = list("model,input\nm,1\n");
    let catalog = catalog_of(vec![serving("main", Provider::OpenAi, "big")], unpriced("m"));
    assert_eq!(states(&plan(&by_public, &catalog, &[], false)), ["sale new m", "main new m"]);
    let both = list("model,input\nm,1\nbig,2\n");
    assert_eq!(states(&plan(&both, &catalog, &[], false)), ["sale new m", "main new big"]);
}

#[test]
fn channels_with_different_prices_leave_the_sale_price_to_the_operator() {
    let list = list("model,provider,input\nbig,openai,1\nlarge,gemini,2\n");
    let channels = vec![serving("a", Provider::OpenAi, "big"), serving("b", Provider::Gemini, "large")];
    let found = plan(&list, &catalog_of(channels, unpriced("m")), &[], false);
    assert_eq!(states(&found), ["sale skipped ", "a new openai/big", "b new gemini/large"]);
    assert!(found.rows[0].state.reason().unwrap().contains("openai/big, gemini/large"));
}

#[test]
fn manually_set_price_is_kept_unless_its_model_is_named() {
    let list = list("model,provider,input,output\nbig,openai,5,6\n");
    let mut main = serving("main", Provider::OpenAi, "big");
    main.spec.serves[0].cost = Some(always(price("1", "2")));
    let mut row = model("m");
    row.owner = Some(Owner::Database);
    let catalog = catalog_of(vec![main], row);
    let found = plan(&list, &catalog, &[], false);
    assert_eq!(states(&found), ["sale kept openai/big", "main kept openai/big"]);
    assert!(found.rows.iter().all(|row| !row.state.is_written() && row.state.reason().as_deref() == Some("set by hand")));
    assert_eq!(states(&plan(&list, &catalog, &["m".to_owned()], false)).iter().filter(|row| row.contains(" changed ")).count(), 2);
    assert_eq!(states(&plan(&list, &catalog, &["other".to_owned()], false))[0], "sale kept openai/big");
    assert_eq!(states(&plan(&list, &catalog, &[], true))[0], "sale changed openai/big", "an imported price is replaced");
}

#[test]
fn equal_price_is_not_a_change_and_rows_of_a_served_file_are_kept() {
    let list = list("model,provider,input,output\nbig,openai,1,2\n");
    let mut main = serving("main", Provider::OpenAi, "big");
    main.owner = Owner::File;
    let found = plan(&list, &catalog_of(vec![main], model("m")), &["m".to_owned()], true);
    assert_eq!(states(&found), ["sale same openai/big", "main kept openai/big"]);
    assert_eq!(found.rows[1].state, ImportState::Kept(KeptReason::OwnedByFile));
}

#[test]
fn entry_that_cannot_be_expressed_is_a_row_with_its_reason() {
    let skipped = SkippedPrice { provider: Some("openai".to_owned()), model: "big".to_owned(), reason: "per second".to_owned() };
    let list = PriceList { skipped: vec![skipped], ..PriceList::default() };
    let found = plan(&list, &catalog_of(vec![serving("main", Provider::OpenAi, "big")], unpriced("m")), &[], false);
    assert_eq!(states(&found), ["sale skipped openai/big", "main skipped openai/big"]);
    assert_eq!(found.rows[0].state.reason().as_deref(), Some("per second"));
}

#[test]
fn scope_selects_models_and_kinds_of_prices() {
    let list = list("model,provider,input\nbig,openai,1\n");
    let catalog = catalog_of(vec![serving("main", Provider::OpenAi, "big"), serving("try", Provider::Echo, "big")], unpriced("m"));
    let rows = |models: &str, sale: bool, cost: bool| {
        let models = [Glob(models.to_owned())];
        let scope = ImportScope { sale, cost, models: &models, overwrite: &[], is_imported: &|_, _| false };
        plan_price_import(&list, &catalog, &scope).rows.len()
    };
    assert_eq!((rows("*", true, true), rows("*", true, false), rows("*", false, true), rows("x*", true, true)), (2, 1, 1, 0));
}
