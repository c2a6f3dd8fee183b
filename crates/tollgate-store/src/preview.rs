//! The catalog as a file would leave it, without touching the database: the same planner and the same rules, over a copy
//! in memory.

use std::collections::HashMap;

use tollgate_core::{Catalog, Key, KeyId, KeyStatus, Owner, Timestamp};

use crate::{
    Actor, CatalogStore as _, Change, Current, Door, KeyScope, KeyStore as _, Random, StoreError,
    catalog_file::{CatalogFile, FileError, Mode, PlanLine, plan},
    memory::MemoryStore,
    seal::{Sealer, draw},
};

/// What would be.
#[derive(Debug)]
pub struct Preview {
    /// The catalog. Its rows have other ids than the database's; names are the same.
    pub catalog: Catalog,
    /// Keys that are there now and would still work, by the ids they have now.
    pub keys: HashMap<KeyId, Key>,
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

/// The catalog as it would be after this file. `current` is taken with [`KeyScope::All`]. A file that is served stays
/// so: where one owns rows, this one takes its place, and otherwise it is applied once.
///
/// # Errors
/// Where serving or applying the file would be refused.
pub async fn preview(current: &Current, file: &CatalogFile, random: Random, now: Timestamp) -> Result<Preview, PreviewError> {
    let sealer = Sealer::new(&draw(&random), random.clone());
    let copy = MemoryStore::new(sealer, current.hasher().clone(), random);
    for changes in copying(current) {
        for (owner, door) in [(Owner::Database, Door::Cli), (Owner::File, Door::File)] {
            let batch: Vec<Change> = changes.iter().filter(|(of, _)| *of == owner).map(|(_, change)| change.clone()).collect();
            copy.apply(&batch, &actor(door), now).await?;
        }
    }
    let served = copying(current).iter().flatten().any(|(owner, _)| *owner == Owner::File);
    let (mode, door) = if served { (Mode::Served, Door::File) } else { (Mode::Apply { prune: false }, Door::Cli) };
    let planned = plan(file, &copy.current(&KeyScope::All).await?, mode).map_err(PreviewError::File)?;
    copy.apply(&planned.changes, &actor(door), now).await?;
    let keys = copy.list().await?;
    let mut named: HashMap<(&str, &str), &Key> = HashMap::new();
    for key in keys.iter().filter(|key| key.status != KeyStatus::Revoked) {
        named.insert((&key.member.name, &key.name), key);
    }
    let of = |key: &crate::CurrentKey| {
        named.get(&(key.spec.member.as_str(), key.spec.name.as_str())).map(|found| (key.id, Key::clone(found)))
    };
    let keys = current.keys.iter().filter_map(of).collect();
    Ok(Preview { catalog: copy.load().await?, keys, lines: planned.lines })
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
        };
        let store = open(options).await.unwrap();
        let planned = plan(&read(text), &store.catalog.current(&KeyScope::All).await.unwrap(), mode).unwrap();
        store.catalog.apply(&planned.changes, &actor(door), NOW).await.unwrap();
        store
    }

    async fn previewed(store: &Store, text: &str) -> Result<Preview, PreviewError> {
        let current = store.catalog.current(&KeyScope::All).await.unwrap();
        preview(&current, &read(text), Random::system(), NOW).await
    }

    #[tokio::test]
    async fn what_a_file_would_make_is_seen_and_nothing_is_written() {
        for (mode, door) in [(Mode::Apply { prune: false }, Door::Cli), (Mode::Served, Door::File)] {
            let store = store(NOW_THERE, mode, door).await;
            let revision = store.catalog.revision().await.unwrap();
            let changed = NOW_THERE.replace("one.example", "two.example");
            let preview = previewed(&store, &changed).await.unwrap();
            assert_eq!(preview.catalog.channels[0].base_url, "https://two.example/v1");
            assert_eq!(preview.lines.len(), 1);
            let key = store.keys.list().await.unwrap().remove(0);
            let seen = &preview.keys[&key.id];
            let group = preview.catalog.groups.values().next().unwrap();
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
