//! Channels: priced ways to providers. Their accounts are a resource of their own; a new channel may bring some.

use std::{collections::HashSet, net::IpAddr};

use serde_json::{Map, Value, json};
use tollgate_core::{ModelMapping, Secret, Timeouts, TranslationSwitches};
use tollgate_protocol::{Profile, Protocol};
use tollgate_store::{AdminScope, Change, ChannelSpec, RowFilter, RowKind, StoredRow, provider_defaults, redacted_proxy};

use super::{
    accounts,
    named_resource::{self, CurrentRow, NamedResource, named_routes},
    request_context::{InputFields, RequestContext},
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route},
    schema::{
        COUNT_32, CREATED_AT, FieldAccess, FieldSchema, MODEL_NAME, NAME, OWNER, ObjectSchema, REVISION, ValueSchema, WriteMode,
        both, fixed, needed, read,
    },
    shared_fields::{self, BUDGETS, SCHEDULE},
};
use crate::api_error::ApiError;

const MS: ValueSchema = ValueSchema::Integer { least: 1, most: 86_400_000 };
/// How many accounts are looked at for credentials: a page.
const MAX_ACCOUNTS: u32 = 1_001;
const URL: ValueSchema = ValueSchema::String { least: 0, most: 1_000 };

static SERVES: ObjectSchema = ObjectSchema {
    name: "Serves",
    fields: &[
        needed("model", MODEL_NAME, "What callers say."),
        both("upstream", MODEL_NAME, "What the provider says; the same where it is left out."),
        both("cost", SCHEDULE, "What the provider charges, per million tokens; null: not known.").or_null(),
        both("profile", ValueSchema::Any, "Facts about the upstream model that translation needs, as in a catalog file."),
    ],
};
static SERVES_ITEM: ValueSchema = ValueSchema::Object(&SERVES);

static CHANNEL: ObjectSchema = ObjectSchema { name: "Channel", fields: FIELDS };
const FIELDS: &[FieldSchema] = &[
    read("id", ValueSchema::Id("chn_"), "Id."),
    fixed("name", NAME, "Unique."),
    needed(
        "provider",
        ValueSchema::Enum(&["openai", "gemini", "anthropic", "compatible", "echo"]),
        "Decides protocol and address of a new channel.",
    ),
    both("protocol", ValueSchema::Enum(&Protocol::WORDS), "What it speaks."),
    both("base_url", URL, "With the version: `https://api.openai.com/v1`. Once accounts have credentials, only admins change it."),
    both("status", ValueSchema::Enum(&["on", "off"]), "off: by hand."),
    both("priority", ValueSchema::Integer { least: i32::MIN as i64, most: i32::MAX as i64 }, "Lower is tried first."),
    both("weight", ValueSchema::Integer { least: 1, most: 1_000_000 }, "Share among channels of one priority."),
    both("private_network", ValueSchema::Boolean, "May reach loopback and private addresses; admins only."),
    both("cooling", ValueSchema::Boolean, "false: failures never rest its accounts."),
    both("learn_unsupported", ValueSchema::Boolean, "false: refused parameters are not remembered."),
    both("retry_uncertain", ValueSchema::Boolean, "Another attempt after \"sent, but no answer\"."),
    both("probe_interval_s", COUNT_32, "Probes each account this often; 0: only those that rest."),
    both("connect_timeout_ms", MS, "TCP and TLS."),
    both("first_byte_timeout_ms", MS, "Until the answer begins."),
    both("idle_timeout_ms", MS, "Between two pieces of a stream."),
    both("headers", ValueSchema::StringMap { most: 32 }, "Added to every request upstream."),
    both("proxy", URL, "`http://…` or `socks5://…`; admins only. Its password is shown as `***`.").or_null(),
    both("ca_file", URL, "PEM file with further roots, on the gateway's machine; admins only.").or_null(),
    both("hoist", ValueSchema::Boolean, "Translation moves later system texts to the beginning."),
    both("server_tools", ValueSchema::Boolean, "Tools that the provider runs and charges may be asked for."),
    both("pass_user", ValueSchema::Boolean, "The id of the person behind the caller travels."),
    both("fetch_media", ValueSchema::Boolean, "Images and files that a request names by address are fetched for it."),
    BUDGETS,
    both("serves", ValueSchema::List { of: &SERVES_ITEM, most: 10_000 }, "The models it serves, whole."),
    both("accounts", accounts::LIST, "Accounts of a new channel, with their credentials.").with(FieldAccess::WriteAtFirst),
    OWNER,
    CREATED_AT,
    REVISION,
];

pub(super) static ROUTES: &[Route] = &named_routes!(
    ChannelResource,
    &CHANNEL,
    "channels",
    "channels",
    ["list_channels", "make_channel", "get_channel", "change_channel", "remove_channel"],
    AdminScope::Operator,
    "channel"
);

