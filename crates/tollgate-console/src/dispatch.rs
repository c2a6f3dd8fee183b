//! Dispatch of requests to handlers: route by path and method, authenticate, authorise, validate the query, and only then read
//! and validate the body.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts as _, RawPathParams},
    routing::{MethodFilter, on},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::{Map, Value};
use tokio::time::timeout;
use tollgate_store::{AdminScope, fields::WriteMode};

use crate::{
    api::{
        check, conditions,
        request_context::{InputFields, NO_TIMEOUT, RequestContext},
        route::{Method, Needs, RequestSchema, Route, may_exist},
    },
    api_error::ApiError,
    auth, caller, json, pages,
    principal::Principal,
    response::ApiResponse,
    square,
    state::{ConsoleState, LocalOperator, RequestMeta},
};

/// Largest body of a request from the command line.
const LOCAL_BODY_BYTES: usize = 256 << 20;
/// Longest time to receive a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time until a response begins. Longer than any channel test.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(110);

/// The router of these routes. Other paths are 404; other methods of a known path are 405.
pub(crate) fn router(routes: impl Iterator<Item = &'static Route>, state: &Arc<ConsoleState>) -> Router {
    let mut router = Router::new();
    for route in routes {
        let state = Arc::clone(state);
        let service = on(method_filter(route.method), move |request: Request<Body>| serve(Arc::clone(&state), route, request));
        router = router.route(route.path, service);
    }
    let metrics = {
        let state = Arc::clone(state);
        move |request: Request<Body>| serve_metrics(Arc::clone(&state), request)
    };
    pages::add_routes(square::add_routes(caller::add_routes(router, state), state), state)
        .route("/metrics", on(MethodFilter::GET, metrics))
        .fallback({
            let state = Arc::clone(state);
            move |request: Request<Body>| unknown_path(Arc::clone(&state), request)
        })
        .method_not_allowed_fallback({
            let state = Arc::clone(state);
            move |request: Request<Body>| pages::wrong_method(Arc::clone(&state), request)
        })
}

/// Marks the response to a path outside the console. A gateway on the same address replaces it by a refusal with a hint.
#[derive(Clone, Copy, Debug)]
pub struct NotOfConsole;

async fn unknown_path(state: Arc<ConsoleState>, request: Request<Body>) -> Response<Body> {
    if pages::is_for_people(&request) {
        return pages::not_found(state, request).await;
    }
    if request.uri().path().starts_with("/admin") { ApiError::no_path().answer().response() } else { not_of_console() }
}

/// The response to a path outside the console.
pub(crate) fn not_of_console() -> Response<Body> {
    let mut response = ApiError::no_path().answer().response();
    response.extensions_mut().insert(NotOfConsole);
    response
}

pub(crate) const fn method_filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Patch => MethodFilter::PATCH,
        Method::Put => MethodFilter::PUT,
        Method::Delete => MethodFilter::DELETE,
    }
}

/// Id and peer of a request; every listener sets them.
pub(crate) fn request_meta<B>(request: &Request<B>, state: &ConsoleState) -> RequestMeta {
    let known = request.extensions().get::<RequestMeta>().copied();
    known.unwrap_or_else(|| RequestMeta {
        id: tollgate_core::RequestId::from_parts(state.gateway.now(), [0; 10]),
        address: None,
        is_local: false,
    })
}

async fn serve(state: Arc<ConsoleState>, route: &'static Route, request: Request<Body>) -> Response<Body> {
    let started = state.gateway.now();
    let request_meta = request_meta(&request, &state);
    let mut principal = None;
    let of_browser = for_browser(route, &request);
    let deadline = if request.extensions().get::<LocalOperator>().is_some() { NO_TIMEOUT } else { RESPONSE_TIMEOUT };
    let answered = match timeout(deadline, handle(Arc::clone(&state), route, request_meta, request, &mut principal)).await {
        Ok(answered) => answered,
        Err(_) => Err(ApiError::overloaded("The answer took too long.")),
    };
    let response = match (answered, of_browser) {
        (Ok(answer), _) => answer.response(),
        (Err(problem), None) => problem.answer().response(),
        (Err(problem), Some(request)) => pages::failure(&state, &request, problem).await,
    };
    tracing::info!(
        request.id = %request_meta.id,
        http.method = ?route.method,
        http.route = route.path,
        http.status = response.status().as_u16(),
        principal.id = principal.and_then(|principal: Principal| principal.id()),
        duration_ms = state.gateway.now().ms_since(started).max(0),
        "admin request"
    );
    response
}

/// The request without its body, if a browser sent it as a step of an OpenID sign-in, where a failure is shown as a page.
fn for_browser(route: &Route, request: &Request<Body>) -> Option<Request<()>> {
    let is_way = route.path.starts_with("/admin/v1/oidc/") && pages::takes_html(request.headers());
    is_way.then(|| without_body(request))
}

/// Address, headers and id of a request.
pub(crate) fn without_body(request: &Request<Body>) -> Request<()> {
    let mut copy = Request::new(());
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    if let Some(meta) = request.extensions().get::<RequestMeta>() {
        copy.extensions_mut().insert(*meta);
    }
    copy
}

