//! The models that callers see and can use.

use proptest::{prelude::*, test_runner::TestCaseError};

use super::*;
use crate::{
    ChannelSpec, Glob, Member, ModelSpec, Multiplier, ParameterRule, Price, PriceSchedule, ScheduledPrice, Visibility,
    samples::{NOW, always, catalog, channel, group, group_id, key, member, model, price, summary},
};

fn globs(patterns: &[&str]) -> Vec<Glob> {
    patterns.iter().map(|&pattern| Glob(pattern.to_owned())).collect()
}

fn caller(catalog: &Catalog, key: Key) -> Caller {
    Caller::of(catalog, Arc::new(key))
}

fn names(caller: &Caller) -> Vec<&str> {
    caller.groups.iter().map(|group| group.name.as_str()).collect()
}

fn private(name: &str, channels: &[&str]) -> Group {
    Group { visibility: Visibility::Private, ..group(name, channels) }
}

fn request(catalog: &Catalog, key: Key, name: &str) -> Result<Offer, NotOffered> {
    resolve(catalog, &caller(catalog, key), &summary(name, Method::Chat), Protocol::OpenAi, NOW)
}

// === Effective groups ===

#[test]
fn groups_keep_the_keys_order_without_duplicates() {
    let catalog = catalog(vec![], vec![group("a", &[]), group("b", &[])], vec![]);
    assert_eq!(names(&caller(&catalog, key(&["b", "a", "b"]))), ["b", "a"]);
}

#[test]
fn private_groups_need_a_grant() {
    let catalog = catalog(vec![], vec![group("open", &[]), private("closed", &[])], vec![]);
    assert_eq!(names(&caller(&catalog, key(&["closed", "open"]))), ["open"]);
    let granted = Key { member: Member { granted: vec![group_id("closed")], ..member() }, ..key(&["closed", "open"]) };
    assert_eq!(names(&caller(&catalog, granted)), ["closed", "open"]);
}

#[test]
fn key_without_groups_uses_the_members_default() {
    let catalog = catalog(vec![], vec![group("default", &[]), group("team", &[]), private("closed", &[])], vec![]);
    let with_default = |name| Key { member: Member { default_group: Some(group_id(name)), ..member() }, ..key(&[]) };
    assert_eq!(names(&caller(&catalog, with_default("team"))), ["team"]);
    assert!(names(&caller(&catalog, with_default("closed"))).is_empty(), "a default group needs its grant too");
    assert_eq!(names(&caller(&catalog, key(&[]))), ["default"]);
}

#[test]
fn group_named_default_is_the_fallback_only_if_public() {
    let catalog = catalog(vec![], vec![private("default", &[])], vec![]);
    assert!(names(&caller(&catalog, key(&[]))).is_empty());
}

#[test]
fn deleted_groups_are_ignored() {
    let catalog = catalog(vec![], vec![group("a", &[])], vec![]);
    assert_eq!(names(&caller(&catalog, key(&["gone", "a"]))), ["a"]);
    assert!(names(&caller(&catalog, key(&["gone"]))).is_empty(), "the default group does not replace a named one");
}

// === Selection of group and channels ===

#[test]
fn first_offering_group_serves_with_its_own_channels() {
    let catalog = catalog(
        vec![channel("one", &["m"]), channel("two", &["m"]), channel("three", &["other"])],
        vec![group("none", &["three"]), group("first", &["two"]), group("second", &["one", "two"])],
        vec![],
    );
    let offer = request(&catalog, key(&["none", "first", "second"]), "m").unwrap();
    assert_eq!(offer.group.name, "first");
    let channels: Vec<&str> =
        offer.candidates.iter().map(|it| catalog.channel_at(it.channel).unwrap().spec.name.as_str()).collect();
    assert_eq!(channels, ["two"]);
}

