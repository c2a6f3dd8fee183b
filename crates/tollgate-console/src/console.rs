//! The console as one value: made from its parts, it answers requests, whoever accepted them.

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
    dispatch,
    gateway_handle::GatewayHandle,
    state::{ConsoleState, LocalOperator, RequestMeta},
};

/// Requests that are answered at once; more wait.
const MAX_REQUESTS: usize = 64;
/// Of those, requests that read many rows: usage pages, sums and exports. They share the store's readers with key
/// look-ups of the model path, so they may not take all of them.
const MAX_HEAVY_REQUESTS: usize = 2;

/// What a console is made from.
#[derive(Clone, Debug)]
pub struct ConsoleParts {
    /// Everything that is remembered.
    pub store: Store,
    /// The running process.
    pub gateway: Arc<dyn GatewayHandle>,
    /// The served catalog file, for messages.
    pub catalog_file: Option<String>,
    /// The program's version.
    pub version: &'static str,
}

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
    /// Puts it together.
    #[must_use]
    pub fn new(parts: ConsoleParts) -> Self {
        let ConsoleParts { store, gateway, catalog_file, version } = parts;
        let state = Arc::new(ConsoleState {
            store,
            gateway,
            catalog_file,
            version,
            heavy_permits: Arc::new(Semaphore::new(MAX_HEAVY_REQUESTS)),
        });
        let router = dispatch::router(api::routes(), &state).layer(CatchPanicLayer::custom(|_| {
            tracing::error!("a panic while answering the admin API");
            ApiError::internal().answer().response()
        }));
        Self { state, router, request_permits: Arc::new(Semaphore::new(MAX_REQUESTS)) }
    }

    /// Answers whoever has the data folder itself and needs no key: the program's own command line. `by` is written down
    /// as having made a change; waits for the database have no bound.
    pub async fn handle_local(&self, request_meta: RequestMeta, by: Actor, mut request: Request<Body>) -> Response<Body> {
        request.extensions_mut().insert(LocalOperator(by));
        self.answer(request_meta, request).await
    }

    /// Answers a request. Its body is read only when its sender may do what is asked.
    pub async fn answer<B>(&self, request_meta: RequestMeta, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        // Never closed; a closed one would only mean that nobody waits.
        let turn = self.request_permits.acquire().await;
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(request_meta);
        let mut response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        drop(turn);
        if let Ok(id) = HeaderValue::from_str(&request_meta.id.to_string()) {
            response.headers_mut().insert("x-request-id", id);
        }
        response
    }
}
