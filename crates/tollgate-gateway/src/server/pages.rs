//! The gateway's own pages: `/healthz`, `/readyz`, `/version`, `/metrics`.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    ingress::WellKnown,
    response::{AnswerBody, whole},
    state::{metrics::METRICS_CONTENT_TYPE, shared::Shared},
};

const JSON: &str = "application/json; charset=utf-8";

/// Renders a page. The caller has checked access to `/metrics`.
pub(super) fn page(page: WellKnown, shared: &Shared) -> Response<AnswerBody> {
    match page {
        WellKnown::Health => text(StatusCode::OK, JSON, r#"{"status":"ok"}"#.to_owned()),
        WellKnown::Ready => {
            let readiness = shared.condition.readiness();
            let status = if readiness.serves() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            text(status, JSON, format!(r#"{{"status":"{}"}}"#, readiness.as_str()))
        }
        WellKnown::Version => {
            text(StatusCode::OK, JSON, format!(r#"{{"name":"tollgate","version":"{}"}}"#, env!("CARGO_PKG_VERSION")))
        }
        WellKnown::Metrics => {
            shared.metrics.open_reservations(shared.counters.open_reservations());
            text(StatusCode::OK, METRICS_CONTENT_TYPE, shared.metrics.render())
        }
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<AnswerBody> {
    let mut response = Response::new(whole(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
