//! `/status`: which models can be used now, and their recent availability, from the same data as the model square.

use std::sync::Arc;

use askama::Template;

use super::{
    format,
    layout::Layout,
    locale::Locale,
    models::{Availability, ModelOffer, availability, document_for},
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
    /// The note that not every model is on the page.
    cut: Option<String>,
    incidents: Vec<Incident>,
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
    month: Availability,
}

/// Days on which fewer requests for a model were answered than usual.
#[derive(Debug)]
struct Incident {
    model: String,
    link: String,
    /// The first and the last day; the list is ordered newest first.
    days: String,
    /// The share of the worst day.
    worst: String,
    /// Days since the last one.
    ended: usize,
    share: f64,
}

/// Share of answered requests below which a day is an incident.
const GOOD_DAY: f64 = 0.95;
const MAX_INCIDENTS: usize = 50;

/// The incidents of an offer: its bad days, with consecutive days joined.
fn incidents(t: Locale, offer: &ModelOffer, (model, link): (&str, &str), today: i64) -> Vec<Incident> {
    let shares = &offer.month.buckets;
    let bad = |index: &usize| shares[*index].is_some_and(|share| share < GOOD_DAY);
    let mut found: Vec<Incident> = Vec::new();
    let mut index = 0;
    while index < shares.len() {
        if !bad(&index) {
            index += 1;
            continue;
        }
        let end = (index..shares.len()).take_while(|index| bad(index)).last().unwrap_or(index);
        let worst = shares[index..=end].iter().flatten().copied().fold(1.0_f64, f64::min);
        let back = |index: usize| shares.len() - 1 - index;
        let day = |index: usize| {
            let days_ago = i64::try_from(back(index)).unwrap_or(0);
            format::day(t, &tollgate_core::Timestamp::of_day(today - days_ago).to_string()[..10])
        };
        let days = if end == index { day(index) } else { format!("{} – {}", day(index), day(end)) };
        found.push(Incident {
            model: model.to_owned(),
            link: link.to_owned(),
            days,
            worst: format::percent(worst),
            ended: back(end),
            share: worst,
        });
        index = end + 1;
    }
    found
}

/// Says that only some of so many models are shown.
fn cut(t: Locale, models: usize) -> Option<String> {
    let number = |count: usize| format::integer(u64::try_from(count).unwrap_or(u64::MAX));
    (models > MAX_SHOWN).then(|| t.say_with("status.cut", &[("shown", &number(MAX_SHOWN)), ("all", &number(models))]))
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let document = document_for(&request, None, None).await?;
    let (mut rows, mut incidents): (Vec<StatusRow>, Vec<Incident>) = (Vec::new(), Vec::new());
    let today = request.state.gateway.now().day();
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
            month: availability(t, &offer.month),
        });
        incidents.extend(self::incidents(t, offer, (&model.id, &super::models::path_of_name(&model.id)), today));
    }
    let down = rows.iter().filter(|row| row.severity == 0).count();
    let degraded = rows.iter().filter(|row| row.severity == 1).count();
    rows.sort_by(|one, other| (one.severity, &one.model).cmp(&(other.severity, &other.model)));
    let cut = cut(t, rows.len());
    rows.truncate(MAX_SHOWN);
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let (tone, icon, sentence) = match (down, degraded) {
        _ if rows.is_empty() => ("off", "minus", t.say("status.nothing").to_owned()),
        (0, 0) => ("ok", "okc", t.say("status.all_available").to_owned()),
        (0, some) => ("warn", "warn", t.say_count("status.one_degraded", "status.some_degraded", count(some))),
        (some, _) => ("bad", "badc", t.say_count("status.one_unavailable", "status.some_unavailable", count(some))),
    };
    incidents.sort_by(|one, other| {
        one.ended.cmp(&other.ended).then(one.share.total_cmp(&other.share)).then_with(|| one.model.cmp(&other.model))
    });
    incidents.truncate(MAX_INCIDENTS);
    let template = StatusPage { layout: request.layout(t.say("nav.status")), t, tone, icon, sentence, rows, cut, incidents };
    PageReply::ok(&template)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::models::example_offer;

    #[test]
    fn models_beyond_the_bound_are_said() {
        assert_eq!(cut(Locale::EN, MAX_SHOWN), None);
        let said = cut(Locale::EN, 1_234).unwrap();
        assert!(said.contains("500") && said.contains("1,234"), "{said}");
    }

    #[test]
    fn consecutive_bad_days_are_one_incident() {
        let mut offer = example_offer();
        let mut shares = vec![Some(1.0); 30];
        (shares[3], shares[4], shares[20], shares[29]) = (Some(0.5), Some(0.94), None, Some(0.9));
        offer["month"]["buckets"] = serde_json::json!(shares);
        let offer: ModelOffer = serde_json::from_value(offer).unwrap();
        let today = "2026-11-27T00:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second() / 86_400;
        let found = incidents(Locale::EN, &offer, ("m", "m"), today);
        let shown: Vec<_> = found.iter().map(|it| (it.days.as_str(), it.worst.as_str(), it.ended)).collect();
        assert_eq!(shown, [("Sun 1 Nov – Mon 2 Nov", "50.00 %", 25), ("Fri 27 Nov", "90.00 %", 0)]);
    }
}
