//! Handles one HTTP request from the end of its head to its response head: checks, routing, dispatch.

use std::{
    convert::Infallible,
    future::poll_fn,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Version, header, request::Parts};
use serde_json::json;
use tollgate_protocol::Protocol;

use super::{
    Core, ModelPath, Serves,
    body::{OutgoingBody, RequestInProgress},
    client_address::client_address,
    connection_limiter::ServedTargets,
    connection_timers::ConnectionTimers,
    cors, guard,
};
use crate::{
    fallback::{FallbackRequest, FallbackResponse},
    header_fields::HeaderFields,
    in_place::boxed,
    ingress::{self, Destination, PresentedKeys, StatusEndpoint},
    model_list,
    refusal::{REQUEST_ID, Refusal},
    request::{BodyPace, Head, Incoming, RequestBody, UnreadBody},
    response::{AnswerBody, whole},
    settings::{MetricsAccess, RequestSettings, Settings},
    state::{authenticator::RecentKey, metrics::METRICS_CONTENT_TYPE, shared::Shared, shares::InFlightRequest},
};

const JSON: &str = "application/json; charset=utf-8";

/// The connection of a request.
#[derive(Clone, Debug)]
pub(super) struct ConnectionContext {
    pub(super) peer: SocketAddr,
    pub(super) timers: Arc<ConnectionTimers>,
    pub(super) recent_key: Arc<RecentKey>,
    pub(super) targets: ServedTargets,
    /// The part of the current request's body that is not read yet.
    pub(super) unread: UnreadBody,
}

/// Answers a request. Errors and panics become error responses.
pub(super) async fn answer<P: ModelPath>(
    core: Arc<Core<P>>,
    context: ConnectionContext,
    request: Request<hyper::body::Incoming>,
) -> Result<Response<OutgoingBody>, Infallible> {
    let started = core.shared.clock.instant();
    let framing = context.timers.begin(started);
    let mut in_progress = RequestInProgress::new(Arc::clone(&context.timers), Arc::clone(&core.shared.clock));
    let settings = core.shared.settings.load();
    let (mut parts, body) = request.into_parts();
    if core.serves == Serves::Everything {
        ingress::remove_base_path(&mut parts.uri, &settings.base_path);
    }
    let headers = HeaderFields::from(std::mem::take(&mut parts.headers));
    let version = parts.version;
    let caller_closes = names_option(headers.get_all(header::CONNECTION), "close")
        || (version < Version::HTTP_11 && !names_option(headers.get_all(header::CONNECTION), "keep-alive"));
    let destination = match core.serves {
        Serves::Everything => ingress::destination(&parts.method, &parts.uri, &headers),
        Serves::Fallback => Destination::Fallback,
    };
    let destination = if context.targets == ServedTargets::StatusOnly { only_status(destination) } else { destination };
    let head = head_of(&core, &context, &settings, (&parts, headers), &destination, started);
    let (from, request_id, min_rate) = (head.from, head.request_id, head.settings.bounds.min_rate);
    let page = if core.serves == Serves::Everything { cors::allowed(parts.uri.path(), &head.headers, &settings) } else { None };
    let is_valid = || guard::check(&parts, &head.headers, framing, &settings.http).is_ok();
    let preflight = page.as_ref().and_then(|_| cors::preflight(&parts.method, &head.headers)).filter(|_| is_valid());
    drop(settings);
    let expects_continue = head.headers.contains(header::EXPECT);
    let unread = (version != Version::HTTP_2).then(|| context.unread.clone());
    let body = RequestBody::wire(body, BodyPace::new(&head.settings.bounds, started), unread);

    let answered = {
        let mut answered = pin!(async {
            match preflight {
                Some(response) => response,
                None => dispatch(&core, head, destination, &parts, framing, body, &mut in_progress).await,
            }
        });
        // `FutureExt::catch_unwind` takes the future by value, which copies kilobytes.
        poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| answered.as_mut().poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await
    };
    let mut response = answered.unwrap_or_else(|_| {
        tracing::error!(request.id = %request_id, "panic while answering a request");
        let mut head = anonymous_head(&core, &context, started);
        (head.from, head.request_id) = (from, request_id);
        refuse(&core, &Refusal::Internal, &head)
    });
    let headers = response.headers_mut();
    if let Some(origin) = page {
        cors::allow(headers, origin);
    }
    let own_header = from.spec().request_id_header;
    if (own_header.is_some() || !headers.contains_key(REQUEST_ID))
        && let Ok(id) = HeaderValue::from_bytes(request_id.text().as_bytes())
    {
        if let Some(own) = own_header {
            headers.insert(HeaderName::from_static(own), id.clone());
        }
        headers.insert(REQUEST_ID, id);
    }
    if version == Version::HTTP_2 {
        headers.remove(header::CONNECTION);
    } else if context.targets == ServedTargets::StatusOnly || !context.unread.is_over(expects_continue).await {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if version != Version::HTTP_2 && (caller_closes || names_option(headers.get_all(header::CONNECTION).iter(), "close")) {
        context.timers.note_last();
    }
    Ok(response.map(|body| OutgoingBody::new(body, in_progress, min_rate)))
}

/// Whether the values of the header `connection` contain an option.
fn names_option<'a>(connection: impl Iterator<Item = &'a HeaderValue>, option: &str) -> bool {
    let values = connection.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|named| named.trim().eq_ignore_ascii_case(option))
}

