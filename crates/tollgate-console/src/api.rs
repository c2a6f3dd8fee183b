//! The admin API: resources, each in a file that holds its description, its routes and its handlers, and the table of
//! all routes from which the rest is made.

mod check;
mod dispatch;
mod field_args;
mod openapi;
mod paging;
mod request_context;
mod route;
mod rows;
mod schema;
mod shared_fields;

mod accounts;
mod admin_keys;
mod audit;
mod budgets;
mod catalog;
mod channels;
mod explain;
mod groups;
mod health;
mod keys;
mod ledger;
mod me;
mod members;
mod models;
mod named_resource;
mod previews;
mod prices;
mod settings;
mod usage;

use route::Route;

pub(crate) use dispatch::router;
pub use field_args::{parse_field_args, route_fields};

/// Every route there is.
fn routes() -> impl Iterator<Item = &'static Route> {
    [
        me::ROUTES,
        admin_keys::ROUTES,
        keys::ROUTES,
        members::ROUTES,
        groups::ROUTES,
        channels::ROUTES,
        accounts::ROUTES,
        models::ROUTES,
        prices::ROUTES,
        budgets::ROUTES,
        ledger::ROUTES,
        usage::ROUTES,
        audit::ROUTES,
        explain::ROUTES,
        health::ROUTES,
        catalog::ROUTES,
        settings::ROUTES,
        openapi::ROUTES,
    ]
    .into_iter()
    .flatten()
}

/// The function of a handler as the table keeps it.
macro_rules! handler {
    ($handler:path) => {
        |context| Box::pin($handler(context))
    };
}
use handler;
