//! A validated request as handlers see it: principal, path parameters, query and body, and the operations that all handlers
//! share.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use http::HeaderMap;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use tollgate_core::{MemberId, Revision, Timestamp};
use tollgate_store::{Actor, AdminScope, Change, ChangeRefusal, ChangeRefused, ObjectScope, RowKind, StoreError};

use super::{
    conditions,
    route::{Idempotency, Route},
    sign_in::OWN_PASSWORD,
};
use crate::{
    api_error::ApiError,
    principal::Principal,
    shares::{HeavyPermit, Reader},
    state::ConsoleState,
    time::parse_rfc3339,
};

/// Longest time for one database query.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a permit to read many rows.
pub(crate) const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Commands on the data folder are not timed out.
pub(crate) const NO_TIMEOUT: Duration = Duration::from_hours(24);

#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) state: Arc<ConsoleState>,
    pub(crate) route: &'static Route,
    pub(crate) principal: Principal,
    /// The objects that the principal may see on this route.
    pub(crate) objects: ObjectScope,
    /// Address of the client, if it is known.
    pub(crate) address: Option<IpAddr>,
    pub(crate) path: HashMap<String, String>,
    pub(crate) query: InputFields,
    pub(crate) headers: HeaderMap,
    /// Fields of the body; empty if the route takes none.
    pub(crate) body: InputFields,
}

/// Result of applying a batch of changes.
#[derive(Debug)]
pub(crate) enum ApplyOutcome {
    Applied,
    /// Already applied under the same idempotency key; it created the row with this id.
    Replayed(String),
}

impl RequestContext {
    /// A path parameter; empty if the route has none of this name.
    pub(crate) fn path_param(&self, name: &str) -> &str {
        self.path.get(name).map_or("", String::as_str)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.state.gateway.now()
    }

    pub(crate) fn limit(&self) -> u32 {
        self.query.whole("limit").and_then(|limit| u32::try_from(limit).ok()).unwrap_or(50)
    }

    pub(crate) fn require_admin(&self, what: &str) -> Result<(), ApiError> {
        if self.principal.scope() == AdminScope::Admin { Ok(()) } else { Err(ApiError::forbidden(what, AdminScope::Admin)) }
    }

    /// The member whose objects to select, if the request names one or the principal sees only its own objects. Another member is
    /// not found.
    pub(crate) fn only_member(&self, asked: Option<MemberId>) -> Result<Option<MemberId>, ApiError> {
        match (self.objects, asked) {
            (ObjectScope::Everything, asked) => Ok(asked),
            (ObjectScope::Member(own), None) => Ok(Some(own)),
            (ObjectScope::Member(own), Some(asked)) if asked == own => Ok(Some(own)),
            (ObjectScope::Member(_) | ObjectScope::Nothing, _) => Err(ApiError::not_found(RowKind::Member)),
        }
    }

    /// Whether the answer leaves out channels, accounts and costs, which only operators see.
    pub(crate) fn is_caller_view(&self) -> bool {
        self.objects != ObjectScope::Everything
    }

    /// Author of changes in the audit log.
    pub(crate) fn actor(&self) -> Actor {
        self.with_address(self.principal.actor())
    }

    /// An author with the address of the request. The command line has none: it is on this machine.
    fn with_address(&self, actor: Actor) -> Actor {
        Actor { address: self.address.filter(|_| !self.principal.is_local()), ..actor }
    }

    /// The revision in `If-Match`; `None` without the header or for `*`.
    pub(crate) fn if_match(&self) -> Result<Option<Revision>, ApiError> {
        debug_assert!(self.route.takes_revision, "{:?} lacks `at_revision` in the table", self.route);
        conditions::revision(&self.headers)
    }

    pub(crate) fn idempotency_key(&self) -> Result<Option<&str>, ApiError> {
        debug_assert!(self.route.idempotency != Idempotency::Ignored, "{:?} lacks `once` in the table", self.route);
        conditions::idempotency_key(&self.headers)
    }

    /// The change that makes a batch idempotent, if an idempotency key was sent.
    pub(crate) fn idempotency_change(&self) -> Result<Option<Change>, ApiError> {
        Ok(self.idempotency()?.map(|(key, fingerprint)| Change::Idempotent { key, fingerprint }))
    }

