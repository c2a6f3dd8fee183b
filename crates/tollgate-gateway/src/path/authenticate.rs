//! Stage 1 of 11: authenticate. In: the request's head; out: the caller, or why the key is refused. The body is not read yet.
//!
//! A cached key does not wait. A cache miss asks the store; a store that does not answer gives 503 (E68), never 401. Requests that
//! must be refused regardless of their bodies are refused here: the limits or the money of the key are used up, or the key is above
//! its share of the requests in progress. A request waits here for its turn on a busy core.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tollgate_core::{
    Caller, Catalog, EarlyRequest, Key, LimitExceeded, RateExceeded, RateKind, RateStatuses, Subject, Tags, Timestamp,
    exhausted_limit, has_limits,
};
use tollgate_protocol::{Method, Target};

use super::types::{usage_guard::UsageGuard, worker::Worker};
use crate::{
    refusal::Refusal,
    request::Head,
    state::{
        authenticator::KnownKey,
        shared::Shared,
        shares::{InFlightRequest, KeyShare, NotAdmitted, Receiving, ShareExceeded},
    },
};

/// Header with which a caller tags a request, for sums of its usage.
const TAGS: &str = "x-tollgate-tags";
const TAGS_FIELD: HeaderName = HeaderName::from_static(TAGS);

/// Authenticates the caller. From here on the request leaves a usage record, also when a known key is refused. The caller's
/// request counts as being received until the second result is dropped.
///
/// # Errors
/// E1 to E7, E68; E20 or E21 for invalid tags; E31 for wrong keys from an address that sent too many of them; E31 and E32 for a key
/// with nothing left.
pub(super) async fn authenticate(
    worker: &Worker,
    catalog: &Catalog,
    head: &Head,
    target: &Target,
    guard: &mut UsageGuard,
) -> Result<(Caller, Receiving), Refusal> {
    let known = match worker.shared.keys.known_key(head, head.arrived).await {
        Ok(known) => known,
        Err(error) => {
            if let Some(known) = &error.key {
                guard.authenticated(known, head, target.method);
            }
            return Err(error.refusal);
        }
    };
    guard.authenticated(&known, head, target.method);
    guard.add_tags(tags(head)?);
    let KnownKey { key, share } = known;
    if !key.allows_protocol(head.from) {
        return Err(Refusal::protocol_blocked(&key));
    }
    let receiving = share.begin_receiving();
    match nothing_left(&worker.shared, catalog, &key, head.arrived, target.method, &receiving) {
        None => Ok((Caller::of(catalog, key), receiving)),
        Some(exceeded) => Err(Refusal::LimitExceeded(Box::new(exceeded))),
    }
}

/// Waits until an authenticated request may begin, and counts it among those in progress.
///
/// # Errors
/// E63 when there are too many requests; E31 for a key above its share of them.
pub(super) async fn start(worker: &Worker, share: &Arc<KeyShare>, request: Option<&Arc<InFlightRequest>>) -> Result<(), Refusal> {
    worker.starts.begin_request(share, request).await.map_err(not_admitted)?;
    if share.may_record(&worker.shared.serving) { Ok(()) } else { Err(Refusal::Overloaded) }
}

fn not_admitted(reason: NotAdmitted) -> Refusal {
    match reason {
        NotAdmitted::Full => Refusal::Overloaded,
        NotAdmitted::AboveShare(exceeded) => above_share(&exceeded),
    }
}

/// The tags in the request's headers: those that the caller chose, and those that its client sends about itself.
fn tags(head: &Head) -> Result<Tags, Refusal> {
    let lines = head.headers.get_all(TAGS_FIELD).map(HeaderValue::as_bytes);
    let mut tags = Tags::parse_header(lines).map_err(|invalid| Refusal::InvalidValue {
        name: TAGS,
        message: format!("Invalid value for the header '{TAGS}': {invalid}."),
    })?;
    let of_client = |(header, name): &(&str, &str)| {
        let value = head.headers.get(*header)?.to_str().ok()?;
        Some(((*name).to_owned(), value.to_owned()))
    };
    tags.add_metadata(&head.from.spec().tag_headers.iter().filter_map(of_client).collect::<Vec<_>>());
    Ok(tags)
}

/// E31: the key or its member has as many requests in progress as its share allows.
fn above_share(exceeded: &ShareExceeded) -> Refusal {
    let ShareExceeded { subject, held, max } = *exceeded;
    let (limit, used, kind) = (max as u64, held as u64, RateKind::Concurrency);
    let rate = RateExceeded { subject, kind, limit, used, wait_ms: 1_000, rate_statuses: RateStatuses::default() };
    Refusal::LimitExceeded(Box::new(LimitExceeded::Rate(rate)))
}

/// The limit that refuses any further request of the key. Counters shared with other nodes lag behind and are checked on
/// admission; here only the requests that this node is receiving are added to them.
fn nothing_left(
    shared: &Shared,
    catalog: &Catalog,
    key: &Key,
    at: Timestamp,
    method: Method,
    receiving: &Receiving,
) -> Option<LimitExceeded> {
    if !has_limits(key) {
        return None;
    }
    let lags = shared.counters.is_shared();
    let subjects = [Subject::Key(key.id), Subject::Member(key.member.id)];
    let known = if lags { &[][..] } else { &subjects };
    let meters = shared.counters.snapshot(known, shared.clock.instant());
    let costs_money = !lags && catalog.sells_nothing_free && method != Method::CountTokens;
    let request = EarlyRequest { key, at, costs_money, counts_tokens: method == Method::CountTokens, micros: meters.micros };
    let meter = |subject| meters.meters.iter().find(|(of, _)| *of == subject).map(|(_, meter)| *meter).unwrap_or_default();
    exhausted_limit(&request, |subject| receiving.before(subject), meter)
}
