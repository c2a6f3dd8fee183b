//! Settings: value, default, source and environment variable of each, and forms for those that can change at run time.

mod oidc_test;

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_store::AdminScope;

use super::{
    control::{self, Control, ControlSection, FaultPlace, FormView},
    form::{FormData, FormState, REVISION},
    format, inline,
    layout::{Layout, Script},
    locale::Locale,
    operations,
    preferences::Toast,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, path_of},
    route::{PageRoute, SeenBy, page},
    setting_sections::SettingSection,
    setting_texts,
};
use crate::{
    api::preferences::{MAX_TIME_ZONE, time_zones},
    api_error::{ApiError, NumberRange},
    dispatch::ApiCall,
};

const ADMIN: SeenBy = SeenBy::Role(AdminScope::Admin);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/settings", ADMIN, page!(list)),
    PageRoute::get("/settings/{name}", ADMIN, page!(detail)),
    PageRoute::post("/settings/{name}", ADMIN, page!(set)),
    PageRoute::post("/settings/{name}/test", ADMIN, page!(oidc_test::run)),
    PageRoute::post("/settings/{name}/unset", ADMIN, page!(unset)),
];

const SOURCES: [&str; 5] = ["default", "database", "file", "environment", "flag"];
const PLACES: &[FaultPlace] = &[("value", "value", "")];
/// Longest value without a bound of its own.
const LONGEST: usize = 10_000;
/// Longest value that fits on a line.
const SHORT: usize = 60;
/// Characters of a value that is not broken into lines.
const MAX_LINE: usize = 24;

#[derive(Debug, Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    layout: Layout,
    t: Locale,
    search: String,
    /// Value, label, whether it is chosen.
    sources: Vec<(&'static str, &'static str, bool)>,
    is_filtered: bool,
    count: String,
    sections: Vec<SettingsSection>,
}

#[derive(Debug)]
struct SettingsSection {
    name: &'static str,
    title: &'static str,
    /// Address of a test of the section's settings.
    test: Option<String>,
    rows: Vec<SettingRow>,
}

#[derive(Debug, Template)]
#[template(path = "setting.html")]
struct SettingPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    row: SettingRow,
    /// Why it cannot be changed here.
    fixed: Option<String>,
    form: Option<FormView>,
    /// Whether a value is stored that can be removed.
    is_stored: bool,
}

#[derive(Debug, Deserialize)]
struct SettingObject {
    name: String,
    value: Option<String>,
    source: String,
    default: Option<String>,
    variable: String,
    secret: bool,
    #[serde(rename = "type")]
    kind: String,
    min: Option<u64>,
    max: Option<u64>,
    words: Option<Vec<String>>,
    unit: Option<String>,
    needs_restart: bool,
    writable: bool,
    stored: Option<String>,
    revision: Option<u64>,
    doc: String,
}

impl SettingObject {
    /// The numbers that it takes.
    fn range(&self) -> Option<NumberRange> {
        let bound = |bound: Option<u64>, none| bound.map_or(none, |bound| i64::try_from(bound).unwrap_or(i64::MAX));
        (self.kind == "number").then(|| NumberRange { min: bound(self.min, 0), max: bound(self.max, i64::MAX), or_zero: false })
    }
}

#[derive(Debug)]
struct SettingRow {
    /// The value is shown as an image.
    is_image: bool,
    name: String,
    label: String,
    doc: String,
    value: Option<String>,
    default: Option<String>,
    source: &'static str,
    source_tone: &'static str,
    variable: String,
    needs_restart: bool,
    is_writable: bool,
    /// Stored, and overridden by another source.
    is_overridden: bool,
}

fn source(t: Locale, word: &str) -> &'static str {
    match word {
        "database" => t.say("settings.from_database"),
        "file" => t.say("settings.from_file"),
        "environment" => t.say("settings.from_environment"),
        "flag" => t.say("settings.from_flag"),
        _ => t.say("settings.from_default"),
    }
}

