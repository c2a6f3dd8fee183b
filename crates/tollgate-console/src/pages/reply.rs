//! Replies of pages: HTML or a redirect, with the headers of all pages.

use std::io::Write as _;

use askama::Template;
use axum::body::Body;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::{
    preferences::{self, Toast},
    undo,
};
use crate::{api_error::ApiError, response::InternalFailure, square::accepts_gzip};

/// Everything is loaded from the console itself, nothing is inline, and no other site may frame it.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: &[(&str, &str)] = &[
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    // Browsers send `Origin: null` with forms under a stricter policy.
    ("referrer-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// Smaller pages are not compressed.
const MIN_COMPRESSED: usize = 1_024;

/// The reply of a page.
#[derive(Debug)]
pub(crate) struct PageReply {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The page, or the text of a file.
    html: String,
    /// A body that is streamed after the text.
    rest: Option<Body>,
    cause: Option<InternalFailure>,
    /// Another origin that scripts of the page send requests to.
    connects_to: Option<String>,
}

/// Why a page is not shown.
#[derive(Debug)]
pub(crate) enum PageFailure {
    Api(Box<ApiError>),
    Template(askama::Error),
}

impl From<ApiError> for PageFailure {
    fn from(error: ApiError) -> Self {
        Self::Api(Box::new(error))
    }
}

impl From<askama::Error> for PageFailure {
    fn from(error: askama::Error) -> Self {
        Self::Template(error)
    }
}

impl PageReply {
    pub(super) const fn empty(status: StatusCode) -> Self {
        Self { status, headers: Vec::new(), html: String::new(), rest: None, cause: None, connects_to: None }
    }

    /// A rendered template.
    pub(crate) fn page(status: StatusCode, template: &impl Template) -> Result<Self, PageFailure> {
        Ok(Self { html: template.render()?, ..Self::empty(status) })
    }

    /// The same with status 200.
    pub(crate) fn ok(template: &impl Template) -> Result<Self, PageFailure> {
        Self::page(StatusCode::OK, template)
    }

    /// 200 with a page whose parts are sent as they come.
    pub(crate) fn streamed(parts: Body) -> Self {
        Self { rest: Some(parts), ..Self::empty(StatusCode::OK) }
    }

    /// A file that the browser saves.
    pub(crate) fn file(name: &str, media_type: &'static str, text: String) -> Self {
        let reply = Self { html: text, ..Self::empty(StatusCode::OK) };
        reply.header("content-type", media_type).header("content-disposition", &format!("attachment; filename=\"{name}\""))
    }

    /// The same for a file that is sent in parts.
    pub(crate) fn streamed_file(name: &str, media_type: &'static str, parts: Body) -> Self {
        Self { rest: Some(parts), ..Self::file(name, media_type, String::new()) }
    }

    /// 303 to an address of the console.
    pub(crate) fn redirect(location: &str) -> Self {
        let reply = Self::empty(StatusCode::SEE_OTHER);
        reply.header("location", location)
    }

    /// Makes the script that requested a part of a page load this address of the console instead.
    pub(crate) fn leaving_to(self, location: &str) -> Self {
        self.header("hx-redirect", location)
    }

    /// Adds a header. Values that cannot be in a header are left out: they are addresses and cookies made by the console.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((HeaderName::from_static(name), value));
        }
        self
    }

    /// Adds the cookies of an answer of the admin API: those of sessions.
    pub(crate) fn cookies(mut self, headers: Vec<(HeaderName, HeaderValue)>) -> Self {
        self.headers.extend(headers.into_iter().filter(|(name, _)| *name == header::SET_COOKIE));
        self
    }

    /// Shows a message on the next page.
    pub(crate) fn toast(self, toast: Toast) -> Self {
        self.header("set-cookie", &preferences::set_toast(Some(toast)))
    }

    /// The same after turning off a row, given by name or id. The message has a button that turns the row on again.
    pub(crate) fn toast_with_undo(self, toast: Toast, row: &[&str]) -> Self {
        self.toast(toast).header("set-cookie", &undo::keep(row))
    }

    /// Lets scripts of the page send requests to another origin, such as that of model requests.
    pub(crate) fn connects_to(self, origin: Option<String>) -> Self {
        Self { connects_to: origin, ..self }
    }

    pub(crate) fn with_cause(self, cause: Option<InternalFailure>) -> Self {
        Self { cause, ..self }
    }

    /// The answer to a request with these headers. A page is compressed if the browser accepts that, except a page that is sent in
    /// parts, because each part must appear at once.
    pub(crate) fn response(self, asked: &HeaderMap) -> Response<Body> {
        let is_html =
            (!self.html.is_empty() || self.rest.is_some()) && !self.headers.iter().any(|(name, _)| *name == header::CONTENT_TYPE);
        let may_compress = is_html && self.rest.is_none() && accepts_gzip(asked);
        let compressed = may_compress.then(|| compress(&self.html)).flatten();
        let is_compressed = compressed.is_some();
        let whole = || Body::from(compressed.unwrap_or_else(|| self.html.into_bytes()));
        let mut response = Response::new(self.rest.unwrap_or_else(whole));
        *response.status_mut() = self.status;
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        let fields = response.headers_mut();
        if is_html {
            fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        }
        if is_compressed {
            fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        // Pages contain data that only their reader may see, and the token of the session.
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert(header::VARY, HeaderValue::from_static("cookie, accept-language, accept-encoding, hx-request"));
        for (name, value) in HEADERS {
            fields.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if let Some(origin) = self.connects_to {
            let policy = CONTENT_SECURITY_POLICY.replace("connect-src 'self'", &format!("connect-src 'self' {origin}"));
            if let Ok(policy) = HeaderValue::from_str(&policy) {
                fields.insert(header::CONTENT_SECURITY_POLICY, policy);
            }
        }
        for (name, value) in self.headers {
            fields.append(name, value);
        }
        response
    }
}

fn compress(page: &str) -> Option<Vec<u8>> {
    if page.len() < MIN_COMPRESSED {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(page.as_bytes()).ok()?;
    encoder.finish().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use bytes::Bytes;
    use http_body_util::BodyExt as _;

    use super::*;

    async fn answer(reply: PageReply, encoding: &str) -> (HeaderMap, Bytes) {
        let mut asked = HeaderMap::new();
        asked.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(encoding).unwrap());
        let (head, body) = reply.response(&asked).into_parts();
        (head.headers, body.collect().await.unwrap().to_bytes())
    }

    fn html(text: &str) -> PageReply {
        PageReply { html: text.to_owned(), ..PageReply::empty(StatusCode::OK) }
    }

    #[tokio::test]
    async fn whole_pages_are_compressed_for_browsers_that_take_it() {
        let page = "<p>a page</p>".repeat(1_000);
        let (fields, body) = answer(html(&page), "gzip, deflate, br").await;
        assert_eq!(fields["content-encoding"], "gzip");
        assert_eq!(fields["content-type"], "text/html; charset=utf-8");
        assert!(fields["vary"].to_str().unwrap().contains("accept-encoding"));
        let mut text = String::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
        assert!(text == page && body.len() < 500, "{} bytes", body.len());
        let parts = PageReply::streamed(Body::from(page.clone()));
        let file = PageReply::file("a.csv", "text/csv", page.clone());
        for (reply, encoding) in [(html(&page), "br"), (html(&page), "gzip;q=0"), (parts, "gzip"), (file, "gzip")] {
            let (fields, body) = answer(reply, encoding).await;
            assert!(!fields.contains_key("content-encoding") && body == page, "{encoding}");
        }
        assert!(!answer(html("<p>short</p>"), "gzip").await.0.contains_key("content-encoding"));
    }
}