#[test]
fn model_exists_when_a_channel_serves_it() {
    let catalog = catalog(vec![channel("c", &["m"])], vec![group("default", &["c"])], vec![model("ghost")]);
    let offer = request(&catalog, key(&[]), "m").unwrap();
    assert_eq!((offer.model.spec.name.as_str(), offer.sale), ("m", None));
    assert_eq!(request(&catalog, key(&[]), "ghost").unwrap_err(), NotOffered::Unknown);
    assert_eq!(request(&catalog, key(&[]), "M").unwrap_err(), NotOffered::Unknown, "names are case-sensitive");
}

#[test]
fn patterns_of_group_and_key_both_apply() {
    let narrow = Group { models: globs(&["gpt-*"]), ..group("default", &["c"]) };
    let catalog = catalog(vec![channel("c", &["gpt-fast", "gpt-slow", "claude"])], vec![narrow], vec![]);
    let limited = Key { models: globs(&["*-fast", "claude"]), ..key(&[]) };
    assert!(request(&catalog, limited.clone(), "gpt-fast").is_ok());
    assert_eq!(request(&catalog, limited.clone(), "gpt-slow").unwrap_err(), NotOffered::OutsideGroup);
    assert_eq!(request(&catalog, limited, "claude").unwrap_err(), NotOffered::OutsideGroup);
}

#[test]
fn caller_without_granted_groups_gets_outside_group() {
    let catalog = catalog(vec![channel("c", &["m"])], vec![private("closed", &["c"])], vec![]);
    assert_eq!(request(&catalog, key(&["closed"]), "m").unwrap_err(), NotOffered::OutsideGroup);
}

// === Prices ===

#[test]
fn sale_price_is_the_latest_in_effect() {
    let schedule = PriceSchedule(vec![
        ScheduledPrice { valid_from: None, price: price("1", "1").into() },
        ScheduledPrice { valid_from: Some(NOW), price: price("2", "2").into() },
        ScheduledPrice { valid_from: Some(NOW.plus_ms(1)), price: price("3", "3").into() },
    ]);
    let row = Model { spec: ModelSpec { price: Some(schedule), ..model("m").spec }, ..model("m") };
    let catalog = catalog(vec![channel("c", &["m"])], vec![group("default", &["c"])], vec![row]);
    let offer = request(&catalog, key(&[]), "m").unwrap();
    assert_eq!(offer.sale, Some(price("2", "2").into()));
    assert_eq!(offer.revision, catalog.revision);
}

#[test]
fn future_price_is_not_in_effect() {
    let schedule = PriceSchedule(vec![ScheduledPrice { valid_from: Some(NOW.plus_ms(1)), price: price("3", "3").into() }]);
    let row = Model { spec: ModelSpec { price: Some(schedule), ..model("m").spec }, ..model("m") };
    let catalog = catalog(vec![channel("c", &["m"])], vec![group("default", &["c"])], vec![row]);
    assert_eq!(request(&catalog, key(&[]), "m").unwrap().sale, None);
}

// === Methods ===

fn method_catalog() -> Catalog {
    let gemini = Channel {
        spec: ChannelSpec {
            provider: Provider::Gemini,
            protocol: Protocol::Gemini,
            ..channel("g", &["chat", "vectors", "both"]).spec
        },
        ..channel("g", &["chat", "vectors", "both"])
    };
    let echo = Channel {
        spec: ChannelSpec { provider: Provider::Echo, ..channel("e", &["echo", "odd"]).spec },
        ..channel("e", &["echo", "odd"])
    };
    let openai = channel("o", &["both", "chat-only"]);
    let responses = Channel {
        spec: ChannelSpec { protocol: Protocol::Responses, ..channel("r", &["agent", "beside"]).spec },
        ..channel("r", &["agent", "beside"])
    };
    let beside = Model { spec: ModelSpec { embeddings: true, ..model("beside").spec }, ..model("beside") };
    let vectors = Model { spec: ModelSpec { embeddings: true, ..model("vectors").spec }, ..model("vectors") };
    let odd = Model { spec: ModelSpec { embeddings: true, ..model("odd").spec }, ..model("odd") };
    let groups = vec![group("default", &["g", "e", "o", "r"])];
    catalog(vec![gemini, echo, openai, responses], groups, vec![vectors, odd, beside])
}

