//! Plan, apply and pull agree.

use super::*;

/// Plans a file, applies the plan, and returns its text.
async fn carry_out(store: &Store, text: &str, mode: ApplyMode) -> Vec<String> {
    let plan = plan(&good(text), &current(store).await, mode).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let origin = if mode == ApplyMode::Served { ChangeOrigin::File } else { ChangeOrigin::Cli };
    store.catalog.apply(&plan.changes, &actor(origin), MIDNIGHT).await.unwrap();
    plan.lines.iter().map(ToString::to_string).collect()
}

async fn refused(store: &Store, text: &str, mode: ApplyMode) -> Vec<String> {
    let errors = plan(&good(text), &current(store).await, mode).expect_err("it must be refused");
    errors.iter().map(ToString::to_string).collect()
}

const APPLY: ApplyMode = ApplyMode::Apply { prune: false };
const PRUNE: ApplyMode = ApplyMode::Apply { prune: true };

#[tokio::test]
async fn applying_a_file_or_its_pulled_form_again_changes_nothing() {
    for text in [ACCEPTANCE, EXAMPLE, EVERYTHING] {
        let dir = TempDir::new().unwrap();
        let store = store(&dir).await;
        assert!(!carry_out(&store, text, APPLY).await.is_empty());
        assert_eq!(carry_out(&store, text, APPLY).await, Vec::<String>::new(), "the same file again");
        let pulled = render(&current(&store).await);
        for secret in ["upstream-secret", "tg-acceptance", "gemini-secret", "value of", "a-service-key"] {
            assert!(!pulled.contains(secret), "{secret} in {pulled}");
        }
        let revision = store.catalog.revision().await.unwrap();
        for mode in [APPLY, PRUNE] {
            assert_eq!(carry_out(&store, &pulled, mode).await, Vec::<String>::new(), "{pulled}");
        }
        assert_eq!(store.catalog.revision().await.unwrap(), revision);
        assert_eq!(render(&current(&store).await), pulled);
    }
}

/// Every field with a value other than its default.
const EVERYTHING: &str = r#"
[[channel]]
name = "every \"thing\""
provider = "compatible"
protocol = "gemini"
base_url = "https://example.com/v1beta/"
status = "off"
cooling = false
learn_unsupported = false
hoist = true
server_tools = true
pass_user = true
fetch_media = true
private_network = true
priority = -3
weight = 7
connect_timeout_ms = 1
first_byte_timeout_ms = 2
idle_timeout_ms = 3
total_timeout_ms = 4
retry_uncertain = false
probe_interval_s = 30
failures_to_cool = 5
cool_down_s = 60
pausing_statuses = [402, 529]
empty_answer_is_failure = true
test_model = "a"
parameter_edits = [
    { action = "drop", parameter = "seed" },
    { action = "rename", parameter = "user", to = "safety_identifier" },
    { action = "clamp", parameter = "generationConfig.temperature", min = 0, max = 1.0 },
    { action = "clamp", parameter = "max_tokens", max = 4096 },
    { action = "force", parameter = "thinking", value = { type = "disabled", list = [1, 2.5, true, "a \"b\""] } },
    { action = "force", parameter = "store", value = false },
]
headers = { x-b = "2", "x-a" = "1" }
proxy = "socks5://127.0.0.1:1080"
ca_file = "/etc/ssl/ca.pem"
budget = [{ amount = "50.00", window = "day" }, { amount = 0.5, window = "total", action = "alert" }]
  [[channel.account]]
  name = "one"
  credential = "upstream-secret"
  status = "off"
  concurrency = 64
  rpm = 10
  tpm = 20
  cost_multiplier = 0.85
  [[channel.serves]]
  model = "z"
  cost = [{ input = 1, output = 2, per_request = "0.001" }, { input = 2, valid_from = "2027-01-01T00:00:00Z", tiers = [{ above = 5, input = 3 }] }]
  profile = { thinking = "none", can_disable_thinking = false, temperature_max = 2.0, stop_max = 4, system_role = "developer" }
  [[channel.serves]]
  model = "a"
  upstream = "b"

[[model]]
name = "z"
price = { free = true }
context = 400000
max_output = 128000
supported_parameters = ["temperature", "generationConfig.topK"]
on_unsupported = "drop"
visible = false
description = "a 'quoted' line\nand another"

[[model]]
name = "vectors"
embeddings = true

