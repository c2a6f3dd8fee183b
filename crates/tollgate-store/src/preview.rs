//! Previews of a catalog file or of changes, without touching the database: the same planner and rules, on a copy in memory.

use std::collections::{BTreeMap, HashMap};

use tollgate_core::{Catalog, Key, KeyId, KeyStatus, Owner, Timestamp};

use crate::{
    Actor, CatalogRows, CatalogStore as _, Change, ChangeOrigin, KeyScope, KeyStore as _, RandomSource, StoreError,
    catalog_file::{ApplyMode, CatalogFile, FileError, PlanLine, plan},
    memory::{MemoryStore, RowIds},
    seal::{Sealer, generate_key},
};

/// The catalog before and after. Existing rows keep their ids, so that the same requests choose the same accounts; ids of new
/// rows are derived from their names.
#[derive(Debug)]
pub struct Preview {
    pub before: Catalog,
    pub after: Catalog,
    /// The keys that are valid now.
    pub keys_before: HashMap<KeyId, Key>,
    /// The keys of `keys_before` that are still valid afterwards.
    pub keys: HashMap<KeyId, Key>,
    /// The keys that are valid afterwards, each with its present state.
    pub changed: Vec<(Option<Key>, Key)>,
    /// The plan, if a file is previewed.
    pub lines: Vec<PlanLine>,
}