fn request_method(name: &str, method: Method, from: Protocol) -> Result<Offer, NotOffered> {
    let catalog = method_catalog();
    resolve(&catalog, &caller(&catalog, key(&[])), &summary(name, method), from, NOW)
}

#[test]
fn embedding_models_embed_and_others_generate() {
    for method in [Method::EmbedContent, Method::BatchEmbedContents, Method::Embeddings] {
        assert!(request_method("vectors", method, Protocol::Gemini).is_ok(), "{method:?}");
        assert!(matches!(request_method("chat", method, Protocol::Gemini), Err(NotOffered::Method { .. })), "{method:?}");
    }
    for method in [Method::Chat, Method::Generate, Method::StreamGenerate, Method::CountTokens] {
        assert!(request_method("chat", method, Protocol::Gemini).is_ok(), "{method:?}");
        assert!(matches!(request_method("vectors", method, Protocol::Gemini), Err(NotOffered::Method { .. })), "{method:?}");
    }
}

#[test]
fn unsupported_method_error_lists_the_supported_methods() {
    let supports = |name, method| match request_method(name, method, Protocol::OpenAi) {
        Err(NotOffered::Method { supports }) => supports,
        other => panic!("{other:?}"),
    };
    assert_eq!(supports("vectors", Method::Chat), ["embedContent", "batchEmbedContents", "/v1/embeddings"]);
    // Each except compaction is translated to the protocol of the upstream.
    let all = [
        "/v1/responses",
        "/v1/responses/input_tokens",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "generateContent",
        "streamGenerateContent",
        "countTokens",
        "/v1/chat/completions",
    ];
    for name in ["chat-only", "both", "echo"] {
        assert_eq!(supports(name, Method::Embeddings), all, "{name}");
    }
    let compacts = supports("agent", Method::Embeddings);
    assert_eq!(compacts[..3], ["/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"]);
}

#[test]
fn responses_channel_offers_embeddings_at_openai_addresses() {
    for from in [Protocol::OpenAi, Protocol::Gemini] {
        assert!(request_method("beside", Method::Embeddings, from).is_ok(), "{from:?}");
    }
    let catalog = method_catalog();
    let offered = visible_model(&catalog, &caller(&catalog, key(&[])), "beside").unwrap();
    assert!(offered.embeds());
    assert_eq!(offered.protocols, [Protocol::OpenAi], "those that reach it without translation");
}

#[test]
fn echo_never_embeds() {
    assert!(matches!(request_method("odd", Method::Embeddings, Protocol::OpenAi), Err(NotOffered::Method { .. })));
    assert!(request_method("odd", Method::CountTokens, Protocol::Gemini).is_ok());
}

// === Parameters ===

fn with_rule(rule: ParameterRule, on_unsupported: OnUnsupported, fields: &[&str]) -> Result<Offer, NotOffered> {
    let row = Model { spec: ModelSpec { parameters: rule, on_unsupported, ..model("m").spec }, ..model("m") };
    let catalog = catalog(vec![channel("c", &["m"])], vec![group("default", &["c"])], vec![row]);
    let summary = RequestSummary { fields: fields.iter().map(|&field| field.to_owned()).collect(), ..summary("m", Method::Chat) };
    resolve(&catalog, &caller(&catalog, key(&[])), &summary, Protocol::OpenAi, NOW)
}

#[test]
fn unsupported_fields_are_all_named_in_one_refusal() {
    let rule = ParameterRule::Except(vec!["logit_bias".to_owned(), "seed".to_owned()]);
    let refused = with_rule(rule, OnUnsupported::Refuse, &["seed", "temperature", "logit_bias"]).unwrap_err();
    assert_eq!(refused, NotOffered::Unsupported { fields: vec!["seed".to_owned(), "logit_bias".to_owned()] });
}