/// Authenticates, authorises and validates a request, then calls the handler. `found` receives the principal for the log.
async fn handle(
    state: Arc<ConsoleState>,
    route: &'static Route,
    request_meta: RequestMeta,
    request: Request<Body>,
    found: &mut Option<Principal>,
) -> Result<ApiResponse, ApiError> {
    let (mut parts, body) = request.into_parts();
    let principal = match parts.extensions.remove::<LocalOperator>() {
        Some(LocalOperator(actor)) => Principal::LocalOperator(actor),
        None if route.needs == Needs::Nothing => {
            auth::refuse_other_origins(&state, &parts)?;
            Principal::Anonymous
        }
        None => auth::authenticate(&state, &request_meta, &parts).await?,
    };
    *found = Some(principal.clone());
    let objects = principal.objects(route.needs)?;
    let _share = state.request_shares.claim(&principal, request_meta.address)?;
    let path = match RawPathParams::from_request_parts(&mut parts, &()).await {
        Ok(params) => params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<HashMap<_, _>>(),
        Err(_) => return Err(ApiError::no_path()),
    };
    if !path.iter().all(|(name, value)| may_exist(name, value)) {
        return Err(ApiError::no_path());
    }
    let query = InputFields(check::query(route.query, parts.uri.query().unwrap_or_default())?);
    conditions::check(route, &parts.headers)?;
    let max_bytes = if principal.is_local() { LOCAL_BODY_BYTES } else { route.max_body_bytes };
    let body = InputFields(match route.request {
        RequestSchema::Empty => Map::new(),
        RequestSchema::Body(object, mode) => check::body(object, read_json(&parts.headers, body, max_bytes, None).await?, mode)?,
        RequestSchema::Optional(object) => {
            check::body(object, read_json(&parts.headers, body, max_bytes, Some(Map::new().into())).await?, WriteMode::Create)?
        }
    });
    let address = request_meta.address;
    let context = RequestContext { state, route, principal, objects, address, path, query, headers: parts.headers, body };
    (route.handler)(context).await
}

/// A call of a page to a route of the admin API.
#[derive(Debug, Default)]
pub(crate) struct ApiCall {
    pub(crate) path: HashMap<String, String>,
    /// The query, form-encoded.
    pub(crate) query: String,
    pub(crate) body: Map<String, Value>,
}

/// Calls a route for a page: authorised, validated and recorded as a request for the route itself. `headers` are those of the page's
/// request, for the browser's name.
pub(crate) async fn call(
    state: &Arc<ConsoleState>,
    route: &'static Route,
    (principal, request_meta, headers): (Principal, &RequestMeta, &HeaderMap),
    ApiCall { path, query, body }: ApiCall,
) -> Result<ApiResponse, ApiError> {
    let objects = principal.objects(route.needs)?;
    if !path.iter().all(|(name, value)| may_exist(name, value)) {
        return Err(ApiError::no_path());
    }
    let query = InputFields(check::query(route.query, &query)?);
    let body = InputFields(match route.request {
        RequestSchema::Empty => Map::new(),
        RequestSchema::Body(object, mode) => check::body(object, body.into(), mode)?,
        RequestSchema::Optional(object) => check::body(object, body.into(), WriteMode::Create)?,
    });
    let (state, address) = (Arc::clone(state), request_meta.address);
    let context = RequestContext { state, route, principal, objects, address, path, query, headers: headers.clone(), body };
    (route.handler)(context).await
}

/// Reads a JSON body; `empty` is the value of an empty one, an error if `None`.
async fn read_json(headers: &HeaderMap, body: Body, max_bytes: usize, empty: Option<Value>) -> Result<Value, ApiError> {
    if let Some(sent) = headers.get(header::CONTENT_TYPE) {
        let media = sent.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if media != "application/json" && !(media.starts_with("application/") && media.ends_with("+json")) {
            return Err(ApiError::media_type("The Content-Type"));
        }
    }
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(ApiError::media_type("The Content-Encoding"));
    }
    let bytes = read(body, max_bytes).await?;
    match empty {
        Some(empty) if bytes.is_empty() => Ok(empty),
        None if bytes.is_empty() => Err(ApiError::no_json("it is empty; send a JSON object")),
        _ => json::parse(&bytes).map_err(|fault| ApiError::no_json(&fault)),
    }
}

pub(crate) async fn read(body: Body, max_bytes: usize) -> Result<Bytes, ApiError> {
    match timeout(BODY_TIMEOUT, Limited::new(body, max_bytes).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::too_large(max_bytes)),
        Ok(Err(_)) => Err(ApiError::no_json("the body broke off")),
        Err(_) => Err(ApiError::too_slow()),
    }
}

/// `/metrics`, for loopback peers that name a loopback host, and for clients with an admin key.
async fn serve_metrics(state: Arc<ConsoleState>, request: Request<Body>) -> Response<Body> {
    let request_meta = request_meta(&request, &state);
    if !request_meta.is_local {
        let (parts, _) = request.into_parts();
        let known = auth::authenticate(&state, &request_meta, &parts).await;
        if let Err(problem) = known.and_then(|principal| principal.objects(Needs::Scope(AdminScope::Operator))) {
            return problem.answer().response();
        }
    }
    let (content_type, text) = state.gateway.metrics();
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Whether a text is a path of this console: a browser must not be sent anywhere else. Headers take ASCII only; other characters are
/// percent-encoded.
pub(crate) fn is_local_path(text: &str) -> bool {
    text.starts_with('/') && !text.starts_with("//") && !text.contains('\\') && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_this_console_are_local() {
        for good in ["/", "/console", "/console?tab=keys#x", "/a//b"] {
            assert!(is_local_path(good), "{good}");
        }
        for bad in [
            "",
            "console",
            "//evil.example.com",
            "/\\evil.example.com",
            "\\\\evil.example.com",
            "https://evil.example.com",
            "javascript:alert(1)",
            "/a b",
            "/\t/evil.example.com",
            "/\r\nset-cookie: a=b",
            "/ä",
            "/\u{2028}",
        ] {
            assert!(!is_local_path(bad), "{bad}");
        }
    }
}
