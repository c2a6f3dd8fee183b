//! `/models.atom`: which models were added to groups or removed from them, and how prices changed, as an Atom feed (RFC 4287).

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::Arc,
};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tollgate_core::{Group, GroupId, Multiplier, PriceSchedule, Revision, Timestamp, offering_groups, visible_offers};
use tollgate_store::{OfferChange, OfferChangeKind, PriceChange};
use url::form_urlencoded;

use super::{Feed, conditional::Representation, offers::show_price, snapshot::SquareSnapshot, viewer::Viewer};
use crate::time::rfc3339;

/// Entries of the feed, the newest first.
const MAX_ENTRIES: usize = 100;
/// Time of a feed without entries.
const EPOCH: Timestamp = Timestamp(0);

/// One change.
#[derive(Debug, PartialEq)]
struct Entry {
    revision: Revision,
    at: Timestamp,
    /// Distinguishes the change from others of the same revision.
    subject: (&'static str, String),
    title: String,
    /// The model that it is about.
    model: Option<String>,
    lines: Vec<String>,
}

/// The feed for a viewer.
pub(super) fn represent(snapshot: &SquareSnapshot, viewer: &Viewer) -> Arc<Representation> {
    let write = || Representation::new("application/atom+xml; charset=utf-8", write(&entries(snapshot, viewer)).into());
    snapshot.represent(viewer, Feed::Atom, write)
}

/// The latest changes of the offers that a viewer sees now.
fn entries(snapshot: &SquareSnapshot, viewer: &Viewer) -> Vec<Entry> {
    let seen = VisibleChanges::of(snapshot, viewer);
    let mut entries = seen.offer_entries(snapshot.history.offers.iter().map(|(_, change)| change));
    entries.extend(snapshot.history.prices.iter().filter_map(|(_, change)| seen.price_entry(change)));
    entries.sort_by(|one, other| other.revision.cmp(&one.revision).then_with(|| one.subject.cmp(&other.subject)));
    entries.truncate(MAX_ENTRIES);
    entries
}

/// The offers that a viewer sees now.
struct VisibleChanges<'a> {
    snapshot: &'a SquareSnapshot,
    viewer: &'a Viewer,
    listed: HashSet<(GroupId, String)>,
}

impl<'a> VisibleChanges<'a> {
    fn of(snapshot: &'a SquareSnapshot, viewer: &'a Viewer) -> Self {
        let offers = visible_offers(&snapshot.catalog, viewer.audience());
        let listed = offers.into_iter().map(|offer| (offer.group.id, offer.model.spec.name.clone())).collect();
        Self { snapshot, viewer, listed }
    }

