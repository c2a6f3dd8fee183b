//! `/status`: which models can be used now and could be lately, from the same data as the model square.

use std::sync::Arc;

use askama::Template;

use super::{
    layout::Layout,
    locale::Locale,
    models::{Availability, availability, document_for},
    reply::{PageFailure, PageReply},
    request::PageRequest,
    route::{PageRoute, SeenBy, page},
};

pub(super) static ROUTES: &[PageRoute] = &[PageRoute::get("/status", SeenBy::Anyone, page!(show))];

/// Models on the page; those with trouble come first.
const MAX_SHOWN: usize = 500;

#[derive(Debug, Template)]
#[template(path = "status.html")]
struct StatusPage {
    layout: Layout,
    t: Locale,
    tone: &'static str,
    icon: &'static str,
    sentence: String,
    rows: Vec<StatusRow>,
}

#[derive(Debug)]
struct StatusRow {
    model: String,
    link: String,
    group: String,
    state: super::models::StateText,
    severity: u8,
    day: Availability,
    week: Availability,
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let document = document_for(&request, None, None).await?;
    let mut rows: Vec<StatusRow> = Vec::new();
    for model in &document.data {
        let Some(offer) = model.offer(None) else { continue };
        let severity = match offer.state.now.as_str() {
            "unavailable" => 0,
            "degraded" => 1,
            _ => 2,
        };
        rows.push(StatusRow {
            model: model.id.clone(),
            link: super::models::path_of_name(&model.id),
            group: offer.group.clone(),
            state: super::models::state(t, offer),
            severity,
            day: availability(t, &offer.day),
            week: availability(t, &offer.week),
        });
    }
    let down = rows.iter().filter(|row| row.severity == 0).count();
    let degraded = rows.iter().filter(|row| row.severity == 1).count();
    rows.sort_by(|one, other| (one.severity, &one.model).cmp(&(other.severity, &other.model)));
    rows.truncate(MAX_SHOWN);
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let (tone, icon, sentence) = match (down, degraded) {
        _ if rows.is_empty() => ("off", "minus", t.say("status.nothing").to_owned()),
        (0, 0) => ("ok", "okc", t.say("status.all_available").to_owned()),
        (0, some) => ("warn", "warn", t.say_count("status.one_degraded", "status.some_degraded", count(some))),
        (some, _) => ("bad", "badc", t.say_count("status.one_unavailable", "status.some_unavailable", count(some))),
    };
    let template = StatusPage { layout: request.layout(t.say("nav.status")), t, tone, icon, sentence, rows };
    PageReply::ok(&template)
}
