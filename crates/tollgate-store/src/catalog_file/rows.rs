//! The rows of a catalog file, table by table.

use ipnet::IpNet;
use tollgate_core::{
    Billing, Glob, KeyStatus, Limits, MemberStatus, OnUnsupported, ParameterRule, Provider, Role, Routing, StreamBreak, Timeouts,
    TranslationPolicy, TranslationSwitches, Visibility,
};
use tollgate_protocol::Protocol;

use super::{
    FileAccount, FileChannel, FileKey, FileRow, Sources, UniqueNames,
    price::{budgets, hedge, multiplier, price_limit, schedule},
    profile::profile,
    reader::TableReader,
};
use crate::{
    AccountSpec, ChannelSpec, GroupSpec, KeySpec, MemberSpec, ModelSpec, ServesSpec, Toggle, apply::Check as _, keys::check_import,
    provider_defaults,
};

const SWITCH: [(&str, Toggle); 2] = [("on", Toggle::On), ("off", Toggle::Off)];
const PROVIDERS: [(&str, Provider); 5] = [
    ("openai", Provider::OpenAi),
    ("gemini", Provider::Gemini),
    ("anthropic", Provider::Anthropic),
    ("compatible", Provider::Compatible),
    ("echo", Provider::Echo),
];
const PROTOCOLS: [(&str, Protocol); 3] =
    [("openai", Protocol::OpenAi), ("gemini", Protocol::Gemini), ("anthropic", Protocol::Anthropic)];

fn row<T>(table: &TableReader<'_>, spec: T, names: &str) -> FileRow<T> {
    FileRow { spec, place: table.place(), names_at: table.place_of(names) }
}

fn is_on(table: &TableReader<'_>) -> bool {
    table.word("status", &SWITCH) != Some(Toggle::Off)
}

fn limits(table: &TableReader<'_>) -> Limits {
    Limits {
        rpm: table.whole("rpm").unwrap_or(0),
        tpm: table.whole("tpm").unwrap_or(0),
        concurrency: table.whole("concurrency").unwrap_or(0),
    }
}

fn globs(table: &TableReader<'_>) -> Vec<Glob> {
    table.texts("models").map_or_else(|| vec![Glob("*".to_owned())], |models| models.into_iter().map(Glob).collect())
}

pub(super) fn channel(table: &TableReader<'_>, sources: &Sources<'_>, names: &mut UniqueNames) -> FileChannel {
    let plain = ChannelSpec::default();
    let provider = table.word("provider", &PROVIDERS);
    let (protocol, base_url) = provider_defaults(provider.unwrap_or(Provider::Compatible));
    let spec = ChannelSpec {
        name: table.name("name"),
        provider: provider.unwrap_or(Provider::Compatible),
        protocol: table.word("protocol", &PROTOCOLS).unwrap_or(protocol),
        base_url: table.text("base_url").map_or_else(|| base_url.to_owned(), |url| url.trim_end_matches('/').to_owned()),
        on: is_on(table),
        cooling: table.flag("cooling").unwrap_or(plain.cooling),
        learn_unsupported: table.flag("learn_unsupported").unwrap_or(plain.learn_unsupported),
        translation: TranslationSwitches {
            hoist: table.flag("hoist").unwrap_or(plain.translation.hoist),
            server_tools: table.flag("server_tools").unwrap_or(plain.translation.server_tools),
            pass_user: table.flag("pass_user").unwrap_or(plain.translation.pass_user),
            fetch_media: table.flag("fetch_media").unwrap_or(plain.translation.fetch_media),
        },
        private_network: table.flag("private_network").unwrap_or(plain.private_network),
        priority: table.whole("priority").unwrap_or(plain.priority),
        weight: table.whole("weight").unwrap_or(plain.weight),
        timeouts: Timeouts {
            connect_ms: table.whole("connect_timeout_ms").unwrap_or(plain.timeouts.connect_ms),
            first_byte_ms: table.whole("first_byte_timeout_ms").unwrap_or(plain.timeouts.first_byte_ms),
            idle_ms: table.whole("idle_timeout_ms").unwrap_or(plain.timeouts.idle_ms),
        },
        retry_uncertain: table.flag("retry_uncertain").unwrap_or(plain.retry_uncertain),
        probe_interval_s: table.whole("probe_interval_s").unwrap_or(plain.probe_interval_s),
        headers: table.text_map("headers").unwrap_or_default(),
        proxy: table.text("proxy"),
        ca_file: table.text("ca_file"),
        budgets: budgets(table),
        serves: Vec::new(),
    };
    names.add(table, crate::RowKind::Channel, &spec.name, table.place());
    let accounts = accounts(table, &spec.name, sources, names);
    let served: Vec<ServesSpec> = table
        .tables("serves", "[[channel.serves]]")
        .iter()
        .map(|serves_table| {
            let serves = serves(serves_table);
            names.add_word(serves_table, "served model", &format!("{}/{}", spec.name, serves.model), serves_table.place());
            serves
        })
        .collect();
    table.finish();
    // The provider decides what else is needed; beside a wrong one nothing more can be said.
    if provider.is_some() || table.get("provider").is_none() {
        table.row_problems(spec.check());
    }
    FileChannel { row: row(table, ChannelSpec { serves: served, ..spec }, "name"), accounts }
}

