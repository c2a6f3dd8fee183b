//! One-time links that set a password: for the first admin, and for members that forgot theirs.

use tollgate_core::Timestamp;
use tollgate_store::{Actor, Change, IdentityChange, LinkKind, NewKey, RandomSource, Store, StoreError};

/// How long a link is valid, in milliseconds.
pub(crate) const LINK_LIFE_MS: i64 = 1_800_000;

/// A new link, with its secret.
#[derive(Debug)]
pub(crate) struct NewLink {
    pub(crate) token: String,
    pub(crate) change: Change,
    pub(crate) expires_at: Timestamp,
}

/// Makes a link for a member. It is valid once the change is applied.
pub(crate) fn new_link(store: &Store, member: &str, kind: LinkKind, now: Timestamp) -> NewLink {
    let new = NewKey::generate_link(&RandomSource::system());
    let (hash, expires_at) = (new.secret(&store.hasher).hash, now.plus_ms(LINK_LIFE_MS));
    let change = IdentityChange::MakeLink { member: member.to_owned(), kind, hash, expires_at };
    NewLink { token: new.expose_once(), change: Change::Identity(Box::new(change)), expires_at }
}

/// The admin who can be set up: the oldest, as long as none can sign in.
pub(crate) async fn admin_to_set_up(store: &Store) -> Result<Option<String>, StoreError> {
    let admins = store.identity.admins().await?;
    if admins.iter().any(tollgate_store::LoginMember::can_sign_in) {
        return Ok(None);
    }
    Ok(admins.into_iter().next().map(|admin| admin.name))
}

/// Makes the set-up link of a gateway whose admins cannot sign in yet: the path and query of its page.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn make_set_up_link(store: &Store, actor: &Actor, now: Timestamp) -> Result<Option<String>, StoreError> {
    let Some(admin) = admin_to_set_up(store).await? else { return Ok(None) };
    let link = new_link(store, &admin, LinkKind::SetUp, now);
    store.catalog.apply(&[link.change], actor, now).await?;
    Ok(Some(format!("/{SET_UP_PAGE}?token={}", link.token)))
}

pub(crate) const SET_UP_PAGE: &str = "setup";
pub(crate) const RESET_PAGE: &str = "reset-password";
pub(crate) const INVITE_PAGE: &str = "invite";

/// Whether a path is needed to set up the first admin, and must be served before anybody can sign in.
pub fn is_set_up_path(path: &str) -> bool {
    path == "/setup" || path.starts_with("/admin/v1/password-links/")
}
