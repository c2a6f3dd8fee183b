//! A single request to a URL outside any channel: media URLs of callers, the operator's webhook, an OpenID provider, and object storage.
//! The address policy applies as to every connection. No proxy, no credentials, no headers of the caller, no connection reuse.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use url::Url;

use super::{
    connect::{Connected, connect},
    destination::{TargetForm, UpstreamTarget},
    guard::AddressPolicy,
    http1::{Http1Request, RequestText, ResponseHead},
    resolver::resolve,
    response_body::ResponseBody,
    tls::Trust,
};
use crate::{
    clock::SystemClock,
    upstream::call::{ConnectFault, SentMark},
};

const AGENT: HeaderValue = HeaderValue::from_static("tollgate");
const MEDIA_TYPES: HeaderValue = HeaderValue::from_static("image/*, audio/*, video/*, application/pdf");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// A response with an unread body. Dropping it closes the connection.
pub(crate) struct FetchedResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: ResponseBody,
}

/// Fetches a media URL. The caller bounds the time and the body.
pub(crate) async fn get(
    url: &Url,
    reach: AddressPolicy,
    trust: &Trust,
    tasks: &TaskTracker,
) -> Result<FetchedResponse, ConnectFault> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, MEDIA_TYPES);
    headers.insert(ACCEPT_ENCODING, IDENTITY);
    send(url, Method::GET, headers, Bytes::new(), reach, trust, tasks).await
}

/// Largest answer to a request of the console.
const MAX_DOCUMENT: usize = 1 << 20;
/// Longest time for a request of the console.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request of the console and reads the whole answer. The error says what failed.
pub async fn fetch_document(
    request: Request<Vec<u8>>,
    private_network: bool,
    trust: &Trust,
    tasks: &TaskTracker,
) -> Result<Response<Vec<u8>>, String> {
    send_document(request.map(Bytes::from), DOCUMENT_TIMEOUT, private_network, trust, tasks).await
}

/// The same with a large body, whose time the caller bounds with `limit`.
pub async fn send_document(
    request: Request<Bytes>,
    limit: Duration,
    private_network: bool,
    trust: &Trust,
    tasks: &TaskTracker,
) -> Result<Response<Vec<u8>>, String> {
    let url = Url::parse(&request.uri().to_string()).map_err(|error| error.to_string())?;
    let reach = if private_network { AddressPolicy::Anywhere } else { AddressPolicy::Public };
    let (parts, body) = request.into_parts();
    let exchange = async {
        let answer = send(&url, parts.method, parts.headers, body, reach, trust, tasks).await;
        let answer = answer.map_err(|fault| fault.to_string())?;
        let body = Limited::new(answer.body, MAX_DOCUMENT).collect().await;
        let body = body.map_err(|error| format!("the answer broke off or is larger than {MAX_DOCUMENT} bytes: {error}"))?;
        let mut response = Response::new(body.to_bytes().to_vec());
        *response.status_mut() = StatusCode::from_u16(answer.status).map_err(|error| error.to_string())?;
        *response.headers_mut() = answer.headers;
        Ok(response)
    };
    timeout(limit, exchange).await.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
}

/// Sends one request; `host` and `user-agent` are added to its headers. The caller bounds the time and the body.
pub(crate) async fn send(
    url: &Url,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
    reach: AddressPolicy,
    trust: &Trust,
    tasks: &TaskTracker,
) -> Result<FetchedResponse, ConnectFault> {
    let destination = UpstreamTarget::of_url(url, reach)?;
    let mut path = url.path().to_owned();
    if let Some(query) = url.query() {
        path.push('?');
        path.push_str(query);
    }
    let head = |form: TargetForm| -> Result<(Uri, HeaderMap), ConnectFault> {
        let mut headers = headers.clone();
        if form == TargetForm::Origin {
            headers.insert(HOST, destination.authority.clone());
        }
        headers.insert(USER_AGENT, AGENT);
        Ok((destination.target(&path, form)?, headers))
    };
    let connected = async { connect(&destination, resolve(&destination, trust.addresses()).await?, trust, tasks, None).await };
    match connected.await.map_err(ConnectFault::or_own_limit)?.0 {
        Connected::Http1(mut connection) => {
            let (target, headers) = head(TargetForm::Origin)?;
            let request = Http1Request { text: RequestText::new(&method, &target, &headers), body };
            let answer = connection.send(request, false, &SentMark::default(), &SystemClock).await;
            let ResponseHead { status, headers } = answer.map_err(|_| ConnectFault::Closed)?;
            Ok(FetchedResponse { status, headers, body: ResponseBody::Http1(connection) })
        }
        // The connection closes with its last stream, which is this one.
        Connected::Http2(mut sender, _) => {
            let mut request = Request::new(Full::new(body));
            (*request.uri_mut(), *request.headers_mut()) = head(TargetForm::Absolute)?;
            *request.method_mut() = method;
            let answer = sender.send_request(request).await.map_err(|_| ConnectFault::Closed)?;
            let (head, body) = answer.into_parts();
            Ok(FetchedResponse { status: head.status.as_u16(), headers: head.headers, body: ResponseBody::Http2(body) })
        }
    }
}
