//! The admin API as commands ask it. Every verb is written once, as requests to that API; here alone is decided where it is:
//! in this process on the database of the data folder, or at a running gateway (`--url`). What a verb prints is therefore the
//! same in both places, and so is what it refuses.

mod error;
mod local;
mod path;
mod remote;
mod stopped_gateway;

use http::{Method, Request, StatusCode, header};
use serde_json::Value;
use tollgate_console::Body;
use tollgate_core::UsageRecord;

pub(crate) use error::{AdminError, AdminRefusal};
pub(crate) use local::FolderPolicy;
pub(crate) use path::ApiPath;

use crate::{cli::Common, config, failure::Failure, journal_backlog::JournalBacklog};

/// Items of a page that is asked for where all of them are wanted.
const PAGE: &str = "1000";
/// Largest answer that is read whole.
const ANSWER_BYTES: usize = 256 << 20;

/// The admin API, wherever it is.
#[derive(Debug)]
pub(crate) struct Admin {
    backend: AdminBackend,
}

#[derive(Debug)]
enum AdminBackend {
    /// In this process, on the database.
    Local(local::LocalAdmin),
    /// At a running gateway.
    Remote(remote::RemoteAdmin),
}

/// A request that changes something, or may.
#[derive(Clone)]
pub(crate) struct AdminRequest<'a> {
    /// Method.
    pub(crate) method: Method,
    /// To what.
    pub(crate) target: &'a ApiPath,
    /// JSON; `None`: no body.
    pub(crate) body: Option<&'a Value>,
    /// Makes it happen once.
    pub(crate) idempotency_key: Option<&'a str>,
    /// Only if the revision is still this one.
    pub(crate) if_match: Option<u64>,
}

impl<'a> AdminRequest<'a> {
    /// A request with a body.
    pub(crate) const fn of(method: Method, target: &'a ApiPath, body: &'a Value) -> Self {
        Self { method, target, body: Some(body), idempotency_key: None, if_match: None }
    }

    /// A removal.
    pub(crate) const fn delete(target: &'a ApiPath) -> Self {
        Self { method: Method::DELETE, target, body: None, idempotency_key: None, if_match: None }
    }
}

/// An answer that went well.
#[derive(Debug)]
pub(crate) struct AdminResponse {
    /// Its document; null where there is none.
    pub(crate) body: Value,
    /// The same was asked before, and nothing happened this time.
    pub(crate) repeated: bool,
}

impl Admin {
    /// The one decision where a command is answered: `--url`, then `--data`, then `TOLLGATE_URL`, then this machine.
    pub(crate) async fn open(common: &Common, folder: FolderPolicy) -> Result<Self, Failure> {
        if let (Some(_), Some(data)) = (&common.url, &common.data) {
            let data = data.display();
            return Err(Failure::Usage(format!(
                "--url names a running gateway and --data {data} a folder: leave one of them away"
            )));
        }
        let backend = match url(common) {
            Some(url) => AdminBackend::Remote(remote::RemoteAdmin::at(&url, key(common)?, common.quiet)?),
            None => AdminBackend::Local(local::LocalAdmin::open(common, folder).await?),
        };
        Ok(Self { backend })
    }

    /// Writes changes down as made by this, where that is ours to say.
    pub(crate) fn with_actor(mut self, name: &str) -> Self {
        if let AdminBackend::Local(local) = &mut self.backend {
            local.set_actor(name);
        }
        self
    }

    /// Records that are answered and perhaps not booked yet: those in the journal of this machine. What a running gateway has
    /// in its journal is booked a moment later.
    pub(crate) fn unbooked(&self, common: &Common) -> Result<JournalBacklog, Failure> {
        match &self.backend {
            AdminBackend::Local(_) => JournalBacklog::read(common),
            AdminBackend::Remote(_) => Ok(JournalBacklog::default()),
        }
    }

    /// Gives those of them that were not shown, until `each` says that it is enough.
    pub(crate) async fn rest(&self, unbooked: JournalBacklog, each: impl FnMut(&UsageRecord) -> bool) -> Result<(), Failure> {
        match &self.backend {
            AdminBackend::Local(local) => unbooked.rest(local.store(), each).await,
            AdminBackend::Remote(_) => Ok(()),
        }
    }

    /// One document.
    pub(crate) async fn get(&self, target: &ApiPath) -> Result<Value, AdminError> {
        let request = request(Method::GET, target).body(Body::empty()).expect("targets are encoded");
        Ok(self.request_json(request).await?.body)
    }