async fn dispatch<P: ModelPath>(
    core: &Arc<Core<P>>,
    mut head: Box<Head>,
    destination: Destination,
    parts: &Parts,
    framing: super::head_scan::Framing,
    body: RequestBody,
    in_progress: &mut RequestInProgress,
) -> Response<AnswerBody> {
    let shared = &core.shared;
    if let Err(refusal) = guard::check(parts, &head.headers, framing, &shared.settings.load().http) {
        let mut response = refuse(core, &refusal, &head);
        // The bytes after an invalid head cannot be framed reliably, so the connection closes.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    match destination {
        Destination::Status(endpoint) => status(core, endpoint, head, parts, body).await,
        // The console's own address is served until the process stops, so that operators can watch a drain.
        _ if shared.serving.is_draining() && core.serves == Serves::Everything => refuse(core, &Refusal::ShuttingDown, &head),
        Destination::Fallback => fallback(core, head, parts, body).await,
        Destination::Refused(_, refusal) => refuse(core, &with_hint(core, refusal, &head), &head),
        Destination::List(_, list) => {
            present_keys(&mut head, parts);
            model_list::list(shared, &head, &list).await
        }
        Destination::NotStored(_, what) => {
            present_keys(&mut head, parts);
            let catalog = shared.catalog.load_full();
            let caller = shared.keys.caller_of(&catalog, &head, head.arrived).await;
            let refusal = match caller {
                Ok(caller) if !caller.key.allows_protocol(head.from) => Refusal::protocol_blocked(&caller.key),
                Ok(_) => Refusal::NotStored(what),
                Err(error) => error.refusal,
            };
            refuse(core, &refusal, &head)
        }
        Destination::Model(_, target) => {
            let in_flight = enter(shared);
            let body = body.within(Arc::clone(&in_flight));
            in_progress.count(in_flight, shared.metrics.in_flight());
            present_keys(&mut head, parts);
            core.path.serve(Incoming { head, target, body }).await
        }
    }
}

fn present_keys(head: &mut Head, parts: &Parts) {
    let PresentedKeys { first, other } = ingress::keys_of(head.from, &parts.uri, &head.headers);
    (head.presented_key, head.other_key) = (first, other);
}

/// Counts a model request under the limits in force.
fn enter(shared: &Shared) -> Arc<InFlightRequest> {
    let settings = shared.settings.load();
    shared.serving.enter(settings.http.requests, settings.body_memory_bytes)
}

/// Restricts a connection above the limit to the endpoints that report the state of the gateway.
fn only_status(destination: Destination) -> Destination {
    if let Destination::Status(StatusEndpoint::Health | StatusEndpoint::Ready | StatusEndpoint::Version) = destination {
        return destination;
    }
    Destination::Refused(protocol_of(&destination), Refusal::Overloaded)
}

const fn protocol_of(destination: &Destination) -> Protocol {
    match destination {
        Destination::Model(from, _)
        | Destination::List(from, _)
        | Destination::NotStored(from, _)
        | Destination::Refused(from, _) => *from,
        Destination::Status(_) | Destination::Fallback => Protocol::OpenAi,
    }
}

