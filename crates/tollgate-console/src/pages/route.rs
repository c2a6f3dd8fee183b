//! Entries of the table of pages.

use std::{future::Future, pin::Pin, sync::Arc};

use tollgate_store::AdminScope;

use super::{
    form,
    reply::{PageFailure, PageReply},
    request::PageRequest,
};
use crate::api::route::Method;

pub(crate) type PageFuture = Pin<Box<dyn Future<Output = Result<PageReply, PageFailure>> + Send>>;

/// Access to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenBy {
    /// Visitors, too.
    Anyone,
    /// Members with at least this role. Visitors are redirected to the sign-in, and other members get 404.
    Role(AdminScope),
}

/// A page, or the target of one of its forms.
#[derive(Debug)]
pub(crate) struct PageRoute {
    pub(crate) method: Method,
    /// Path pattern with `{name}` for parameters.
    pub(crate) path: &'static str,
    pub(crate) seen_by: SeenBy,
    /// Largest form, in bytes.
    pub(crate) max_bytes: usize,
    pub(crate) handler: fn(Arc<PageRequest>) -> PageFuture,
}

impl PageRoute {
    pub(crate) const fn get(path: &'static str, seen_by: SeenBy, handler: fn(Arc<PageRequest>) -> PageFuture) -> Self {
        Self { method: Method::Get, path, seen_by, max_bytes: form::MAX_BYTES, handler }
    }

    /// The target of a form.
    pub(crate) const fn post(path: &'static str, seen_by: SeenBy, handler: fn(Arc<PageRequest>) -> PageFuture) -> Self {
        Self { method: Method::Post, path, seen_by, max_bytes: form::MAX_BYTES, handler }
    }

    /// Takes larger forms than most pages.
    pub(crate) const fn takes_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }
}

/// Wraps an async function as the [`PageRoute::handler`] of a table entry.
macro_rules! page {
    ($handler:path) => {
        |request| Box::pin($handler(request))
    };
}
pub(super) use page;
