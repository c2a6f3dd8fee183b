//! One line of the route table. What is not in the table does not exist: router, authorisation and OpenAPI document are
//! made from it.

use std::{fmt, future::Future, pin::Pin};

use tollgate_store::AdminScope;

use super::{
    request_context::RequestContext,
    schema::{FieldSchema, ObjectSchema, ValueSchema, WriteMode, both},
};
use crate::{api_error::ApiError, response::ApiResponse};

/// What a handler gives back, later.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<ApiResponse, ApiError>> + Send>>;

/// A route.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// With `{name}` for the parts that vary.
    pub(crate) path: &'static str,
    /// Under which heading it stands.
    pub(crate) resource: &'static str,
    /// The least scope that may use it.
    pub(crate) needs: AdminScope,
    /// Its name in the document.
    pub(crate) id: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) query: &'static [FieldSchema],
    pub(crate) request: RequestSchema,
    pub(crate) response: ResponseSchema,
    pub(crate) handler: fn(RequestContext) -> HandlerFuture,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.method, self.path)
    }
}

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Patch,
    Put,
    Delete,
}

/// What a route takes as its body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestSchema {
    /// None.
    Empty,
    /// An object.
    Body(&'static ObjectSchema, WriteMode),
    /// An object that may be left out.
    Optional(&'static ObjectSchema),
}

/// What a route gives when all went well.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResponseSchema {
    /// 200 and an object.
    Object(&'static ObjectSchema),
    /// 201 and an object; 200 where the same was asked for before.
    Created(&'static ObjectSchema),
    /// 200 and a page of objects.
    Page(&'static ObjectSchema),
    /// 200 and a page of objects, or lines that tell how they come about.
    Progress(&'static ObjectSchema),
    /// 204.
    Empty,
    /// 200 and lines of text.
    TextLines,
    /// 200 and any JSON object.
    Document,
}

/// Query parameter `limit`: page size.
pub(crate) const LIMIT: FieldSchema =
    both("limit", ValueSchema::Integer { least: 1, most: 1_000 }, "At most so many items; 50 where it is left out.");
/// Query parameter `after`: the position at which a page begins.
pub(crate) const AFTER: FieldSchema = both("after", ValueSchema::String { least: 1, most: 300 }, "The `next` of the page before.");

/// Wraps an async function as the [`Route::handler`] of a table entry.
macro_rules! handler {
    ($handler:path) => {
        |context| Box::pin($handler(context))
    };
}
pub(super) use handler;
