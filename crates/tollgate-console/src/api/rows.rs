//! What handlers of stored rows have in common: finding one by id or name, and changing one without losing what somebody
//! else wrote meanwhile.

use tollgate_core::KeyId;
use tollgate_store::{Change, Kind, RowFilter, StoredRow};

use super::ask::{Applied, Ask};
use crate::problem::Problem;

/// How often a row is read again when somebody else changes it at the same time.
const TRIES: u32 = 5;

/// What ids of a kind begin with.
pub(super) const fn prefix(kind: Kind) -> &'static str {
    match kind {
        Kind::Channel => "chn_",
        Kind::Account => "acc_",
        Kind::Model => "mdl_",
        Kind::Group => "grp_",
        Kind::Member => "mbr_",
        Kind::Key => "key_",
        Kind::AdminKey => "adm_",
    }
}

/// Whether a text is an id of this kind.
pub(super) fn is_id(kind: Kind, text: &str) -> bool {
    text.strip_prefix(prefix(kind)).is_some_and(|digits| digits.len() == 26)
}

/// A row by its id, revoked keys included, or a live one by its name below `parent`.
pub(super) async fn find(ask: &Ask, kind: Kind, parent: Option<&str>, text: &str) -> Result<StoredRow, Problem> {
    let listing = &ask.site.store.listing;
    let found = if is_id(kind, text) {
        let shown = |row: &StoredRow| {
            let kept = matches!(kind, Kind::Key | Kind::AdminKey) || row.removed_at.is_none();
            kept && parent.is_none_or(|parent| row.parent == parent)
        };
        listing.row(kind, text).await?.filter(shown)
    } else if matches!(kind, Kind::Key | Kind::AdminKey) {
        // Names of keys are not unique.
        None
    } else {
        let filter = RowFilter { name: Some(text.to_owned()), parent: parent.map(str::to_owned), ..RowFilter::of(kind, 1) };
        listing.page(&filter).await?.pop()
    };
    found.ok_or_else(|| Problem::missing(kind, text))
}

/// The row of a name that was just written.
pub(super) async fn written(ask: &Ask, kind: Kind, parent: Option<&str>, name: &str) -> Result<StoredRow, Problem> {
    let filter = RowFilter { name: Some(name.to_owned()), parent: parent.map(str::to_owned), ..RowFilter::of(kind, 1) };
    ask.site.store.listing.page(&filter).await?.pop().ok_or_else(|| Problem::missing(kind, name))
}

/// The one live key of a name, or the key of an id.
pub(super) async fn key_id(ask: &Ask, text: &str) -> Result<KeyId, Problem> {
    let id = if is_id(Kind::Key, text) {
        Some(text.to_owned())
    } else {
        let named = RowFilter { name: Some(text.to_owned()), ..RowFilter::of(Kind::Key, 2) };
        let mut keys = ask.site.store.listing.page(&named).await?;
        if keys.len() > 1 {
            return Err(Problem::value("key", "more than one key has this name; send its id"));
        }
        keys.pop().map(|key| key.id)
    };
    id.and_then(|id| KeyId::parse(&id)).ok_or_else(|| Problem::missing(Kind::Key, text))
}

/// Rows of a filter with what is asked for in the query: `limit`, `after`, `name`.
pub(super) fn filter(ask: &Ask, kind: Kind) -> Result<RowFilter, Problem> {
    let after = ask.query.text("after");
    if after.is_some_and(|after| !is_id(kind, after)) {
        return Err(Problem::value("after", "expected the 'next' of a page"));
    }
    Ok(RowFilter {
        name: ask.query.text("name").map(str::to_owned),
        after: after.map(str::to_owned),
        ..RowFilter::of(kind, ask.limit() + 1)
    })
}

/// Changes a row: with `If-Match` only if it is as its sender knows it, else as often as it takes to write over the
/// newest state. The row afterwards.
pub(super) async fn edit(
    ask: &Ask,
    kind: Kind,
    parent: Option<&str>,
    text: &str,
    change: impl Fn(&StoredRow) -> Result<Vec<Change>, Problem>,
) -> Result<StoredRow, Problem> {
    let expected = ask.if_match()?;
    let mut tries = 0;
    loop {
        tries += 1;
        let row = find(ask, kind, parent, text).await?;
        let revision = expected.unwrap_or(row.revision);
        let mut changes = vec![Change::ExpectRow { kind, id: row.id.clone(), revision }];
        changes.extend(change(&row)?);
        match ask.apply(&changes).await {
            Err(problem) if problem.is_stale() && expected.is_none() && tries < TRIES => {}
            Err(problem) => return Err(problem),
            Ok(Applied::Done | Applied::Before(_)) => {
                let found = ask.site.store.listing.row(kind, &row.id).await?;
                return found.ok_or_else(|| Problem::missing(kind, text));
            }
        }
    }
}
