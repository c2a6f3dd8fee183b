//! The viewer of the model square: a caller with a service key, a member who is signed in, or a visitor.

use std::sync::Arc;

use http::HeaderMap;
use tollgate_core::{Audience, Caller, Catalog, Glob, Group, GroupId, permitted_groups};
use tollgate_store::{MemberSpec, ObjectScope, RowKind};

use crate::{
    api_error::ApiError,
    auth::{self, bearer_token},
    gateway_handle::KeyRefusal,
    identity::SignedIn,
    state::{ConsoleState, RequestMeta},
};

/// The groups and models that someone sees.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    groups: Vec<Arc<Group>>,
    /// Model patterns of the key; none: all.
    models: Vec<Glob>,
    /// Patterns of models that the key may not use.
    models_deny: Vec<Glob>,
    kind: ViewerKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewerKind {
    Visitor,
    Caller,
    Member,
    Operator,
}

/// The key by which documents are cached: viewers with the same key get the same document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ViewKey {
    is_public: bool,
    groups: Vec<GroupId>,
    models: Vec<Glob>,
    models_deny: Vec<Glob>,
}

impl Viewer {
    /// The viewer of a request: a caller if it has a key, a member if it has a session, else a visitor, who sees the public groups
    /// unless the settings say that a key is needed.
    pub(super) async fn of(
        state: &ConsoleState,
        meta: &RequestMeta,
        headers: &HeaderMap,
        catalog: &Catalog,
    ) -> Result<Self, ApiError> {
        if let Some(presented) = bearer_token(headers).map_err(|_| ApiError::service_key(KeyRefusal::Invalid))? {
            let key = state.gateway.service_key(presented, meta.address).await.map_err(ApiError::service_key)?;
            let caller = Caller::of(catalog, Arc::clone(&key));
            return Ok(Self {
                groups: caller.groups.to_vec(),
                models: key.models.clone(),
                models_deny: key.models_deny.clone(),
                kind: ViewerKind::Caller,
            });
        }
        let seen = |granted: &[GroupId], kind| Self::unrestricted(permitted_groups(catalog, granted), kind);
        match auth::reader(state, meta, headers).await? {
            Some(signed_in) => Ok(seen(&granted(state, catalog, &signed_in).await?, ViewerKind::Member)),
            None if state.gateway.is_square_public() => Ok(seen(&[], ViewerKind::Visitor)),
            None => Err(ApiError::no_service_key()),
        }
    }

    /// An operator's view of one group.
    pub(super) fn of_group(group: &Arc<Group>) -> Self {
        Self::unrestricted(vec![Arc::clone(group)], ViewerKind::Operator)
    }

    const fn unrestricted(groups: Vec<Arc<Group>>, kind: ViewerKind) -> Self {
        Self { groups, models: Vec::new(), models_deny: Vec::new(), kind }
    }

    pub(super) fn audience(&self) -> Audience<'_> {
        Audience { groups: &self.groups, models: &self.models, models_deny: &self.models_deny }
    }

    pub(super) fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Whether its model patterns allow a model.
    pub(super) fn may_use(&self, model: &str) -> bool {
        self.audience().may_use(model)
    }

    pub(super) fn is_public(&self) -> bool {
        self.kind == ViewerKind::Visitor
    }

    /// The word in the document.
    pub(super) const fn word(&self) -> &'static str {
        match self.kind {
            ViewerKind::Visitor => "public",
            ViewerKind::Caller => "key",
            ViewerKind::Member => "member",
            ViewerKind::Operator => "group",
        }
    }

    /// The same viewer, limited to one group; `None` if the viewer does not see it.
    pub(super) fn within(&self, group: &str) -> Option<Self> {
        let group = self.groups.iter().find(|known| known.name == group)?;
        Some(Self { groups: vec![Arc::clone(group)], ..self.clone() })
    }

    pub(super) fn key(&self) -> ViewKey {
        let groups = self.groups.iter().map(|group| group.id).collect();
        ViewKey { is_public: self.is_public(), groups, models: self.models.clone(), models_deny: self.models_deny.clone() }
    }
}

/// The private groups that were granted to a member.
async fn granted(state: &ConsoleState, catalog: &Catalog, signed_in: &SignedIn) -> Result<Vec<GroupId>, ApiError> {
    let row = state.store.listing.row(RowKind::Member, &signed_in.member.id.to_string(), ObjectScope::Everything).await?;
    let spec: Option<MemberSpec> = row.map(|row| row.read()).transpose()?;
    let names = spec.map(|spec| spec.groups).unwrap_or_default();
    Ok(names.iter().filter_map(|name| catalog.group_by_name(name)).map(|group| group.id).collect())
}