impl SettingRow {
    fn of(t: Locale, setting: &SettingObject) -> Self {
        let with_unit = |value: &str| match &setting.unit {
            Some(unit) => format::with_unit(t, value, unit),
            None => value.to_owned(),
        };
        let shown = |value: &Option<String>| value.as_deref().filter(|value| !value.is_empty()).map(with_unit);
        Self {
            name: setting.name.clone(),
            label: setting_texts::label(t, &setting.name),
            doc: setting_texts::doc(t, &setting.name, &setting.doc).to_owned(),
            value: shown(&setting.value),
            default: shown(&setting.default),
            source: source(t, &setting.source),
            source_tone: match setting.source.as_str() {
                "database" => "info",
                "file" | "environment" | "flag" => "alt",
                _ => "",
            },
            variable: setting.variable.clone(),
            needs_restart: setting.needs_restart,
            is_image: setting.kind == "image",
            is_writable: setting.writable,
            is_overridden: setting.stored.is_some() && setting.source != "database",
        }
    }

    /// Whether its values need more than one line.
    fn is_long(&self) -> bool {
        [&self.value, &self.default].into_iter().flatten().any(|value| value.chars().count() > MAX_LINE)
    }
}

/// The sections with these settings. A setting without a section is among those of the system.
fn sections(t: Locale, settings: &[&SettingObject], test: Option<&str>) -> Vec<SettingsSection> {
    let of = |setting: &SettingObject| SettingSection::of(&setting.name).unwrap_or(SettingSection::System);
    let section = |section: SettingSection| {
        let mut of_section: Vec<&SettingObject> = settings.iter().copied().filter(|setting| of(setting) == section).collect();
        of_section.sort_by_key(|setting| SettingSection::place(&setting.name));
        let has_provider = of_section.iter().any(|setting| setting.name == oidc_test::SETTING);
        SettingsSection {
            name: section.word(),
            title: section.title(t),
            test: test.filter(|_| has_provider).map(str::to_owned),
            rows: of_section.into_iter().map(|setting| SettingRow::of(t, setting)).collect(),
        }
    };
    SettingSection::ALL.into_iter().map(section).filter(|section| !section.rows.is_empty()).collect()
}

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, query) = (request.t(), &request.query);
    let found = request.read::<ApiPage<SettingObject>>(operations::LIST_SETTINGS, ApiCall::default()).await?;
    let (search, wanted) = (query.value("q").trim().to_lowercase(), query.value("source"));
    let is_found = |setting: &&SettingObject| {
        let fits = |text: &str| text.to_lowercase().contains(&search);
        let said = setting_texts::doc(t, &setting.name, &setting.doc);
        let is_named = fits(&setting.name) || fits(&setting.variable) || fits(&setting_texts::label(t, &setting.name));
        (is_named || fits(&setting.doc) || fits(said)) && (wanted.is_empty() || setting.source == wanted)
    };
    let is_set = |setting: &SettingObject| setting.value.as_ref().is_some_and(|value| !value.is_empty());
    let has_provider = found.items.iter().any(|setting| setting.name == oidc_test::SETTING && is_set(setting));
    let shown: Vec<&SettingObject> = found.items.iter().filter(is_found).collect();
    let test = has_provider.then(|| request.url(&format!("/settings/{}/test", oidc_test::SETTING)));
    let any = ("", t.say("settings.any_source"), wanted.is_empty());
    let sources = SOURCES.map(|word| (word, source(t, word), word == wanted));
    let template = SettingsPage {
        layout: request.layout(t.say("nav.settings")).wide(),
        t,
        search: query.value("q").to_owned(),
        sources: std::iter::once(any).chain(sources).collect(),
        is_filtered: !search.is_empty() || !wanted.is_empty(),
        count: t.say_with("settings.count", &[("shown", &shown.len().to_string()), ("all", &found.items.len().to_string())]),
        sections: sections(t, &shown, test.as_deref()),
    };
    PageReply::ok(&template)
}

fn of_setting(request: &PageRequest) -> ApiCall {
    ApiCall { path: path_of(&[("name", request.path_param("name"))]), ..ApiCall::default() }
}

async fn read_setting(request: &PageRequest) -> Result<SettingObject, ApiError> {
    request.read(operations::GET_SETTING, of_setting(request)).await
}

