//! What a handler gives back: a status, headers, and a body that is JSON, a stream or nothing.

use axum::body::Body;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::Value;
use tollgate_core::Revision;
use tollgate_store::ErrorClass;

/// What failed behind an answer, for who runs the program. It goes along with the response and is never sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalFailure {
    /// Who can repair it.
    pub fault: ErrorClass,
    /// What, where, and what to do next.
    pub message: String,
}

/// An answer of the admin API.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Content,
    failed: Option<InternalFailure>,
}

#[derive(Debug)]
enum Content {
    Nothing,
    Json(Value),
    Other(&'static str, Body),
}

impl ApiResponse {
    /// A JSON document with a status.
    pub(crate) fn of(status: StatusCode, body: Value) -> Self {
        Self { status, headers: Vec::new(), body: Content::Json(body), failed: None }
    }

    /// 200.
    pub(crate) fn ok(body: impl Into<Value>) -> Self {
        Self::of(StatusCode::OK, body.into())
    }

    /// 201.
    pub(crate) fn created(body: impl Into<Value>) -> Self {
        Self::of(StatusCode::CREATED, body.into())
    }

    /// 204.
    pub(crate) fn no_content() -> Self {
        Self { status: StatusCode::NO_CONTENT, headers: Vec::new(), body: Content::Nothing, failed: None }
    }

    /// 200 with a body of another type.
    pub(crate) fn streamed(content_type: &'static str, body: Body) -> Self {
        Self { status: StatusCode::OK, headers: Vec::new(), body: Content::Other(content_type, body), failed: None }
    }

    /// With a header; one that cannot be written is left out.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((HeaderName::from_static(name), value));
        }
        self
    }

    /// With the last change of what is shown, for `If-Match`.
    pub(crate) fn revision(self, revision: Revision) -> Self {
        self.header("etag", &format!("\"{}\"", revision.0))
    }

    /// With what failed behind it, for who runs the program; it is not sent.
    pub(crate) fn because(mut self, failed: Option<InternalFailure>) -> Self {
        self.failed = failed;
        self
    }

    /// The whole response.
    pub(crate) fn response(self) -> Response<Body> {
        let (content_type, body) = match self.body {
            Content::Nothing => (None, Body::empty()),
            Content::Json(value) => (Some("application/json; charset=utf-8"), Body::from(value.to_string())),
            Content::Other(content_type, body) => (Some(content_type), body),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        if let Some(failed) = self.failed {
            response.extensions_mut().insert(failed);
        }
        let headers = response.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.extend(self.headers);
        response
    }
}
