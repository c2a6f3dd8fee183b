//! Channels: priced ways to reach providers. Accounts are a separate resource, but a new channel may contain some.

pub(super) mod file;
pub(super) mod history;
pub(crate) mod several;

use std::collections::HashSet;

use http::StatusCode;
use serde_json::Value;
use tollgate_core::{ChannelSpec, Provider};
use tollgate_store::{
    Change, RowFilter, RowKind, StoredRow,
    fields::{Access, AccountInput, FieldShape, FieldValue as _, Kind, Object, Row as _, private_host},
    provider_defaults,
};

use super::{
    accounts, check,
    named_resource::{CurrentRow, NamedResource, named_routes},
    previews,
    request_context::{InputFields, RequestContext},
    route::Route,
    rows,
    schema::{CREATED_AT, NAME, OWNER, REVISION, both, read, row_object},
};
use crate::api_error::ApiError;

/// Accounts of a channel that are searched for credentials: one more than a page.
const MAX_ACCOUNTS: u32 = 1_001;
/// Groups that one request adds a channel to, or removes it from.
const GROUPS: Kind = Kind::List { of: &NAME, max: 1_000 };
/// The fields of both.
const ADD_TO_GROUPS: &str = "add_to_groups";
const REMOVE_FROM_GROUPS: &str = "remove_from_groups";

static CHANNEL: Object = row_object!(
    ChannelSpec,
    [read("id", Kind::Id("chn_"), "Id.")],
    [
        both("accounts", accounts::LIST, "Accounts of a new channel, with their credentials.").with(Access::CreateWriteOnly),
        both(ADD_TO_GROUPS, GROUPS, "Groups that offer it from now on, by name or id; changed together with it, or not at all.")
            .with(Access::WriteOnly),
        both(REMOVE_FROM_GROUPS, GROUPS, "Groups that no longer offer it, by name or id.").with(Access::WriteOnly),
        OWNER,
        CREATED_AT,
        REVISION,
    ]
);

pub(super) static ROUTES: &[Route] =
    named_routes!(ChannelResource, &CHANNEL, "channels", "channel", Needs::Scope(AdminScope::Operator), AdminScope::Operator);

struct ChannelResource;

impl NamedResource for ChannelResource {
    type Spec = ChannelSpec;
    const KIND: RowKind = RowKind::Channel;
    const CHANGE_QUERY: &'static [FieldShape] = previews::OF_CHANNELS;

    fn put(spec: ChannelSpec) -> Change {
        Change::PutChannel(Box::new(spec))
    }

    fn remove(channel: String) -> Change {
        Change::RemoveChannel { channel }
    }

    fn blank(sent: &InputFields) -> ChannelSpec {
        let spec = ChannelSpec::blank();
        let provider = sent.0.get("provider").and_then(|value| Provider::read(value).ok()).unwrap_or(spec.provider);
        let (protocol, base_url) = provider_defaults(provider);
        ChannelSpec { provider, protocol, base_url: base_url.to_owned(), ..spec }
    }

    fn related_changes(context: &RequestContext, spec: &ChannelSpec) -> Result<Vec<Change>, ApiError> {
        let items = context.body.list("accounts").into_iter().flatten();
        let mut names = HashSet::new();
        items
            .enumerate()
            .map(|(i, item)| {
                let mut account = AccountInput::blank();
                check::write(&InputFields::of(item).0, &mut account)?;
                if !names.insert(account.spec.name.clone()) {
                    return Err(ApiError::value(&format!("accounts[{i}].name"), "another account of the channel has this name"));
                }
                Ok(Change::PutAccount { channel: spec.name.clone(), account: account.spec, credential: account.credential })
            })
            .collect()
    }

    async fn changes_of_other_rows(context: &RequestContext, channel: &str) -> Result<Vec<Change>, ApiError> {
        let mut changes = Vec::new();
        for (field, is_offered) in [(ADD_TO_GROUPS, true), (REMOVE_FROM_GROUPS, false)] {
            let names: Vec<&str> = context.body.list(field).into_iter().flatten().filter_map(Value::as_str).collect();
            for (i, name) in names.into_iter().enumerate() {
                let group = match rows::find(context, RowKind::Group, None, name).await {
                    Ok(row) => row.name,
                    Err(error) if error.status == StatusCode::NOT_FOUND => {
                        return Err(ApiError::value(&format!("{field}[{i}]"), "there is no such group"));
                    }
                    Err(error) => return Err(error),
                };
                changes.push(Change::SetGroupChannel { group, channel: channel.to_owned(), is_offered });
            }
        }
        Ok(changes)
    }

    /// Whether any account of the channel has a credential. This is assumed if the accounts fill the page.
    async fn keeps_secrets(context: &RequestContext, row: &StoredRow) -> Result<bool, ApiError> {
        if !context.body.has("base_url") {
            return Ok(false);
        }
        let accounts = RowFilter { parent: Some(row.id.clone()), ..RowFilter::of(RowKind::Account, MAX_ACCOUNTS) };
        let accounts = context.with_query_timeout(context.state.store.listing.page(&accounts)).await?;
        Ok(accounts.len() >= MAX_ACCOUNTS as usize || accounts.iter().any(|account| account.keeps_secret))
    }

    fn allowed(context: &RequestContext, there: Option<&CurrentRow<ChannelSpec>>, after: &ChannelSpec) -> Result<(), ApiError> {
        if let Some(CurrentRow { spec: before, keeps_secrets }) = there
            && after.base_url != before.base_url
        {
            // Requests would send the credentials to the new URL.
            if *keeps_secrets {
                context.require_admin("Changing the base_url of a channel whose accounts have credentials")?;
            }
            // An admin permitted the private network or proxy for the old URL only.
            if before.private_network || before.proxy.is_some() {
                context.require_admin("Changing the base_url of a channel with private_network or a proxy")?;
            }
        }
        if !after.private_network
            && let Some(host) = private_host(&after.base_url)
        {
            return Err(ApiError::value(
                "base_url",
                format_args!("{host} does not belong to the public internet; an admin may set private_network"),
            )
            .because(if context.require_admin("A private address").is_ok() {
                "private_address"
            } else {
                "private_address_for_admins"
            }));
        }
        Ok(())
    }
}