/// The resource.
struct ChannelResource;

impl NamedResource for ChannelResource {
    type Spec = ChannelSpec;
    const KIND: RowKind = RowKind::Channel;

    fn name(spec: &ChannelSpec) -> &str {
        &spec.name
    }

    fn show(spec: &ChannelSpec) -> Map<String, Value> {
        let ChannelSpec {
            name,
            provider,
            protocol,
            base_url,
            on,
            cooling,
            learn_unsupported,
            private_network,
            priority,
            weight,
            timeouts: Timeouts { connect_ms, first_byte_ms, idle_ms },
            retry_uncertain,
            probe_interval_s,
            headers,
            proxy,
            ca_file,
            translation: TranslationSwitches { hoist, server_tools, pass_user, fetch_media },
            budgets,
            serves,
        } = spec;
        let headers: Map<String, Value> = headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let mut members = shared_fields::members(json!({
            "name": name,
            "provider": provider,
            "protocol": protocol.as_str(),
            "base_url": base_url,
            "status": if *on { "on" } else { "off" },
            "priority": priority,
            "weight": weight,
            "private_network": private_network,
            "cooling": cooling,
            "learn_unsupported": learn_unsupported,
            "retry_uncertain": retry_uncertain,
            "probe_interval_s": probe_interval_s,
            "connect_timeout_ms": connect_ms,
            "first_byte_timeout_ms": first_byte_ms,
            "idle_timeout_ms": idle_ms,
        }));
        members.extend(shared_fields::members(json!({
            "headers": headers,
            "proxy": proxy.as_deref().map(redacted_proxy),
            "ca_file": ca_file,
            "hoist": hoist,
            "server_tools": server_tools,
            "pass_user": pass_user,
            "fetch_media": fetch_media,
            "budgets": shared_fields::show_budgets(budgets),
            "serves": serves.iter().map(show_serves).collect::<Vec<_>>(),
        })));
        members
    }

