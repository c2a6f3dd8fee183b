//! Catalog files: reading and refusing them.

mod plans;

use std::{io, path::Path};

use tempfile::TempDir;
use tollgate_core::{
    NanoUsd, OnUnsupported, Owner, ParameterRule, PriceLimitMode, PriceLimitOn, Provider, StreamBreak, Timestamp, Window,
};
use tollgate_protocol::{CanDisableThinking, Protocol, Thinking};

use super::*;
use crate::{
    CatalogRows, Change, ChangeOrigin, KeyScope, Store, StoreUrl,
    conformance::{actor, options, sqlite},
    open,
    samples::MIDNIGHT,
};

const ACCEPTANCE: &str = include_str!("../../fixtures/catalog/acceptance.toml");
const EXAMPLE: &str = include_str!("../../fixtures/catalog/example.toml");

fn env(name: &str) -> Option<String> {
    match name {
        "UPSTREAM_KEY" => Some("upstream-secret".to_owned()),
        "GATEWAY_KEY" => Some("tg-acceptance-key-0123456789abcdefghijklmnop".to_owned()),
        "OPENAI_API_KEY" | "ANTHROPIC_API_KEY" => Some(format!("value of {name}")),
        "TOLLGATE_CI_KEY" => Some("a-service-key-of-our-own".to_owned()),
        _ => None,
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    if path == Path::new("/run/secrets/gemini") { Ok("gemini-secret\n".to_owned()) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn parse_text(text: &str) -> Result<CatalogFile, Vec<String>> {
    parse(text, &env, &read_file).map_err(|file| file.faults.iter().map(ToString::to_string).collect())
}

fn good(text: &str) -> CatalogFile {
    parse_text(text).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn errors(text: &str) -> Vec<String> {
    parse_text(text).expect_err("it must be refused")
}

async fn store(dir: &TempDir) -> Store {
    open(options(sqlite(dir), dir)).await.unwrap()
}

async fn current(store: &Store) -> CatalogRows {
    store.catalog.live_rows(&KeyScope::All).await.unwrap()
}

#[test]
fn the_acceptance_catalog_is_read() {
    let file = good(ACCEPTANCE);
    assert_eq!((file.channels.len(), file.models.len(), file.groups.len(), file.keys.len()), (7, 7, 2, 1));
    let messages = &file.channels[2];
    assert_eq!(messages.row.spec.protocol, Protocol::Anthropic);
    assert!(!messages.row.spec.cooling && !messages.row.spec.learn_unsupported && messages.row.spec.private_network);
    let profile = &messages.row.spec.serves[0].profile;
    assert_eq!(profile.thinking, Some(Thinking::Budget([1_024, 32_000])));
    assert_eq!(profile.can_disable_thinking, Some(CanDisableThinking::Yes));
    assert_eq!((profile.default_max_tokens, profile.temperature_max.map(|it| it.0)), (Some(4_096), Some(1.0)));
    assert_eq!(messages.accounts[0].credential.given().unwrap().expose(), "upstream-secret");
    let limited = &file.models[3].spec;
    assert_eq!(limited.parameters, ParameterRule::Except(vec!["temperature".to_owned()]));
    assert_eq!(limited.on_unsupported, OnUnsupported::Refuse);
    let limit = file.groups[0].spec.price_limit.unwrap();
    let bound = Some(100_000_000_000);
    assert_eq!((limit.mode, limit.on), (PriceLimitMode::Ceiling { max_input: bound, max_output: bound }, PriceLimitOn::Cost));
}

#[test]
fn the_example_shows_every_section_and_is_read() {
    let file = good(EXAMPLE);
    let openai = &file.channels[0].row.spec;
    assert_eq!((openai.provider, openai.weight, openai.timeouts.first_byte_ms), (Provider::OpenAi, 1, 120_000));
    let cost = openai.serves[0].cost.as_ref().unwrap();
    assert_eq!((openai.serves[0].upstream.as_str(), cost.0[0].price.cache_read), ("gpt-5-mini", Some(25_000_000)));
    assert_eq!(file.channels[1].row.spec.protocol, Protocol::Gemini, "the provider sets it");
    assert_eq!(file.channels[1].accounts[0].credential.given().unwrap().expose(), "gemini-secret");
    let thinking = file.channels[2].row.spec.serves[0].profile.can_disable_thinking;
    assert_eq!(thinking, Some(CanDisableThinking::BetweenTools));
    assert_eq!(file.groups[0].spec.stream_break, StreamBreak::Delivered);
    let key = &file.keys[0].row.spec;
    assert_eq!((key.budgets[0].amount, key.budgets[0].window), (NanoUsd(100_000_000_000), Window::Month));
}

#[test]
fn providers_have_default_base_urls() {
    let file = good("[[channel]]\nname = \"a\"\nprovider = \"gemini\"\n[[channel]]\nname = \"b\"\nprovider = \"echo\"\n");
    assert_eq!(file.channels[0].row.spec.base_url, "https://generativelanguage.googleapis.com/v1beta");
    assert_eq!(file.channels[1].row.spec.base_url, "");
}

#[test]
fn every_problem_is_reported_at_once_with_its_place() {
    let text = r#"
[[channel]]
name = "main"
provider = "opnai"
base_ulr = "http://127.0.0.1/v1"
weight = "heavy"
  [[channel.account]]
  name = "a"
  credential = "env:NOT_SET"
  [[channel.serves]]
  model = "fast"
  cost = { input = "0.25x", ouput = 1 }
  profile = { n_max = "two", sampling = true }

[[group]]
visibility = "open"
price_limit = { mode = "ceiling" }

[[key]]
name = "ci"
expires_at = "tomorrow"
ip_allow = ["10.0.0.0/33"]
"#;
    assert_eq!(
        errors(text),
        [
            "line 4, column 12: provider in [[channel]]: 'opnai' is not one of openai, gemini, anthropic, compatible, echo; did you mean 'openai'?",
            "line 5, column 1: [[channel]] has no field 'base_ulr'; did you mean 'base_url'?",
            "line 6, column 10: weight in [[channel]]: expected a whole number, found a string",
            "line 9, column 16: credential in [[channel.account]]: the environment variable NOT_SET is not set",
            "line 12, column 20: input in cost: not a decimal amount with at most 9 decimals: '0.25x'",
            "line 12, column 29: cost has no field 'ouput'; did you mean 'output'?",
            "line 13, column 23: n_max in profile: expected a whole number, found a string",
            "line 15, column 1: [[group]] needs a name",
            "line 16, column 14: visibility in [[group]]: 'open' is not one of public, private",
            "line 17, column 15: price_limit in [[group]]: a ceiling needs max_input, max_output or both",
            "line 21, column 14: expires_at in [[key]]: 'tomorrow' is not a time like 2027-01-01T00:00:00Z, with its offset",
            "line 22, column 12: ip_allow in [[key]]: '10.0.0.0/33' is neither an address nor a network like 10.0.0.0/8",
        ]
    );
}

#[test]
fn broken_toml_is_reported_by_place() {
    let found = errors("[[channel]]\nname = \"a\nweight = 1\n[[model\n");
    assert!(found.len() >= 2 && found[0].starts_with("line 2, column "), "{found:?}");
    assert!(errors("[[channel]]\nname = \"a\"\nname = \"b\"\n")[0].starts_with("line 3, column 1: duplicate key"));
    assert_eq!(
        errors("[channel]\nname = \"a\"\n"),
        ["line 1, column 1: channel in the catalog: expected [[channel]], found a table"]
    );
    assert_eq!(errors("[[chanel]]\n"), ["line 1, column 3: the catalog has no field 'chanel'; did you mean 'channel'?"]);
}

#[test]
fn a_name_given_twice_is_refused_with_both_lines() {
    let text = "[[model]]\nname = \"a\"\n\n[[model]]\nname = \"a\"\n[[group]]\nname = \"a\"\n";
    assert_eq!(errors(text), ["line 4, column 1: model 'a' is defined twice: in line 1 and in line 4"]);
    let served =
        "[[channel]]\nname = \"c\"\nprovider = \"openai\"\n[[channel.serves]]\nmodel = \"m\"\n[[channel.serves]]\nmodel = \"m\"\n";
    assert_eq!(errors(served), ["line 6, column 1: served model 'c/m' is defined twice: in line 4 and in line 6"]);
    let accounts =
        "[[channel]]\nname = \"c\"\nprovider = \"echo\"\n[[channel.account]]\nname = \"m\"\n[[channel.account]]\nname = \"m\"\n";
    assert_eq!(errors(accounts), ["line 6, column 1: account 'c/m' is defined twice: in line 4 and in line 6"]);
}

#[tokio::test]
async fn parse_errors_do_not_hide_unknown_references() {
    let dir = TempDir::new().unwrap();
    let store = store(&dir).await;
    let current = current(&store).await;
    let faults = |text: &str| -> Vec<String> {
        let unreadable = parse(text, &env, &read_file).expect_err("it must be refused");
        unreadable.faults_beside(&current, ApplyMode::Served).iter().map(ToString::to_string).collect()
    };
    let text = r#"[[group]]
name = "a"
channels = ["nowhere"]

[[group]]
name = "a"

[[member]]
name = "ben"
groups = ["gone"]

[[key]]
name = "ci"
groups = ["a"]
secret = "env:NOT_SET"

[[channel]]
name = "c"
provider = "openai"
[[channel.account]]
name = "new"
"#;
    assert_eq!(
        faults(text),
        [
            "line 3, column 12: group 'a' refers to unknown channel 'nowhere'",
            "line 5, column 1: group 'a' is defined twice: in line 1 and in line 5",
            "line 10, column 10: member 'ben' refers to unknown group 'gone'",
            "line 15, column 10: secret in [[key]]: the environment variable NOT_SET is not set",
            "line 20, column 1: account 'c/new' is new and needs its credential",
        ]
    );
    let nameless = "[[group]]\nchannels = []\n[[member]]\nname = \"ben\"\ngroups = [\"x\"]\n";
    assert_eq!(faults(nameless), ["line 1, column 1: [[group]] needs a name"], "it may be the group that is referred to");
    let twice = "[[key]]\nname = \"k\"\nsecret = \"a-service-key-of-our-own\"\n".repeat(2);
    let found = faults(&twice);
    assert!(
        found[0].contains("key 'k' is defined twice") && found.iter().filter(|fault| fault.contains("twice")).count() == 1,
        "{found:?}"
    );
    assert_eq!(faults("[[group]\n").len(), 1, "a text that is not TOML has no rows");
}

#[test]
fn prices_are_read_as_strings_numbers_tiers_schedules_and_free() {
    let price = |text: &str| {
        let file = good(&format!("[[model]]\nname = \"m\"\nprice = {text}\n"));
        file.models[0].spec.price.clone().unwrap().0
    };
    let input = |text: &str| price(&format!("{{ input = {text} }}"))[0].price.input;
    assert_eq!(input("\"0.25\""), Some(250_000_000));
    assert_eq!(input("0.1"), Some(100_000_000), "a number is read in its shortest decimal form");
    assert_eq!(input("3"), Some(3_000_000_000));
    assert_eq!(input("\"0.000000001\""), Some(1));
    assert_eq!(price("{ free = true }")[0].price, crate::fields::FREE);
    let tiers = price("{ input = \"1.25\", tiers = [{ above = 200000, input = \"2.50\" }, { above = 400000, output = 3 }] }");
    assert_eq!((tiers[0].price.tiers.len(), tiers[0].price.tiers[0].above), (2, 200_000));
    let times = price(
        "[{ input = 1 }, { input = 2, valid_from = \"2026-12-01T00:00:00Z\" }, { input = 3, valid_from = 2027-01-01T00:00:00+01:00 }]",
    );
    let from: Vec<_> = times.iter().map(|price| price.valid_from).collect();
    assert_eq!(from, [None, Some(Timestamp(1_796_083_200_000_000)), Some(Timestamp(1_798_758_000_000_000))]);

    for bad in [
        "{ input = -1 }",
        "{ input = \"1e3\" }",
        "{ input = \"0.0000000001\" }",
        "{ input = 1e400 }",
        "{ input = inf }",
        "{ input = 99999999999999999999 }",
        "{}",
        "{ free = true, input = 1 }",
        "{ input = 1, tiers = [{ input = 2 }] }",
        "{ input = 1, tiers = [{ above = 5, input = 2 }, { above = 5, input = 3 }] }",
        "[]",
        "[{ input = 1 }, { input = 2 }]",
        "[{ input = 1, valid_from = \"2026-12-01\" }]",
        "\"0.25\"",
    ] {
        let found = errors(&format!("[[model]]\nname = \"m\"\nprice = {bad}\n"));
        assert_eq!(found.len(), 1, "{bad}: {found:?}");
    }
}

#[test]
fn secrets_do_not_appear_in_messages() {
    for text in [
        "[[key]]\nname = \"k\"\nsecret = \"canary-17\\u0007-secret-of-length\"\n",
        "[[key]]\nname = \"k\"\nsecret = \"canary-17\"\n",
        "[[key]]\nname = \"k\"\nsecret = \"sk-tg-canary-17-with-some-length-to-it\"\n",
        "[[channel]]\nname = \"c\"\nprovider = \"openai\"\n[[channel.account]]\nname = \"a\"\ncredential = \"canary-17\\n\"\n",
        "[[channel]]\nname = \"c\"\nprovider = \"openai\"\n[[channel.account]]\nname = \"a\"\ncredential = \"file:/no/such/file\"\n",
    ] {
        let found = errors(text);
        assert!(found.len() == 1 && !found[0].contains("canary"), "{found:?}");
    }
    let file =
        good("[[channel]]\nname = \"c\"\nprovider = \"openai\"\n[[channel.account]]\nname = \"a\"\ncredential = \"canary-17\"\n");
    assert!(!format!("{file:?}").contains("canary"));
}
