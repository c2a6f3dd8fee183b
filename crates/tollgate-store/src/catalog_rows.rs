//! The catalog as rows, with owners: what a catalog file is planned against, and what `pull` writes.

use std::collections::{HashMap, HashSet};

use tollgate_core::{KeyId, Owner, Revision, Secret};

use crate::{
    AccountSpec, ChannelSpec, GroupSpec, KeyHasher, KeySecret, KeySpec, MemberSpec, ModelSpec, RowKind, StoreError, credential,
    proxy,
    rows::{Row, RowSecret},
    seal::Sealer,
};

/// All live rows, each kind in order of name. Credentials are opened for comparison; `Debug` does not show them.
#[derive(Clone, Debug)]
pub struct CatalogRows {
    /// Of the last change.
    pub revision: Revision,
    /// Channels.
    pub channels: Vec<ChannelRow>,
    /// Models.
    pub models: Vec<OwnedRow<ModelSpec>>,
    /// Groups.
    pub groups: Vec<OwnedRow<GroupSpec>>,
    /// Members.
    pub members: Vec<OwnedRow<MemberSpec>>,
    /// Keys, as far as they were asked for.
    pub keys: Vec<KeyRow>,
    /// There are more keys with price limits of their own than were asked for.
    pub keys_cut: bool,
    pub(crate) hasher: KeyHasher,
}

/// A row and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRow<T> {
    /// Its id, as it is shown.
    pub id: String,
    /// Who owns it.
    pub owner: Owner,
    /// The row.
    pub spec: T,
}

/// A channel with its accounts.
#[derive(Clone, Debug)]
pub struct ChannelRow {
    /// Its id, as it is shown.
    pub id: String,
    /// Who owns it and its accounts.
    pub owner: Owner,
    /// The row; the password of its proxy is not in it.
    pub spec: ChannelSpec,
    /// The whole address of its proxy, where that has a password.
    pub proxy: Option<Secret>,
    /// Its accounts.
    pub accounts: Vec<AccountRow>,
}

/// An account.
#[derive(Clone, Debug)]
pub struct AccountRow {
    /// Its id, as it is shown.
    pub id: String,
    /// The row.
    pub spec: AccountSpec,
    /// Its credential.
    pub credential: Option<Secret>,
}

/// A key that is not revoked.
#[derive(Clone, Debug)]
pub struct KeyRow {
    /// Its id.
    pub id: KeyId,
    /// Who owns it.
    pub owner: Owner,
    /// The row.
    pub spec: KeySpec,
    /// What is stored of its secret.
    pub secret: KeySecret,
}

/// Which keys a [`CatalogRows`] holds; they may number millions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// All of them: `pull`, and `apply --prune`.
    All,
    /// Those a catalog file owns, and those of these names.
    FileAnd(HashSet<String>),
    /// The same, and those that have price limits of their own.
    Limited {
        /// Names of keys.
        names: HashSet<String>,
        /// At most so many for their price limits, the oldest.
        most: u32,
    },
}

/// How the text of a key's row with a price limit reads.
pub(crate) const PRICE_LIMITED: &str = "\"price_limit\":{";

impl KeyScope {
    /// Whether a key's row is among them, whatever its price limit.
    pub(crate) fn takes(&self, row: &Row) -> bool {
        match self {
            Self::All => true,
            Self::FileAnd(names) | Self::Limited { names, .. } => row.owner == Owner::File || names.contains(&row.name),
        }
    }
}

impl CatalogRows {
    pub(crate) fn from_rows(revision: Revision, rows: &[Row], sealer: &Sealer, hasher: KeyHasher) -> Result<Self, StoreError> {
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
            let proxy = proxy::whole(row, &spec, sealer)?;
            channels.push(ChannelRow { id: row.id.clone(), owner: row.owner, spec, proxy, accounts });
        }
        let mut keys = Vec::new();
        for row in of(rows, RowKind::Key) {
            let RowSecret::Key(secret) = &row.secret else { return Err(row.broken("it has no secret")) };
            let id = KeyId::parse(&row.id).ok_or_else(|| row.broken("its id is not one"))?;
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

    /// Hashes secrets as this database does.
    pub const fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }
}

/// Rows of a kind, in order of name.
fn of(rows: &[Row], kind: RowKind) -> Vec<&Row> {
    let mut found: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn read_all<T: serde::de::DeserializeOwned>(rows: &[Row], kind: RowKind) -> Result<Vec<OwnedRow<T>>, StoreError> {
    of(rows, kind).into_iter().map(|row| Ok(OwnedRow { id: row.id.clone(), owner: row.owner, spec: row.read()? })).collect()
}
