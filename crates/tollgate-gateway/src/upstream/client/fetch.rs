//! One request to an address that no channel names (a caller's media, the operator's webhook), guarded like every other connection: name resolved once, and only an address the
//! channel may reach connected to. No proxy, no credentials, no header of a caller, no connection kept.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request,
    header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT},
};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;
use url::Url;

use super::{
    connect::{Connected, connect},
    destination::{TargetForm, UpstreamTarget},
    guard::AddressPolicy,
    resolver::Addresses,
    tls::Trust,
};
use crate::upstream::call::ConnectFault;

const AGENT: HeaderValue = HeaderValue::from_static("tollgate");
const WANTED: HeaderValue = HeaderValue::from_static("image/*, audio/*, video/*, application/pdf");
const PLAIN: HeaderValue = HeaderValue::from_static("identity");

/// An answer, its body still on the wire; dropped, the connection is closed.
pub(crate) struct FetchedResponse {
    /// HTTP status.
    pub(crate) status: u16,
    /// Its header fields.
    pub(crate) headers: HeaderMap,
    /// Its body.
    pub(crate) body: Incoming,
    _connection: Connection,
}

/// Closes the connection when it is dropped.
struct Connection(Option<AbortHandle>);

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// What is sent.
pub(crate) struct Sent {
    /// Method.
    pub(crate) method: Method,
    /// Header fields beside `host` and `user-agent`.
    pub(crate) headers: HeaderMap,
    /// Body.
    pub(crate) body: Bytes,
}

/// Asks for what is behind an address. The caller bounds the time and the body.
///
/// # Errors
/// When nothing may be reached there, or no head of an answer comes.
pub(crate) async fn get(
    url: &Url,
    reach: AddressPolicy,
    trust: &Trust,
    tasks: &TaskTracker,
) -> Result<FetchedResponse, ConnectFault> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, WANTED);
    headers.insert(ACCEPT_ENCODING, PLAIN);
    send(url, Sent { method: Method::GET, headers, body: Bytes::new() }, reach, trust, tasks).await
}

/// Sends one request to an address. The caller bounds the time and the body.
///
/// # Errors
/// When nothing may be reached there, or no head of an answer comes.
pub(crate) async fn send(
    url: &Url,
    sent: Sent,
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
    let request = |form: TargetForm| -> Result<Request<Full<Bytes>>, ConnectFault> {
        let mut request = Request::new(Full::new(sent.body.clone()));
        request.method_mut().clone_from(&sent.method);
        *request.uri_mut() = destination.target(&path, form)?;
        request.headers_mut().clone_from(&sent.headers);
        let headers = request.headers_mut();
        if form == TargetForm::Origin {
            headers.insert(HOST, destination.authority.clone());
        }
        headers.insert(USER_AGENT, AGENT);
        Ok(request)
    };
    let (answer, connection) = match connect(&destination, &Addresses::default(), trust, tasks).await?.0 {
        Connected::Http1(mut sender, task, _) => {
            let connection = Connection(Some(task));
            (sender.send_request(request(TargetForm::Origin)?).await, connection)
        }
        // Its connection ends with the last stream on it, which is this one.
        Connected::Http2(mut sender, _) => (sender.send_request(request(TargetForm::Whole)?).await, Connection(None)),
    };
    let (head, body) = answer.map_err(|_| ConnectFault::Closed)?.into_parts();
    Ok(FetchedResponse { status: head.status.as_u16(), headers: head.headers, body, _connection: connection })
}
