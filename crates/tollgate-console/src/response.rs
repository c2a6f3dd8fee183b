//! Response of a handler: a status, headers, and a body that is JSON, a stream or empty.

use axum::body::Body;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::Value;
use tollgate_core::Revision;
use tollgate_store::ErrorClass;

/// Cause of a failed request, for the process that called the console. Attached to the response as an extension, never sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalFailure {
    /// Whether the operator, the network or the data is at fault.
    pub fault: ErrorClass,
    /// Cause, position and remedy.
    pub message: String,
}

/// Response of the admin API.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Content,
    cause: Option<InternalFailure>,
}

#[derive(Debug)]
enum Content {
    Empty,
    Json(Value),
    Stream(&'static str, Body),
}

impl ApiResponse {
    pub(crate) fn of(status: StatusCode, body: Value) -> Self {
        Self { status, headers: Vec::new(), body: Content::Json(body), cause: None }
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
        Self { status: StatusCode::NO_CONTENT, headers: Vec::new(), body: Content::Empty, cause: None }
    }

    /// 200 with a streamed body.
    pub(crate) fn streamed(content_type: &'static str, body: Body) -> Self {
        Self { status: StatusCode::OK, headers: Vec::new(), body: Content::Stream(content_type, body), cause: None }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((HeaderName::from_static(name), value));
        }
        self
    }

    /// 303 to another address.
    pub(crate) fn redirect(location: &str) -> Self {
        Self::no_content().redirect_to(location)
    }

    /// Turns the answer into a redirect; the headers stay.
    pub(crate) fn redirect_to(self, location: &str) -> Self {
        Self { status: StatusCode::SEE_OTHER, body: Content::Empty, ..self }.header("location", location)
    }

    /// Replaces the JSON body.
    pub(crate) fn map_json(self, map: impl FnOnce(Value) -> Value) -> Self {
        let body = match self.body {
            Content::Json(value) => Content::Json(map(value)),
            other @ (Content::Empty | Content::Stream(..)) => other,
        };
        Self { body, ..self }
    }

    /// Adds the row's revision as `ETag`, for a later `If-Match`.
    pub(crate) fn revision(self, revision: Revision) -> Self {
        self.header("etag", &format!("\"{}\"", revision.0))
    }

    /// Attaches the cause of a failure; it is not sent.
    pub(crate) fn with_cause(mut self, cause: Option<InternalFailure>) -> Self {
        self.cause = cause;
        self
    }

    /// The serialised body, for a page that forwards it.
    pub(crate) fn into_body(self) -> Body {
        match self.body {
            Content::Empty => Body::empty(),
            Content::Json(value) => Body::from(value.to_string()),
            Content::Stream(_, body) => body,
        }
    }

    /// The JSON body and the headers, for a page; the value is null without a body.
    pub(crate) fn into_parts(self) -> (Value, Vec<(HeaderName, HeaderValue)>) {
        let value = match self.body {
            Content::Json(value) => value,
            Content::Empty | Content::Stream(..) => Value::Null,
        };
        (value, self.headers)
    }

    pub(crate) fn response(self) -> Response<Body> {
        let (content_type, body) = match self.body {
            Content::Empty => (None, Body::empty()),
            Content::Json(value) => (Some("application/json; charset=utf-8"), Body::from(value.to_string())),
            Content::Stream(content_type, body) => (Some(content_type), body),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        let headers = response.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        response
    }
}
