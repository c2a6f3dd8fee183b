//! Targets and header fields of upstream requests, kept because requests of one account for one model have the same ones.
//!
//! Bound: 16 of a channel and core. They are dropped with the channel's row, so that a replaced credential is not kept.

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header::HOST};
use tollgate_core::Account;
use tollgate_protocol::{Framing, Protocol};

use super::{
    destination::{TargetForm, UpstreamTarget},
    http1::RequestText,
};
use crate::upstream::{
    call::{ConnectFault, UpstreamCall},
    credentials::headers_for,
};

const MAX_HEADS: usize = 16;

/// The heads of a channel's latest requests.
#[derive(Debug, Default)]
pub(super) struct RequestHeads(Mutex<Vec<KnownHead>>);

/// A head, and what it was built for.
#[derive(Debug)]
struct KnownHead {
    account: Arc<Account>,
    protocol: Protocol,
    stream: Option<Framing>,
    path: String,
    forwarded: Vec<(HeaderName, HeaderValue)>,
    form: TargetForm,
    has_body: bool,
    head: RequestHead,
}

/// A request except its body.
#[derive(Clone, Debug)]
pub(super) enum RequestHead {
    Http1(RequestText),
    Http2 { method: Method, uri: Uri, headers: HeaderMap },
}

impl RequestHeads {
    /// The head of a request to the channel of `call`, which has this destination.
    pub(super) fn head_for(
        &self,
        call: &UpstreamCall,
        destination: &UpstreamTarget,
        form: TargetForm,
    ) -> Result<RequestHead, ConnectFault> {
        let mut heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = heads.iter().find(|known| known.is_for(call, form)) {
            return Ok(known.head.clone());
        }
        let mut headers = headers_for(call)?;
        let method = if call.body.is_empty() { Method::GET } else { Method::POST };
        let uri = destination.target(&call.path, form)?;
        let head = match form {
            TargetForm::Origin => {
                headers.insert(HOST, destination.authority.clone());
                RequestHead::Http1(RequestText::new(&method, &uri, &headers))
            }
            TargetForm::Absolute => RequestHead::Http2 { method, uri, headers },
        };
        if heads.len() == MAX_HEADS {
            heads.remove(0);
        }
        heads.push(KnownHead {
            account: Arc::clone(&call.account),
            protocol: call.protocol,
            stream: call.stream,
            path: call.path.clone(),
            forwarded: call.forwarded.clone(),
            form,
            has_body: !call.body.is_empty(),
            head: head.clone(),
        });
        Ok(head)
    }
}

impl KnownHead {
    fn is_for(&self, call: &UpstreamCall, form: TargetForm) -> bool {
        Arc::ptr_eq(&self.account, &call.account)
            && self.form == form
            && self.stream == call.stream
            && self.has_body != call.body.is_empty()
            && self.protocol == call.protocol
            && self.path == call.path
            && self.forwarded == call.forwarded
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::testing::{account, call};

    fn built(call: &UpstreamCall, form: TargetForm) -> (String, Vec<String>) {
        of(&RequestHeads::default(), call, form)
    }

    fn of(heads: &RequestHeads, call: &UpstreamCall, form: TargetForm) -> (String, Vec<String>) {
        let destination = UpstreamTarget::of(&call.channel).unwrap();
        match heads.head_for(call, &destination, form).unwrap() {
            RequestHead::Http1(text) => {
                let mut lines: Vec<_> = text.as_str().lines().map(str::to_owned).collect();
                let first = lines.remove(0);
                lines.sort();
                (first, lines)
            }
            RequestHead::Http2 { method, uri, headers } => {
                let mut fields: Vec<_> =
                    headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
                fields.sort();
                (format!("{method} {uri}"), fields)
            }
        }
    }

    #[test]
    fn cached_heads_equal_newly_built_ones() {
        let heads = RequestHeads::default();
        let first = call("http://127.0.0.1:9/v1");
        let mut calls = vec![first.clone()];
        calls.push(UpstreamCall { stream: Some(Framing::Sse), ..first.clone() });
        calls.push(UpstreamCall { protocol: Protocol::Gemini, ..first.clone() });
        calls.push(UpstreamCall { path: "/embeddings".to_owned(), ..first.clone() });
        calls.push(UpstreamCall { body: Bytes::new(), ..first.clone() });
        let beta = (HeaderName::from_static("anthropic-beta"), HeaderValue::from_static("b"));
        calls.push(UpstreamCall { forwarded: vec![beta], ..first.clone() });
        let mut other = account(2);
        other.credential = Some(tollgate_core::Secret::new("sk-another".to_owned()));
        calls.push(UpstreamCall { account: Arc::new(other), ..first.clone() });
        for round in 1..=2 {
            for call in &mut calls {
                if !call.body.is_empty() {
                    call.body = vec![b' '; round * 10].into();
                }
                for form in [TargetForm::Origin, TargetForm::Absolute] {
                    assert_eq!(of(&heads, call, form), built(call, form));
                }
            }
        }
        assert_eq!(heads.0.lock().unwrap().len(), 2 * calls.len());
    }

    #[test]
    fn number_of_cached_heads_is_bounded() {
        let heads = RequestHeads::default();
        for number in 0..MAX_HEADS + 5 {
            let call = UpstreamCall { path: format!("/models/{number}"), ..call("http://127.0.0.1:9/v1") };
            assert_eq!(of(&heads, &call, TargetForm::Origin).0, format!("POST /v1/models/{number} HTTP/1.1"));
        }
        let kept = heads.0.lock().unwrap();
        assert_eq!((kept.len(), kept[0].path.as_str()), (MAX_HEADS, "/models/5"));
    }
}
