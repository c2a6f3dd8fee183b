//! Builds the types of tollgate-core from stored rows: the catalog snapshot, and keys with their members.

use std::{collections::HashMap, sync::Arc};

use tollgate_core::{
    Account, AccountId, Catalog, Channel, ChannelId, ChannelSpec, Group, GroupId, Key, KeyId, Member, MemberId, Model, Revision,
    Secret,
};
use uuid::Uuid;

use crate::{
    GroupSpec, KeyHash, KeySpec, MemberSpec, RowKind, StoreError, StoredSetting, credential,
    proxy::ChannelSecrets,
    rows::{CatalogRow, RowSecret},
    seal::Sealer,
};

/// The group that members without a default group fall back to.
const DEFAULT_GROUP: &str = "default";

/// Reads an id in its shown form.
macro_rules! id {
    ($kind:ty, $row:expr, $text:expr) => {
        <$kind>::parse($text).ok_or_else(|| $row.broken("its id is malformed"))
    };
}

/// The snapshot of live rows, with decrypted credentials.
pub(crate) fn catalog(revision: Revision, rows: &[CatalogRow], sealer: &Sealer) -> Result<Catalog, StoreError> {
    let of = |kind: RowKind| rows.iter().filter(move |row| row.kind == kind);
    let mut accounts: HashMap<&str, Vec<Arc<Account>>> = HashMap::new();
    for row in of(RowKind::Account) {
        accounts.entry(&row.parent).or_default().push(Arc::new(account(row, sealer)?));
    }
    let mut channel_ids = HashMap::new();
    let mut channels = Vec::new();
    for row in of(RowKind::Channel) {
        let channel = channel(row, sealer, accounts.remove(row.id.as_str()).unwrap_or_default())?;
        channel_ids.insert(row.name.as_str(), channel.id);
        channels.push(channel);
    }
    let groups = of(RowKind::Group).map(|row| group(row, &channel_ids)).collect::<Result<_, _>>()?;
    let models = of(RowKind::Model).map(model).collect::<Result<_, _>>()?;
    let settings = of(RowKind::Setting).map(|row| Ok((row.name.clone(), row.read::<StoredSetting>()?.value)));
    let settings = settings.collect::<Result<_, StoreError>>()?;
    Ok(Catalog::from_parts(revision, channels, groups, models).with_stored_settings(settings))
}

fn channel(row: &CatalogRow, sealer: &Sealer, mut accounts: Vec<Arc<Account>>) -> Result<Channel, StoreError> {
    let mut spec: ChannelSpec = row.read()?;
    let (masked_proxy, masked_key) = (spec.proxy.clone(), spec.client_key.clone());
    ChannelSecrets::open(row, sealer)?.put_into(&mut spec);
    let proxy = std::mem::replace(&mut spec.proxy, masked_proxy).map(Secret::new);
    let client_key = std::mem::replace(&mut spec.client_key, masked_key).map(Secret::new);
    accounts.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
    let needs_private_network = !spec.private_network && crate::fields::private_host(&spec.base_url).is_some();
    Ok(Channel { id: id!(ChannelId, row, &row.id)?, owner: row.owner, spec, proxy, client_key, needs_private_network, accounts })
}

fn account(row: &CatalogRow, sealer: &Sealer) -> Result<Account, StoreError> {
    Ok(Account { id: id!(AccountId, row, &row.id)?, spec: row.read()?, credential: credential::open(row, sealer)? })
}

fn group(row: &CatalogRow, channels: &HashMap<&str, ChannelId>) -> Result<Group, StoreError> {
    let spec: GroupSpec = row.read()?;
    let multipliers = spec.multipliers();
    Ok(Group {
        id: id!(GroupId, row, &row.id)?,
        name: spec.name,
        description: spec.description,
        owner: row.owner,
        visibility: spec.visibility,
        channels: spec.channels.iter().filter_map(|name| channels.get(name.as_str()).copied()).collect(),
        models: spec.models,
        multipliers,
        translation: spec.translation,
        signatures_in_ids: spec.signatures_in_ids.unwrap_or(true),
        stream_break: spec.stream_break,
        price_limit: spec.price_limit,
        never_below_cost: spec.never_below_cost,
        routing: spec.routing,
        hedge: spec.hedge,
        trace: spec.trace,
        log_contents: spec.log_contents,
        limits: spec.limits,
        budgets: spec.budgets,
    })
}

