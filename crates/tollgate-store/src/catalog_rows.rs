//! The catalog as rows with their owners: the state that a catalog file is compared with, and that `pull` writes to a file.

use std::collections::{HashMap, HashSet};

use tollgate_core::{AccountSpec, ChannelSpec, KeyId, ModelSpec, Owner, Revision, Secret};

use crate::{
    GroupSpec, KeyHasher, KeySecret, KeySpec, MemberSpec, RowKind, StoreError, credential,
    proxy::ChannelSecrets,
    rows::{CatalogRow, RowSecret},
    seal::Sealer,
};

/// All live rows, each kind ordered by name. Credentials are in clear text for comparison; `Debug` does not show them.
#[derive(Clone, Debug)]
pub struct CatalogRows {
    pub revision: Revision,
    pub channels: Vec<ChannelRow>,
    pub models: Vec<OwnedRow<ModelSpec>>,
    pub groups: Vec<OwnedRow<GroupSpec>>,
    pub members: Vec<OwnedRow<MemberSpec>>,
    pub keys: Vec<KeyRow>,
    /// True if keys are missing because more of them have a price limit than [`KeyScope::Limited`] allows.
    pub keys_cut: bool,
    pub(crate) hasher: KeyHasher,
}

/// A row of the catalog with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRow<T> {
    /// Id with its prefix.
    pub id: String,
    pub owner: Owner,
    pub spec: T,
}

/// A channel with its secrets in clear text, its owner and its accounts. `Debug` does not show the secrets.
#[derive(Clone, Debug)]
pub struct ChannelRow {
    /// Id with its prefix.
    pub id: String,
    pub owner: Owner,
    /// The row's fields, without the password of the proxy and the values of the headers.
    pub spec: ChannelSpec,
    pub(crate) secrets: ChannelSecrets,
    pub accounts: Vec<AccountRow>,
}

/// An account of a [`ChannelRow`].
#[derive(Clone, Debug)]
pub struct AccountRow {
    /// Id with its prefix.
    pub id: String,
    pub spec: AccountSpec,
    /// The credential in clear text.
    pub credential: Option<Secret>,
}

/// A key that is not revoked.
#[derive(Clone, Debug)]
pub struct KeyRow {
    pub id: KeyId,
    pub owner: Owner,
    pub spec: KeySpec,
    pub secret: KeySecret,
}

/// Selects the keys of [`CatalogRows`]; a database may hold millions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// All keys, for `pull` and `apply --prune`.
    All,
    /// Keys owned by a catalog file, and keys with these names.
    FileAnd(HashSet<String>),
    /// Like `FileAnd`, plus keys that have a price limit.
    Limited {
        names: HashSet<String>,
        /// Maximum number of keys selected for their price limit, the oldest first.
        max: u32,
    },
}

/// Part of the JSON of every key that has a price limit.
pub(crate) const PRICE_LIMITED: &str = "\"price_limit\":{";

impl KeyScope {
    /// Whether the scope selects a key by its owner or name.
    pub(crate) fn selects(&self, row: &CatalogRow) -> bool {
        match self {
            Self::All => true,
            Self::FileAnd(names) | Self::Limited { names, .. } => row.owner == Owner::File || names.contains(&row.name),
        }
    }
}

impl CatalogRows {
    pub(crate) fn from_rows(
        revision: Revision,
        rows: &[CatalogRow],
        sealer: &Sealer,
        hasher: KeyHasher,
    ) -> Result<Self, StoreError> {
        let mut accounts: HashMap<&str, Vec<AccountRow>> = HashMap::new();
        for row in of(rows, RowKind::Account) {
            let credential = credential::open(row, sealer)?;
            let account = AccountRow { id: row.id.clone(), spec: row.read()?, credential };
            accounts.entry(&row.parent).or_default().push(account);
        }
        let mut channels = Vec::new();
        for row in of(rows, RowKind::Channel) {
            let accounts = accounts.remove(row.id.as_str()).unwrap_or_default();
            let spec: ChannelSpec = row.read()?;
            let secrets = ChannelSecrets::open(row, sealer)?;
            channels.push(ChannelRow { id: row.id.clone(), owner: row.owner, spec, secrets, accounts });
        }
        let mut keys = Vec::new();
        for row in of(rows, RowKind::Key) {
            let RowSecret::Key(secret) = &row.secret else { return Err(row.broken("it has no secret")) };
            let id = KeyId::parse(&row.id).ok_or_else(|| row.broken("its id is malformed"))?;
            keys.push(KeyRow { id, owner: row.owner, spec: row.read()?, secret: secret.clone() });
        }
        keys.sort_by(|a, b| (&a.spec.member, &a.spec.name).cmp(&(&b.spec.member, &b.spec.name)));
        Ok(Self {
            revision,
            channels,
            models: read_all(rows, RowKind::Model)?,
            groups: read_all(rows, RowKind::Group)?,
            members: read_all(rows, RowKind::Member)?,
            keys,
            keys_cut: false,
            hasher,
        })
    }

    /// Hashes secrets with the database's pepper.
    pub const fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }
}

fn of(rows: &[CatalogRow], kind: RowKind) -> Vec<&CatalogRow> {
    let mut found: Vec<&CatalogRow> = rows.iter().filter(|row| row.kind == kind).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn read_all<T: serde::de::DeserializeOwned>(rows: &[CatalogRow], kind: RowKind) -> Result<Vec<OwnedRow<T>>, StoreError> {
    of(rows, kind).into_iter().map(|row| Ok(OwnedRow { id: row.id.clone(), owner: row.owner, spec: row.read()? })).collect()
}