[[group]]
name = "team"
visibility = "private"
channels = ["every \"thing\""]
models = ["z*", "a?"]
sale_multiplier = "1.25"
model_multipliers = { "a?" = "2", "z:free" = "0", zeta-1 = "0.999999" }
translation = "lenient"
signatures_in_ids = false
stream_break = "none_if_empty"
price_limit = { mode = "min_margin", min_margin = "0.2" }
routing = "fastest"
hedge = { cost_cap = "2.5" }
trace = true
rpm = 1
tpm = 2
concurrency = 3
budget = { amount = "1000", window = "month" }

[[group]]
name = "open"
models = []
price_limit = { mode = "priced_only", on = "cost" }

[[member]]
name = "ada"
role = "operator"
status = "suspended"
groups = ["team"]
default_group = "team"
billing = "prepaid"
rpm = 5
budget = { amount = "200.00", window = "month" }

[[key]]
name = "ci"
member = "ada"
status = "disabled"
groups = ["team", "open"]
secret = "a-service-key-of-our-own"
rpm = 1
models = ["z"]
ip_allow = ["127.0.0.1", "10.1.2.3/8", "::1"]
expires_at = "2027-01-01T00:00:00.5Z"
signatures_in_ids = true
price_limit = { mode = "ceiling", max_input = "1.50" }

[[key]]
name = "ci"
secret = "another-service-key-of-ours"
"#;

#[tokio::test]
async fn plan_describes_changes_in_the_words_of_the_file() {
    let dir = TempDir::new().unwrap();
    let store = store(&dir).await;
    carry_out(&store, ACCEPTANCE, APPLY).await;
    let changed = ACCEPTANCE
        .replacen("cooling = false\n", "", 1)
        .replacen("output = \"0.20\" }\n", "output = \"0.30\" }\n", 1)
        .replace("translation = \"strict\"", "translation = \"lenient\"")
        .replacen("credential = \"env:UPSTREAM_KEY\"", "credential = \"another\"\n  rpm = 5", 1)
        + "[[model]]\nname = \"new\"\n";
    let lines = carry_out(&store, &changed, APPLY).await;
    assert_eq!(
        lines,
        [
            "~ channel chat-upstream: cooling false -> default, serves chat-model \
             (cost { input = \"0.10\", output = \"0.20\" } -> { input = \"0.10\", output = \"0.30\" })",
            "~ account chat-upstream/chat-account: rpm default -> 5, credential replaced",
            "+ model new",
            "~ group default: translation default -> \"lenient\"",
        ]
    );
}

#[tokio::test]
async fn rows_not_in_the_file_are_removed_only_by_pruning() {
    let dir = TempDir::new().unwrap();
    let store = store(&dir).await;
    carry_out(&store, ACCEPTANCE, APPLY).await;
    let less = r#"
[[channel]]
name = "chat-upstream"
provider = "compatible"
base_url = "http://127.0.0.1:4010/v1"
cooling = false
learn_unsupported = false
private_network = true
  [[channel.serves]]
  model = "chat-model"
  cost = { input = "0.10", output = "0.20" }
"#;
    assert_eq!(carry_out(&store, less, APPLY).await, Vec::<String>::new());
    let lines = carry_out(&store, less, PRUNE).await;
    assert_eq!(lines.iter().filter(|line| line.starts_with("- ")).count(), lines.len() - 1);
    assert!(
        lines.contains(&"~ channel chat-upstream: no longer serves limited-model, no longer serves forbidden-model".to_owned())
    );
    assert!(
        lines.contains(&"- key owner/acceptance: revoked".to_owned())
            && lines.contains(&"- account chat-upstream/chat-account".to_owned())
    );
    let catalog = store.catalog.load().await.unwrap();
    assert_eq!((catalog.channels.len(), catalog.groups.len(), catalog.models.len()), (1, 0, 0));
    assert_eq!(current(&store).await.members.len(), 1, "the admin stays");
}

