//! Channels and their accounts: the list with the health and the money of each, a channel with its test, what it serves and why it is not
//! chosen, and the forms that change them.

mod accounts;
mod detail;
mod explain;
pub(super) mod form;
mod list;
pub(super) mod served;
pub(super) mod state;
mod switch;
mod test;

use tollgate_store::AdminScope;

use super::route::{PageRoute, SeenBy, page};

const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/channels", OPERATOR, page!(list::show)),
    PageRoute::get("/channels/new", OPERATOR, page!(form::new)),
    PageRoute::post("/channels/new", OPERATOR, page!(form::make)),
    PageRoute::get("/channels/{name}", OPERATOR, page!(detail::show)),
    PageRoute::get("/channels/{name}/edit", OPERATOR, page!(form::edit)),
    PageRoute::post("/channels/{name}/edit", OPERATOR, page!(form::change)),
    PageRoute::get("/channels/{name}/models", OPERATOR, page!(served::show)),
    PageRoute::post("/channels/{name}/models", OPERATOR, page!(served::change)).takes_bytes(served::MAX_BYTES),
    PageRoute::post("/channels/{name}/models/fetch", OPERATOR, page!(served::fetch)),
    PageRoute::post("/channels/{name}/models/add", OPERATOR, page!(served::add)).takes_bytes(served::MAX_BYTES),
    PageRoute::get("/channels/{name}/accounts/new", OPERATOR, page!(accounts::new)),
    PageRoute::post("/channels/{name}/accounts/new", OPERATOR, page!(accounts::make)),
    PageRoute::get("/channels/{name}/accounts/{account}", OPERATOR, page!(accounts::edit)),
    PageRoute::post("/channels/{name}/accounts/{account}", OPERATOR, page!(accounts::change)),
    PageRoute::post("/channels/{name}/accounts/{account}/remove", OPERATOR, page!(accounts::remove)),
    PageRoute::post("/channels/{name}/test", OPERATOR, page!(test::run)),
    PageRoute::post("/channels/{name}/switch", OPERATOR, page!(switch::switch)),
    PageRoute::post("/channels/{name}/end-cooling", OPERATOR, page!(switch::end_cooling)),
    PageRoute::post("/channels/{name}/remove", OPERATOR, page!(switch::remove)),
];
