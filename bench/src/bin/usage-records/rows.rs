//! Rows of the keys and members that records are of, as a gateway has them: sums then have names.

use std::{collections::HashMap, sync::OnceLock};

use tollgate_bench::id_bytes;
use tollgate_core::{KeyId, MemberId, Secret, Timestamp};
use tollgate_store::{Actor, Change, ChangeOrigin, KeySpec, MemberSpec, RowFilter, RowKind, Store};

use super::data::BEGIN;

/// The ids of the rows by their numbers, once there are rows.
static IDS: OnceLock<(Vec<KeyId>, Vec<MemberId>)> = OnceLock::new();

pub(super) fn key(number: u64) -> KeyId {
    let made = || KeyId::from_parts(Timestamp(BEGIN), id_bytes(number));
    IDS.get().and_then(|(keys, _)| keys.get(usize::try_from(number).ok()?)).copied().unwrap_or_else(made)
}

pub(super) fn member(number: u64) -> MemberId {
    let made = || MemberId::from_parts(Timestamp(BEGIN), id_bytes(number));
    IDS.get().and_then(|(_, members)| members.get(usize::try_from(number).ok()?)).copied().unwrap_or_else(made)
}

/// Creates a row for each key and for a quarter as many members, unless there are some, and takes their ids from then on.
pub(super) async fn prepare(store: &Store, keys: u64) -> Result<(), Box<dyn std::error::Error>> {
    let members = keys / 4;
    if ids(store, RowKind::Key).await?.is_empty() {
        let actor = Actor { origin: ChangeOrigin::Cli, name: "bench".to_owned(), address: None };
        for number in 0..members {
            let member = MemberSpec { name: format!("member {number}"), ..MemberSpec::default() };
            let mut changes = vec![Change::PutMember(Box::new(member.clone()))];
            for key in (number..keys).step_by(usize::try_from(members)?) {
                let spec = KeySpec { name: format!("key {key}"), member: member.name.clone(), ..KeySpec::default() };
                let secret = store.hasher.import(&Secret::new(format!("bench-key-{key:016}-0123456789")))?;
                changes.push(Change::PutKey { key: Box::new(spec), secret: Some(secret) });
            }
            store.catalog.apply(&changes, &actor, Timestamp(BEGIN)).await?;
        }
    }
    let (of_keys, of_members) = (ids(store, RowKind::Key).await?, ids(store, RowKind::Member).await?);
    let found = |ids: &HashMap<String, String>, name: String| ids.get(&name).cloned().ok_or(format!("there is no {name}"));
    let mut numbered = (Vec::new(), Vec::new());
    for number in 0..keys {
        numbered.0.push(KeyId::parse(&found(&of_keys, format!("key {number}"))?).ok_or("an id of a key")?);
    }
    for number in 0..members {
        numbered.1.push(MemberId::parse(&found(&of_members, format!("member {number}"))?).ok_or("an id of a member")?);
    }
    IDS.set(numbered).map_err(|_| "the rows are there already".into())
}

/// Ids of rows by their names.
async fn ids(store: &Store, kind: RowKind) -> Result<HashMap<String, String>, Box<dyn std::error::Error>> {
    let mut found = HashMap::new();
    let mut filter = RowFilter::of(kind, 1_000);
    loop {
        let page = store.listing.page(&filter).await?;
        let Some(last) = page.last() else { return Ok(found) };
        filter.after = Some(last.id.clone());
        found.extend(page.into_iter().map(|row| (row.name, row.id)));
    }
}
