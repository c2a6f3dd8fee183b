//! Client of the admin API for commands. Every command is a series of requests to that API, answered either in this process on the
//! database of the data folder or by a running gateway (`--url`), so that its output and errors are the same in both cases.

mod error;
mod local;
mod path;
mod remote;
mod stopped_gateway;

use std::io;

use http::{Method, Request, StatusCode, header};
use serde_json::Value;
use tollgate_console::Body;
use tollgate_core::UsageRecord;

pub(crate) use error::{AdminError, AdminRefusal};
pub(crate) use local::FolderPolicy;
pub(crate) use path::ApiPath;

use crate::{cli::Common, compose, config, failure::Failure, journal_backlog::JournalBacklog};

/// Page size when all items are read.
const PAGE: &str = "1000";
const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// Client of the admin API.
#[derive(Debug)]
pub(crate) struct Admin {
    backend: AdminBackend,
}

#[derive(Debug)]
enum AdminBackend {
    /// In this process, on the database of the data folder.
    Local(Box<local::LocalAdmin>),
    Remote(remote::RemoteAdmin),
}

/// A request with a method, body or preconditions.
#[derive(Clone)]
pub(crate) struct AdminRequest<'a> {
    pub(crate) method: Method,
    pub(crate) target: &'a ApiPath,
    /// JSON body.
    pub(crate) body: Option<&'a Value>,
    pub(crate) idempotency_key: Option<&'a str>,
    /// Value of `If-Match`: required revision.
    pub(crate) if_match: Option<u64>,
}

impl<'a> AdminRequest<'a> {
    pub(crate) const fn of(method: Method, target: &'a ApiPath, body: &'a Value) -> Self {
        Self { method, target, body: Some(body), idempotency_key: None, if_match: None }
    }

    pub(crate) const fn delete(target: &'a ApiPath) -> Self {
        Self { method: Method::DELETE, target, body: None, idempotency_key: None, if_match: None }
    }
}

#[derive(Debug)]
pub(crate) struct AdminResponse {
    /// JSON body; null if there is none.
    pub(crate) body: Value,
    /// Whether an idempotent request was repeated: nothing changed.
    pub(crate) repeated: bool,
}

/// Runs a command on the admin API of an existing database or of a running gateway.
pub(crate) fn run<T>(common: &Common, command: impl AsyncFnOnce(&Admin) -> Result<T, Failure>) -> Result<T, Failure> {
    compose::block_on(async { command(&Admin::open(common, FolderPolicy::MustExist).await?).await })
}

impl Admin {
    /// Chooses the backend: `--url`, then `--data`, then `TOLLGATE_URL`, then the default data folder.
    pub(crate) async fn open(common: &Common, folder: FolderPolicy) -> Result<Self, Failure> {
        if let (Some(_), Some(data)) = (&common.url, &common.data) {
            let data = data.display();
            return Err(Failure::Usage(format!("--url names a running gateway and --data {data} a folder: use only one of them")));
        }
        let backend = match url(common) {
            Some(url) => AdminBackend::Remote(remote::RemoteAdmin::at(&url, key(common)?, common.quiet)?),
            None => AdminBackend::Local(Box::new(local::LocalAdmin::open(common, folder).await?)),
        };
        Ok(Self { backend })
    }

    /// Sets the actor recorded for changes. A running gateway records its own.
    pub(crate) fn with_actor(mut self, name: &str) -> Self {
        if let AdminBackend::Local(local) = &mut self.backend {
            local.set_actor(name);
        }
        self
    }

    /// Records in the local journal that may not be in the database yet. Empty for a running gateway, which books its records
    /// itself.
    pub(crate) fn journal_backlog(&self, common: &Common) -> Result<JournalBacklog, Failure> {
        match &self.backend {
            AdminBackend::Local(_) => JournalBacklog::read(common),
            AdminBackend::Remote(_) => Ok(JournalBacklog::default()),
        }
    }

    /// Number of records of a backlog that are not in the database.
    pub(crate) async fn count_unbooked(&self, backlog: &JournalBacklog) -> Result<usize, Failure> {
        match &self.backend {
            AdminBackend::Local(local) => backlog.count_unbooked(local.store()).await,
            AdminBackend::Remote(_) => Ok(0),
        }
    }