async fn detail(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let setting = read_setting(&request).await?;
    let value = setting.value.clone().unwrap_or_default();
    setting_page(&request, &setting, &FormState::of(FormData::of(&[("value", &value)])))
}

fn control(t: Locale, state: &FormState, setting: &SettingObject) -> Control {
    let label = t.say("settings.value");
    let control = match (setting.kind.as_str(), &setting.words) {
        ("flag", _) => state.choice("value", label, [("true", t.say("settings.yes")), ("false", t.say("settings.no"))]),
        ("word", Some(words)) => state.choice("value", label, words.iter().map(|word| (word.as_str(), word.as_str()))),
        ("number" | "share" | "usd" | "rate", _) => state.number("value", label),
        ("image", _) => state.area("value", label, 4).max(LONGEST),
        ("time_zone", _) => state.suggest("value", label, time_zones().collect()).max(MAX_TIME_ZONE),
        ("text", _) if setting.max.is_some() => {
            let most = setting.max.and_then(|max| usize::try_from(max).ok()).unwrap_or(LONGEST);
            if most > SHORT { state.area("value", label, 4).max(most) } else { state.text("value", label).max(most).wide() }
        }
        _ if state.value("value").chars().nth(SHORT).is_some() => state.area("value", label, 4),
        _ => state.text("value", label).max(LONGEST).wide(),
    };
    let is_number = !["text", "image", "usd", "rate"].contains(&setting.kind.as_str());
    let bounds = setting.min.zip(setting.max).filter(|_| is_number).map(|(min, max)| {
        let unit = setting.unit.clone().unwrap_or_default();
        let (min, max) = (min.to_string(), if max >= i64::MAX.unsigned_abs() { "…".to_owned() } else { max.to_string() });
        t.say_with("settings.bounds", &[("min", &min), ("max", &max), ("unit", &unit)]).trim().to_owned()
    });
    let control = control.holds_secrets();
    match (bounds, &setting.unit) {
        (Some(bounds), _) => control.hint(bounds),
        (None, Some(unit)) => control.hint(unit.clone()),
        (None, None) => control,
    }
}

fn setting_page(request: &PageRequest, setting: &SettingObject, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let path = request.url(&format!("/settings/{}", setting.name));
    let fixed = match (setting.writable, setting.secret, setting.needs_restart) {
        (true, ..) => None,
        (false, true, _) => Some(t.say_with("settings.is_secret", &[("variable", &setting.variable)])),
        (false, _, true) => Some(t.say_with("settings.at_start", &[("variable", &setting.variable)])),
        (false, ..) => Some(t.say_with("settings.set_elsewhere", &[("source", source(t, &setting.source))])),
    };
    let form = setting.writable.then(|| {
        let sections = vec![ControlSection::new("", vec![control(t, state, setting)])];
        // Empty if no value was stored when the form was loaded.
        let revision = match setting.revision {
            Some(revision) => state.revision(revision),
            None => state.value(REVISION).to_owned(),
        };
        FormView::new(path, sections, t.say("form.save")).hidden(REVISION, revision).cancel(request.url("/settings"))
    });
    let template = SettingPage {
        layout: request.layout(setting.name.clone()).below("/settings", t.say("nav.settings")).with(Script::Operators),
        t,
        banner: state.banner(),
        row: SettingRow::of(t, setting),
        fixed,
        form,
        is_stored: setting.stored.is_some(),
    };
    PageReply::page(state.status(), &template)
}

fn to_list(request: &PageRequest, toast: Toast) -> PageReply {
    PageReply::redirect(&request.url(&format!("/settings/{}", request.path_param("name")))).toast(toast)
}

/// Stores the value of the form, unless another one was stored since the form was loaded.
async fn store(request: &PageRequest) -> Result<(), ApiError> {
    let form = &request.form;
    let revision = form.filled(REVISION).map(|revision| ("if-match", revision));
    // The admin API has no condition for the first value.
    if revision.is_none() && read_setting(request).await?.revision.is_some() {
        return Err(ApiError::conflict("revision_conflict", "A value was stored concurrently; load the page again."));
    }
    let body = Map::from_iter([("value".to_owned(), Value::from(form.value("value").trim()))]);
    let call = ApiCall { body, ..of_setting(request) };
    request.call_with(operations::SET_SETTING, call, revision.as_slice()).await?;
    Ok(())
}