fn model(row: &CatalogRow) -> Result<Model, StoreError> {
    Ok(Model { owner: Some(row.owner), spec: row.read()? })
}

/// Ids of groups by name, removed ones included: a key that names a removed group reaches nothing through it, which
/// is not the same as naming no group.
#[derive(Debug, Default)]
pub(crate) struct GroupIds(HashMap<String, (bool, GroupId)>);

impl GroupIds {
    pub(crate) fn of<'a>(groups: impl Iterator<Item = &'a CatalogRow>) -> Self {
        let mut ids = Self::default();
        for row in groups {
            if let Some(id) = GroupId::parse(&row.id) {
                ids.add(row.name.clone(), id, row.removed_at.is_none());
            }
        }
        ids
    }

    /// Adds a group; a live one wins over removed ones of its name.
    pub(crate) fn add(&mut self, name: String, id: GroupId, live: bool) {
        let existing = self.0.get(&name).copied();
        if existing.is_none_or(|(was_live, was)| (live, id) > (was_live, was)) {
            self.0.insert(name, (live, id));
        }
    }

    fn resolve(&self, names: &[String]) -> Vec<GroupId> {
        let nothing = GroupId::from_uuid(Uuid::nil());
        names.iter().map(|name| self.0.get(name).map_or(nothing, |(_, id)| *id)).collect()
    }

    fn default_of(&self, spec: &MemberSpec) -> Option<GroupId> {
        match &spec.default_group {
            Some(name) => self.0.get(name).map(|(_, id)| *id),
            None => self.0.get(DEFAULT_GROUP).filter(|(live, _)| *live).map(|(_, id)| *id),
        }
    }
}

pub(crate) fn key(row: &CatalogRow, member_row: &CatalogRow, groups: &GroupIds) -> Result<Key, StoreError> {
    let spec: KeySpec = row.read()?;
    let RowSecret::Key(secret) = &row.secret else { return Err(row.broken("it has no secret")) };
    Ok(Key {
        id: id!(KeyId, row, &row.id)?,
        name: spec.name,
        owner: row.owner,
        prefix: secret.prefix.clone(),
        suffix: secret.suffix.clone(),
        status: spec.status,
        expires_at: spec.expires_at,
        groups: groups.resolve(&spec.groups),
        models: spec.models,
        models_deny: spec.models_deny,
        protocols: spec.protocols,
        ip_allow: spec.ip_allow,
        limits: spec.limits,
        budgets: spec.budgets,
        price_limit: spec.price_limit,
        signatures_in_ids: spec.signatures_in_ids,
        tags: spec.tags,
        log_contents: spec.log_contents,
        created_at: row.created_at,
        member: member(member_row, groups)?,
    })
}

/// The key with the expiry of the secret with this hash: a replaced secret expires earlier.
pub(crate) fn as_presented(mut key: Key, row: &CatalogRow, hash: &KeyHash) -> Key {
    if let RowSecret::Key(secret) = &row.secret
        && let Some(end) = secret.end_of(hash)
    {
        key.expires_at = Some(key.expires_at.map_or(end, |expires_at| expires_at.min(end)));
    }
    key
}

fn member(row: &CatalogRow, groups: &GroupIds) -> Result<Member, StoreError> {
    let spec: MemberSpec = row.read()?;
    Ok(Member {
        id: id!(MemberId, row, &row.id)?,
        default_group: groups.default_of(&spec),
        name: spec.name,
        role: spec.role,
        status: spec.status,
        granted: groups.resolve(&spec.groups),
        billing: spec.billing,
        limits: spec.limits,
        budgets: spec.budgets,
    })
}
