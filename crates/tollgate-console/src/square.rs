//! The model square. `/models.json` lists the models that a caller or a visitor may use, with prices and availability;
//! `/models.atom` lists changes. Neither names channels, accounts or costs.
//!
//! The data of all groups are computed at most every three seconds, and their traffic every minute, for all callers together. A
//! request only selects from them.

mod atom;
mod conditional;
mod document;
mod offers;
pub(crate) mod outage;
mod snapshot;
mod traffic;
mod viewer;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    routing::{MethodFilter, on},
};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, request::Parts};
use tollgate_core::visible_models;
use tollgate_store::fields::FieldShape;

use crate::{
    api::{
        check,
        request_context::InputFields,
        schema::{MODEL_NAME, NAME, both},
    },
    api_error::ApiError,
    dispatch::request_meta,
    state::{ConsoleState, RequestMeta},
};
use conditional::Representation;
pub(crate) use conditional::accepts_gzip;
pub(crate) use document::{SQUARE, document_of_group};
pub(crate) use offers::show_price;
pub(crate) use snapshot::Square;
use viewer::Viewer;

/// The model square for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Feed {
    Json,
    Atom,
}

const FEEDS: [(&str, Feed, &[FieldShape]); 2] = [
    (
        "/models.json",
        Feed::Json,
        &[both("model", MODEL_NAME, "Only this model."), both("group", NAME, "Only models of this group, as it offers them.")],
    ),
    ("/models.atom", Feed::Atom, &[]),
];

/// Path, description and query of each feed.
pub(crate) fn feeds() -> impl Iterator<Item = (&'static str, &'static str, Feed, &'static [FieldShape])> {
    FEEDS.into_iter().map(|(path, feed, query)| {
        let about = match feed {
            Feed::Json => "The models that the sender may use, with prices and availability; without a key those of visitors.",
            Feed::Atom => "New models and changes of prices, as a feed.",
        };
        (path, about, feed, query)
    })
}

/// Whether a path is one of the model square. The address of model requests serves these paths, wherever the console is.
pub(crate) fn is_square_path(path: &str) -> bool {
    FEEDS.iter().any(|(known, ..)| *known == path)
}

/// Adds the feeds.
pub(crate) fn add_routes(mut router: Router, state: &Arc<ConsoleState>) -> Router {
    for (path, feed, query) in FEEDS {
        let state = Arc::clone(state);
        let service = on(MethodFilter::GET, move |request: Request<Body>| serve(Arc::clone(&state), feed, query, request));
        router = router.route(path, service);
    }
    router
}

/// What someone sees, by name.
#[derive(Debug)]
pub(crate) struct SeenNames {
    pub(crate) models: Vec<String>,
    pub(crate) groups: Vec<String>,
}

/// The names of the models and groups that the sender of a request sees, used by pages.
pub(crate) async fn names_for(state: &ConsoleState, (meta, headers): (&RequestMeta, &HeaderMap)) -> Result<SeenNames, ApiError> {
    let catalog = state.gateway.catalog().await?;
    let viewer = Viewer::of(state, meta, headers, &catalog).await?;
    let models = visible_models(&catalog, viewer.audience()).into_iter().map(|model| model.model.spec.name.clone()).collect();
    Ok(SeenNames { models, groups: viewer.groups().iter().map(|group| group.name.clone()).collect() })
}

async fn serve(state: Arc<ConsoleState>, feed: Feed, query: &'static [FieldShape], request: Request<Body>) -> Response<Body> {
    let meta = request_meta(&request, &state);
    // A body cannot be shared between threads.
    let (parts, _) = request.into_parts();
    match represent(&state, feed, query, (&meta, &parts)).await {
        Ok((representation, viewer)) => representation.response(&parts.headers, viewer.is_public()),
        Err(problem) => problem.answer().response(),
    }
}

async fn represent(
    state: &Arc<ConsoleState>,
    feed: Feed,
    query: &'static [FieldShape],
    (meta, parts): (&RequestMeta, &Parts),
) -> Result<(Arc<Representation>, Viewer), ApiError> {
    state.gateway.square_request(meta.address).map_err(ApiError::too_many_of_address)?;
    let query = InputFields(check::query(query, parts.uri.query().unwrap_or_default())?);
    let snapshot = snapshot::snapshot(state).await?;
    let viewer = Viewer::of(state, meta, &parts.headers, &snapshot.catalog).await?;
    let representation = match feed {
        Feed::Json => document::represent(&snapshot, &viewer, query.text("model"), query.text("group"))?,
        Feed::Atom => atom::represent(&snapshot, &viewer),
    };
    Ok((representation, viewer))
}

/// The content of `/models.json` for the sender of a request, used by pages. 401 if a visitor may not see it.
pub(crate) async fn document_for(
    state: &Arc<ConsoleState>,
    (meta, headers): (&RequestMeta, &HeaderMap),
    model: Option<&str>,
    group: Option<&str>,
) -> Result<Bytes, ApiError> {
    state.gateway.square_request(meta.address).map_err(ApiError::too_many_of_address)?;
    let snapshot = snapshot::snapshot(state).await?;
    let viewer = Viewer::of(state, meta, headers, &snapshot.catalog).await?;
    Ok(document::represent(&snapshot, &viewer, model, group)?.body().clone())
}
