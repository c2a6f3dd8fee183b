//! One line of the route table. What is not in the table does not exist: router, authorisation and OpenAPI document are
//! made from it.

use std::{fmt, future::Future, pin::Pin};

use tollgate_store::AdminScope;

use super::{
    ask::Ask,
    shape::{Field, How, Object},
};
use crate::{answer::Answer, problem::Problem};

/// What a handler gives back, later.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Answer, Problem>> + Send>>;

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
    pub(crate) query: &'static [Field],
    pub(crate) takes: Takes,
    pub(crate) gives: Gives,
    pub(crate) handler: fn(Ask) -> Answering,
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
pub(crate) enum Takes {
    /// None.
    Nothing,
    /// An object.
    Body(&'static Object, How),
    /// An object that may be left out.
    Maybe(&'static Object),
}

/// What a route gives when all went well.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gives {
    /// 200 and an object.
    One(&'static Object),
    /// 201 and an object; 200 where the same was asked for before.
    Made(&'static Object),
    /// 200 and a page of objects.
    Page(&'static Object),
    /// 200 and a page of objects, or lines that tell how they come about.
    Progress(&'static Object),
    /// 204.
    Nothing,
    /// 200 and lines of text.
    Lines,
    /// 200 and any JSON object.
    Document,
}

/// Page size and where to go on: the parameters of every page.
pub(crate) const LIMIT: Field = super::shape::both(
    "limit",
    super::shape::Shape::Whole { least: 1, most: 1_000 },
    "At most so many items; 50 where it is left out.",
);
pub(crate) const AFTER: Field =
    super::shape::both("after", super::shape::Shape::Text { least: 1, most: 300 }, "The `next` of the page before.");
