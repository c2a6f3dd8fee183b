//! The console as a service: takes requests from any listener, or from the command line, and returns responses.

use std::{fmt, sync::Arc};

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body as HttpBody;
use tokio::sync::Semaphore;
use tollgate_store::{Actor, Store};
use tower::ServiceExt as _;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    api,
    api_error::ApiError,
    caller::{CallerShares, is_caller_path},
    dispatch,
    gateway_handle::GatewayHandle,
    identity::{Identity, IdentitySettings},
    jobs::Jobs,
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
            square: Square::default(),
        });
        let router = dispatch::router(api::routes(), &state).layer(CatchPanicLayer::custom(|_| {
            tracing::error!("a handler of the admin API panicked");
            ApiError::internal().answer().response()
        }));
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
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(request_meta);
        let mut response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        drop(permit);
        if let Ok(id) = HeaderValue::from_str(&request_meta.id.to_string()) {
            response.headers_mut().insert("x-request-id", id);
        }
        response
    }
}
