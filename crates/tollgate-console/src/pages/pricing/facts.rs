//! Facts of a model besides its price: texts and facts for the model square, and its optional parameters.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::view::model_query;
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{self, ControlSection, FaultPlace, FormView, names},
        form::{FormData, FormState},
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of},
    },
};

const MODALITIES: [&str; 5] = ["text", "image", "audio", "video", "document"];
const TEXTS: [&str; 3] = ["display_name", "vendor", "description"];
const NUMBERS: [&str; 2] = ["context", "max_output"];
/// Longest list of parameters, in characters.
const MAX_PARAMETERS: usize = 20_000;

/// The fields beside which faults are shown.
const PLACES: &[FaultPlace] = &[
    ("context", "context", "whole_number"),
    ("max_output", "max_output", "whole_number"),
    ("display_name", "display_name", "line"),
    ("vendor", "vendor", "line"),
    ("supported_parameters", "parameters", "parameters"),
    ("unsupported_parameters", "parameters", "parameters"),
];

#[derive(Debug, Template)]
#[template(path = "pricing_facts.html")]
struct FactsPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    /// Why it cannot be changed here.
    is_of_file: bool,
    form: FormView,
}

/// The row of a model, if it has one.
#[derive(Debug, Default, Deserialize)]
struct ModelObject {
    #[serde(default)]
    owner: String,
    #[serde(default)]
    revision: u64,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// A served model has no row until one of its facts is set.
async fn read(request: &PageRequest, model: &str) -> Result<Option<ModelObject>, ApiError> {
    if model.is_empty() {
        return Err(ApiError::no_path());
    }
    let call = ApiCall { path: path_of(&[("name", model)]), ..ApiCall::default() };
    match request.read(operations::GET_MODEL, call).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.status == http::StatusCode::NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let model = request.query.value("model").to_owned();
    let found = read(&request, &model).await?.unwrap_or_default();
    facts_page(&request, &model, &found, &FormState::of(values(&found)))
}

fn facts_page(request: &PageRequest, model: &str, found: &ModelObject, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let back = request.url(&format!("/pricing/model?{}", model_query(model)));
    let revision = match state.value("revision") {
        "" => found.revision.to_string(),
        typed => typed.to_owned(),
    };
    let action = request.url(&format!("/pricing/model/facts?{}", model_query(model)));
    let form = FormView::new(action, sections(t, state), t.say("form.save"))
        .hidden("model", model)
        .hidden("revision", revision)
        .cancel(back);
    let template = FactsPage {
        layout: request.layout(model.to_owned()).below("/pricing", t.say("nav.pricing")),
        t,
        banner: state.banner(),
        is_of_file: found.owner == "file",
        form,
    };
    PageReply::page(state.status(), &template)
}

/// The initial values of the form.
fn values(model: &ModelObject) -> FormData {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: &str| pairs.push((name.to_owned(), value.to_owned()));
    let field = |name: &str| model.fields.get(name).unwrap_or(&Value::Null);
    for name in TEXTS {
        put(name, field(name).as_str().unwrap_or_default());
    }
    for name in NUMBERS {
        put(name, &field(name).as_u64().map(|number| number.to_string()).unwrap_or_default());
    }
    for name in ["input_modalities", "output_modalities"] {
        for word in field(name).as_array().into_iter().flatten().filter_map(Value::as_str) {
            put(name, word);
        }
    }
    put("badge", field("badge").as_str().unwrap_or_default());
    put("visible", if *field("visible") == Value::Bool(false) { "" } else { "true" });
    put("embeddings", if *field("embeddings") == Value::Bool(true) { "true" } else { "" });
    let (rule, list) = match (field("supported_parameters").as_array(), field("unsupported_parameters").as_array()) {
        (Some(list), _) => ("only", list.as_slice()),
        (None, Some(list)) => ("except", list.as_slice()),
        (None, None) => ("all", [].as_slice()),
    };
    put("rule", rule);
    put("parameters", &list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n"));
    put("on_unsupported", field("on_unsupported").as_str().unwrap_or("refuse"));
    FormData::of_pairs(pairs)
}

fn modality(t: Locale, word: &str) -> &'static str {
    match word {
        "text" => t.say("modality.text"),
        "image" => t.say("modality.image"),
        "audio" => t.say("modality.audio"),
        "video" => t.say("modality.video"),
        _ => t.say("modality.document"),
    }
}

fn sections(t: Locale, state: &FormState) -> Vec<ControlSection> {
    let modalities = |name, label| state.checks(name, label, MODALITIES.map(|word| (word, modality(t, word))));
    let badges = [("", t.say("facts.no_badge")), ("deprecated", t.say("tag.deprecated")), ("limited", t.say("tag.limited"))];
    let about = vec![
        state.text("display_name", t.say("facts.display_name")).max(256).hint(t.say("facts.display_name_hint")),
        state.text("vendor", t.say("facts.vendor")).max(100),
        state.text("description", t.say("facts.description")).max(1_000).wide(),
        state.number("context", t.say("facts.context")).hint(t.say("facts.context_hint")),
        state.number("max_output", t.say("facts.max_output")),
        modalities("input_modalities", t.say("facts.reads")),
        modalities("output_modalities", t.say("facts.writes")),
        state.choice("badge", t.say("facts.badge"), badges).hint(t.say("facts.badge_hint")),
        state.check("visible", t.say("facts.visible")).hint(t.say("facts.visible_hint")).wide(),
        state.check("embeddings", t.say("facts.embeddings")).wide(),
    ];
    let rules = [("all", t.say("facts.rule_all")), ("only", t.say("facts.rule_only")), ("except", t.say("facts.rule_except"))];
    let actions = [("refuse", t.say("facts.refuse")), ("drop", t.say("facts.drop"))];
    let parameters = vec![
        state.choice("rule", t.say("facts.rule"), rules),
        state.choice("on_unsupported", t.say("facts.on_unsupported"), actions),
        state.area("parameters", t.say("facts.parameters"), 5).max(MAX_PARAMETERS).hint(t.say("facts.parameters_hint")),
    ];
    vec![
        ControlSection::new(t.say("facts.about"), about),
        ControlSection::new(t.say("facts.rules"), parameters).about(t.say("facts.rules_about")),
    ]
}

/// The fields as the admin API takes them.
fn body(form: &FormData) -> Result<Map<String, Value>, ApiError> {
    let mut body = Map::new();
    for name in TEXTS.into_iter().chain(["badge"]) {
        body.insert(name.to_owned(), form.filled(name).map_or(Value::Null, Value::from));
    }
    for name in NUMBERS {
        let typed = control::limit_or_text(form, name);
        body.insert(name.to_owned(), if form.filled(name).is_none() { Value::Null } else { typed });
    }
    for name in ["input_modalities", "output_modalities"] {
        body.insert(name.to_owned(), form.all(name).collect::<Vec<_>>().into());
    }
    for name in ["visible", "embeddings"] {
        body.insert(name.to_owned(), (form.value(name) == "true").into());
    }
    let list = names(form, "parameters");
    let rule = form.value("rule");
    if rule != "all" && list.is_empty() {
        return Err(ApiError::value("parameters", "expected parameters").because("parameters"));
    }
    let list_of = |wanted: &str| if rule == wanted { json!(list) } else { Value::Null };
    body.insert("supported_parameters".to_owned(), list_of("only"));
    body.insert("unsupported_parameters".to_owned(), list_of("except"));
    body.insert("on_unsupported".to_owned(), form.value("on_unsupported").into());
    Ok(body)
}

async fn store(request: &PageRequest, model: &str, found: Option<&ModelObject>) -> Result<(), ApiError> {
    let mut body = body(&request.form)?;
    if found.is_none() {
        body.insert("name".to_owned(), model.into());
        request.call(operations::MAKE_MODEL, ApiCall { body, ..ApiCall::default() }).await?;
        return Ok(());
    }
    let call = ApiCall { body, path: path_of(&[("name", model)]), ..ApiCall::default() };
    let revision = request.form.filled("revision").map(|revision| ("if-match", revision));
    request.call_with(operations::CHANGE_MODEL, call, revision.as_slice()).await?;
    Ok(())
}

pub(super) async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let model = request.form.value("model").to_owned();
    let found = read(&request, &model).await?;
    match store(&request, &model, found.as_ref()).await {
        Ok(()) => Ok(PageReply::redirect(&request.url(&format!("/pricing/model?{}", model_query(&model)))).toast(Toast::Saved)),
        Err(error) => {
            let state = control::refused(request.t(), &request.form, error, PLACES)?;
            facts_page(&request, &model, &found.unwrap_or_default(), &state)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(fields: Value) -> ModelObject {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn unchanged_form_changes_nothing() {
        for fields in [
            json!({"display_name": "Fast", "vendor": null, "description": "a", "context": 128_000, "max_output": null, "visible": false,
                "embeddings": false, "input_modalities": ["text", "image"], "output_modalities": ["text"], "badge": "deprecated",
                "supported_parameters": ["temperature", "tools"], "unsupported_parameters": null, "on_unsupported": "drop"}),
            json!({"display_name": null, "vendor": null, "description": null, "context": null, "max_output": 4_096, "visible": true,
                "embeddings": true, "input_modalities": [], "output_modalities": [], "badge": null,
                "supported_parameters": null, "unsupported_parameters": null, "on_unsupported": "refuse"}),
        ] {
            let sent = body(&values(&model(fields.clone()))).unwrap();
            assert_eq!(Value::Object(sent), fields);
        }
    }

    #[test]
    fn rule_needs_parameters() {
        let form = FormData::parse(b"rule=except&parameters=&on_unsupported=refuse");
        assert_eq!(body(&form).unwrap_err().param(), Some("parameters"));
        let form = FormData::parse(b"rule=except&parameters=seed%0Atop_k&context=many");
        let body = body(&form).unwrap();
        assert_eq!((&body["unsupported_parameters"], &body["supported_parameters"]), (&json!(["seed", "top_k"]), &Value::Null));
        assert_eq!(body["context"], json!("many"), "the admin API names it");
    }
}