fn accounts(channel: &TableReader<'_>, channel_name: &str, sources: &Sources<'_>, names: &mut UniqueNames) -> Vec<FileAccount> {
    let mut accounts = Vec::new();
    for table in channel.tables("account", "[[channel.account]]") {
        let Limits { rpm, tpm, concurrency } = limits(&table);
        let spec = AccountSpec {
            name: table.name("name"),
            on: is_on(&table),
            concurrency,
            rpm,
            tpm,
            cost_multiplier: multiplier(&table, "cost_multiplier"),
        };
        let credential = table.secret("credential", sources);
        if credential.as_ref().is_some_and(|secret| secret.expose().chars().any(char::is_control)) {
            table.field_problem("credential", "the secret holds control characters");
        }
        table.finish();
        table.row_problems(spec.check());
        names.add(&table, crate::RowKind::Account, &format!("{channel_name}/{}", spec.name), table.place());
        accounts.push(FileAccount { spec, credential, place: table.place() });
    }
    accounts
}

fn serves(table: &TableReader<'_>) -> ServesSpec {
    let model = table.name("model");
    let upstream = table.text("upstream").unwrap_or_else(|| model.clone());
    let spec = ServesSpec { model, upstream, cost: schedule(table, "cost"), profile: profile(table) };
    table.finish();
    // An upstream name taken over from a missing one is not a second problem.
    let problems = spec.check().into_iter().filter(|problem| problem.field != "upstream" || table.get("upstream").is_some());
    table.row_problems(problems.collect());
    spec
}

pub(super) fn model(table: &TableReader<'_>) -> FileRow<ModelSpec> {
    const ON_UNSUPPORTED: [(&str, OnUnsupported); 2] = [("refuse", OnUnsupported::Refuse), ("drop", OnUnsupported::Drop)];
    let parameters = match (table.texts("supported_parameters"), table.texts("unsupported_parameters")) {
        (Some(_), Some(_)) => {
            table.field_problem("supported_parameters", "give supported_parameters or unsupported_parameters, not both");
            ParameterRule::All
        }
        (Some(only), None) => ParameterRule::Only(only),
        (None, Some(except)) => ParameterRule::Except(except),
        (None, None) => ParameterRule::All,
    };
    let spec = ModelSpec {
        name: table.name("name"),
        price: schedule(table, "price"),
        context: table.whole("context"),
        max_output: table.whole("max_output"),
        parameters,
        on_unsupported: table.word("on_unsupported", &ON_UNSUPPORTED).unwrap_or_default(),
        hidden: table.flag("visible") == Some(false),
        description: table.text("description"),
        embeddings: table.flag("embeddings").unwrap_or(false),
    };
    table.finish();
    table.row_problems(spec.check());
    row(table, spec, "name")
}