    fn group(&self, id: GroupId) -> Option<&'a Arc<Group>> {
        self.viewer.groups().iter().find(|group| group.id == id)
    }

    fn is_listed(&self, group: GroupId, model: &str) -> bool {
        self.listed.contains(&(group, model.to_owned()))
    }

    /// Whether the viewer may see that a group no longer lists a model. A model that is only hidden is not reported as removed.
    fn is_removed(&self, group: GroupId, model: &str) -> bool {
        let audience = self.viewer.audience();
        let is_usable = offering_groups(&self.snapshot.catalog, audience, model).any(|offering| offering.id == group);
        self.is_listed(group, model) || (!is_usable && self.viewer.may_use(model))
    }

    /// One entry for each model that was added to groups or removed from groups by a change of the catalog, and for each group whose
    /// multiplier changed, or that of a model in it.
    fn offer_entries<'c>(&self, changes: impl Iterator<Item = &'c OfferChange>) -> Vec<Entry> {
        let (mut entries, mut of_model) = (Vec::new(), HashMap::new());
        for OfferChange { revision, at, group, what } in changes {
            let Some(group) = self.group(*group) else { continue };
            let (kind, model) = match what {
                OfferChangeKind::Added(model) if self.is_listed(group.id, model) => ("added", model),
                OfferChangeKind::Removed(model) if self.is_removed(group.id, model) => ("removed", model),
                OfferChangeKind::Added(_) | OfferChangeKind::Removed(_) => continue,
                OfferChangeKind::Multiplier { model: None, before, after } => {
                    entries.push(group_multiplier_entry((*revision, *at), group, *before, *after));
                    continue;
                }
                OfferChangeKind::Multiplier { model: Some(model), before, after } => {
                    if self.is_listed(group.id, model) {
                        entries.push(model_multiplier_entry((*revision, *at), group, model, *before, *after));
                    }
                    continue;
                }
            };
            let groups: &mut Vec<&str> = of_model.entry((*revision, *at, kind, model)).or_default();
            groups.push(&group.name);
        }
        entries.extend(of_model.into_iter().map(|((revision, at, kind, model), mut groups)| {
            groups.sort_unstable();
            self.model_entry((revision, at), kind, model, &groups)
        }));
        entries
    }

    fn model_entry(&self, (revision, at): (Revision, Timestamp), kind: &'static str, model: &str, groups: &[&str]) -> Entry {
        let groups = groups.join(", ");
        let (title, lines) = match (kind, self.snapshot.catalog.model(model)) {
            ("removed", _) => (format!("{model} removed from {groups}"), Vec::new()),
            (_, row) => {
                let described = row.and_then(|row| row.spec.description.clone());
                (format!("{model} added to {groups}"), described.into_iter().collect())
            }
        };
        Entry { revision, at, subject: (kind, model.to_owned()), title, model: Some(model.to_owned()), lines }
    }

    /// The change of a price as each group sells the model.
    fn price_entry(&self, change: &PriceChange) -> Option<Entry> {
        let groups = self.viewer.groups().iter().filter(|group| self.is_listed(group.id, &change.model));
        let of_group = |group: &Arc<Group>| {
            let lines = differences(change, group.sale_multiplier(&change.model));
            lines.into_iter().map(|line| format!("{}: {line}", group.name)).collect::<Vec<_>>()
        };
        let lines: Vec<String> = groups.flat_map(of_group).collect();
        let model = change.model.clone();
        let title = match (&change.before, &change.after) {
            (None, _) => format!("{model} is priced"),
            (_, None) => format!("{model} is not priced any more"),
            _ => format!("The price of {model} changes"),
        };
        let entry =
            Entry { revision: change.revision, at: change.at, subject: ("price", model.clone()), title, model: Some(model), lines };
        Some(entry).filter(|entry| !entry.lines.is_empty())
    }
}

fn group_multiplier_entry((revision, at): (Revision, Timestamp), group: &Group, before: Multiplier, after: Multiplier) -> Entry {
    Entry {
        revision,
        at,
        subject: ("multiplier", group.id.to_string()),
        title: format!("The prices of {} change", group.name),
        model: None,
        lines: vec![factor_line(group, before, after)],
    }
}

fn model_multiplier_entry(
    (revision, at): (Revision, Timestamp),
    group: &Group,
    model: &str,
    before: Multiplier,
    after: Multiplier,
) -> Entry {
    Entry {
        revision,
        at,
        subject: ("multiplier", format!("{}/{model}", group.id)),
        title: format!("The price of {model} in {} changes", group.name),
        model: Some(model.to_owned()),
        lines: vec![factor_line(group, before, after)],
    }
}

fn factor_line(group: &Group, before: Multiplier, after: Multiplier) -> String {
    format!("{}: factor on base prices {} to {}", group.name, before.to_decimal(), after.to_decimal())
}

