//! Dispatch of requests for pages: authenticates the sender, checks access to the page and the data and origin of a form, and
//! then calls the page. Failures are also shown as pages.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{FromRequestParts as _, RawPathParams},
};
use http::{HeaderMap, Request, Response, header, request::Parts};
use serde::Deserialize;
use tokio::time::timeout;
use tollgate_store::AdminScope;
use url::form_urlencoded::byte_serialize;

use super::{
    form::{self, FormData},
    locale::Language,
    operations,
    preferences::{self, Preferences},
    problem,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest},
    route::{PageRoute, SeenBy},
    undo,
};
use crate::{
    api::route::{Method, may_exist},
    api_error::ApiError,
    auth,
    dispatch::{self, ApiCall},
    principal::Principal,
    state::{ConsoleState, RequestMeta},
};

/// Longest time until a page is answered.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that a page waits for the count of open alerts.
const OPEN_ALERTS_TIMEOUT: Duration = Duration::from_millis(250);

pub(super) async fn serve(state: Arc<ConsoleState>, route: &'static PageRoute, request: Request<Body>) -> Response<Body> {
    if is_of_program(request.headers()) {
        return dispatch::not_of_console();
    }
    let started = state.gateway.now();
    let meta = dispatch::request_meta(&request, &state);
    let (mut parts, body) = request.into_parts();
    let (page, session) = page_request(&state, meta, &mut parts).await;
    let mut page = Arc::new(page);
    let answered = match session {
        Err(error) => Err(error.into()),
        Ok(()) => match timeout(RESPONSE_TIMEOUT, answer(route, &mut page, &parts, body)).await {
            Ok(answered) => answered,
            Err(_) => Err(ApiError::overloaded("The answer took too long.").into()),
        },
    };
    let response = finish(route, &page, answered).response(&page.headers);
    tracing::info!(
        request.id = %meta.id,
        http.method = ?route.method,
        http.route = route.path,
        http.status = response.status().as_u16(),
        principal.id = page.signed_in.as_ref().map(|signed_in| signed_in.member.id.to_string()),
        duration_ms = state.gateway.now().ms_since(started).max(0),
        "page request"
    );
    response
}

/// Whether a program sent the request: it has a key and does not accept HTML. A client whose base URL lacks `/v1` requests
/// `/models`, and gets an error that says so.
fn is_of_program(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION) && !super::takes_html(headers)
}

/// The page for a path that does not exist.
pub(crate) async fn not_found(state: Arc<ConsoleState>, request: Request<Body>) -> Response<Body> {
    failure(&state, &request.map(|_| ()), ApiError::no_path()).await
}

/// The answer to a method that the path does not have. A GET of a form's address, for instance by reloading the answer,
/// redirects to the form's page.
pub(crate) async fn wrong_method(state: Arc<ConsoleState>, request: Request<Body>) -> Response<Body> {
    if !super::is_for_people(&request) {
        return ApiError::no_method().answer().response();
    }
    let page = format!("{}{}", state.identity.settings.base(), super::address_of_page(request.uri()));
    PageReply::redirect(&page).response(request.headers())
}

/// The error page for a browser whose request was not for a page.
pub(crate) async fn failure(state: &Arc<ConsoleState>, request: &Request<()>, error: ApiError) -> Response<Body> {
    let meta = dispatch::request_meta(request, state);
    let (mut parts, ()) = request.clone().into_parts();
    let (page, _) = page_request(state, meta, &mut parts).await;
    problem::page(&page, &error.into()).response(&page.headers)
}

/// The request with its session, without the form. The error is that of the session's look-up.
async fn page_request(state: &Arc<ConsoleState>, meta: RequestMeta, parts: &mut Parts) -> (PageRequest, Result<(), ApiError>) {
    let path = match RawPathParams::from_request_parts(parts, &()).await {
        Ok(params) => params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        Err(_) => std::collections::HashMap::new(),
    };
    let (signed_in, session) = match auth::reader(state, &meta, &parts.headers).await {
        Ok(signed_in) => (signed_in, Ok(())),
        Err(error) => (None, Err(error)),
    };
    let address = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let kept = signed_in.as_ref().map(|signed_in| &signed_in.member.login.preferences);
    let appearance = state.gateway.appearance();
    let usual = appearance.language.as_deref().and_then(Language::of_tag);
    let preferences = Preferences::of(&parts.headers, kept, state.gateway.currency(), usual);
    let is_form = parts.method == http::Method::POST;
    let page_of_form = is_form.then(|| super::address_of_page(&parts.uri));
    let page = PageRequest {
        state: Arc::clone(state),
        meta,
        headers: parts.headers.clone(),
        address,
        page_of_form,
        path,
        query: FormData::parse(parts.uri.query().unwrap_or_default().as_bytes()),
        form: FormData::default(),
        signed_in,
        preferences,
        appearance,
        open_alerts: None,
    };
    (page, session)
}

