//! One `GET` of a caller's address, guarded like every other connection: name resolved once, and only an address the
//! channel may reach connected to. No proxy, no credentials, no header of a caller, no connection kept.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request,
    header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT},
};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;
use url::Url;

use super::{
    connect::{Connected, connect},
    destination::{Destination, TargetForm},
    guard::Reach,
    resolver::Addresses,
    tls::Trust,
};
use crate::forward::ConnectFault;

const AGENT: HeaderValue = HeaderValue::from_static("tollgate");
const WANTED: HeaderValue = HeaderValue::from_static("image/*, audio/*, video/*, application/pdf");
const PLAIN: HeaderValue = HeaderValue::from_static("identity");

/// An answer, its body still on the wire; dropped, the connection is closed.
pub(crate) struct Got {
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

/// Asks for what is behind an address. The caller bounds the time and the body.
///
/// # Errors
/// When nothing may be reached there, or no head of an answer comes.
pub(crate) async fn get(url: &Url, reach: Reach, trust: &Trust, tasks: &TaskTracker) -> Result<Got, ConnectFault> {
    let destination = Destination::of_url(url, reach)?;
    let mut path = url.path().to_owned();
    if let Some(query) = url.query() {
        path.push('?');
        path.push_str(query);
    }
    let request = |form: TargetForm| -> Result<Request<Full<Bytes>>, ConnectFault> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = destination.target(&path, form)?;
        let headers = request.headers_mut();
        if form == TargetForm::Origin {
            headers.insert(HOST, destination.authority.clone());
        }
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, WANTED);
        headers.insert(ACCEPT_ENCODING, PLAIN);
        Ok(request)
    };
    let (answer, connection) = match connect(&destination, &Addresses::default(), trust, tasks).await? {
        Connected::Http1(mut sender, task) => {
            let connection = Connection(Some(task));
            (sender.send_request(request(TargetForm::Origin)?).await, connection)
        }
        // Its connection ends with the last stream on it, which is this one.
        Connected::Http2(mut sender, _) => (sender.send_request(request(TargetForm::Whole)?).await, Connection(None)),
    };
    let (head, body) = answer.map_err(|_| ConnectFault::Closed)?.into_parts();
    Ok(Got { status: head.status.as_u16(), headers: head.headers, body, _connection: connection })
}