    fn take(sent: &InputFields, spec: &mut ChannelSpec) -> Result<(), ApiError> {
        sent.set_text("name", &mut spec.name);
        sent.set_word("provider", &mut spec.provider);
        if let Some(protocol) = sent.text("protocol").and_then(Protocol::parse) {
            spec.protocol = protocol;
        }
        if let Some(url) = sent.text("base_url") {
            url.trim_end_matches('/').clone_into(&mut spec.base_url);
        }
        if let Some(status) = sent.text("status") {
            spec.on = status == "on";
        }
        sent.set_number("priority", &mut spec.priority);
        sent.set_number("weight", &mut spec.weight);
        for (name, flag) in [
            ("private_network", &mut spec.private_network),
            ("cooling", &mut spec.cooling),
            ("learn_unsupported", &mut spec.learn_unsupported),
            ("retry_uncertain", &mut spec.retry_uncertain),
            ("hoist", &mut spec.translation.hoist),
            ("server_tools", &mut spec.translation.server_tools),
            ("pass_user", &mut spec.translation.pass_user),
            ("fetch_media", &mut spec.translation.fetch_media),
        ] {
            sent.set_flag(name, flag);
        }
        sent.set_number("probe_interval_s", &mut spec.probe_interval_s);
        sent.set_number("connect_timeout_ms", &mut spec.timeouts.connect_ms);
        sent.set_number("first_byte_timeout_ms", &mut spec.timeouts.first_byte_ms);
        sent.set_number("idle_timeout_ms", &mut spec.timeouts.idle_ms);
        if let Some(headers) = sent.0.get("headers").and_then(Value::as_object) {
            spec.headers =
                headers.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
            spec.headers.sort();
        }
        // What was shown and is sent back changes nothing.
        if sent.text("proxy") != spec.proxy.as_deref().map(redacted_proxy).as_deref() {
            sent.set_or_null("proxy", &mut spec.proxy);
        }
        sent.set_or_null("ca_file", &mut spec.ca_file);
        shared_fields::set_budgets(sent, &mut spec.budgets)?;
        if let Some(items) = sent.list("serves") {
            spec.serves = items.iter().enumerate().map(|(i, item)| read_serves(i, item)).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    fn put(spec: ChannelSpec) -> Change {
        Change::PutChannel(Box::new(spec))
    }

    fn remove(channel: String) -> Change {
        Change::RemoveChannel { channel }
    }

    fn begin(sent: &InputFields) -> ChannelSpec {
        let mut spec = ChannelSpec::default();
        sent.set_word("provider", &mut spec.provider);
        let (protocol, base_url) = provider_defaults(spec.provider);
        ChannelSpec { protocol, base_url: base_url.to_owned(), ..spec }
    }

    fn related_changes(context: &RequestContext, spec: &ChannelSpec) -> Result<Vec<Change>, ApiError> {
        let items = context.body.list("accounts").into_iter().flatten();
        let mut names = HashSet::new();
        items
            .enumerate()
            .map(|(i, item)| {
                let sent = InputFields::of(item);
                let account = accounts::read(&sent)?;
                if !names.insert(account.name.clone()) {
                    return Err(ApiError::value(&format!("accounts[{i}].name"), "another account of the channel has this name"));
                }
                let credential = sent.text("credential").map(|text| Secret::new(text.to_owned()));
                Ok(Change::PutAccount { channel: spec.name.clone(), account, credential })
            })
            .collect()
    }

    /// Whether an account has a credential. Of a page that is full nobody looks further.
    async fn keeps_secrets(context: &RequestContext, row: &StoredRow) -> Result<bool, ApiError> {
        if !context.body.has("base_url") {
            return Ok(false);
        }
        let accounts = RowFilter { parent: Some(row.id.clone()), ..RowFilter::of(RowKind::Account, MAX_ACCOUNTS) };
        let accounts = context.with_query_timeout(context.state.store.listing.page(&accounts)).await?;
        Ok(accounts.len() >= MAX_ACCOUNTS as usize || accounts.iter().any(|account| account.keeps_secret))
    }

    fn allowed(context: &RequestContext, there: Option<&CurrentRow<ChannelSpec>>, after: &ChannelSpec) -> Result<(), ApiError> {
        let plain = ChannelSpec::default();
        let before = there.map_or(&plain, |there| &there.spec);
        if let Some(there) = there
            && after.base_url != before.base_url
        {
            // Requests carry the credentials to wherever it says.
            if there.keeps_secrets {
                context.require_admin("Changing the base_url of a channel whose accounts have credentials")?;
            }
            // An admin allowed this channel to reach further, and its address with it.
            if before.private_network || before.proxy.is_some() {
                context.require_admin("Changing the base_url of a channel with private_network or a proxy")?;
            }
        }
        if after.private_network && !before.private_network {
            context.require_admin("Reaching private addresses")?;
        }
        if after.proxy != before.proxy || after.ca_file != before.ca_file {
            context.require_admin("Setting a proxy or a file of roots")?;
        }
        if !after.private_network
            && let Some(address) = literal(&after.base_url)
            && !context.state.gateway.is_public(address)
        {
            return Err(ApiError::value(
                "base_url",
                format_args!("{address} does not belong to the public internet; an admin may set private_network"),
            ));
        }
        Ok(())
    }
}

/// The address that stands in a base URL instead of a name.
fn literal(url: &str) -> Option<IpAddr> {
    match url::Url::parse(url).ok()?.host()? {
        url::Host::Ipv4(address) => Some(address.into()),
        url::Host::Ipv6(address) => Some(IpAddr::from(address).to_canonical()),
        url::Host::Domain(_) => None,
    }
}

fn show_serves(serves: &ModelMapping) -> Value {
    let ModelMapping { model, upstream, cost, profile } = serves;
    json!({"model": model, "upstream": upstream, "cost": shared_fields::show_schedule(cost.as_ref()), "profile": profile})
}

fn read_serves(i: usize, item: &Value) -> Result<ModelMapping, ApiError> {
    let sent = InputFields::of(item);
    let model = sent.text("model").unwrap_or_default().to_owned();
    let mut serves = ModelMapping { upstream: model.clone(), model, cost: None, profile: Profile::default() };
    sent.set_text("upstream", &mut serves.upstream);
    if let Some(items) = sent.list("cost") {
        serves.cost = shared_fields::read_schedule(items, &format!("serves[{i}].cost"))?;
    }
    if let Some(profile) = item.get("profile") {
        serves.profile =
            serde_json::from_value(profile.clone()).map_err(|error| ApiError::value(&format!("serves[{i}].profile"), error))?;
    }
    Ok(serves)
}

#[cfg(test)]
mod tests {
    use super::literal;

    #[test]
    fn an_address_is_found_however_it_is_written() {
        for (url, address) in [
            ("http://127.0.0.1:1/", "127.0.0.1"),
            ("http://2852039166/", "169.254.169.254"),
            ("http://0x7f.1/", "127.0.0.1"),
            ("http://[::ffff:10.0.0.1]/v1", "10.0.0.1"),
            ("http://[fd00:ec2::254]/", "fd00:ec2::254"),
        ] {
            assert_eq!(literal(url).map(|it| it.to_string()).as_deref(), Some(address), "{url}");
        }
        assert_eq!(literal("https://api.example.com/v1"), None);
    }
}
