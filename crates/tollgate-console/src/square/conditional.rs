//! Answers that clients cache: an entity tag over the content, 304 for clients that have it, and gzip.

use std::{
    io::Write as _,
    sync::{Arc, OnceLock},
};

use axum::body::Body;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use sha2::{Digest as _, Sha256};

/// How long clients and proxies may answer from their cache, in seconds.
const MAX_AGE_S: u32 = 30;
/// Smaller bodies are not compressed.
const MIN_COMPRESSED: usize = 1_024;

/// A body with its entity tag.
#[derive(Debug)]
pub(super) struct Representation {
    content_type: &'static str,
    body: Bytes,
    /// Weak, because the compressed body has the same one.
    etag: String,
    compressed: OnceLock<Option<Bytes>>,
}

impl Representation {
    pub(super) fn new(content_type: &'static str, body: Vec<u8>) -> Arc<Self> {
        let hash = Sha256::digest(&body);
        let etag = format!("W/\"{}\"", hex::encode(&hash[..16]));
        Arc::new(Self { content_type, body: body.into(), etag, compressed: OnceLock::new() })
    }

    pub(super) const fn body(&self) -> &Bytes {
        &self.body
    }

    /// The answer to a request with these headers. Shared caches may keep what everyone sees.
    pub(super) fn response(&self, headers: &HeaderMap, is_public: bool) -> Response<Body> {
        let is_known = headers.get_all(header::IF_NONE_MATCH).iter().any(|tags| self.is_among(tags));
        let compressed = if is_known || !accepts_gzip(headers) { None } else { self.compressed() };
        let body = match (&compressed, is_known) {
            (_, true) => Body::empty(),
            (Some(compressed), _) => Body::from(compressed.clone()),
            (None, _) => Body::from(self.body.clone()),
        };
        let mut response = Response::new(body);
        let fields = response.headers_mut();
        if !is_known {
            fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        if compressed.is_some() {
            fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let scope = if is_public { "public" } else { "private" };
        for (name, value) in [(header::ETAG, self.etag.clone()), (header::CACHE_CONTROL, format!("{scope}, max-age={MAX_AGE_S}"))] {
            fields.insert(name, HeaderValue::try_from(value).expect("tags and ages are visible ASCII"));
        }
        fields.insert(header::VARY, HeaderValue::from_static("authorization, cookie, accept-encoding"));
        fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        response
    }

    /// Whether a list of entity tags has this one; tags are compared weakly.
    fn is_among(&self, tags: &HeaderValue) -> bool {
        let own = self.etag.trim_start_matches("W/");
        let tags = tags.to_str().unwrap_or_default();
        tags.split(',').map(str::trim).any(|tag| tag == "*" || tag.trim_start_matches("W/") == own)
    }

    fn compressed(&self) -> Option<Bytes> {
        let compress = || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&self.body).ok()?;
            encoder.finish().ok().map(Bytes::from)
        };
        if self.body.len() < MIN_COMPRESSED { None } else { self.compressed.get_or_init(compress).clone() }
    }
}

/// Whether a request takes gzip. A quality of 0 refuses it.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let refused = parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q <= 0.0)));
        is_gzip && !refused
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;

    async fn ask(representation: &Representation, fields: &[(&str, &str)]) -> (u16, HeaderMap, Bytes) {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = header::HeaderName::try_from(*name).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let (head, body) = representation.response(&headers, true).into_parts();
        (head.status.as_u16(), head.headers, body.collect().await.unwrap().to_bytes())
    }

    #[tokio::test]
    async fn matching_if_none_match_gets_304_without_a_body() {
        let representation = Representation::new("application/json", b"{}".to_vec());
        let (status, headers, body) = ask(&representation, &[]).await;
        assert_eq!((status, &body[..], headers["cache-control"].to_str().unwrap()), (200, &b"{}"[..], "public, max-age=30"));
        let tag = headers["etag"].to_str().unwrap().to_owned();
        let strong = tag.trim_start_matches("W/").to_owned();
        for known in [tag.clone(), strong, "*".to_owned(), format!("\"other\", {tag}")] {
            let (status, headers, body) = ask(&representation, &[("if-none-match", &known)]).await;
            assert_eq!((status, body.len(), headers["etag"].to_str().unwrap()), (304, 0, tag.as_str()), "{known}");
        }
        assert_eq!(ask(&representation, &[("if-none-match", "\"other\"")]).await.0, 200);
        let other = Representation::new("application/json", b"[]".to_vec());
        assert_eq!(ask(&other, &[("if-none-match", &tag)]).await.0, 200, "other content has another tag");
    }

    #[tokio::test]
    async fn large_bodies_are_compressed_when_gzip_is_accepted() {
        let representation = Representation::new("text/plain", b"model ".repeat(1_000));
        let (_, headers, body) = ask(&representation, &[("accept-encoding", "br, gzip;q=0.8")]).await;
        assert_eq!(headers["content-encoding"], "gzip");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
        assert!(text.len() == 6_000 && body.len() < 600, "{}", body.len());
        for plain in ["identity", "gzip;q=0", "br"] {
            let (_, headers, body) = ask(&representation, &[("accept-encoding", plain)]).await;
            assert!(!headers.contains_key("content-encoding") && body.len() == 6_000, "{plain}");
        }
        let small = Representation::new("text/plain", b"model".to_vec());
        assert_eq!(ask(&small, &[("accept-encoding", "gzip")]).await.2, "model");
    }
}
