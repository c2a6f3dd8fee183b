//! The admin API in this process, on the database of the data folder. A gateway may be running on the same folder.

use std::{net::Ipv4Addr, sync::Arc};

use http::{Request, Response};
use tollgate_console::{Body, Console, RequestMeta};
use tollgate_core::RequestId;
use tollgate_store::{AccessMode, Actor, ChangeOrigin, Store};
use url::Url;

use super::stopped_gateway::StoppedGateway;
use crate::{cli::Common, compose, console_settings, failure::Failure, runtime_socket};

/// Handling of a data folder that has no database yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderPolicy {
    /// Fail: a misspelled `--data` must not create a database.
    MustExist,
    CreateIfMissing,
}

#[derive(Debug)]
pub(super) struct LocalAdmin {
    console: Console,
    actor: Actor,
    store: Store,
}

impl LocalAdmin {
    pub(super) async fn open(common: &Common, folder: FolderPolicy) -> Result<Self, Failure> {
        let config = compose::settings(common, &[])?;
        let store = match folder {
            FolderPolicy::MustExist => compose::open(common).await?,
            FolderPolicy::CreateIfMissing => compose::open_as(&config, AccessMode::Command).await?,
        };
        let mut identity = console_settings::identity(&config, config.console.unwrap_or(config.listen))?;
        if config.console_url.is_none()
            && let Some(url) = runtime_socket::ask(&config.data).and_then(|report| Url::parse(&report.console).ok())
        {
            // Links must lead to the running gateway, which may have been started with flags that this command does not know.
            identity.url = url;
        }
        let gateway = Arc::new(StoppedGateway::load(store.clone(), config).await?);
        Ok(Self { console: Console::new(store.clone(), gateway, identity, None, None), actor: compose::actor(), store })
    }

    pub(super) fn set_actor(&mut self, name: &str) {
        self.actor = Actor::local(ChangeOrigin::Cli, name);
    }

    pub(super) const fn store(&self) -> &Store {
        &self.store
    }

    pub(super) async fn call(&self, request: Request<Body>) -> Response<Body> {
        // The id appears in no response header that a command reads.
        let request_meta = RequestMeta {
            id: RequestId::from_parts(compose::now(), [0; 10]),
            address: Some(Ipv4Addr::LOCALHOST.into()),
            is_local: true,
        };
        self.console.handle_local(request_meta, self.actor.clone(), request).await
    }
}
