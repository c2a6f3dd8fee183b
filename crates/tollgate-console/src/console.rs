//! The console as a service: takes requests from any listener, or from the command line, and returns responses.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, uri::PathAndQuery};
use http_body::Body as HttpBody;
use tokio::sync::Semaphore;
use tollgate_store::{Actor, Store};
use tower::ServiceExt as _;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    api,
    api_error::ApiError,
    caller::{CallerShares, is_caller_path},
    catalog_lists::CatalogLists,
    dispatch,
    gateway_handle::GatewayHandle,
    identity::{Identity, IdentitySettings},
    jobs::Jobs,
    kept_answers::KeptAnswers,
    pages,
    shares::{FilePermits, HeavyPermits, RequestShares, Shares},
    square::Square,
    state::{ConsoleState, LocalOperator, RequestMeta},
};

/// Requests handled concurrently; further ones wait.
const MAX_REQUESTS: usize = 64;
/// Concurrent queries for callers that ask about themselves, so that they delay neither operators nor each other's key look-ups.
const MAX_CALLER_QUERIES: usize = 1;
/// Clients that follow the usage log at the same time.
const MAX_FOLLOWERS: usize = 16;
/// Of these, those of one member.
const MAX_FOLLOWERS_OF_MEMBER: usize = 2;

/// The console. Cheap to clone.
#[derive(Clone)]
pub struct Console {
    state: Arc<ConsoleState>,
    router: Router,
    request_permits: Arc<Semaphore>,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Console {
    /// `catalog_file` is the path of the served catalog file, for messages. A command has no jobs.
    pub fn new(
        store: Store,
        gateway: Arc<dyn GatewayHandle>,
        identity: IdentitySettings,
        catalog_file: Option<String>,
        jobs: Option<Jobs>,
    ) -> Self {
        let identity = Identity::new(identity);
        let follower_permits = Arc::new(Semaphore::new(MAX_FOLLOWERS));
        let state = Arc::new(ConsoleState {
            store,
            gateway,
            catalog_file,
            identity,
            jobs,
            request_shares: RequestShares::default(),
            heavy_permits: HeavyPermits::default(),
            file_permits: FilePermits::default(),
            follower_permits,
            follower_shares: Shares::new(MAX_FOLLOWERS_OF_MEMBER),
            caller_shares: CallerShares::default(),
            caller_permits: Semaphore::new(MAX_CALLER_QUERIES),
            kept_answers: KeptAnswers::default(),
            catalog_lists: CatalogLists::default(),
            has_requests: AtomicBool::new(false),
            square: Square::default(),
        });
        let router = catch_panics(dispatch::router(api::routes(), &state));
        Self { state, router, request_permits: Arc::new(Semaphore::new(MAX_REQUESTS)) }
    }

    /// Answers a request of the program's own command line, which needs no admin key. Changes are recorded as made by
    /// `actor`. Database queries are not timed out.
    pub async fn handle_local(&self, request_meta: RequestMeta, actor: Actor, mut request: Request<Body>) -> Response<Body> {
        request.extensions_mut().insert(LocalOperator(actor));
        self.answer(request_meta, request).await
    }

    /// Answers a request. The body is read only after authentication and authorisation.
    pub async fn answer<B>(&self, request_meta: RequestMeta, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        // Callers have shares of their own. The semaphore is never closed.
        let permit = if is_caller_path(request.uri().path()) { None } else { Some(self.request_permits.acquire().await) };
        let mut request = without_base(self.state.identity.settings.base(), request.map(Body::new));
        request.extensions_mut().insert(request_meta);
        let of_person = pages::is_page_path(request.uri().path()) && pages::takes_html(request.headers());
        let of_person = of_person.then(|| dispatch::without_body(&request));
        let mut response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if let Some(request) = of_person
            && response.extensions().get::<Panicked>().is_some()
        {
            response = pages::failure(&self.state, &request, ApiError::internal()).await;
        }
        drop(permit);
        if let Ok(id) = HeaderValue::from_str(&request_meta.id.to_string()) {
            response.headers_mut().insert("x-request-id", id);
        }
        response
    }
}

/// Marks the answer to a request whose handler panicked.
#[derive(Clone, Copy, Debug)]
struct Panicked;

/// Answers requests whose handlers panic as an internal error.
fn catch_panics(router: Router) -> Router {
    router.layer(CatchPanicLayer::custom(|_| {
        tracing::error!("a handler of the console panicked");
        let mut response = ApiError::internal().answer().response();
        response.extensions_mut().insert(Panicked);
        response
    }))
}

/// Removes the console's own path from the address of a request, for proxies that leave it there.
fn without_base(base: &str, mut request: Request<Body>) -> Request<Body> {
    let path = request.uri().path_and_query().map_or("", PathAndQuery::as_str);
    let Some(rest) = path.strip_prefix(base).filter(|rest| !base.is_empty() && (rest.is_empty() || rest.starts_with(['/', '?'])))
    else {
        return request;
    };
    let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = rest.parse().ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_becomes_a_500_response_marked_as_panicked() {
        async fn fail() {
            panic!("a handler fails");
        }
        let router = catch_panics(Router::new().route("/", axum::routing::get(fail)));
        let response = router.oneshot(Request::builder().uri("/").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), http::StatusCode::INTERNAL_SERVER_ERROR);
        assert!(response.extensions().get::<Panicked>().is_some());
    }

    #[test]
    fn base_path_is_stripped_once_and_only_as_a_whole_segment() {
        for (base, sent, expected) in [
            ("", "/models", "/models"),
            ("/gate", "/gate/models?group=a", "/models?group=a"),
            ("/gate", "/models", "/models"),
            ("/gate", "/gateway", "/gateway"),
            ("/gate", "/gate/gate/x", "/gate/x"),
            ("/gate", "/gate?x", "/?x"),
        ] {
            let request = Request::builder().uri(sent).body(Body::empty()).unwrap();
            assert_eq!(without_base(base, request).uri().to_string(), expected, "{base} {sent}");
        }
    }
}
