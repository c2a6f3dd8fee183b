//! Requests of callers about themselves, with their own service key or signed in: `/v1/key`, `/v1/usage`, and the paths for
//! balances that existing clients read. Errors have OpenAI's shape. Answers are the caller view: no channel, account, cost or
//! upstream error.

mod access;
mod billing;
mod key;
mod openapi;
mod usage;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    routing::{MethodFilter, on},
};
use http::{Request, Response};
use serde_json::Value;
use tokio::time::timeout;
use tollgate_core::{Key, Timestamp};
use tollgate_store::{
    KeyUse, KeyUseFilter, StoreError,
    fields::{FieldShape, Kind},
};

use crate::{
    api::{
        check,
        request_context::{InputFields, PERMIT_TIMEOUT, QUERY_TIMEOUT},
        schema::both,
    },
    api_error::ApiError,
    dispatch::request_meta,
    response::ApiResponse,
    square::is_square_path,
    state::{ConsoleState, RequestMeta},
};

pub(crate) use access::CallerShares;
pub(crate) use key::show as key_allowance;
pub(crate) use openapi::document as openapi_document;

/// Number of latest requests on the page that checks a key.
const CHECKED_RECORDS: u32 = 10;
const DAY_US: i64 = 86_400_000_000;

/// A request of a caller: the key that it came with, and the checked query.
pub(crate) struct CallerRequest {
    pub(crate) state: Arc<ConsoleState>,
    pub(crate) key: Arc<Key>,
    pub(crate) query: InputFields,
}

impl CallerRequest {
    /// Runs a query of the database, one of a few at a time.
    async fn read<T>(&self, query: impl Future<Output = Result<T, StoreError>>) -> Result<T, ApiError> {
        let late = |_| ApiError::overloaded("Too many callers ask about their usage at the moment.");
        let permit = timeout(PERMIT_TIMEOUT, self.state.caller_permits.acquire()).await.map_err(late)?;
        let read = timeout(QUERY_TIMEOUT, query).await;
        drop(permit);
        let long = |_| ApiError::overloaded("The query took longer than 5 s; ask for a shorter time.");
        Ok(read.map_err(long)??)
    }
}

/// A path of callers.
#[derive(Clone, Copy)]
struct CallerRoute {
    path: &'static str,
    query: &'static [FieldShape],
    answers: CallerAnswer,
}

#[derive(Clone, Copy)]
enum CallerAnswer {
    Key,
    Usage,
    Records,
    Subscription,
    TotalUsage,
    Balance,
    Account,
    TokenUsage,
}

const fn route(path: &'static str, query: &'static [FieldShape], answers: CallerAnswer) -> CallerRoute {
    CallerRoute { path, query, answers }
}

/// Without a service key, the key of the member who is signed in.
const KEY_ID: FieldShape =
    both("key_id", Kind::Id("key_"), "One of the keys of the member who is signed in; needed if there are several.");
const NO_QUERY: &[FieldShape] = &[];

const ROUTES: [CallerRoute; 12] = [
    route("/v1/key", NO_QUERY, CallerAnswer::Key),
    route("/v1/usage", usage::SUMS, CallerAnswer::Usage),
    route("/v1/usage/records", usage::RECORDS, CallerAnswer::Records),
    route("/v1/dashboard/billing/subscription", NO_QUERY, CallerAnswer::Subscription),
    route("/dashboard/billing/subscription", NO_QUERY, CallerAnswer::Subscription),
    route("/v1/dashboard/billing/usage", billing::USAGE, CallerAnswer::TotalUsage),
    route("/dashboard/billing/usage", billing::USAGE, CallerAnswer::TotalUsage),
    route("/user/balance", NO_QUERY, CallerAnswer::Balance),
    route("/v1/user/balance", NO_QUERY, CallerAnswer::Balance),
    route("/api/user/self", NO_QUERY, CallerAnswer::Account),
    route("/api/usage/token", NO_QUERY, CallerAnswer::TokenUsage),
    route("/api/usage/token/", NO_QUERY, CallerAnswer::TokenUsage),
];

