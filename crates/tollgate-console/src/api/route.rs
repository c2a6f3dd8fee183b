//! Entries of the route table. The router, authorisation and the OpenAPI document are derived from the table.

use std::{fmt, future::Future, pin::Pin};

use tollgate_store::{
    AdminScope,
    fields::{FieldShape, Kind, Object, WriteMode},
};

use super::{request_context::RequestContext, schema::both};
use crate::{api_error::ApiError, response::ApiResponse};

pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<ApiResponse, ApiError>> + Send>>;

pub(crate) type Handler = fn(RequestContext) -> HandlerFuture;

/// Largest body of most routes: enough for a catalog file of several thousand rows.
const BODY_BYTES: usize = 4 << 20;
/// Largest body of routes that are open before a sign-in.
const OPEN_BODY_BYTES: usize = 16 << 10;

/// The principals that may call a route, and the objects that it shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Any client, for routes that are used before a sign-in.
    Nothing,
    /// Any authenticated principal. It sees the objects of its own member; with at least this scope, it sees all objects.
    Own { all: AdminScope },
    /// Principals with this scope, for all objects.
    Scope(AdminScope),
}

impl Needs {
    /// The smallest scope that sees all objects.
    #[cfg(test)]
    pub(crate) const fn for_all(self) -> Option<AdminScope> {
        match self {
            Self::Nothing => None,
            Self::Own { all } | Self::Scope(all) => Some(all),
        }
    }

    /// The text of `x-needs` in the OpenAPI document.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Own { all } => format!("own, or {}", all.as_str()),
            Self::Scope(scope) => scope.as_str().to_owned(),
        }
    }
}

/// A route of the admin API.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// Path pattern with `{name}` for parameters.
    pub(crate) path: &'static str,
    /// Tag in the OpenAPI document.
    pub(crate) resource: &'static str,
    pub(crate) needs: Needs,
    /// `operationId` in the OpenAPI document.
    pub(crate) id: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) query: &'static [FieldShape],
    pub(crate) request: RequestSchema,
    /// Largest body from a client with an admin key, in bytes.
    pub(crate) max_body_bytes: usize,
    /// Whether the header `Idempotency-Key` makes a request happen once.
    pub(crate) idempotency: Idempotency,
    /// Whether the header `If-Match` makes it depend on a revision.
    pub(crate) takes_revision: bool,
    pub(crate) response: ResponseSchema,
    pub(crate) handler: Handler,
}

/// Properties that routes share: their tag in the OpenAPI document, and their access requirement.
#[derive(Clone, Copy)]
pub(crate) struct Resource {
    pub(crate) tag: &'static str,
    pub(crate) needs: Needs,
}

impl Resource {
    /// A route without query and body that answers 204; the methods of [`Route`] change that.
    pub(crate) const fn route(
        self,
        method: Method,
        path: &'static str,
        id: &'static str,
        doc: &'static str,
        handler: Handler,
    ) -> Route {
        let (request, response) = (RequestSchema::Empty, ResponseSchema::Empty);
        let max_body_bytes = if matches!(self.needs, Needs::Nothing) { OPEN_BODY_BYTES } else { BODY_BYTES };
        let (resource, needs) = (self.tag, self.needs);
        let (idempotency, takes_revision) = (Idempotency::Ignored, false);
        Route {
            method,
            path,
            resource,
            needs,
            id,
            doc,
            query: &[],
            request,
            max_body_bytes,
            idempotency,
            takes_revision,
            response,
            handler,
        }
    }
}

impl Route {
    pub(crate) const fn query(self, query: &'static [FieldShape]) -> Self {
        Self { query, ..self }
    }

    pub(crate) const fn takes(self, object: &'static Object, mode: WriteMode) -> Self {
        Self { request: RequestSchema::Body(object, mode), ..self }
    }

    /// Takes an object, or no body at all.
    pub(crate) const fn takes_optional(self, object: &'static Object) -> Self {
        Self { request: RequestSchema::Optional(object), ..self }
    }

    /// Takes larger bodies than most routes.
    pub(crate) const fn takes_bytes(self, max_body_bytes: usize) -> Self {
        Self { max_body_bytes, ..self }
    }