    /// The idempotency key, qualified by the principal, and the fingerprint of the request.
    pub(crate) fn idempotency(&self) -> Result<Option<(String, [u8; 32])>, ApiError> {
        let Some(key) = self.idempotency_key()? else { return Ok(None) };
        let mut hash = Sha256::new();
        let mut path: Vec<(&String, &String)> = self.path.iter().collect();
        path.sort();
        // The password of a session is a proof and not part of what is asked; its hash would be stored.
        let mut body = self.body.0.clone();
        body.remove(OWN_PASSWORD.name);
        // A route is shown as its method and pattern, such as `Post /admin/v1/keys`.
        hash.update(format!("{:?} {path:?} {}", self.route, Value::Object(body)));
        let principal = self.principal.id().unwrap_or_else(|| "owner".to_owned());
        Ok(Some((format!("{principal} {key}"), hash.finalize().into())))
    }

    /// Applies a batch of changes, all or none, and waits until they are in force on this node; fails if one of them exceeds the scope of the principal.
    pub(crate) async fn apply(&self, changes: &[Change]) -> Result<ApplyOutcome, ApiError> {
        if let Some(needed) = changes.iter().map(Change::needs).find(|needed| *needed > self.principal.scope()) {
            return Err(ApiError::forbidden("This change", needed));
        }
        self.apply_as(&self.actor(), changes).await
    }

    /// As [`Self::apply`], for a change that is permitted by a password or an invite instead of the principal.
    pub(crate) async fn apply_as(&self, actor: &Actor, changes: &[Change]) -> Result<ApplyOutcome, ApiError> {
        match self.state.store.catalog.apply(changes, &self.with_address(actor.clone()), self.now()).await {
            Ok(revision) => {
                self.state.gateway.until_in_force(revision).await?;
                Ok(ApplyOutcome::Applied)
            }
            Err(StoreError::Refused(ChangeRefused { reason: ChangeRefusal::Repeated { id, .. }, .. })) => {
                Ok(ApplyOutcome::Replayed(id))
            }
            Err(StoreError::Refused(refused)) => Err(ApiError::refused(&refused, self.state.catalog_file.as_deref())),
            Err(error) => Err(ApiError::store(&error, None)),
        }
    }

    /// Acquires a permit to read many rows.
    pub(crate) async fn acquire_heavy_permit(&self) -> Result<HeavyPermit, ApiError> {
        let reader = if self.is_caller_view() { Reader::Member } else { Reader::Operator };
        let permit = timeout(self.timeout_for(PERMIT_TIMEOUT), self.state.heavy_permits.acquire(reader)).await;
        permit.map_err(|_| ApiError::overloaded("Too many long queries run already."))
    }

    /// The timeout of this principal: commands on the data folder have none.
    const fn timeout_for(&self, of_keys: Duration) -> Duration {
        match self.principal {
            Principal::Key(_) | Principal::Session(_) | Principal::Anonymous => of_keys,
            Principal::LocalOperator(_) => NO_TIMEOUT,
        }
    }

    /// The catalog's revision in the database, with the changes of all nodes.
    pub(crate) async fn revision(&self) -> Result<Revision, ApiError> {
        self.with_query_timeout(self.state.store.catalog.revision()).await
    }

    /// Runs a database query with a timeout.
    pub(crate) async fn with_query_timeout<T>(&self, query: impl Future<Output = Result<T, StoreError>>) -> Result<T, ApiError> {
        match timeout(self.timeout_for(QUERY_TIMEOUT), query).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(ApiError::overloaded("The query took longer than 5 s; ask for a shorter time or for fewer rows.")),
        }
    }
}

/// Validated fields of a body, of a nested object, or of a query.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputFields(pub(crate) Map<String, Value>);

impl InputFields {
    /// Fields of a nested object.
    pub(crate) fn of(value: &Value) -> Self {
        Self(value.as_object().cloned().unwrap_or_default())
    }

    /// Whether the field was sent, `null` included.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Whether the field is `true`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|flag| flag == true)
    }

    pub(crate) fn whole(&self, name: &str) -> Option<i64> {
        self.0.get(name).and_then(Value::as_i64)
    }

    pub(crate) fn time(&self, name: &str) -> Option<Timestamp> {
        self.text(name).and_then(parse_rfc3339)
    }

    pub(crate) fn list(&self, name: &str) -> Option<&Vec<Value>> {
        self.0.get(name).and_then(Value::as_array)
    }
}