#[test]
fn unsupported_fields_are_dropped_if_configured() {
    let rule = ParameterRule::Except(vec!["logit_bias".to_owned()]);
    let offer = with_rule(rule, OnUnsupported::Drop, &["temperature", "logit_bias"]).unwrap();
    assert_eq!(offer.drop_fields, ["logit_bias"]);
}

#[test]
fn unknown_model_is_reported_first() {
    let refused = resolve(
        &Catalog::default(),
        &Caller { key: Arc::new(key(&[])), groups: SmallVec::new() },
        &summary("m", Method::Embeddings),
        Protocol::OpenAi,
        NOW,
    );
    assert_eq!(refused.unwrap_err(), NotOffered::Unknown);
}

#[test]
fn refused_requests_count_in_the_group_offering_the_model_or_the_first_group() {
    let catalog = catalog(vec![channel("c", &["m"])], vec![group("a", &[]), group("b", &["c"])], vec![]);
    let of = |groups: &[&str], model| caller(&catalog, key(groups)).group_of_unserved(&catalog, model).map(|it| it.name.clone());
    assert_eq!(of(&["a", "b"], Some("m")).as_deref(), Some("b"));
    assert_eq!(of(&["a", "b"], Some("other")).as_deref(), Some("a"));
    assert_eq!(of(&["b", "a"], None).as_deref(), Some("b"));
    assert_eq!(of(&["removed"], None), None, "a key without groups");
}

// === Lists ===

#[test]
fn lists_are_sorted_without_hidden_models_and_name_protocols() {
    let catalog = method_catalog();
    let hidden = Catalog::from_parts(
        catalog.revision,
        catalog.channels.values().map(|it| Channel::clone(it)).collect(),
        catalog.groups.values().map(|it| Group::clone(it)).collect(),
        vec![
            Model { spec: ModelSpec { hidden: true, ..model("chat").spec }, ..model("chat") },
            Model { spec: ModelSpec { embeddings: true, ..model("vectors").spec }, ..model("vectors") },
        ],
    );
    let caller = caller(&hidden, key(&[]));
    let list = visible_models(&hidden, &caller);
    let names: Vec<&str> = list.iter().map(|it| it.model.spec.name.as_str()).collect();
    assert_eq!(names, ["agent", "beside", "both", "chat-only", "echo", "odd", "vectors"]);
    assert_eq!(list[2].protocols, [Protocol::OpenAi, Protocol::Gemini]);
    assert_eq!(list[3].protocols, [Protocol::OpenAi]);
    assert_eq!(list[4].protocols, [Protocol::OpenAi, Protocol::Gemini], "echo speaks both");
    assert_eq!(list[4].methods, [Method::Generate, Method::StreamGenerate, Method::CountTokens]);
    assert_eq!(list[6].methods, [Method::EmbedContent, Method::BatchEmbedContents]);
    assert!(visible_model(&hidden, &caller, "chat").is_some(), "a hidden model is usable by name");
    assert!(visible_model(&hidden, &caller, "nowhere").is_none());
}

#[test]
fn model_served_only_by_anthropic_lists_only_the_messages_protocol() {
    let anthropic = Channel {
        spec: ChannelSpec { protocol: Protocol::Anthropic, ..channel("a", &["claude"]).spec },
        ..channel("a", &["claude"])
    };
    let catalog = catalog(vec![anthropic], vec![group("default", &["a"])], vec![]);
    let listed = visible_model(&catalog, &caller(&catalog, key(&[])), "claude").unwrap();
    assert_eq!(listed.protocols, [Protocol::Anthropic]);
}

