//! The steps of the first run after the admin's password: the gateway itself. Channels and keys are made with the command line or the
//! admin API.

use std::sync::Arc;

use askama::Template;
use tollgate_store::AdminScope;

use super::{
    layout::Layout,
    locale::Locale,
    operations,
    preferences::Toast,
    reply::{PageFailure, PageReply},
    request::{PageRequest, path_of},
    route::{PageRoute, SeenBy, page},
    sign_in::HOME,
};
use crate::{api_error::ApiError, dispatch::ApiCall};

const ADMIN: SeenBy = SeenBy::Role(AdminScope::Admin);
const SQUARE_PUBLIC: &str = "square.public";

pub(super) static ROUTES: &[PageRoute] =
    &[PageRoute::get("/setup/gateway", ADMIN, page!(show)), PageRoute::post("/setup/gateway", ADMIN, page!(save))];

#[derive(Debug, Template)]
#[template(path = "set_up_gateway.html")]
struct GatewayPage {
    layout: Layout,
    t: Locale,
    address: String,
    is_public: bool,
    /// Why visitors' access cannot be changed here; `None`: it can.
    set_by: Option<String>,
}

fn square_setting(request: &PageRequest) -> Result<crate::gateway_handle::EffectiveSetting, ApiError> {
    let settings = request.state.gateway.settings();
    settings.into_iter().find(|setting| setting.name == SQUARE_PUBLIC).ok_or_else(ApiError::internal)
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, setting) = (request.t(), square_setting(&request)?);
    let set_by = (!setting.writable).then(|| {
        let source = match setting.source {
            "flag" => t.say("set_up.source.flag"),
            "environment" => t.say("set_up.source.environment"),
            _ => t.say("set_up.source.file"),
        };
        t.say_with("set_up.set_by", &[("source", source), ("variable", &setting.variable)])
    });
    let template = GatewayPage {
        layout: request.layout(t.say("set_up.gateway_title")).public_shell(),
        t,
        address: request.state.identity.settings.url.as_str().trim_end_matches('/').to_owned(),
        is_public: request.state.gateway.is_square_public(),
        set_by,
    };
    PageReply::ok(&template)
}

async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let setting = square_setting(&request)?;
    if setting.writable {
        let value = request.form.value("square_public") == "on";
        let body = [("value".to_owned(), value.into())].into_iter().collect();
        let path = path_of(&[("name", SQUARE_PUBLIC)]);
        request.call(operations::SET_SETTING, ApiCall { path, body, ..ApiCall::default() }).await?;
    }
    Ok(PageReply::redirect(&request.url(HOME)).toast(Toast::Saved))
}
