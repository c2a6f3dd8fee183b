//! Snapshots are sorted and indexed, and tolerate dangling references.

use super::*;
use crate::ChannelSpec;
use crate::samples::{account_id, catalog, channel, channel_id, group, group_id, model};

fn sample() -> Catalog {
    catalog(
        vec![channel("zeta", &["m", "n"]), channel("alpha", &["m"]), channel("mid", &["n", "m", "n"])],
        vec![group("two", &["mid", "gone"]), group("one", &["zeta", "alpha"])],
        vec![model("m"), model("ghost")],
    )
}

#[test]
fn rows_are_sorted_and_found_by_name() {
    let catalog = sample();
    let names: Vec<&str> = catalog.channels.values().map(|it| it.spec.name.as_str()).collect();
    assert_eq!(names, ["alpha", "mid", "zeta"]);
    assert_eq!(catalog.channel_by_name("mid").unwrap().id, channel_id("mid"));
    assert_eq!(catalog.group_by_name("two").unwrap().id, group_id("two"));
    assert!(catalog.channel_by_name("Mid").is_none());
}

#[test]
fn index_lists_each_serving_channel_once() {
    let catalog = sample();
    let served = |name: &str| {
        let named = |it: &MappingRef| (catalog.channel_at(it.channel).unwrap().spec.name.clone(), it.mapping);
        catalog.mappings_by_model[name].iter().map(named).collect::<Vec<_>>()
    };
    assert_eq!(served("m"), [("alpha".to_owned(), 0), ("mid".to_owned(), 1), ("zeta".to_owned(), 0)]);
    assert_eq!(served("n"), [("mid".to_owned(), 0), ("zeta".to_owned(), 1)]);
    assert_eq!(catalog.mappings_by_model.keys().collect::<Vec<_>>(), ["m", "n"]);
}

#[test]
fn group_reaches_only_its_own_existing_channels() {
    let catalog = sample();
    let reached = |group: &str| {
        catalog.mappings_for(group_id(group), "m").map(|it| catalog.channel_at(it.channel).unwrap().spec.name.clone()).collect()
    };
    let (one, two): (Vec<String>, Vec<String>) = (reached("one"), reached("two"));
    assert_eq!(
        (one.as_slice(), two.as_slice()),
        (["alpha".to_owned(), "zeta".to_owned()].as_slice(), ["mid".to_owned()].as_slice())
    );
    assert!(catalog.mappings_for(group_id("unknown"), "m").next().is_none());
    assert!(!bit(&[u64::MAX], 99));
}

#[test]
fn bit_set_spans_several_words() {
    let names: Vec<String> = (0..200).map(|i| format!("c{i:03}")).collect();
    let odd: Vec<&str> = names.iter().skip(1).step_by(2).map(String::as_str).collect();
    let catalog = catalog(names.iter().map(|name| channel(name, &["m"])).collect(), vec![group("odd", &odd)], vec![]);
    assert!(catalog.mappings_for(group_id("odd"), "m").all(|it| it.channel % 2 == 1));
    assert_eq!(catalog.mappings_for(group_id("odd"), "m").count(), 100);
}

#[test]
fn served_model_gets_a_default_row_and_an_unserved_row_is_not_a_model() {
    let catalog = sample();
    assert!(catalog.model("n").unwrap().owner.is_none());
    assert!(catalog.model("m").unwrap().spec.price.is_some());
    assert!(catalog.model("ghost").is_none());
}

#[test]
fn accounts_are_found_with_their_channel() {
    let catalog = sample();
    let (channel, account) = catalog.account(account_id("mid/0")).unwrap();
    assert_eq!((channel.spec.name.as_str(), account.spec.name.as_str()), ("mid", "mid/0"));
    assert!(catalog.account(account_id("unknown")).is_none());
}

#[test]
fn last_row_by_name_wins_among_duplicate_ids() {
    let twin =
        Channel { spec: ChannelSpec { name: "twin".to_owned(), ..channel("alpha", &["m"]).spec }, ..channel("alpha", &["m"]) };
    let catalog = catalog(vec![twin, channel("alpha", &["m"]), channel("beta", &["m"])], vec![], vec![]);
    assert_eq!(catalog.channels.len(), 2);
    assert_eq!(catalog.channel_by_name("twin").unwrap().id, channel_id("alpha"));
    assert_eq!(catalog.channel_by_name("beta").unwrap().id, channel_id("beta"));
}

#[test]
fn echo_supports_every_protocol() {
    let echo = Channel { spec: ChannelSpec { provider: Provider::Echo, ..channel("e", &[]).spec }, ..channel("e", &[]) };
    let generates = ModelPurpose::Generation;
    assert!(echo.speaks(Protocol::Gemini, generates) && echo.speaks(Protocol::OpenAi, generates));
    assert!(!channel("c", &[]).speaks(Protocol::Gemini, generates));
    let mut responses = channel("r", &[]);
    responses.spec.protocol = Protocol::Responses;
    assert!(responses.speaks(Protocol::Responses, generates) && !responses.speaks(Protocol::OpenAi, generates));
    assert_eq!(responses.upstream_protocol(Method::Embeddings), Protocol::OpenAi, "which is served beside it");
    assert_eq!(responses.upstream_protocol(Method::Chat), Protocol::Responses);
}
