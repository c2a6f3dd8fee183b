//! What the keyboard reaches from everywhere: a search over pages, models, keys, channels and ids of requests, and the list of shortcuts.
//! Both are pages, too, and shown over the present one by a script.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use tollgate_store::AdminScope;

use super::{
    channels::state,
    layout::{Layout, NavEntry},
    locale::Locale,
    models::{document_for, path_of_name},
    operations,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get},
    route::{PageRoute, SeenBy, page},
};
use crate::api_error::ApiError;

const MEMBER: SeenBy = SeenBy::Role(AdminScope::Member);

pub(super) static ROUTES: &[PageRoute] =
    &[PageRoute::get("/search", MEMBER, page!(search)), PageRoute::get("/shortcuts", MEMBER, page!(shortcuts))];

/// Rows of a kind that are looked at, and those that are shown.
const LOOKED_AT: &str = "1000";
const SHOWN: usize = 8;

#[derive(Debug, Template)]
#[template(path = "search.html")]
struct SearchPage {
    layout: Layout,
    t: Locale,
    query: String,
    found: SearchPart,
}

#[derive(Debug, Template)]
#[template(path = "parts/search.html")]
struct SearchPart {
    layout: Layout,
    t: Locale,
    hits: Vec<Hit>,
    is_asked: bool,
}

#[derive(Debug)]
struct Hit {
    icon: &'static str,
    kind: &'static str,
    label: String,
    link: String,
}

#[derive(Debug, Template)]
#[template(path = "shortcuts.html")]
struct ShortcutsPage {
    layout: Layout,
    t: Locale,
    part: ShortcutsPart,
}

#[derive(Debug, Template)]
#[template(path = "parts/shortcuts.html")]
struct ShortcutsPart {
    everywhere: Vec<(&'static str, &'static str)>,
    pages: Vec<NavEntry>,
}

#[derive(Debug, Deserialize)]
struct NamedObject {
    #[serde(default)]
    id: String,
    name: String,
}

async fn search(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let query = request.query.value("q").trim().to_owned();
    let layout = request.layout(t.say("search.title"));
    let hits = hits(&request, &layout, &query).await?;
    let found = SearchPart { layout: request.layout(t.say("search.title")), t, hits, is_asked: !query.is_empty() };
    if request.wants_part() {
        return PageReply::ok(&found);
    }
    PageReply::ok(&SearchPage { layout, t, query, found })
}

/// What a text finds: an id first, then pages, channels, models and keys that contain it.
async fn hits(request: &PageRequest, layout: &Layout, query: &str) -> Result<Vec<Hit>, ApiError> {
    let t = request.t();
    let wanted = query.to_lowercase();
    let contains = |text: &str| text.to_lowercase().contains(&wanted);
    let pages = layout.entries().filter(|entry| contains(entry.label) || entry.path.contains(&wanted));
    let pages = pages.map(|entry| Hit {
        icon: entry.icon,
        kind: t.say("search.page"),
        label: entry.label.to_owned(),
        link: request.url(entry.path),
    });
    let mut hits: Vec<Hit> = of_id(request, query).into_iter().chain(pages).collect();
    if wanted.is_empty() {
        return Ok(hits);
    }
    if request.is_operator() {
        let channels: ApiPage<NamedObject> = request.read(operations::LIST_CHANNELS, get(&[("limit", LOOKED_AT)])).await?;
        hits.extend(channels.items.into_iter().filter(|channel| contains(&channel.name)).take(SHOWN).map(|channel| Hit {
            icon: "channel",
            kind: t.say("log.channel"),
            link: request.url(&state::path(&channel.name)),
            label: channel.name,
        }));
    }
    let models = document_for(request, None, None).await?.data;
    hits.extend(models.into_iter().filter(|model| contains(&model.id)).take(SHOWN).map(|model| Hit {
        icon: "models",
        kind: t.say("log.model"),
        link: request.url(&format!("/models/{}", path_of_name(&model.id))),
        label: model.id,
    }));
    let keys: ApiPage<NamedObject> = request.read(operations::LIST_KEYS, get(&[("limit", LOOKED_AT)])).await?;
    hits.extend(keys.items.into_iter().filter(|key| contains(&key.name)).take(SHOWN).map(|key| Hit {
        icon: "key",
        kind: t.say("log.key"),
        link: request.url(&format!("/keys/{}", key.id)),
        label: key.name,
    }));
    Ok(hits)
}

/// The row with an id.
fn of_id(request: &PageRequest, query: &str) -> Option<Hit> {
    let t = request.t();
    let is_id = |prefix: &str| {
        query.strip_prefix(prefix).is_some_and(|rest| rest.len() == 26 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    let hit =
        |icon, kind, path: &str| Some(Hit { icon, kind, label: query.to_owned(), link: request.url(&format!("{path}{query}")) });
    match query {
        _ if is_id("req_") => hit("log", t.say("search.request"), "/log/"),
        _ if is_id("key_") => hit("key", t.say("log.key"), "/keys/"),
        _ => None,
    }
}

async fn shortcuts(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let layout = request.layout(t.say("shortcuts.title"));
    let part = ShortcutsPart {
        everywhere: vec![
            ("Ctrl K", t.say("search.title")),
            ("/", t.say("shortcuts.search_field")),
            ("j k", t.say("shortcuts.rows")),
            ("Enter", t.say("shortcuts.open")),
            ("[ ]", t.say("shortcuts.records")),
            ("e", t.say("shortcuts.export")),
            ("r", t.say("action.refresh")),
            ("Esc", t.say("action.close")),
            ("?", t.say("shortcuts.title")),
        ],
        pages: layout.entries().cloned().collect(),
    };
    if request.wants_part() {
        return PageReply::ok(&part);
    }
    PageReply::ok(&ShortcutsPage { layout, t, part })
}