/// The differences for callers who pay a price times a factor, in the current price and in announced ones.
fn differences(change: &PriceChange, factor: Multiplier) -> Vec<String> {
    let in_force = |schedule: &Option<PriceSchedule>| {
        let price = schedule.as_ref().and_then(|schedule| schedule.at(change.at));
        figures(&show_price(price.map(|price| price.times(factor)), None))
    };
    let (before, after) = (in_force(&change.before), in_force(&change.after));
    let mut lines = Vec::new();
    for (name, figure) in &after {
        match before.iter().find(|(known, _)| known == name) {
            Some((_, old)) if old == figure => {}
            Some((_, old)) => lines.push(format!("{name} {old} to {figure}")),
            None => lines.push(format!("{name} {figure}")),
        }
    }
    let gone = before.iter().filter(|(name, _)| after.iter().all(|(kept, _)| kept != name));
    lines.extend(gone.map(|(name, old)| format!("{name} {old} no longer")));
    let announced = |schedule: &Option<PriceSchedule>| {
        let prices = schedule.iter().flat_map(|schedule| schedule.0.clone());
        prices.filter(|scheduled| scheduled.valid_from.is_some_and(|from| from > change.at)).collect::<Vec<_>>()
    };
    let known = announced(&change.before);
    for scheduled in announced(&change.after).into_iter().filter(|scheduled| !known.contains(scheduled)) {
        let shown = figures(&show_price(Some(scheduled.price.times(factor)), None));
        let shown: Vec<String> = shown.into_iter().map(|(name, figure)| format!("{name} {figure}")).collect();
        let from = scheduled.valid_from.map(rfc3339).unwrap_or_default();
        lines.push(format!("from {from}: {}", shown.join(", ")));
    }
    lines
}

/// The figures of a price as names and texts, including those of its tiers.
fn figures(price: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    add_figures(price, "", &mut found);
    found
}

fn add_figures(price: &Value, suffix: &str, found: &mut Vec<(String, String)>) {
    for (name, value) in price.as_object().into_iter().flatten() {
        match value {
            Value::String(figure) => found.push((format!("{name}{suffix}"), figure.clone())),
            Value::Bool(true) => found.push((format!("{name}{suffix}"), "yes".to_owned())),
            Value::Array(_) | Value::Object(_) => {
                for tier in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
                    add_figures(tier, &format!(" above {} tokens", tier["above"]), found);
                }
            }
            Value::Null | Value::Bool(false) | Value::Number(_) => {}
        }
    }
}

fn write(entries: &[Entry]) -> String {
    let updated = rfc3339(entries.iter().map(|entry| entry.at).max().unwrap_or(EPOCH));
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\">\n<id>{}</id>\n<title>Models and prices\
         </title>\n<subtitle>Prices are in USD.</subtitle>\n<updated>{updated}</updated>\n<author><name>tollgate</name></author>\n<link rel=\"self\" href=\"/models.atom\" \
         type=\"application/atom+xml\"/>\n<link rel=\"alternate\" href=\"/models.json\" type=\"application/json\"/>\n",
        urn(&["feed"])
    );
    for entry in entries {
        write_entry(&mut xml, entry);
    }
    xml.push_str("</feed>\n");
    xml
}

fn write_entry(xml: &mut String, entry: &Entry) {
    let (kind, subject) = (entry.subject.0, entry.subject.1.as_str());
    let at = rfc3339(entry.at);
    let id = urn(&["change", &entry.revision.0.to_string(), &at, kind, subject]);
    let title = Escaped(&entry.title);
    // Writing to a string does not fail.
    let _ = write!(xml, "<entry>\n<id>{id}</id>\n<title>{title}</title>\n<updated>{at}</updated>\n<category term=\"{kind}\"/>\n");
    if let Some(model) = &entry.model {
        let model: String = form_urlencoded::byte_serialize(model.as_bytes()).collect();
        let _ = writeln!(xml, "<link rel=\"alternate\" href=\"/models.json?model={model}\" type=\"application/json\"/>");
    }
    let content = if entry.lines.is_empty() { entry.title.clone() } else { entry.lines.join("\n") };
    let _ = write!(xml, "<content type=\"text\">{}</content>\n</entry>\n", Escaped(&content));
}

/// An id that is the same each time the feed is written, and for all readers.
fn urn(parts: &[&str]) -> String {
    let hash = Sha256::digest(parts.join("\n"));
    let digits = hex::encode(&hash[..16]);
    // The digits with the version (8: of a custom hash) and the variant of RFC 9562.
    format!("urn:uuid:{}-{}-8{}-a{}-{}", &digits[..8], &digits[8..12], &digits[13..16], &digits[17..20], &digits[20..32])
}