async fn set(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    match store(&request).await {
        Ok(()) => Ok(to_list(&request, Toast::Saved)),
        Err(error) => {
            let setting = read_setting(&request).await?;
            let places = [("value", "value", reason(&setting))];
            let error = error.within(setting.range());
            let state = control::refused(request.t(), form, error, &places)?;
            setting_page(&request, &setting, &state)
        }
    }
}

/// The reason to show if a setting refuses a value; if empty, the admin API's text is shown.
fn reason(setting: &SettingObject) -> &'static str {
    match setting.kind.as_str() {
        "url" => "http_url",
        "image" => "image",
        "time_zone" => "time_zone",
        "rate" => "rate",
        "usd" => "amount",
        "networks" => "networks",
        "origins" => "origins",
        "number" => "number_range",
        "text" if setting.max.is_some() => "line",
        _ => "",
    }
}

/// The default applies again.
async fn unset(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    match request.call(operations::UNSET_SETTING, of_setting(&request)).await {
        Ok(_) => Ok(to_list(&request, Toast::Saved)),
        // It was removed already.
        Err(error) if error.status == http::StatusCode::NOT_FOUND => Ok(to_list(&request, Toast::Saved)),
        Err(error) => {
            let state = control::refused(request.t(), &request.form, error, PLACES)?;
            setting_page(&request, &read_setting(&request).await?, &state)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pages::control::ControlKind;

    fn setting(kind: &str, more: &Value) -> SettingObject {
        let mut object = json!({
            "name": "log.slow_ms", "value": "5", "source": "database", "default": "0", "variable": "TOLLGATE_LOG__SLOW_MS",
            "secret": false, "type": kind, "min": null, "max": null, "words": null, "unit": null, "needs_restart": false,
            "writable": true, "stored": "5", "revision": 3, "doc": "d",
        });
        for (name, value) in more.as_object().unwrap() {
            object[name] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn form_control_matches_the_type_of_the_setting() {
        let state = FormState::of(FormData::of(&[("value", "true")]));
        let of = |kind: &str, more: Value| control(Locale::EN, &state, &setting(kind, &more));
        assert!(matches!(of("flag", json!({})).kind, ControlKind::Choice(choices) if choices[0].is_chosen));
        assert!(matches!(of("word", json!({"words": ["a", "true"]})).kind, ControlKind::Choice(choices) if choices[1].is_chosen));
        let number = of("number", json!({"min": 1, "max": 9, "unit": "ms"}));
        assert_eq!(number.hint.as_deref(), Some("From 1 to 9 ms"));
        assert!(matches!(of("text", json!({})).kind, ControlKind::Text("text")));
    }

    #[test]
    fn row_names_the_source_that_overrides_a_stored_value() {
        let row = SettingRow::of(Locale::EN, &setting("number", &json!({"source": "environment", "unit": "ms"})));
        assert_eq!((row.source, row.value.as_deref(), row.is_overridden), ("environment", Some("5 ms"), true));
    }

    #[test]
    fn every_setting_is_in_a_section_and_general_comes_first() {
        let names = ["server.data", "no.such", "oidc.issuer", "console.language", "access.registration", "console.display_name"];
        let settings = names.map(|name| setting("text", &json!({"name": name})));
        let sections = sections(Locale::EN, &settings.iter().collect::<Vec<_>>(), Some("/test"));
        let shown = |section: &SettingsSection| section.rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
        let shown: Vec<_> = sections.iter().map(|section| (section.name, shown(section), section.test.is_some())).collect();
        let of = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        assert_eq!(
            shown,
            [
                ("general", of(["console.display_name", "console.language"]), false),
                ("access", of(["oidc.issuer", "access.registration"]), true),
                ("system", of(["server.data", "no.such"]), false),
            ]
        );
        assert_eq!((sections[0].rows[0].label.as_str(), sections[2].rows[1].label.as_str()), ("Name of the gateway", "no.such"));
    }
}