/// Why a change cannot be previewed.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    #[error("the file conflicts with the catalog")]
    File(Vec<FileError>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The mode for a file that replaces the present one: served if a served file owns rows, otherwise applied once.
pub fn infer_apply_mode(current: &CatalogRows) -> ApplyMode {
    let served = copying(current).iter().flatten().any(|(owner, _)| *owner == Owner::File);
    if served { ApplyMode::Served } else { ApplyMode::Apply { prune: false } }
}

/// Previews a file. Considers only the keys in `current`.
pub async fn preview(
    current: &CatalogRows,
    file: &CatalogFile,
    mode: ApplyMode,
    random: RandomSource,
    now: Timestamp,
) -> Result<Preview, PreviewError> {
    let copy = CatalogCopy::of(current, random, now).await?;
    let planned = plan(file, &copy.store.live_rows(&KeyScope::All).await?, mode).map_err(PreviewError::File)?;
    let origin = if mode == ApplyMode::Served { ChangeOrigin::File } else { ChangeOrigin::Cli };
    let mut preview = copy.after(&planned.changes, origin, current, now).await?;
    preview.lines = planned.lines;
    Ok(preview)
}

/// Previews changes. Considers only the keys in `current`, and ignores preconditions on revisions and repetitions.
pub async fn preview_changes(
    current: &CatalogRows,
    changes: &[Change],
    random: RandomSource,
    now: Timestamp,
) -> Result<Preview, StoreError> {
    let plain = |change: &&Change| !matches!(change, Change::Expect(_) | Change::Idempotent { .. });
    let changes: Vec<Change> = changes.iter().filter(plain).cloned().collect();
    CatalogCopy::of(current, random, now).await?.after(&changes, ChangeOrigin::Cli, current, now).await
}

/// A copy of the catalog that can be changed.
struct CatalogCopy {
    store: MemoryStore,
    before: Catalog,
    keys_before: Vec<Key>,
}

impl CatalogCopy {
    async fn of(current: &CatalogRows, random: RandomSource, now: Timestamp) -> Result<Self, StoreError> {
        let sealer = Sealer::new(&generate_key(&random), random.clone());
        let store = MemoryStore::new(sealer, current.hasher().clone(), random).with_ids(RowIds::of(current));
        for changes in copying(current) {
            for (owner, origin) in [(Owner::Database, ChangeOrigin::Cli), (Owner::File, ChangeOrigin::File)] {
                let batch: Vec<Change> = changes.iter().filter(|(of, _)| *of == owner).map(|(_, change)| change.clone()).collect();
                store.apply(&batch, &actor(origin), now).await?;
            }
        }
        let (before, keys_before) = (store.load().await?, store.list().await?);
        Ok(Self { store, before, keys_before })
    }

    async fn after(
        self,
        changes: &[Change],
        origin: ChangeOrigin,
        current: &CatalogRows,
        now: Timestamp,
    ) -> Result<Preview, StoreError> {
        let Self { store, before, keys_before } = self;
        store.apply(changes, &actor(origin), now).await?;
        let keys_after = store.list().await?;
        let (was, named) = (by_name(&keys_before), by_name(&keys_after));
        let of = |known: &BTreeMap<(&str, &str), &Key>| -> HashMap<KeyId, Key> {
            let found = current.keys.iter().filter_map(|key| {
                let named = known.get(&(key.spec.member.as_str(), key.spec.name.as_str()))?;
                Some((key.id, Key::clone(named)))
            });
            found.collect()
        };
        let (known, keys) = (of(&was), of(&named));
        let changed = named.iter().map(|(name, key)| (was.get(name).copied().cloned(), Key::clone(key))).collect();
        Ok(Preview { before, after: store.load().await?, keys_before: known, keys, changed, lines: Vec::new() })
    }
}

/// Keys that work, by member and name.
fn by_name(keys: &[Key]) -> BTreeMap<(&str, &str), &Key> {
    let working = keys.iter().filter(|key| key.status != KeyStatus::Revoked);
    working.map(|key| ((key.member.name.as_str(), key.name.as_str()), key)).collect()
}

fn actor(origin: ChangeOrigin) -> Actor {
    Actor::local(origin, "preview")
}

/// The changes that create the present catalog; rows come after those they refer to.
fn copying(current: &CatalogRows) -> [Vec<(Owner, Change)>; 5] {
    let mut channels = Vec::new();
    for channel in &current.channels {
        let mut spec = channel.spec.clone();
        channel.secrets.put_into(&mut spec);
        channels.push((channel.owner, Change::PutChannel(Box::new(spec))));
        for account in &channel.accounts {
            let (account, credential) = (account.spec.clone(), account.credential.clone());
            channels.push((channel.owner, Change::PutAccount { channel: channel.spec.name.clone(), account, credential }));
        }
    }
    let models = current.models.iter().map(|row| (row.owner, Change::PutModel(Box::new(row.spec.clone()))));
    let groups = current.groups.iter().map(|row| (row.owner, Change::PutGroup(Box::new(row.spec.clone()))));
    let members = current.members.iter().map(|row| (row.owner, Change::PutMember(Box::new(row.spec.clone()))));
    let keys = current.keys.iter().map(|row| {
        let secret = Some(row.secret.clone());
        (row.owner, Change::PutKey { key: Box::new(row.spec.clone()), secret })
    });
    [channels, models.collect(), groups.collect(), members.collect(), keys.collect()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessMode, MasterKeySource, OpenOptions, Store, StoreUrl, catalog_file::parse, open};

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);
    const NOW_THERE: &str = r#"
        [[channel]]
        name = "main"
        provider = "compatible"
        base_url = "https://one.example/v1"
          [[channel.account]]
          name = "a"
          credential = "secret"
          [[channel.serves]]
          model = "m"
        [[group]]
        name = "default"
        channels = ["main"]
        [[key]]
        name = "ci"
        groups = ["default"]
        secret = "a-secret-of-enough-characters"
    "#;

    fn read(text: &str) -> CatalogFile {
        parse(text, &|_| None, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap()
    }

    async fn store(text: &str, mode: ApplyMode, origin: ChangeOrigin) -> Store {
        let options = OpenOptions {
            url: StoreUrl::Memory,
            data: std::path::PathBuf::new(),
            master: MasterKeySource::DataFolder,
            access: AccessMode::Command,
            random: RandomSource::system(),
            now: NOW,
            without_database: None,
        };
        let store = open(options).await.unwrap();
        let planned = plan(&read(text), &store.catalog.live_rows(&KeyScope::All).await.unwrap(), mode).unwrap();
        store.catalog.apply(&planned.changes, &actor(origin), NOW).await.unwrap();
        store
    }

    async fn previewed(store: &Store, text: &str) -> Result<Preview, PreviewError> {
        let current = store.catalog.live_rows(&KeyScope::All).await.unwrap();
        preview(&current, &read(text), infer_apply_mode(&current), RandomSource::system(), NOW).await
    }

    #[tokio::test]
    async fn preview_shows_the_result_and_writes_nothing() {
        for (mode, origin) in [(ApplyMode::Apply { prune: false }, ChangeOrigin::Cli), (ApplyMode::Served, ChangeOrigin::File)] {
            let store = store(NOW_THERE, mode, origin).await;
            let revision = store.catalog.revision().await.unwrap();
            let changed = NOW_THERE.replace("one.example", "two.example");
            let preview = previewed(&store, &changed).await.unwrap();
            assert_eq!(preview.after.channels[0].spec.base_url, "https://two.example/v1");
            assert_eq!(preview.before.channels[0].spec.base_url, "https://one.example/v1");
            assert_eq!(preview.before.channels[0].id, preview.after.channels[0].id);
            assert_eq!(preview.before.channels[0].accounts[0].id, preview.after.channels[0].accounts[0].id);
            assert!(preview.keys_before.keys().eq(preview.keys.keys()));
            assert!(matches!(preview.changed.as_slice(), [(Some(before), after)] if before.id == after.id));
            assert_eq!(preview.lines.len(), 1);
            let key = store.keys.list().await.unwrap().remove(0);
            let seen = &preview.keys[&key.id];
            let group = preview.after.groups.values().next().unwrap();
            assert_eq!((seen.name.as_str(), seen.groups.as_slice()), ("ci", &[group.id][..]));
            assert_eq!(store.catalog.revision().await.unwrap(), revision);
        }
    }

    #[tokio::test]
    async fn served_file_removes_rows_it_no_longer_names_and_an_applied_file_does_not() {
        let keyless = &NOW_THERE[..NOW_THERE.find("[[key]]").unwrap()];
        let served = store(NOW_THERE, ApplyMode::Served, ChangeOrigin::File).await;
        assert_eq!(previewed(&served, keyless).await.unwrap().keys.len(), 0);
        let applied = store(NOW_THERE, ApplyMode::Apply { prune: false }, ChangeOrigin::Cli).await;
        assert_eq!(previewed(&applied, keyless).await.unwrap().keys.len(), 1);
    }

    #[tokio::test]
    async fn rows_keep_their_ids_and_new_ones_have_the_same_in_every_preview() {
        let store = store(NOW_THERE, ApplyMode::Apply { prune: false }, ChangeOrigin::Cli).await;
        let truth = store.catalog.load().await.unwrap();
        let more = NOW_THERE.replace("[[group]]", "[[channel]]\nname = \"new\"\nprovider = \"compatible\"\nbase_url = \"https://n.example/v1\"\n  [[channel.account]]\n  name = \"n\"\n  credential = \"s\"\n[[group]]");
        let (one, other) = (previewed(&store, &more).await.unwrap(), previewed(&store, &more).await.unwrap());
        let ids = |catalog: &Catalog| -> Vec<_> {
            let mut ids: Vec<_> =
                catalog.channels.values().map(|row| (row.spec.name.clone(), row.id, row.accounts[0].id)).collect();
            ids.sort();
            ids
        };
        assert_eq!(ids(&one.before), ids(&truth));
        assert_eq!(ids(&one.after), ids(&other.after));
        assert!(ids(&truth).iter().all(|row| ids(&one.after).contains(row)));
        assert_eq!(ids(&one.after).len(), 2);
        let key = store.keys.list().await.unwrap().remove(0);
        assert_eq!(one.keys[&key.id].id, key.id);
        assert!(one.after.groups.keys().eq(truth.groups.keys()));
    }

    #[tokio::test]
    async fn preview_reports_the_refusal() {
        let store = store(NOW_THERE, ApplyMode::Apply { prune: false }, ChangeOrigin::Cli).await;
        let group = "[[group]]\nname = \"x\"\nchannels = [\"unknown\"]\n";
        assert!(matches!(previewed(&store, group).await, Err(PreviewError::File(_))));
    }
}