/// Whether a path is for callers: information about their own key, or a feed of the model square. The model address serves these
/// paths even if the console has its own address.
pub fn is_caller_path(path: &str) -> bool {
    ROUTES.iter().any(|route| route.path == path) || path == openapi::PATH || is_square_path(path)
}

/// Adds the paths of callers.
pub(crate) fn add_routes(mut router: Router, state: &Arc<ConsoleState>) -> Router {
    for route in ROUTES {
        let state = Arc::clone(state);
        let service = on(MethodFilter::GET, move |request: Request<Body>| serve(Arc::clone(&state), route, request));
        router = router.route(route.path, service);
    }
    let document = || async { ApiResponse::ok(openapi::document(env!("CARGO_PKG_VERSION"))).response() };
    router.route(openapi::PATH, on(MethodFilter::GET, document))
}

/// The facts about a key that the page for checking keys shows.
#[derive(Debug)]
pub(crate) struct KeyCheck {
    /// The answer of `/v1/key`.
    pub(crate) allowance: Value,
    /// The last requests, as `/v1/usage/records` answers them.
    pub(crate) records: Value,
    /// Usage on this UTC day, and in this UTC month.
    pub(crate) today: KeyUse,
    pub(crate) month: KeyUse,
}

pub(crate) async fn check_key(state: &Arc<ConsoleState>, meta: &RequestMeta, presented: &str) -> Result<KeyCheck, ApiError> {
    let key = state.gateway.service_key(presented, meta.address).await.map_err(ApiError::service_key)?;
    let _share = state.caller_shares.claim(key.id, key.member.id)?;
    let query = InputFields([("limit".to_owned(), Value::from(CHECKED_RECORDS))].into_iter().collect());
    let request = CallerRequest { state: Arc::clone(state), key, query };
    let now = state.gateway.now();
    Ok(KeyCheck {
        allowance: key::show(&request).await?,
        records: usage::records(&request).await?,
        today: used_since(&request, Timestamp(now.0.div_euclid(DAY_US) * DAY_US)).await?,
        month: used_since(&request, Timestamp::of_month(now.month())).await?,
    })
}

async fn used_since(request: &CallerRequest, since: Timestamp) -> Result<KeyUse, ApiError> {
    let filter = KeyUseFilter { member: None, since };
    let used = request.read(request.state.store.usage.key_use(filter, Some(vec![request.key.id]))).await?;
    Ok(used.first().map(|(_, used)| *used).unwrap_or_default())
}

async fn serve(state: Arc<ConsoleState>, route: CallerRoute, request: Request<Body>) -> Response<Body> {
    handle(state, route, request).await.unwrap_or_else(|problem| problem.answer()).response()
}

async fn handle(state: Arc<ConsoleState>, route: CallerRoute, request: Request<Body>) -> Result<ApiResponse, ApiError> {
    let meta = request_meta(&request, &state);
    let fields = [route.query, &[KEY_ID]].concat();
    let query = check::query(&fields, request.uri().query().unwrap_or_default()).map(InputFields);
    let chosen = query.as_ref().ok().and_then(|query| query.text("key_id"));
    let key = access::authenticate(&state, &meta, request.headers(), chosen).await?;
    let _share = state.caller_shares.claim(key.id, key.member.id)?;
    let query = query?;
    let request = CallerRequest { state, key, query };
    let answer: Value = match route.answers {
        CallerAnswer::Key => key::show(&request).await?,
        CallerAnswer::Usage => usage::sums(&request).await?,
        CallerAnswer::Records => usage::records(&request).await?,
        CallerAnswer::Subscription => billing::subscription(&request).await?,
        CallerAnswer::TotalUsage => billing::total_usage(&request).await?,
        CallerAnswer::Balance => billing::balance(&request).await?,
        CallerAnswer::Account => billing::account(&request).await?,
        CallerAnswer::TokenUsage => billing::token_usage(&request).await?,
    };
    Ok(ApiResponse::ok(answer))
}