pub(super) fn group(table: &TableReader<'_>) -> FileRow<GroupSpec> {
    const VISIBILITY: [(&str, Visibility); 2] = [("public", Visibility::Public), ("private", Visibility::Private)];
    const TRANSLATION: [(&str, TranslationPolicy); 2] =
        [("strict", TranslationPolicy::Strict), ("lenient", TranslationPolicy::Lenient)];
    const STREAM_BREAK: [(&str, StreamBreak); 3] = [
        ("provider_usage", StreamBreak::ProviderUsage),
        ("delivered", StreamBreak::Delivered),
        ("none_if_empty", StreamBreak::NoneIfEmpty),
    ];
    const ROUTING: [(&str, Routing); 3] =
        [("weighted", Routing::Weighted), ("cheapest", Routing::Cheapest), ("fastest", Routing::Fastest)];
    let spec = GroupSpec {
        name: table.name("name"),
        visibility: table.word("visibility", &VISIBILITY).unwrap_or_default(),
        channels: table.texts("channels").unwrap_or_default(),
        models: globs(table),
        sale_multiplier: multiplier(table, "sale_multiplier"),
        translation: table.word("translation", &TRANSLATION).unwrap_or_default(),
        signatures_in_ids: table.flag("signatures_in_ids"),
        stream_break: table.word("stream_break", &STREAM_BREAK).unwrap_or_default(),
        price_limit: price_limit(table),
        routing: table.word("routing", &ROUTING).unwrap_or_default(),
        hedge: hedge(table),
        trace: table.flag("trace").unwrap_or(false),
        limits: limits(table),
        budgets: budgets(table),
    };
    table.finish();
    table.row_problems(spec.check());
    row(table, spec, "channels")
}

pub(super) fn member(table: &TableReader<'_>) -> FileRow<MemberSpec> {
    const ROLE: [(&str, Role); 3] = [("admin", Role::Admin), ("operator", Role::Operator), ("member", Role::Member)];
    const STATUS: [(&str, MemberStatus); 2] = [("active", MemberStatus::Active), ("suspended", MemberStatus::Suspended)];
    const BILLING: [(&str, Billing); 2] = [("postpaid", Billing::Postpaid), ("prepaid", Billing::Prepaid)];
    let spec = MemberSpec {
        name: table.name("name"),
        role: table.word("role", &ROLE).unwrap_or_default(),
        status: table.word("status", &STATUS).unwrap_or_default(),
        groups: table.texts("groups").unwrap_or_default(),
        default_group: table.text("default_group"),
        billing: table.word("billing", &BILLING).unwrap_or_default(),
        limits: limits(table),
        budgets: budgets(table),
    };
    table.finish();
    table.row_problems(spec.check());
    row(table, spec, "groups")
}

pub(super) fn key(table: &TableReader<'_>, sources: &Sources<'_>) -> FileKey {
    const STATUS: [(&str, KeyStatus); 2] = [("active", KeyStatus::Active), ("disabled", KeyStatus::Disabled)];
    let spec = KeySpec {
        name: table.name("name"),
        member: table.text("member").unwrap_or_default(),
        status: table.word("status", &STATUS).unwrap_or(KeyStatus::Active),
        expires_at: table.time("expires_at"),
        groups: table.texts("groups").unwrap_or_default(),
        models: globs(table),
        ip_allow: addresses(table),
        limits: limits(table),
        budgets: budgets(table),
        price_limit: price_limit(table),
        signatures_in_ids: table.flag("signatures_in_ids"),
    };
    let secret = table.secret("secret", sources);
    if let Some(Err(bad)) = secret.as_ref().map(|secret| check_import(secret.expose())) {
        table.field_problem("secret", &bad.to_string());
    }
    table.finish();
    table.row_problems(spec.check());
    FileKey { row: row(table, spec, "groups"), secret }
}

/// Networks, or single addresses.
fn addresses(table: &TableReader<'_>) -> Vec<IpNet> {
    let mut nets = Vec::new();
    for text in table.texts("ip_allow").unwrap_or_default() {
        match text.parse::<IpNet>().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from)) {
            Ok(net) => nets.push(net.trunc()),
            Err(_) => table.field_problem("ip_allow", &format!("'{text}' is neither an address nor a network like 10.0.0.0/8")),
        }
    }
    nets
}