async fn status<P: ModelPath>(
    core: &Arc<Core<P>>,
    endpoint: StatusEndpoint,
    head: Box<Head>,
    parts: &Parts,
    body: RequestBody,
) -> Response<AnswerBody> {
    let metrics = core.shared.settings.load().metrics;
    let served = match (endpoint, metrics) {
        (StatusEndpoint::Health | StatusEndpoint::Ready | StatusEndpoint::Version, _)
        | (StatusEndpoint::Metrics, MetricsAccess::Public) => true,
        (StatusEndpoint::Metrics, MetricsAccess::Guarded) => {
            head.peer.is_some_and(|peer| peer.is_loopback()) && guard::names_loopback(&parts.uri, head.headers.as_map())
        }
        (StatusEndpoint::Metrics, MetricsAccess::OnConsoleAddress) => {
            return refuse(core, &Refusal::UnknownPath { hint: None }, &head);
        }
    };
    if served { status_response(endpoint, &core.shared) } else { fallback(core, head, parts, body).await }
}

fn status_response(endpoint: StatusEndpoint, shared: &Shared) -> Response<AnswerBody> {
    match endpoint {
        StatusEndpoint::Health => text(StatusCode::OK, JSON, r#"{"status":"ok"}"#.to_owned()),
        StatusEndpoint::Ready => {
            let readiness = shared.serving.readiness();
            let status = if readiness.serves() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let mut shown = json!({"status": readiness.as_str()});
            if let Some(skew) = shared.serving.clock_skew_s() {
                shown["clock_skew_s"] = skew.into();
            }
            if shared.serving.is_disk_full() {
                shown["disk"] = "full".into();
            }
            text(status, JSON, shown.to_string())
        }
        StatusEndpoint::Version => {
            text(StatusCode::OK, JSON, format!(r#"{{"name":"tollgate","version":"{}"}}"#, env!("CARGO_PKG_VERSION")))
        }
        StatusEndpoint::Metrics => text(StatusCode::OK, METRICS_CONTENT_TYPE, shared.render_metrics()),
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<AnswerBody> {
    let mut response = Response::new(whole(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Passes a request to the fallback service. An unknown path is E10.
async fn fallback<P: ModelPath>(
    core: &Arc<Core<P>>,
    mut head: Box<Head>,
    parts: &Parts,
    body: RequestBody,
) -> Response<AnswerBody> {
    let mut request = Request::new(body);
    request.method_mut().clone_from(&parts.method);
    request.uri_mut().clone_from(&parts.uri);
    *request.version_mut() = parts.version;
    *request.headers_mut() = std::mem::take(&mut head.headers).into_map();
    let request = FallbackRequest { id: head.request_id, peer: head.peer, request };
    match core.fallback.call(request).await {
        FallbackResponse::Answer(response) => response,
        FallbackResponse::NotFound => refuse(core, &with_hint(core, Refusal::UnknownPath { hint: None }, &head), &head),
        FallbackResponse::Busy => refuse(core, &Refusal::Overloaded, &head),
    }
}

fn with_hint<P>(core: &Core<P>, refusal: Refusal, head: &Head) -> Refusal {
    if matches!(refusal, Refusal::UnknownPath { .. }) && core.serves == Serves::Everything {
        return Refusal::UnknownPath { hint: ingress::hint(&head.http_method, &head.path) };
    }
    refusal
}

/// A refusal without a usage record; counted and logged.
fn refuse<P>(core: &Core<P>, refusal: &Refusal, head: &Head) -> Response<AnswerBody> {
    core.shared.refused_without_record(refusal, head)
}

/// Builds a head without key, which only some destinations need.
fn head_of<P>(
    core: &Core<P>,
    context: &ConnectionContext,
    settings: &Settings,
    (parts, headers): (&Parts, HeaderFields),
    destination: &Destination,
    started: tokio::time::Instant,
) -> Box<Head> {
    let mut head = anonymous_head(core, context, started);
    head.from = protocol_of(destination);
    head.settings = settings.of_request();
    head.http_method.clone_from(&parts.method);
    head.path = parts.uri.path().into();
    head.client_request_id = guard::client_request_id(&headers);
    head.recent_key = Some(Arc::clone(&context.recent_key));
    head.peer = client_address(context.peer.ip(), &headers, &settings.http.trusted_proxies);
    head.headers = headers;
    head
}

/// A head of which only the peer is known.
pub(super) fn anonymous_head<P>(core: &Core<P>, context: &ConnectionContext, started: tokio::time::Instant) -> Box<Head> {
    let arrived = core.shared.clock.now();
    boxed(|| Head {
        from: Protocol::OpenAi,
        settings: RequestSettings::default(),
        request_id: core.rng.request_id(arrived),
        arrived,
        started,
        peer: Some(context.peer.ip().to_canonical()),
        presented_key: None,
        other_key: None,
        recent_key: None,
        http_method: http::Method::GET,
        path: String::new(),
        headers: HeaderFields::default(),
        client_request_id: None,
    })
}