    pub(crate) const fn returns(self, response: ResponseSchema) -> Self {
        Self { response, ..self }
    }

    /// Happens once within a day with an `Idempotency-Key`.
    pub(crate) const fn once(self) -> Self {
        Self { idempotency: Idempotency::Taken, ..self }
    }

    /// The same, and the key must be sent: money must not be posted twice.
    pub(crate) const fn only_once(self) -> Self {
        Self { idempotency: Idempotency::Required, ..self }
    }

    /// Takes an `If-Match`.
    pub(crate) const fn at_revision(self) -> Self {
        Self { takes_revision: true, ..self }
    }
}

/// Handling of the header `Idempotency-Key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idempotency {
    Ignored,
    Taken,
    Required,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.method, self.path)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Patch,
    Put,
    Delete,
}

/// Body of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestSchema {
    Empty,
    /// A required object.
    Body(&'static Object, WriteMode),
    Optional(&'static Object),
}

/// Successful response of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResponseSchema {
    /// 200 and an object.
    Object(&'static Object),
    /// 201 and an object; 200 when an idempotent request is repeated.
    Created(&'static Object),
    /// 200 and a page of objects.
    Page(&'static Object),
    /// 200 and a page of objects that may end early, with `searched_until`.
    SearchPage(&'static Object),
    /// 200 and a page of sums, with how many groups there are.
    SumsPage(&'static Object),
    /// 200 and a page of objects, or JSON lines that report progress.
    Progress(&'static Object),
    /// 204.
    Empty,
    /// 303 to another address.
    Redirect,
    /// 200 and records as lines of text, or as a file.
    TextLines,
    /// 200 and any JSON object.
    Document,
    /// 200 and server-sent events.
    Events,
    /// 200 and a file of this type.
    File(&'static str),
}

/// The parameters in paths. Texts outside of their bounds name nothing (404).
const PATH_PARAMETERS: &[FieldShape] = &[
    both("name", PATH_TEXT, "Its name or id."),
    both("account", PATH_TEXT, "Name or id of the account."),
    both("key", PATH_TEXT, "Id of the key."),
    both("admin_key", PATH_TEXT, "Name or id of the admin key."),
    both("model", PATH_TEXT, "Name or id of the model."),
    both("session", PATH_TEXT, "Id of the session."),
    both("invite", PATH_TEXT, "Id of the invite."),
    both("passkey", PATH_TEXT, "Id of the passkey."),
    both("job", PATH_TEXT, "Id of the job."),
    both("alert", PATH_TEXT, "Id of the alert."),
    both("record", PATH_TEXT, "Id of the request."),
    both("revision", PATH_TEXT, "Revision of the change."),
    both("subject", Kind::Word(&["key", "member", "group", "channel"]), "Kind of the row."),
];
/// As long as the longest name.
const PATH_TEXT: Kind = Kind::Text { min: 1, max: 256 };

/// The parameter `{name}` of a path.
pub(crate) fn path_parameter(name: &str) -> &'static FieldShape {
    PATH_PARAMETERS.iter().find(|parameter| parameter.name == name).expect("a test compares the table with the routes")
}

/// False if no object can have this value of the parameter `{name}`. A parameter with a fixed list of words is checked by the
/// handler, whose refusal names the words.
pub(crate) fn may_exist(name: &str, value: &str) -> bool {
    let is_short = if let Kind::Text { max, .. } = path_parameter(name).kind { value.chars().count() <= max } else { true };
    is_short && !value.chars().any(char::is_control)
}

/// Query parameter `limit`: page size.
pub(crate) const LIMIT: FieldShape = both("limit", Kind::Integer { min: 1, max: 1_000 }, "Maximum number of items; default 50.");
/// Query parameter `after`: the position at which a page begins.
pub(crate) const AFTER: FieldShape = both("after", Kind::Text { min: 1, max: 300 }, "`next` of the previous page.");

/// Wraps an async function as the [`Route::handler`] of a table entry.
macro_rules! handler {
    ($handler:path) => {
        |context| Box::pin($handler(context))
    };
}
pub(super) use handler;
