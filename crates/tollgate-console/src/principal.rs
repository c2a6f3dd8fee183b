//! The principal that sends a request, and the single rule about the objects that it may see.

use tollgate_core::MemberId;
use tollgate_store::{Actor, AdminKey, AdminScope, ChangeOrigin, ObjectScope};

use crate::{api::route::Needs, api_error::ApiError, identity::SignedIn};

/// The authenticated sender of a request.
#[derive(Clone, Debug)]
pub(crate) enum Principal {
    /// Client with an admin key.
    Key(AdminKey),
    /// Member in a browser.
    Session(Box<SignedIn>),
    /// Command line with direct access to the data folder.
    LocalOperator(Actor),
    /// Unauthenticated, on routes that need no authentication.
    Anonymous,
}

impl Principal {
    pub(crate) fn scope(&self) -> AdminScope {
        match self {
            Self::Key(key) => key.scope,
            Self::Session(signed_in) => signed_in.member.role.into(),
            Self::LocalOperator(_) => AdminScope::Admin,
            Self::Anonymous => AdminScope::Member,
        }
    }

    /// The member that signed in or that the admin key belongs to: id and name.
    pub(crate) fn member(&self) -> Option<(MemberId, &str)> {
        match self {
            Self::Key(key) => key.member.as_ref().map(|(id, name)| (*id, name.as_str())),
            Self::Session(signed_in) => Some((signed_in.member.id, signed_in.member.name.as_str())),
            Self::LocalOperator(_) | Self::Anonymous => None,
        }
    }

    pub(crate) const fn session(&self) -> Option<&SignedIn> {
        match self {
            Self::Session(signed_in) => Some(signed_in),
            Self::Key(_) | Self::LocalOperator(_) | Self::Anonymous => None,
        }
    }

    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::LocalOperator(_))
    }

    /// Identifies the principal in the log and in idempotency keys: the id of an admin key or member.
    pub(crate) fn id(&self) -> Option<String> {
        match self {
            Self::Key(key) => Some(key.id.to_string()),
            Self::Session(signed_in) => Some(signed_in.member.id.to_string()),
            Self::LocalOperator(_) | Self::Anonymous => None,
        }
    }

    /// Author of changes in the audit log, without the address.
    pub(crate) fn actor(&self) -> Actor {
        match self {
            Self::Key(key) => Actor::local(ChangeOrigin::Api, format!("{} ({})", key.name, key.id)),
            Self::Session(signed_in) => member_actor(signed_in.member.id, &signed_in.member.name),
            Self::LocalOperator(actor) => actor.clone(),
            Self::Anonymous => Actor::local(ChangeOrigin::Console, "anonymous"),
        }
    }

    /// The objects that this principal may see on a route; an error if it may not call the route at all.
    pub(crate) fn objects(&self, needs: Needs) -> Result<ObjectScope, ApiError> {
        match needs {
            Needs::Nothing => Ok(ObjectScope::Nothing),
            Needs::Scope(least) if self.scope() < least => Err(ApiError::forbidden("This", least)),
            // On such a route, members see only their own objects.
            Needs::Scope(AdminScope::Member) => Ok(match self.member() {
                Some((id, _)) => ObjectScope::Member(id),
                None if self.scope() > AdminScope::Member => ObjectScope::Everything,
                None => ObjectScope::Nothing,
            }),
            Needs::Scope(_) => Ok(ObjectScope::Everything),
            Needs::Own { all } if self.scope() >= all => Ok(ObjectScope::Everything),
            Needs::Own { all } => match self.member() {
                Some((id, _)) => Ok(ObjectScope::Member(id)),
                None => Err(ApiError::forbidden("This", all)),
            },
        }
    }
}

/// A member as the author of changes.
pub(crate) fn member_actor(id: MemberId, name: &str) -> Actor {
    Actor::local(ChangeOrigin::Console, format!("{name} ({id})"))
}
