//! The pages of the console, for people: server-rendered HTML that works without JavaScript. A page reads and writes through the routes
//! of the admin API, so that both have the same authorisation, validation and audit log, and contains no SQL.
//!
//! The table of pages states the access to each page. [`serve`] checks it, and the data and origin of a form, before a page is called.

mod alert_text;
mod alerts;
pub(crate) mod assets;
mod audit;
mod audit_action;
mod bars;
mod budgets;
mod channels;
mod clients;
mod control;
mod csv_file;
mod difference;
mod docs;
mod drawer;
mod failure_text;
mod field_label;
mod file_faults;
mod form;
mod format;
mod further_faults;
mod groups;
mod highlight;
mod home;
pub(crate) mod inline;
mod invite;
mod keys;
mod layout;
mod ledger;
mod lines;
mod list_order;
pub(crate) mod locale;
mod log;
mod mark;
mod members;
mod menu;
mod models;
pub(crate) mod money;
pub(crate) mod notices;
mod operations;
mod overview;
mod page_cursors;
mod palette;
mod passkeys;
mod password_link;
mod period;
mod playground;
mod preferences;
mod price_text;
mod pricing;
mod problem;
mod profile;
mod protocols;
mod proxies;
mod qr_code;
mod reasons;
mod register;
mod reply;
mod request;
mod route;
mod sentences;
mod serve;
mod sessions;
mod set_up;
pub(crate) mod setting_sections;
pub(crate) mod setting_texts;
mod settings;
mod sign_in;
mod spent_budget;
mod stages;
mod status;
mod strip;
mod suggestions;
mod system;
mod undo;
mod views;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    routing::{MethodFilter, on},
};
use http::{HeaderMap, Request, Response, Uri, header};

use crate::{api::route::Method, dispatch::method_filter, state::ConsoleState};
use route::PageRoute;
pub(crate) use serve::{failure, not_found, wrong_method};

/// All pages.
fn routes() -> impl Iterator<Item = &'static PageRoute> {
    [
        home::ROUTES,
        overview::ROUTES,
        palette::ROUTES,
        channels::ROUTES,
        proxies::ROUTES,
        sign_in::ROUTES,
        password_link::ROUTES,
        set_up::ROUTES,
        invite::ROUTES,
        register::ROUTES,
        profile::ROUTES,
        passkeys::ROUTES,
        keys::ROUTES,
        playground::ROUTES,
        log::ROUTES,
        views::ROUTES,
        menu::ROUTES,
        models::ROUTES,
        status::ROUTES,
        docs::ROUTES,
        preferences::ROUTES,
        groups::ROUTES,
        pricing::ROUTES,
        members::ROUTES,
        ledger::ROUTES,
        audit::ROUTES,
        alerts::ROUTES,
        settings::ROUTES,
        system::ROUTES,
    ]
    .into_iter()
    .flatten()
}

/// Whether there is a page with this path.
fn has_page(path: &str) -> bool {
    routes().any(|route| route.path == path && route.method == Method::Get)
}

/// The path of the page that a form belongs to: of the paths that the form's begins with, the longest that has a page. A word that only
/// forms have in their paths is not a value of a parameter: `/log/views` is not the record `views`.
fn page_of(mut path: &str) -> &str {
    let of = |path: &str, method: Method| {
        let found = routes().filter(move |route| route.method == method).map(|route| route.path);
        let found = found.filter(|pattern| is_of_pattern(path, pattern));
        found.map(|pattern| pattern.matches('{').count()).min()
    };
    let has_page =
        |path: &str| of(path, Method::Get).is_some_and(|of_page| of(path, Method::Post).is_none_or(|of_form| of_page <= of_form));
    while !has_page(path) {
        match path.rsplit_once('/') {
            Some((above, _)) if !above.is_empty() => path = above,
            _ => return "/",
        }
    }
    path
}

/// The address of the page that a form belongs to. The query of the form, which may say what it is about, is that of the page.
fn address_of_page(form: &Uri) -> String {
    let page = page_of(form.path());
    match form.query() {
        // Forms of every page, such as the one that undoes, belong to none.
        Some(query) if page != "/" => format!("{page}?{query}"),
        _ => page.to_owned(),
    }
}

/// Whether a path matches a pattern, whose parameters are whole segments.
fn is_of_pattern(path: &str, pattern: &str) -> bool {
    let (mut segments, mut patterns) = (path.split('/'), pattern.split('/'));
    loop {
        match (segments.next(), patterns.next()) {
            (None, None) => return true,
            (Some(segment), Some(pattern)) if segment == pattern || (pattern.starts_with('{') && !segment.is_empty()) => {}
            _ => return false,
        }
    }
}

/// Adds the pages and their assets.
pub(crate) fn add_routes(mut router: Router, state: &Arc<ConsoleState>) -> Router {
    for route in routes() {
        let state = Arc::clone(state);
        let service =
            on(method_filter(route.method), move |request: Request<Body>| serve::serve(Arc::clone(&state), route, request));
        router = router.route(route.path, service);
    }
    let state = Arc::clone(state);
    let asset = on(MethodFilter::GET, move |request: Request<Body>| serve_asset(Arc::clone(&state), request));
    router.route("/assets/{file}", asset)
}

async fn serve_asset(state: Arc<ConsoleState>, request: Request<Body>) -> Response<Body> {
    let file = request.uri().path().strip_prefix(assets::FOLDER).unwrap_or_default();
    match assets::serve(file, request.headers()) {
        Some(response) => response,
        // The asset is unknown or of another version: reloading the page gives its new address.
        None => not_found(state, request).await,
    }
}

/// Whether a request to an unknown path comes from a browser, which should get a page rather than JSON.
pub(crate) fn is_for_people<B>(request: &Request<B>) -> bool {
    request.method() == http::Method::GET && is_page_path(request.uri().path()) && takes_html(request.headers())
}

/// Whether a path can be that of a page: neither of the admin API nor of the model API.
pub(crate) fn is_page_path(path: &str) -> bool {
    !path.starts_with("/admin/") && !path.starts_with("/v1")
}

/// Whether a client shows HTML: a browser that goes to an address or sends a form.
pub(crate) fn takes_html(headers: &HeaderMap) -> bool {
    let names_html = |value: &http::HeaderValue| value.to_str().is_ok_and(|text| text.contains("text/html"));
    headers.get_all(header::ACCEPT).iter().any(names_html)
}

#[cfg(test)]
mod tests;
