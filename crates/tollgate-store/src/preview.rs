//! The catalog as a file would leave it, without touching the database: the same planner and the same rules, over a copy
//! in memory.

use std::collections::{BTreeMap, HashMap};

use tollgate_core::{Catalog, Key, KeyId, KeyStatus, Owner, Timestamp};

use crate::{
    Actor, CatalogStore as _, Change, Current, Door, KeyScope, KeyStore as _, Random, StoreError,
    catalog_file::{CatalogFile, FileError, Mode, PlanLine, plan},
    memory::MemoryStore,
    seal::{Sealer, draw},
};

/// What would be, beside what is. Rows have other ids here than in the database; names are the same.
#[derive(Debug)]
pub struct Preview {
    /// The catalog as it is.
    pub before: Catalog,
    /// The catalog as it would be. A row that stays has the same id in both.
    pub after: Catalog,
    /// Keys that work now, by the ids the database has for them, as they go with `before`.
    pub keys_before: HashMap<KeyId, Key>,
    /// Those that would still work, by the same ids, as they go with `after`.
    pub keys: HashMap<KeyId, Key>,
    /// Keys that would work, each with what it is now.
    pub changed: Vec<(Option<Key>, Key)>,
    /// What would change.
    pub lines: Vec<PlanLine>,
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The file does not go with the catalog.
    #[error("the file does not go with the catalog")]
    File(Vec<FileError>),
    /// A row would be refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a file would come in that is meant to take the place of what is there: where a served file owns rows this one would
/// be served, and otherwise it would be applied once.
#[must_use]
pub fn likely_mode(current: &Current) -> Mode {
    let served = copying(current).iter().flatten().any(|(owner, _)| *owner == Owner::File);
    if served { Mode::Served } else { Mode::Apply { prune: false } }
}

/// The catalog as it would be after this file. Only keys that `current` holds are looked at.
///
/// # Errors
/// Where serving or applying the file would be refused.
pub async fn preview(
    current: &Current,
    file: &CatalogFile,
    mode: Mode,
    random: Random,
    now: Timestamp,
) -> Result<Preview, PreviewError> {
    let sealer = Sealer::new(&draw(&random), random.clone());
    let copy = MemoryStore::new(sealer, current.hasher().clone(), random);
    for changes in copying(current) {
        for (owner, door) in [(Owner::Database, Door::Cli), (Owner::File, Door::File)] {
            let batch: Vec<Change> = changes.iter().filter(|(of, _)| *of == owner).map(|(_, change)| change.clone()).collect();
            copy.apply(&batch, &actor(door), now).await?;
        }
    }
    let (before, keys_before) = (copy.load().await?, copy.list().await?);
    let planned = plan(file, &copy.current(&KeyScope::All).await?, mode).map_err(PreviewError::File)?;
    let door = if mode == Mode::Served { Door::File } else { Door::Cli };
    copy.apply(&planned.changes, &actor(door), now).await?;
    let keys_after = copy.list().await?;
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
    Ok(Preview { before, after: copy.load().await?, keys_before: known, keys, changed, lines: planned.lines })
}

/// Keys that work, by member and name.
fn by_name(keys: &[Key]) -> BTreeMap<(&str, &str), &Key> {
    let working = keys.iter().filter(|key| key.status != KeyStatus::Revoked);
    working.map(|key| ((key.member.name.as_str(), key.name.as_str()), key)).collect()
}

fn actor(door: Door) -> Actor {
    Actor { door, name: "preview".to_owned() }
}

/// The changes that make the catalog as it is, in the order in which rows name each other.
fn copying(current: &Current) -> [Vec<(Owner, Change)>; 5] {
    let mut channels = Vec::new();
    for channel in &current.channels {
        channels.push((channel.owner, Change::PutChannel(Box::new(channel.spec.clone()))));
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
    use crate::{Access, MasterKeySource, OpenOptions, Store, StoreUrl, catalog_file::parse, open};

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

    async fn store(text: &str, mode: Mode, door: Door) -> Store {
        let options = OpenOptions {
            url: StoreUrl::Memory,
            data: std::path::PathBuf::new(),
            master: MasterKeySource::DataFolder,
            access: Access::Command,
            random: Random::system(),
            now: NOW,
            without_database: None,
        };
        let store = open(options).await.unwrap();
        let planned = plan(&read(text), &store.catalog.current(&KeyScope::All).await.unwrap(), mode).unwrap();
        store.catalog.apply(&planned.changes, &actor(door), NOW).await.unwrap();
        store
    }

    async fn previewed(store: &Store, text: &str) -> Result<Preview, PreviewError> {
        let current = store.catalog.current(&KeyScope::All).await.unwrap();
        preview(&current, &read(text), likely_mode(&current), Random::system(), NOW).await
    }

    #[tokio::test]
    async fn what_a_file_would_make_is_seen_and_nothing_is_written() {
        for (mode, door) in [(Mode::Apply { prune: false }, Door::Cli), (Mode::Served, Door::File)] {
            let store = store(NOW_THERE, mode, door).await;
            let revision = store.catalog.revision().await.unwrap();
            let changed = NOW_THERE.replace("one.example", "two.example");
            let preview = previewed(&store, &changed).await.unwrap();
            assert_eq!(preview.after.channels[0].base_url, "https://two.example/v1");
            assert_eq!(preview.before.channels[0].base_url, "https://one.example/v1");
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
    async fn a_served_file_lets_go_of_what_it_no_longer_names_and_an_applied_one_does_not() {
        let keyless = &NOW_THERE[..NOW_THERE.find("[[key]]").unwrap()];
        let served = store(NOW_THERE, Mode::Served, Door::File).await;
        assert_eq!(previewed(&served, keyless).await.unwrap().keys.len(), 0);
        let applied = store(NOW_THERE, Mode::Apply { prune: false }, Door::Cli).await;
        assert_eq!(previewed(&applied, keyless).await.unwrap().keys.len(), 1);
    }

    #[tokio::test]
    async fn what_would_be_refused_is_refused_here() {
        let store = store(NOW_THERE, Mode::Apply { prune: false }, Door::Cli).await;
        let group = "[[group]]\nname = \"x\"\nchannels = [\"nobody\"]\n";
        assert!(matches!(previewed(&store, group).await, Err(PreviewError::File(_))));
    }
}