#[tokio::test]
async fn served_file_owns_its_rows_and_leaves_others_unchanged() {
    let dir = TempDir::new().unwrap();
    let store = store(&dir).await;
    carry_out(&store, "[[group]]\nname = \"default\"\n[[group]]\nname = \"mine\"\n", APPLY).await;
    let lines = carry_out(&store, ACCEPTANCE, ApplyMode::Served).await;
    assert!(
        lines.iter().any(|line| line.starts_with("! group default: passes from the database to the file, channels default -> "))
    );
    let catalog = store.catalog.load().await.unwrap();
    assert_eq!(catalog.group_by_name("default").unwrap().owner, Owner::File);
    assert_eq!(catalog.group_by_name("mine").unwrap().owner, Owner::Database);
    assert_eq!(carry_out(&store, ACCEPTANCE, ApplyMode::Served).await, Vec::<String>::new());

    assert_eq!(
        refused(&store, "[[group]]\nname = \"default\"\n", APPLY).await,
        ["line 1, column 1: group 'default' is owned by the served catalog file; change it there"]
    );
    assert_eq!(carry_out(&store, ACCEPTANCE, APPLY).await, Vec::<String>::new(), "applying the current state changes nothing");
    let more = "[[channel.account]]\nname = \"another\"\ncredential = \"secret-of-another\"\n[[channel.serves]]";
    let errors = refused(&store, &ACCEPTANCE.replacen("[[channel.serves]]", more, 1), APPLY).await;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("/another' is owned by the served catalog file"), "{errors:?}");
    let without_key = ACCEPTANCE.split("[[key]]").next().unwrap().to_owned();
    assert_eq!(carry_out(&store, &without_key, ApplyMode::Served).await, ["- key owner/acceptance: revoked"]);
    let hash = store.hasher.hash(&env("GATEWAY_KEY").unwrap());
    assert_eq!(store.keys.find(&hash).await.unwrap().unwrap().status, tollgate_core::KeyStatus::Revoked);
    assert_eq!(carry_out(&store, ACCEPTANCE, ApplyMode::Served).await, ["+ key owner/acceptance"], "the same secret works again");
    assert_eq!(store.keys.find(&hash).await.unwrap().unwrap().status, tollgate_core::KeyStatus::Active);
    let renamed = ACCEPTANCE.replace("name = \"acceptance\"", "name = \"renamed\"");
    assert_eq!(carry_out(&store, &renamed, ApplyMode::Served).await, ["- key owner/acceptance: revoked", "+ key owner/renamed"]);
    let all = carry_out(&store, "", ApplyMode::Served).await;
    assert!(all.iter().all(|line| line.starts_with("- ")), "{all:?}");
    assert_eq!(store.catalog.load().await.unwrap().groups.len(), 1);
}

#[tokio::test]
async fn unknown_names_and_secrets_are_refused_by_line() {
    let dir = TempDir::new().unwrap();
    let store = store(&dir).await;
    let text = "[[channel]]\nname = \"main\"\nprovider = \"openai\"\n[[channel.account]]\nname = \"a\"\n\
                [[group]]\nname = \"g\"\nchannels = [\"mian\"]\n[[key]]\nname = \"k\"\ngroups = [\"g\", \"h\"]\nmember = \"ada\"\n";
    assert_eq!(
        refused(&store, text, APPLY).await,
        [
            "line 4, column 1: account 'main/a' is new and needs its credential",
            "line 8, column 12: group 'g' refers to unknown channel 'mian'; did you mean 'main'?",
            "line 9, column 1: key 'ada/k' is new and needs its secret; `tollgate key create` makes one without",
            "line 9, column 1: key 'k' refers to unknown member 'ada'",
            "line 11, column 10: key 'k' refers to unknown group 'h'; did you mean 'g'?",
        ]
    );
    let twice = "[[key]]\nname = \"a\"\nsecret = \"env:GATEWAY_KEY\"\n[[key]]\nname = \"b\"\nsecret = \"env:GATEWAY_KEY\"\n";
    assert_eq!(refused(&store, twice, APPLY).await, ["line 4, column 1: the keys in line 1 and in line 4 have the same secret"]);
    let same = "[[key]]\nname = \"a\"\nsecret = \"env:GATEWAY_KEY\"\n[[key]]\nname = \"a\"\nmember = \"owner\"\nsecret = \"env:TOLLGATE_CI_KEY\"\n";
    assert_eq!(refused(&store, same, APPLY).await, ["line 4, column 1: key 'owner/a' is defined twice"]);
}

#[tokio::test]
async fn plan_for_a_catalog_changed_meanwhile_is_refused() {
    let store = open(options(StoreUrl::Memory, &TempDir::new().unwrap())).await.unwrap();
    let old = plan(&good(ACCEPTANCE), &current(&store).await, APPLY).unwrap();
    store
        .catalog
        .apply(
            &[Change::PutGroup(Box::new(crate::GroupSpec { name: "g".to_owned(), ..Default::default() }))],
            &actor(ChangeOrigin::Cli),
            MIDNIGHT,
        )
        .await
        .unwrap();
    assert!(store.catalog.apply(&old.changes, &actor(ChangeOrigin::Cli), MIDNIGHT).await.is_err());
}