    /// Passes the remaining records to `each` until it returns `false`.
    pub(crate) async fn for_each_remaining(
        &self,
        backlog: JournalBacklog,
        each: impl FnMut(&UsageRecord) -> bool,
    ) -> Result<(), Failure> {
        match &self.backend {
            AdminBackend::Local(local) => backlog.for_each_remaining(local.store(), each).await,
            AdminBackend::Remote(_) => Ok(()),
        }
    }

    /// GETs a JSON document.
    pub(crate) async fn get(&self, target: &ApiPath) -> Result<Value, AdminError> {
        let (request, body) = request(Method::GET, target, None);
        Ok(self.request_json(request.body(body).expect("ApiPath is a valid URI")).await?.body)
    }

    /// GETs one page: its items and the cursor of the next page.
    pub(crate) async fn page(&self, target: &ApiPath) -> Result<(Vec<Value>, Option<String>), AdminError> {
        let mut page = self.get(target).await?;
        let Value::Array(items) = page["items"].take() else { return Err(error::not_admin_api(&self.name()).into()) };
        Ok((items, page["next"].as_str().map(str::to_owned)))
    }

    /// GETs the items of all pages.
    pub(crate) async fn all(&self, target: &ApiPath) -> Result<Vec<Value>, AdminError> {
        let first = target.clone().with("limit", PAGE);
        let (mut items, mut next) = (Vec::new(), Some(first.clone()));
        while let Some(target) = next {
            let (more, after) = self.page(&target).await?;
            items.extend(more);
            next = after.map(|after| first.clone().with("after", &after));
        }
        Ok(items)
    }

    pub(crate) async fn send(&self, sent: AdminRequest<'_>) -> Result<AdminResponse, AdminError> {
        let AdminRequest { method, target, body, idempotency_key, if_match } = sent;
        let (mut request, body) = request(method, target, body);
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(revision) = if_match {
            request = request.header(header::IF_MATCH, format!("\"{revision}\""));
        }
        let invalid = |_| Failure::Usage("the idempotency key has characters that are not allowed in a header".to_owned());
        self.request_json(request.body(body).map_err(invalid)?).await
    }

    /// Sends a request whose response is a stream of lines.
    pub(crate) async fn lines(&self, method: Method, target: &ApiPath, body: Option<&Value>) -> Result<LineStream, AdminError> {
        let (request, body) = request(method, target, body);
        let request = request.body(body).expect("ApiPath is a valid URI");
        let response = match &self.backend {
            AdminBackend::Local(local) => local.call(request).await,
            AdminBackend::Remote(remote) => remote.call_apart(request).await?,
        };
        if response.status() == StatusCode::OK {
            return Ok(LineStream { body: response.into_body(), buffer: Vec::new(), position: 0 });
        }
        Err(self.refused(response).await)
    }

    /// GETs a file and returns its size.
    pub(crate) async fn download(&self, target: &ApiPath, to: &mut impl io::Write) -> Result<u64, Failure> {
        let (request, body) = request(Method::GET, target, None);
        let response = self.call(request.body(body).expect("ApiPath is a valid URI")).await?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(response).await.into());
        }
        let (mut body, mut bytes) = (response.into_body(), 0);
        while let Some(chunk) = remote::next_chunk(&mut body).await? {
            to.write_all(&chunk).map_err(|error| Failure::Machine(format!("the file cannot be written: {error}")))?;
            bytes += chunk.len() as u64;
        }
        to.flush().map_err(|error| Failure::Machine(format!("the file cannot be written: {error}")))?;
        Ok(bytes)
    }

    async fn request_json(&self, request: Request<Body>) -> Result<AdminResponse, AdminError> {
        let response = self.call(request).await?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let repeated = response.headers().contains_key("idempotent-replayed");
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(AdminResponse { body: Value::Null, repeated });
        }
        let bytes = remote::read_body(response.into_body(), MAX_RESPONSE_BYTES).await?;
        let body = serde_json::from_slice(&bytes).map_err(|_| error::not_admin_api(&self.name()))?;
        Ok(AdminResponse { body, repeated })
    }

    async fn call(&self, request: Request<Body>) -> Result<http::Response<Body>, Failure> {
        match &self.backend {
            AdminBackend::Local(local) => Ok(local.call(request).await),
            AdminBackend::Remote(remote) => remote.call(request).await,
        }
    }

    async fn refused(&self, response: http::Response<Body>) -> AdminError {
        error::read(response, &self.name()).await
    }

    fn name(&self) -> String {
        match &self.backend {
            AdminBackend::Local(_) => "this machine".to_owned(),
            AdminBackend::Remote(remote) => remote.name().to_owned(),
        }
    }
}