async fn answer(
    route: &'static PageRoute,
    page: &mut Arc<PageRequest>,
    parts: &Parts,
    body: Body,
) -> Result<PageReply, PageFailure> {
    let state = Arc::clone(&page.state);
    if !page.path.iter().all(|(name, value)| may_exist(name, value)) {
        return Err(ApiError::no_path().into());
    }
    if let SeenBy::Role(least) = route.seen_by {
        let signed_in = page.signed_in.as_ref().ok_or_else(ApiError::no_session)?;
        if AdminScope::from(signed_in.member.role) < least {
            return Err(ApiError::no_path().into());
        }
    }
    let principal = match &page.signed_in {
        Some(signed_in) => Principal::Session(Box::new(signed_in.clone())),
        None => Principal::Anonymous,
    };
    let _share = state.request_shares.claim(&principal, page.meta.address)?;
    if route.method == Method::Post {
        let form = read_form(parts, body, route.max_bytes).await?;
        match &page.signed_in {
            Some(signed_in) => auth::check_write(&state, (&parts.headers, &parts.uri), signed_in, form.value("csrf").as_bytes())?,
            None => auth::refuse_other_origins(&state, parts)?,
        }
        if let Some(page) = Arc::get_mut(page) {
            page.form = form;
        }
    }
    let open = open_alerts(page).await;
    if let Some(page) = Arc::get_mut(page) {
        page.open_alerts = open;
    }
    (route.handler)(Arc::clone(page)).await
}

/// Number of open alerts, for the navigation of operators. The count is cached for some seconds; if it takes longer than a moment,
/// the page is shown without it.
async fn open_alerts(page: &PageRequest) -> Option<u64> {
    #[derive(Deserialize)]
    struct Rule {
        open: u64,
    }
    if !page.is_operator() || page.wants_part() || !super::takes_html(&page.headers) {
        return None;
    }
    let rules = page.read_kept::<ApiPage<Rule>>(operations::LIST_ALERT_RULES, ApiCall::default());
    let found = timeout(OPEN_ALERTS_TIMEOUT, rules).await.ok()?.ok()?;
    Some(found.items.iter().map(|rule| rule.open).fold(0, u64::saturating_add))
}

async fn read_form(parts: &Parts, body: Body, max_bytes: usize) -> Result<FormData, ApiError> {
    let media = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(ApiError::media_type("The Content-Type"));
    }
    Ok(FormData::parse_up_to(&dispatch::read(body, max_bytes).await?, max_bytes / form::BYTES_PER_FIELD))
}

/// Redirects to the sign-in, which returns to the page. The data of a sent form are lost: its sender returns to the form's page and sees
/// a message.
fn to_sign_in(page: &PageRequest) -> PageReply {
    let encoded = |path: &str| byte_serialize(path.as_bytes()).collect::<String>();
    match page.page_of_form.as_deref() {
        None if page.wants_part() => {
            let sign_in = page.url(&format!("/sign-in?to={}", encoded(&page.address)));
            PageReply::empty(http::StatusCode::UNAUTHORIZED).leaving_to(&sign_in)
        }
        None => PageReply::redirect(&page.url(&format!("/sign-in?to={}", encoded(&page.address)))),
        // The sign-out form has no page of its own.
        Some("/") => PageReply::redirect(&page.url("/sign-in")),
        Some(form) => PageReply::redirect(&page.url(&format!("/sign-in?to={}&lost=form", encoded(form)))),
    }
}

/// The answer of a page, or the error page for its failure. Visitors are redirected to the sign-in, which returns to
/// the page.
fn finish(route: &PageRoute, page: &PageRequest, answered: Result<PageReply, PageFailure>) -> PageReply {
    let failure = match answered {
        Ok(reply) if page.preferences.toast.is_some() && route.method == Method::Get => {
            return reply.header("set-cookie", &preferences::set_toast(None)).header("set-cookie", &undo::forget());
        }
        Ok(reply) => return reply,
        Err(failure) => failure,
    };
    match &failure {
        PageFailure::Api(error) if error.status == http::StatusCode::UNAUTHORIZED && page.signed_in.is_none() => to_sign_in(page),
        PageFailure::Api(_) | PageFailure::Template(_) if page.wants_part() => problem::part(page, &failure),
        PageFailure::Api(_) | PageFailure::Template(_) => problem::page(page, &failure),
    }
}
