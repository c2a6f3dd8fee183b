//! The command palette: a search over pages, models, keys, channels and ids of requests, and the list of shortcuts. Both are also pages;
//! a script shows them over the present page. The search text is in the body of a form, because it may be a leaked key, which must not
//! appear in an address.

use std::{ops::RangeInclusive, sync::Arc};

use askama::Template;
use http::StatusCode;
use serde::Deserialize;
use tollgate_store::AdminScope;

use super::{
    channels::state,
    keys::KeyObject,
    layout::{Layout, NavEntry},
    locale::Locale,
    mark::{self, Mark},
    models::{document_for, path_of_name},
    operations,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get, read_answer},
    route::{PageRoute, SeenBy, page},
};
use crate::api_error::ApiError;

const MEMBER: SeenBy = SeenBy::Role(AdminScope::Member);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/search", MEMBER, page!(search)),
    PageRoute::post("/search", MEMBER, page!(search)),
    PageRoute::get("/shortcuts", SeenBy::Anyone, page!(shortcuts)),
];

/// Rows of each kind that are shown, also as the limit of a list.
const SHOWN: usize = 8;
const SHOWN_LIMIT: &str = "8";
/// Channels that are read at once.
const CHANNELS: &str = "1000";
/// Characters of a text that may be a key.
const KEY_CHARS: RangeInclusive<usize> = 16..=200;

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
    /// The key that was pasted.
    pasted: Option<PastedKey>,
    hits: Vec<Hit>,
    is_asked: bool,
}

/// A key whose secret was entered as the search text.
#[derive(Debug)]
struct PastedKey {
    name: String,
    member: String,
    link: String,
    mark: Mark,
    /// Target of the form that revokes it; `None` if the reader may not revoke it, or it is already revoked.
    revoke: Option<String>,
    /// Why not.
    locked: Option<String>,
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
    /// Of a key: its member.
    #[serde(default)]
    member: String,
}

async fn search(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let query = request.form.value("q").trim().to_owned();
    // A key that was put into the address by mistake is not repeated.
    let layout = request.layout(t.say("search.title")).returns_to("/search");
    let pasted = pasted(&request, &query).await?;
    // A pasted key finds nothing but the key itself, and is not sent back.
    let (query, hits) = if pasted.is_some() {
        (String::new(), Vec::new())
    } else {
        let hits = hits(&request, &layout, &query).await?;
        (query, hits)
    };
    let is_asked = !query.is_empty();
    let found = SearchPart { layout: request.layout(t.say("search.title")).returns_to("/search"), t, pasted, hits, is_asked };
    if request.wants_part() {
        return PageReply::ok(&found);
    }
    PageReply::ok(&SearchPage { layout, t, query, found })
}

/// The key with this secret, among those that the reader sees.
async fn pasted(request: &PageRequest, query: &str) -> Result<Option<PastedKey>, ApiError> {
    let may_be_key = KEY_CHARS.contains(&query.len()) && query.bytes().all(|byte| byte.is_ascii_graphic());
    if !may_be_key {
        return Ok(None);
    }
    let found = match request.send(operations::FIND_KEY, &[("key", query)]).await {
        Ok(answer) => read_answer::<KeyObject>(answer)?,
        Err(error) if error.status == StatusCode::NOT_FOUND => return Ok(None),
        Err(error) => return Err(error),
    };
    let t = request.t();
    let locked = found.locked_by.as_deref().filter(|_| !request.is_operator());
    let is_changeable = locked.is_none() && found.owner != "file" && found.state != "revoked";
    Ok(Some(PastedKey {
        link: request.url(&format!("/keys/{}", found.id)),
        mark: mark::of_key(t, &found.state),
        revoke: is_changeable.then(|| request.url(&format!("/keys/{}/revoke", found.id))),
        locked: locked.map(|group| t.say_with("keys.locked", &[("group", group)])),
        name: found.name,
        member: found.member,
    }))
}

/// The results for a text: a request id first, then pages, channels, models and keys that contain it.
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
        hits.extend(channels(request, contains).await?.into_iter().map(|channel| Hit {
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
    hits.extend(keys(request, query).await?.into_iter().map(|key| Hit {
        icon: "key",
        kind: t.say("log.key"),
        link: request.url(&format!("/keys/{}", key.id)),
        // Keys are also found by the names of their members and by their last characters.
        label: if contains(&key.name) { key.name } else { format!("{} · {}", key.name, key.member) },
    }));
    Ok(hits)
}

/// The first channels whose name fits.
async fn channels(request: &PageRequest, fits: impl Fn(&str) -> bool) -> Result<Vec<NamedObject>, ApiError> {
    let (mut fitting, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut query = vec![("limit", CHANNELS)];
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: ApiPage<NamedObject> = request.read(operations::LIST_CHANNELS, get(&query)).await?;
        fitting.extend(page.items.into_iter().filter(|channel| fits(&channel.name)));
        after = page.next.filter(|_| fitting.len() < SHOWN);
        if after.is_none() {
            fitting.truncate(SHOWN);
            return Ok(fitting);
        }
    }
}

/// The first keys that the admin API finds. Where there are too many for a search, those of exactly this name.
async fn keys(request: &PageRequest, query: &str) -> Result<Vec<NamedObject>, ApiError> {
    for field in ["search", "name"] {
        match request.read::<ApiPage<NamedObject>>(operations::LIST_KEYS, get(&[(field, query), ("limit", SHOWN_LIMIT)])).await {
            Ok(page) => return Ok(page.items),
            // No key can have such a name, or there are too many.
            Err(error) if error.status.is_client_error() && error.param() == Some(field) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Vec::new())
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
    // Visitors have neither the search nor lists with records and exports.
    let of_members = |keys: &'static str, label| layout.member.as_ref().map(|_| (keys, label));
    let everywhere = [
        of_members("Ctrl K", t.say("search.title")),
        Some(("/", t.say("shortcuts.search_field"))),
        Some(("j k", t.say("shortcuts.rows"))),
        Some(("Enter", t.say("shortcuts.open"))),
        of_members("[ ]", t.say("shortcuts.records")),
        of_members("e", t.say("shortcuts.export")),
        Some(("r", t.say("action.refresh"))),
        Some(("Esc", t.say("action.close"))),
        Some(("?", t.say("shortcuts.title"))),
    ];
    let everywhere = everywhere.into_iter().flatten().collect();
    let part = ShortcutsPart { everywhere, pages: layout.entries().cloned().collect() };
    if request.wants_part() {
        return PageReply::ok(&part);
    }
    PageReply::ok(&ShortcutsPage { layout, t, part })
}
