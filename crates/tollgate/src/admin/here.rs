//! The admin API in this process, on the database of the data folder, beside a running gateway or without one.

use std::{net::Ipv4Addr, sync::Arc};

use http::{Request, Response};
use tollgate_console::{Body, Console, Parts, Visitor};
use tollgate_core::RequestId;
use tollgate_store::{Access, Actor, Door, Store};

use super::{Folder, at_rest::AtRest};
use crate::{cli::Common, compose, failure::Failure};

/// A console that nobody else reaches.
#[derive(Debug)]
pub(super) struct Here {
    console: Console,
    actor: Actor,
    store: Store,
}

impl Here {
    pub(super) async fn open(common: &Common, folder: Folder) -> Result<Self, Failure> {
        let config = compose::settings(common, &[])?;
        let store = match folder {
            Folder::MustExist => compose::open(common).await?,
            Folder::MayBeMade => compose::open_as(&config, Access::Command).await?,
        };
        let running = Arc::new(AtRest::beside(store.clone(), config).await?);
        let console = Console::new(Parts { store: store.clone(), running, catalog_file: None, version: env!("CARGO_PKG_VERSION") });
        Ok(Self { console, actor: compose::actor(), store })
    }

    /// Who makes changes from now on.
    pub(super) fn sign(&mut self, name: &str) {
        self.actor = Actor { door: Door::Cli, name: name.to_owned() };
    }

    /// The database.
    pub(super) const fn store(&self) -> &Store {
        &self.store
    }

    pub(super) async fn call(&self, request: Request<Body>) -> Response<Body> {
        // Whoever has the folder needs no key, and nobody asks for this id.
        let visitor = Visitor { id: RequestId::from_parts(compose::now(), [0; 10]), address: Ipv4Addr::LOCALHOST.into() };
        self.console.answer_owner(visitor, self.actor.clone(), request).await
    }
}
