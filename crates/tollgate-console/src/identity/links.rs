//! One-time links that set a password: for the first admin, and for members who forgot theirs.

use tollgate_core::Timestamp;
use tollgate_store::{
    Actor, Change, ChangeRefusal, IdentityChange, IdentityRefusal, LinkKind, NewKey, RandomSource, Store, StoreError,
};

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

/// The link with which the first admin of a new gateway sets a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetUpLink {
    /// Path and query of its page.
    Made(String),
    /// Another node that starts at the same time made a link, which a second one would invalidate.
    MadeBefore,
    /// An admin can sign in already.
    NotNeeded,
}

/// Makes the set-up link at a first start.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn make_set_up_link(store: &Store, actor: &Actor, now: Timestamp) -> Result<SetUpLink, StoreError> {
    let Some(admin) = admin_to_set_up(store).await? else { return Ok(SetUpLink::NotNeeded) };
    let link = new_link(store, &admin, LinkKind::SetUp, now);
    let expected = Change::Identity(Box::new(IdentityChange::ExpectNoLink { member: admin }));
    match store.catalog.apply(&[expected, link.change], actor, now).await {
        Ok(_) => Ok(SetUpLink::Made(format!("/{SET_UP_PAGE}?token={}", link.token))),
        Err(StoreError::Refused(refused)) if refused.reason == ChangeRefusal::Identity(IdentityRefusal::LinkExists) => {
            Ok(SetUpLink::MadeBefore)
        }
        Err(error) => Err(error),
    }
}

pub(crate) const SET_UP_PAGE: &str = "setup";
pub(crate) const RESET_PAGE: &str = "reset-password";
pub(crate) const INVITE_PAGE: &str = "invite";

/// Whether a path must be served before any member can sign in, because setting up the first admin needs it. These are the page of
/// the link, the step after it, the routes that check and use the link, and the program's own assets. The step after it needs the
/// session that the link opens. `base` is the console's path prefix, which a proxy may or may not remove.
pub fn is_set_up_path(base: &str, path: &str) -> bool {
    let own = path.strip_prefix(base).filter(|rest| rest.starts_with('/')).unwrap_or(path);
    matches!(own, "/setup" | "/setup/gateway") || own.starts_with("/assets/") || own.starts_with("/admin/v1/password-links/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_the_setup_link_are_setup_paths() {
        for path in ["/setup", "/setup/gateway", "/assets/page.js", "/admin/v1/password-links/use"] {
            assert!(is_set_up_path("", path) && is_set_up_path("/gate", &format!("/gate{path}")), "{path}");
        }
        for path in ["/", "/sign-in", "/setup/", "/setup/other", "/setupx", "/assets", "/gate/sign-in", "/admin/v1/me", "/console"]
        {
            assert!(!is_set_up_path("/gate", path), "{path}");
        }
        assert!(!is_set_up_path("", "/gate/setup"));
    }
}
