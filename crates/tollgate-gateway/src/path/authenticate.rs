//! Stage 1 of 11: authenticate. In: the request's head; out: the caller, or why the key is refused. The body is not read yet.
//!
//! A cached key does not wait. A cache miss asks the store; a store that does not answer gives 503 (E68), never 401.

use tollgate_core::{Caller, Catalog};
use tollgate_protocol::Target;

use super::{Worker, types::usage_guard::UsageGuard};
use crate::{refusal::Refusal, request::Head};

/// Authenticates the caller. From here on the request leaves a usage record, also when a known key is refused.
///
/// # Errors
/// E1 to E6, E68, and E31 for wrong keys from an address that sent too many of them.
pub(super) async fn authenticate(
    worker: &Worker,
    catalog: &Catalog,
    head: &Head,
    target: &Target,
    guard: &mut UsageGuard,
) -> Result<Caller, Refusal> {
    match worker.shared.keys.caller_of(catalog, head, head.arrived).await {
        Ok(caller) => {
            guard.authenticated(&caller.key, head, target.method);
            Ok(caller)
        }
        Err(error) => {
            if let Some(key) = &error.key {
                guard.authenticated(key, head, target.method);
            }
            Err(error.refusal)
        }
    }
}