/// Compares the offers of the model square with the list of a caller, and with what callers of each group get.
fn square_agrees(catalog: &Catalog, caller: &Caller, list: &[VisibleModel]) -> Result<(), TestCaseError> {
    let shown = |it: &VisibleModel| (it.model.spec.name.clone(), it.group.name.clone());
    let alone = |group: &Group| {
        let granted = Member { granted: vec![group.id], ..member() };
        Caller::of(catalog, Arc::new(Key { groups: vec![group.id], member: granted, ..key(&[]) }))
    };
    let served_by = |caller: &Caller, it: &VisibleModel| {
        let method = if it.embeds() { Method::Embeddings } else { Method::Chat };
        let offer = resolve(catalog, caller, &summary(&it.model.spec.name, method), Protocol::OpenAi, NOW);
        offer.ok().map(|offer| offer.group.id)
    };
    let offers = visible_offers(catalog, caller);
    let mut first = offers.clone();
    first.dedup_by(|next, before| next.model.spec.name == before.model.spec.name);
    prop_assert_eq!(first.iter().map(shown).collect::<Vec<_>>(), list.iter().map(shown).collect::<Vec<_>>());
    for offer in &offers {
        prop_assert!(caller.groups.iter().any(|group| group.id == offer.group.id));
        prop_assert_eq!(served_by(&alone(&offer.group), offer), Some(offer.group.id));
    }
    let public = permitted_groups(catalog, &[]);
    for offer in visible_offers(catalog, Audience::of_groups(&public)) {
        prop_assert!(offer.group.visibility == Visibility::Public && !offer.model.spec.hidden);
        prop_assert_eq!(served_by(&alone(&offer.group), &offer), Some(offer.group.id));
    }
    Ok(())
}

proptest! {
    /// Lists and offers agree: a listed model can be requested, and a requestable model is listed unless hidden; both name the
    /// same group.
    #[test]
    fn listed_models_are_exactly_the_requestable_visible_ones(
        served in proptest::collection::vec(proptest::collection::vec(0usize..5, 0..4), 1..4),
        reach in proptest::collection::vec((proptest::collection::vec(0usize..4, 0..4), 0usize..4, any::<bool>()), 0..4),
        named in proptest::collection::vec(0usize..4, 0..4),
        hidden in proptest::collection::vec(any::<bool>(), 5),
        embeds in proptest::collection::vec(any::<bool>(), 5),
    ) {
        let name = |i: usize| format!("m{i}");
        let channels = served.iter().enumerate().map(|(i, models)| {
            let models: Vec<String> = models.iter().map(|m| name(*m)).collect();
            channel(&format!("c{i}"), &models.iter().map(String::as_str).collect::<Vec<_>>())
        }).collect();
        let groups = reach.iter().enumerate().map(|(i, (channels, pattern, public))| {
            let channels: Vec<String> = channels.iter().map(|c| format!("c{c}")).collect();
            Group {
                models: globs(&[["*", "m?", "m1", "m[0]"][*pattern]]),
                visibility: if *public { Visibility::Public } else { Visibility::Private },
                ..group(&format!("g{i}"), &channels.iter().map(String::as_str).collect::<Vec<_>>())
            }
        }).collect();
        let models = (0..5).map(|i| Model { spec: ModelSpec { hidden: hidden[i], embeddings: embeds[i], price: Some(always(price("1", "1"))),  ..model(&name(i)).spec }, ..model(&name(i)) });
        let catalog = catalog(channels, groups, models.collect());
        let named: Vec<String> = named.iter().map(|g| format!("g{g}")).collect();
        let caller = caller(&catalog, key(&named.iter().map(String::as_str).collect::<Vec<_>>()));
        let list = visible_models(&catalog, &caller);
        square_agrees(&catalog, &caller, &list)?;
        for i in 0..5 {
            let name = name(i);
            let method = if embeds[i] { Method::Embeddings } else { Method::Chat };
            let offer = resolve(&catalog, &caller, &summary(&name, method), Protocol::OpenAi, NOW);
            let listed = list.iter().find(|it| it.model.spec.name == name);
            match (&offer, listed) {
                (Ok(offer), Some(listed)) => prop_assert_eq!(offer.group.id, listed.group.id),
                (Ok(_), None) => prop_assert!(hidden[i]),
                (Err(_), listed) => prop_assert!(listed.is_none()),
            }
            prop_assert!(offer.is_err() || !offer.unwrap().candidates.is_empty());
        }
    }
}

