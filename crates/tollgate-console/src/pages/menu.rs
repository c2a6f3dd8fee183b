//! The sidebar as a separate page: the menu on phones, with language, theme and sign-out.

use std::sync::Arc;

use askama::Template;

use super::{
    layout::Layout,
    locale::Locale,
    reply::{PageFailure, PageReply},
    request::PageRequest,
    route::{PageRoute, SeenBy, page},
};

pub(super) static ROUTES: &[PageRoute] = &[PageRoute::get("/menu", SeenBy::Anyone, page!(show))];

#[derive(Debug, Template)]
#[template(path = "menu.html")]
struct MenuPage {
    layout: Layout,
    t: Locale,
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    PageReply::ok(&MenuPage { layout: request.layout(t.say("nav.menu")), t })
}