    /// One page: its items, and where the next one begins.
    pub(crate) async fn page(&self, target: &ApiPath) -> Result<(Vec<Value>, Option<String>), AdminError> {
        let mut page = self.get(target).await?;
        let Value::Array(items) = page["items"].take() else { return Err(error::not_admin_api(&self.name()).into()) };
        Ok((items, page["next"].as_str().map(str::to_owned)))
    }

    /// The items of every page.
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

    /// Sends something.
    pub(crate) async fn send(&self, sending: AdminRequest<'_>) -> Result<AdminResponse, AdminError> {
        let AdminRequest { method, target, body, idempotency_key, if_match } = sending;
        let mut request = request(method, target);
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(revision) = if_match {
            request = request.header(header::IF_MATCH, format!("\"{revision}\""));
        }
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let request = request.body(body);
        self.request_json(
            request.map_err(|_| Failure::Usage("the idempotency key has characters that no header takes".to_owned()))?,
        )
        .await
    }

    /// An answer that comes in lines.
    pub(crate) async fn lines(&self, method: Method, target: &ApiPath, body: Option<&Value>) -> Result<LineStream, AdminError> {
        let mut request = request(method, target);
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let response = self.call(request.body(body).expect("targets are encoded")).await?;
        if response.status() == StatusCode::OK {
            return Ok(LineStream { body: response.into_body(), buffer: Vec::new(), at: 0 });
        }
        Err(self.refused(response).await)
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
        let bytes = remote::read_body(response.into_body(), ANSWER_BYTES).await?;
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

fn request(method: Method, target: &ApiPath) -> http::request::Builder {
    Request::builder().method(method).uri(target.as_str())
}

/// Lines as they come.
#[derive(Debug)]
pub(crate) struct LineStream {
    body: Body,
    buffer: Vec<u8>,
    /// Where the next line begins in the buffer.
    at: usize,
}

impl LineStream {
    /// The next line with its end; `None` behind the last one. What breaks off is an error, never an end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            if let Some(end) = self.buffer[self.at..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer[self.at..=self.at + end].to_vec();
                self.at += end + 1;
                return Ok(Some(line));
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            match remote::next_chunk(&mut self.body).await? {
                Some(_) if self.buffer.len() > ANSWER_BYTES => {
                    return Err(Failure::Machine("a line of the answer has no end".to_owned()));
                }
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.buffer))),
            }
        }
    }
}

/// The gateway that is asked for. A folder that is named on the command line beats an address in the environment.
fn url(common: &Common) -> Option<String> {
    let in_environment = || config::variable("TOLLGATE_URL").filter(|_| common.data.is_none());
    common.url.clone().or_else(in_environment).filter(|url| !url.is_empty())
}

fn key(common: &Common) -> Result<tollgate_core::Secret, Failure> {
    let given = common.admin_key.as_ref().map(|key| key.expose().to_owned()).or_else(|| config::variable("TOLLGATE_ADMIN_KEY"));
    let Some(text) = given.filter(|text| !text.is_empty()) else {
        return Err(Failure::written(
            "no admin key was given: set TOLLGATE_ADMIN_KEY (or --admin-key env:NAME or file:PATH); `tollgate admin-key create` \
             on the gateway's machine makes one",
        ));
    };
    let key = config::reference(&text).map_err(|fault| Failure::written(format!("--admin-key: {fault}")))?;
    Ok(tollgate_core::Secret::new(key))
}

/// Refuses `--url` for a verb that looks at this machine.
pub(crate) fn reject_url(common: &Common, verb: &str) -> Result<(), Failure> {
    if common.url.is_none() {
        return Ok(());
    }
    Err(Failure::Usage(format!("`{verb}` looks at the machine it runs on: leave --url away, or run it on the gateway's machine")))
}

/// Refuses a verb that reads a gateway's own folder where another gateway was asked for, by the environment too: what it says
/// would be taken for that other gateway's.
pub(crate) fn require_local(common: &Common, verb: &str) -> Result<(), Failure> {
    reject_url(common, verb)?;
    if url(common).is_some() {
        return Err(Failure::Usage(format!(
            "`{verb}` looks at the machine it runs on, and TOLLGATE_URL names another: unset it, or name the folder with --data"
        )));
    }
    Ok(())
}