#[test]
fn optional_search_without_a_price_is_removed_where_the_price_is_required() {
    use crate::{PriceLimit, PriceLimitMode, PriceLimitOn, samples::price};
    use tollgate_protocol::RequestExtras;

    let request = RequestSummary {
        extras: RequestExtras { own_search: true, ..RequestExtras::default() },
        fields: vec!["tools".to_owned()],
        offered_searches: vec!["tools[1]".to_owned()],
        ..summary("m", Method::Chat)
    };
    let searched = |list: Price| Price { web_search: Some(10_000_000), ..list };
    let with = |sale: Price, cost: Price, prepaid: bool, limited: bool, request: &RequestSummary| {
        let row = Model { spec: ModelSpec { price: Some(always(sale)), context: Some(1_000), ..model("m").spec }, ..model("m") };
        let mut served = channel("c", &["m"]);
        served.spec.serves[0].cost = Some(always(cost));
        let mut group = group("default", &["c"]);
        let ceiling = PriceLimitMode::Ceiling { max_input: Some(9_000_000_000), max_output: None };
        group.price_limit = limited.then_some(PriceLimit { mode: ceiling, on: PriceLimitOn::Cost });
        let catalog = catalog(vec![served], vec![group], vec![row]);
        let mut key = key(&[]);
        key.member.billing = if prepaid { crate::Billing::Prepaid } else { crate::Billing::Postpaid };
        let caller = Caller::of(&catalog, Arc::new(key));
        resolve(&catalog, &caller, request, Protocol::OpenAi, NOW).map(|offer| offer.drop_fields)
    };
    let (dropped, kept) = (Ok(vec!["tools[1]".to_owned()]), Ok(vec![]));
    let list = || price("1", "2");
    assert_eq!(with(list(), list(), false, false, &request), kept, "nothing is limited");
    assert_eq!(with(list(), searched(list()), true, false, &request), dropped);
    assert_eq!(with(searched(list()), list(), true, false, &request), kept);
    assert_eq!(with(searched(list()), list(), true, true, &request), dropped);
    assert_eq!(with(list(), list(), false, true, &request), dropped);
    assert_eq!(with(searched(list()), searched(list()), true, true, &request), kept);
    let demanded = RequestSummary { offered_searches: Vec::new(), ..request };
    let refused = NotOffered::Unpriced { fields: vec!["tool_choice".to_owned()] };
    assert_eq!(with(list(), list(), true, false, &demanded), Err(refused));
    assert_eq!(with(list(), list(), false, true, &demanded), kept, "routing reports which cost is missing");
}

