//! Proxies of channels: which channels use which proxy, tests, and setting the proxy of several channels.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate_core::ChannelSpec;
use tollgate_store::{
    AdminScope, RowFilter, RowKind, StoredRow,
    fields::{Access, Kind, Object, WriteMode},
};

use super::{
    channels::several::{self, Action, MAX_CHANNELS},
    health::{STEP, show_step, test_error},
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{NAME, both, needed, read},
};
use crate::{api_error::ApiError, response::ApiResponse};

/// Channels that one query reads.
const PAGE: u32 = 1_000;
const ADDRESS: Kind = Kind::Text { min: 0, max: 1_000 };

static PROXY: Object = Object::of(
    "Proxy",
    &[
        read("proxy", ADDRESS, "Its address, with `***` for its password."),
        read("method", Kind::Word(&["CONNECT", "SOCKS5"]), "How the proxy is asked for connections."),
        read("channels", Kind::List { of: &NAME, max: 1_000_000 }, "The channels that use it, by name."),
    ],
);
static TESTED: Object = Object::of(
    "TestedProxy",
    &[
        read("channel", NAME, "The channel."),
        read("proxy", ADDRESS, "The address of its proxy, with `***` for its password."),
        read("passed", Kind::Flag, "Whether every step passed."),
        read("steps", Kind::List { of: &Kind::Object(&STEP), max: 20 }, "Steps that passed."),
        read("error", Kind::Text { min: 0, max: 10_000 }, "Failure after them.").or_null(),
    ],
);
static CHANNEL_PROXY: Object = Object::of(
    "ChannelProxy",
    &[
        needed("channel", NAME, "The channel, by name or id."),
        both("proxy", ADDRESS, "Its proxy; null or left out: none.").with(Access::WriteOnly).or_null(),
    ],
);
static SETTING: Object = Object::of(
    "ProxySetting",
    &[needed("channels", Kind::List { of: &Kind::Object(&CHANNEL_PROXY), max: MAX_CHANNELS }, "1 to 100 channels, each once.")],
);

const READ: Resource = Resource { tag: "channels", needs: Needs::Scope(AdminScope::Operator) };
const WRITE: Resource = Resource { needs: Needs::Scope(AdminScope::Admin), ..READ };

pub(super) static ROUTES: &[Route] = &[
    READ.route(Method::Get, "/admin/v1/proxies", "list_proxies", "The proxies of channels, by address.", handler!(list))
        .returns(ResponseSchema::Page(&PROXY)),
    WRITE
        .route(
            Method::Put,
            "/admin/v1/proxies",
            "set_proxies",
            "Sets the proxies of several channels: of all of them or of none. Answers with the proxies of all channels.",
            handler!(set),
        )
        .takes(&SETTING, WriteMode::Create)
        .returns(ResponseSchema::Page(&PROXY)),
    READ.route(
        Method::Post,
        "/admin/v1/channels/{name}/test-proxy",
        "test_proxy",
        "Connects through the proxy of a channel to its upstream, without a request, and measures each step.",
        handler!(test),
    )
    .returns(ResponseSchema::Object(&TESTED)),
];

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    shown(&context).await
}

async fn set(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let sent = context.body.list("channels").cloned().unwrap_or_default();
    let names: Vec<&str> = sent.iter().filter_map(|item| item["channel"].as_str()).collect();
    let proxies = sent.iter().map(|item| item["proxy"].clone()).collect();
    several::apply(&context, &names, &Action::Proxies(proxies)).await?;
    shown(&context).await
}

async fn test(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = rows::find(&context, RowKind::Channel, None, context.path_param("name")).await?;
    let tested = context.state.gateway.test_proxy(&channel.name).await.map_err(test_error)?;
    let steps: Vec<Value> = tested.steps.iter().map(show_step).collect();
    Ok(ApiResponse::ok(json!({
        "channel": channel.name, "proxy": channel.read::<ChannelSpec>()?.proxy.unwrap_or_default(), "passed": tested.error.is_none(),
        "steps": steps, "error": tested.error,
    })))
}

async fn shown(context: &RequestContext) -> Result<ApiResponse, ApiError> {
    let mut proxies: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, proxy) in channels(context).await? {
        if let Some(proxy) = proxy {
            proxies.entry(proxy).or_default().push(name);
        }
    }
    let item = |(proxy, mut channels): (String, Vec<String>)| {
        channels.sort();
        let method = if proxy.starts_with("http:") { "CONNECT" } else { "SOCKS5" };
        json!({"proxy": proxy, "method": method, "channels": channels})
    };
    Ok(ApiResponse::ok(json!({"items": proxies.into_iter().map(item).collect::<Vec<_>>(), "next": null})))
}

/// The name and the proxy of every channel. A row has `***` for the password.
async fn channels(context: &RequestContext) -> Result<Vec<(String, Option<String>)>, ApiError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let filter = RowFilter { after, ..RowFilter::of(RowKind::Channel, PAGE) };
        let page = context.with_query_timeout(context.state.store.listing.page(&filter)).await?;
        for row in &page {
            found.push((row.name.clone(), row.read::<ChannelSpec>()?.proxy));
        }
        after = page.last().map(|row: &StoredRow| row.id.clone());
        if page.len() < PAGE as usize {
            return Ok(found);
        }
    }
}
