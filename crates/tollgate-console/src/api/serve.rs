//! From a request to a handler: path and method by the table, then the key, its scope, the query, and only then the body.

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
use tokio::time::{Instant, timeout};
use tollgate_core::Timestamp;
use tollgate_store::AdminKey;

use super::{
    ask::{Ask, Members, NO_HURRY, Who},
    check,
    route::{Method, Route, Takes},
    routes,
    shape::How,
};
use crate::{
    answer::Answer,
    door, json,
    problem::Problem,
    site::{Owner, Site, Visitor},
};

/// Largest body; a catalog file of some thousand rows fits.
const BODY_BYTES: usize = 4 << 20;
/// The same for who has the data folder.
const OWNERS_BODY_BYTES: usize = 256 << 20;
/// A body must be here within this time.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Longest time for an answer to begin. The longest wait of a channel's test is below it.
const ANSWER_TIME: Duration = Duration::from_secs(110);

/// The router of all routes. What it does not know is 404, or 405 where the path exists.
pub(crate) fn router(site: &Arc<Site>) -> Router {
    let mut router = Router::new();
    for route in routes() {
        let site = Arc::clone(site);
        let service = on(filter(route.method), move |request: Request<Body>| serve(Arc::clone(&site), route, request));
        router = router.route(route.path, service);
    }
    let metrics = {
        let site = Arc::clone(site);
        move |request: Request<Body>| serve_metrics(Arc::clone(&site), request)
    };
    router
        .route("/metrics", on(MethodFilter::GET, metrics))
        .fallback(async || Problem::no_path().answer().response())
        .method_not_allowed_fallback(async || Problem::no_method().answer().response())
}

const fn filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Patch => MethodFilter::PATCH,
        Method::Put => MethodFilter::PUT,
        Method::Delete => MethodFilter::DELETE,
    }
}

/// Whoever sent a request. Every request has been given one.
fn visitor(request: &Request<Body>, site: &Site) -> Visitor {
    let known = request.extensions().get::<Visitor>().copied();
    known.unwrap_or_else(|| Visitor {
        id: tollgate_core::RequestId::from_parts(site.running.now(), [0; 10]),
        address: std::net::Ipv4Addr::UNSPECIFIED.into(),
    })
}

async fn serve(site: Arc<Site>, route: &'static Route, request: Request<Body>) -> Response<Body> {
    let started = Instant::now();
    let visitor = visitor(&request, &site);
    let mut who = None;
    let patience = if request.extensions().get::<Owner>().is_some() { NO_HURRY } else { ANSWER_TIME };
    let answered = match timeout(patience, admit(Arc::clone(&site), route, visitor, request, &mut who)).await {
        Ok(answered) => answered,
        Err(_) => Err(Problem::overloaded("The answer took too long.")),
    };
    let response = answered.unwrap_or_else(|problem| problem.answer()).response();
    tracing::info!(
        request.id = %visitor.id,
        http.method = ?route.method,
        http.route = route.path,
        http.status = response.status().as_u16(),
        admin_key.id = who.map(|key: AdminKey| key.id.to_string()),
        duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "admin request"
    );
    response
}

/// Everything that must be right before the handler sees a request.
async fn admit(
    site: Arc<Site>,
    route: &'static Route,
    visitor: Visitor,
    request: Request<Body>,
    found: &mut Option<AdminKey>,
) -> Result<Answer, Problem> {
    let (mut parts, body) = request.into_parts();
    let who = match parts.extensions.remove::<Owner>() {
        Some(Owner(actor)) => Who::Owner(actor),
        None => Who::Key(door::authenticate(&site, &visitor, &parts.headers).await?),
    };
    *found = who.key().cloned();
    if who.scope() < route.needs {
        return Err(Problem::forbidden("This"));
    }
    let path = match RawPathParams::from_request_parts(&mut parts, &()).await {
        Ok(params) => params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<HashMap<_, _>>(),
        Err(_) => return Err(Problem::no_path()),
    };
    if path.values().any(|value| value.chars().any(char::is_control)) {
        return Err(Problem::no_path());
    }
    let query = Members(check::query(route.query, parts.uri.query().unwrap_or_default())?);
    let most = if who.key().is_some() { BODY_BYTES } else { OWNERS_BODY_BYTES };
    let body = Members(match route.takes {
        Takes::Nothing => Map::new(),
        Takes::Body(object, how) => check::body(object, read_json(&parts.headers, body, most, None).await?, how)?,
        Takes::Maybe(object) => {
            check::body(object, read_json(&parts.headers, body, most, Some(Map::new().into())).await?, How::New)?
        }
    });
    let ask = Ask { site, route, who, path, query, headers: parts.headers, body };
    (route.handler)(ask).await
}

async fn read_json(headers: &HeaderMap, body: Body, most: usize, empty: Option<Value>) -> Result<Value, Problem> {
    if let Some(sent) = headers.get(header::CONTENT_TYPE) {
        let media = sent.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if media != "application/json" && !(media.starts_with("application/") && media.ends_with("+json")) {
            return Err(Problem::media_type("The Content-Type"));
        }
    }
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(Problem::media_type("The Content-Encoding"));
    }
    let bytes = read(body, most).await?;
    match empty {
        Some(empty) if bytes.is_empty() => Ok(empty),
        None if bytes.is_empty() => Err(Problem::no_json("it is empty; send a JSON object")),
        _ => json::parse(&bytes).map_err(|fault| Problem::no_json(&fault)),
    }
}

async fn read(body: Body, most: usize) -> Result<Bytes, Problem> {
    match timeout(BODY_TIME, Limited::new(body, most).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::too_large(most)),
        Ok(Err(_)) => Err(Problem::no_json("the body broke off")),
        Err(_) => Err(Problem::too_slow()),
    }
}

/// `/metrics` for who has an admin key, and for loopback peers.
async fn serve_metrics(site: Arc<Site>, request: Request<Body>) -> Response<Body> {
    let visitor = visitor(&request, &site);
    if !visitor.address.is_loopback()
        && let Err(problem) = door::authenticate(&site, &visitor, request.headers()).await
    {
        return problem.answer().response();
    }
    let (content_type, text) = site.running.metrics();
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// RFC 3339 in UTC.
pub(super) fn shown_time(at: Timestamp) -> Value {
    crate::rfc3339(at).into()
}