#[test]
fn options_that_raise_the_price_need_a_price_where_money_is_limited() {
    use tollgate_protocol::{RequestExtras, ServiceTier, UnseenInput};

    let asked = |extras, field: &str| RequestSummary { extras, fields: vec![field.to_owned()], ..summary("m", Method::Chat) };
    let with = |price: Price, context: Option<u64>, prepaid: bool, request: &RequestSummary| {
        let row = Model { spec: ModelSpec { price: Some(always(price)), context, ..model("m").spec }, ..model("m") };
        let catalog = catalog(vec![channel("c", &["m"])], vec![group("default", &["c"])], vec![row]);
        let mut key = key(&[]);
        key.member.billing = if prepaid { crate::Billing::Prepaid } else { crate::Billing::Postpaid };
        let caller = Caller::of(&catalog, Arc::new(key));
        resolve(&catalog, &caller, request, Protocol::OpenAi, NOW).map(|offer| Price::clone(&offer.sale.unwrap()))
    };
    let unpriced = |field: &str| Err(NotOffered::Unpriced { fields: vec![field.to_owned()] });
    let priority = asked(RequestExtras { tier: ServiceTier::Priority, ..RequestExtras::default() }, "service_tier");
    assert_eq!(with(price("1", "2"), None, true, &priority), unpriced("service_tier"));
    assert_eq!(with(price("1", "2"), None, false, &priority), Ok(price("1", "2")));
    let list = Price { priority: Some(Multiplier(2_000_000)), ..price("1", "2") };
    assert_eq!(with(list, None, true, &priority).unwrap().output, Some(4_000_000_000));
    let search = asked(RequestExtras { web_search: true, ..RequestExtras::default() }, "web_search_options");
    assert_eq!(with(price("1", "2"), None, true, &search), unpriced("web_search_options"));
    for field in ["models", "provider"] {
        let others = asked(RequestExtras { other_routes: true, ..RequestExtras::default() }, field);
        assert_eq!(with(price("1", "2"), None, true, &others), unpriced(field), "their prices are unknown");
        assert_eq!(with(price("1", "2"), None, false, &others), Ok(price("1", "2")));
        assert_eq!(with(Price::free(), None, true, &others), Ok(Price::free()));
    }
    let audio = asked(RequestExtras { output_media: true, ..RequestExtras::default() }, "modalities");
    assert_eq!(with(price("1", "2"), None, true, &audio), unpriced("modalities"));
    let list = Price { output_media: Some(64_000_000_000), ..price("1", "2") };
    assert_eq!(with(list, None, true, &audio).unwrap().output, Some(64_000_000_000));
    for field in ["prediction", "inference_geo", "generationConfig.speechConfig"] {
        let extras = RequestExtras { surcharge: true, output_media: true, ..RequestExtras::default() };
        assert_eq!(with(price("1", "2"), None, true, &asked(extras, field)), unpriced(field));
        assert_eq!(with(price("1", "2"), None, false, &asked(extras, field)), Ok(price("1", "2")));
    }
    let list = Price { web_search: Some(10_000_000), ..price("1", "2") };
    assert_eq!(with(list.clone(), None, true, &search), Ok(list));
    let cached = asked(
        RequestExtras { unseen: UnseenInput { cached_content: true, ..UnseenInput::default() }, ..RequestExtras::default() },
        "cachedContent",
    );
    assert_eq!(with(price("1", "2"), None, true, &cached), unpriced("cachedContent"));
    assert_eq!(with(price("1", "2"), Some(1_000_000), true, &cached), Ok(price("1", "2")), "reserved by the context");

    let unseen = UnseenInput { tools: true, ..UnseenInput::default() };
    let reads = asked(RequestExtras { unseen, ..RequestExtras::default() }, "tools");
    assert_eq!(with(price("1", "2"), None, true, &reads), unpriced("tools"), "no bound of what it reads");
    assert_eq!(with(price("1", "2"), Some(1_000_000), true, &reads), Ok(price("1", "2")), "reserved by the context");
    assert_eq!(with(price("1", "2"), None, false, &reads), Ok(price("1", "2")), "money is not limited");
    assert_eq!(with(Price::free(), None, true, &reads), Ok(Price::free()));
    let charged = asked(RequestExtras { server_tools: true, unseen, ..RequestExtras::default() }, "tools");
    assert_eq!(with(price("1", "2"), Some(1_000_000), true, &charged), unpriced("tools"), "its use has no price");
    let list = Price { server_tools: Some(30_000_000), ..price("1", "2") };
    assert_eq!(with(list, Some(1_000_000), true, &charged).unwrap().per_request, Some(30_000_000));
    let unseen = UnseenInput { compaction: true, ..UnseenInput::default() };
    let compacts = asked(RequestExtras { unseen, ..RequestExtras::default() }, "context_management");
    assert_eq!(with(price("1", "2"), None, true, &compacts), unpriced("context_management"), "no bound of what it reads again");
    assert_eq!(with(price("1", "2"), Some(1_000_000), true, &compacts), Ok(price("1", "2")), "reserved by the context");
    let unseen = UnseenInput { files: true, ..UnseenInput::default() };
    let place = "contents[0].parts[1].file_data";
    let file = asked(RequestExtras { unseen, ..RequestExtras::default() }, "stream");
    let file = RequestSummary { first_file: Some(place.to_owned()), ..file };
    assert_eq!(with(price("1", "2"), None, true, &file), unpriced(place));
    assert_eq!(with(price("1", "2"), Some(1_000_000), true, &file), Ok(price("1", "2")), "reserved by the context");
}