/// A text within XML. Characters that XML does not have are left out.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\t' | '\n' => f.write_char(c)?,
                '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{NanoUsd, Price, PriceTier, ScheduledPrice};

    use super::*;

    fn price(input: i64) -> Price {
        Price { input: Some(input), ..Price::default() }
    }

    fn change(before: Option<Vec<ScheduledPrice>>, after: Option<Vec<ScheduledPrice>>) -> PriceChange {
        PriceChange {
            revision: Revision(7),
            at: Timestamp(1_795_219_200_000_000),
            origin: "cli".to_owned(),
            actor: "root".to_owned(),
            model: "m".to_owned(),
            channel: None,
            source: None,
            before: before.map(PriceSchedule),
            after: after.map(PriceSchedule),
        }
    }

    #[test]
    fn price_differences_include_the_multiplier() {
        let always = |price: Price| Some(PriceSchedule::constant(price).0);
        let cheaper = change(always(price(300_000_000)), always(price(200_000_000)));
        assert_eq!(differences(&cheaper, Multiplier(1_500_000)), ["input 0.45 to 0.30"]);
        let tier = PriceTier { above: 200_000, price: price(600_000_000) };
        let tiered = Price { tiers: vec![tier], ..price(300_000_000) };
        let longer = change(always(price(300_000_000)), always(tiered.clone()));
        assert_eq!(differences(&longer, Multiplier::ONE), ["input above 200000 tokens 0.60"]);
        assert_eq!(differences(&change(always(tiered.clone()), None), Multiplier::ONE).len(), 2);
        assert_eq!(differences(&change(None, always(Price::free())), Multiplier::ONE), ["free yes"]);
        assert!(
            differences(&change(always(tiered.clone()), always(tiered)), Multiplier::ONE).is_empty(),
            "only the source changed"
        );
        let per_request = Price { per_request: Some(NanoUsd::MAX_PER_REQUEST.0.min(5_000_000)), ..price(300_000_000) };
        let dearer = change(always(price(300_000_000)), always(per_request));
        assert_eq!(differences(&dearer, Multiplier::ONE), ["per_request 0.005"]);
    }

    #[test]
    fn announced_prices_are_reported_once() {
        let now = ScheduledPrice { valid_from: None, price: price(300_000_000).into() };
        let later = ScheduledPrice { valid_from: Some(Timestamp(1_795_305_600_000_000)), price: price(100_000_000).into() };
        let announced = change(Some(vec![now.clone()]), Some(vec![now.clone(), later.clone()]));
        assert_eq!(differences(&announced, Multiplier(2_000_000)), ["from 2026-11-22T00:00:00Z: input 0.20"]);
        let again = change(Some(vec![now.clone(), later.clone()]), Some(vec![now, later]));
        assert!(differences(&again, Multiplier::ONE).is_empty());
    }

    #[test]
    fn feed_is_well_formed_xml_for_any_model_name() {
        let entry = Entry {
            revision: Revision(3),
            at: Timestamp(1_795_219_200_000_000),
            subject: ("added", "a<b>&\"c\u{1}".to_owned()),
            title: "a<b>&\"c\u{1} added".to_owned(),
            model: Some("a<b>&\"c\u{1}".to_owned()),
            lines: vec!["<script>".to_owned(), "é".to_owned()],
        };
        let xml = write(std::slice::from_ref(&entry));
        assert!(xml.contains("<title>a&lt;b&gt;&amp;&quot;c added</title>"), "{xml}");
        assert!(xml.contains("href=\"/models.json?model=a%3Cb%3E%26%22c%01\""), "{xml}");
        assert!(xml.contains("<content type=\"text\">&lt;script&gt;\né</content>"), "{xml}");
        assert_eq!(xml.matches("2026-11-21T00:00:00Z").count(), 2, "the feed is as new as its newest entry: {xml}");
        let id = urn(&["feed"]);
        assert!(id.len() == 45 && xml.contains(&id) && id == urn(&["feed"]) && id != urn(&["change"]), "{id}");
        assert!(write(&[]).contains("<updated>1970-01-01T00:00:00Z</updated>"));
    }
}