fn request(method: Method, target: &ApiPath, body: Option<&Value>) -> (http::request::Builder, Body) {
    let request = Request::builder().method(method).uri(target.as_str());
    match body {
        Some(body) => (request.header(header::CONTENT_TYPE, "application/json"), Body::from(body.to_string())),
        None => (request, Body::empty()),
    }
}

/// Lines of a response body.
#[derive(Debug)]
pub(crate) struct LineStream {
    body: Body,
    buffer: Vec<u8>,
    /// Start of the next line in the buffer.
    position: usize,
}

impl LineStream {
    /// The next line, including its line break; `None` after the last. A truncated response is an error.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            if let Some(end) = self.buffer[self.position..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer[self.position..=self.position + end].to_vec();
                self.position += end + 1;
                return Ok(Some(line));
            }
            if !self.read_more().await? {
                return Ok(self.rest());
            }
        }
    }

    /// All lines that have arrived, at least one; `None` after the last.
    pub(crate) async fn next_lines(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            if let Some(end) = self.buffer[self.position..].iter().rposition(|byte| *byte == b'\n') {
                let incomplete = self.buffer.split_off(self.position + end + 1);
                let lines = std::mem::replace(&mut self.buffer, incomplete).split_off(self.position);
                self.position = 0;
                return Ok(Some(lines));
            }
            if !self.read_more().await? {
                return Ok(self.rest());
            }
        }
    }

    /// Reads the next part of the response behind the line that is not complete. False at the end.
    async fn read_more(&mut self) -> Result<bool, Failure> {
        self.buffer.drain(..self.position);
        self.position = 0;
        match remote::next_chunk(&mut self.body).await? {
            Some(_) if self.buffer.len() > MAX_RESPONSE_BYTES => {
                Err(Failure::Machine("a line of the response is too long".to_owned()))
            }
            Some(piece) => {
                self.buffer.extend_from_slice(&piece);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// A last line without a line break.
    fn rest(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.buffer)).filter(|rest| !rest.is_empty())
    }
}

/// URL of the gateway to use. `--data` overrides `TOLLGATE_URL`.
fn url(common: &Common) -> Option<String> {
    let from_environment = || config::variable("TOLLGATE_URL").filter(|_| common.data.is_none());
    common.url.clone().or_else(from_environment).filter(|url| !url.is_empty())
}

fn key(common: &Common) -> Result<tollgate_core::Secret, Failure> {
    let given = common.admin_key.as_ref().map(|key| key.expose().to_owned()).or_else(|| config::variable("TOLLGATE_ADMIN_KEY"));
    let Some(text) = given.filter(|text| !text.is_empty()) else {
        return Err(Failure::invalid(
            "no admin key was given: set TOLLGATE_ADMIN_KEY (or --admin-key env:NAME or file:PATH); `tollgate admin-key create` \
             on the gateway's machine creates one",
        ));
    };
    let key = config::reference(&text).map_err(|fault| Failure::invalid(format!("--admin-key: {fault}")))?;
    Ok(tollgate_core::Secret::new(key))
}

/// Whether commands use the admin API of a running gateway.
pub(crate) fn is_remote(common: &Common) -> bool {
    url(common).is_some()
}

/// Rejects `--url` for a command that works on the local machine: the answer is where to run it.
pub(crate) fn reject_url(common: &Common, command: &str) -> Result<(), Failure> {
    if common.url.is_none() {
        return Ok(());
    }
    Err(Failure::Usage(format!("{}; without --url", local_only(command))))
}

/// Rejects `--url` and `TOLLGATE_URL` for a command that reads the local data folder: its output would be mistaken for that of
/// the other gateway.
pub(crate) fn require_local(common: &Common, command: &str) -> Result<(), Failure> {
    reject_url(common, command)?;
    if url(common).is_some() {
        return Err(Failure::Usage(format!("{}; TOLLGATE_URL is set: unset it, or set --data", local_only(command))));
    }
    Ok(())
}

fn local_only(command: &str) -> String {
    format!(
        "`{command}` works on the gateway's data folder itself and not over the admin API: run it on the gateway's machine, with the \
         gateway's --config or --data and environment, beside the running gateway if there is one (in a container: `docker exec \
         CONTAINER /usr/local/bin/{command}`)"
    )
}
