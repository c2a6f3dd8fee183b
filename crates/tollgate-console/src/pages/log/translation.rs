//! The translation of a request: the caller's body beside the upstream's, the answer in both protocols, and the handling of each
//! parameter. For operators who may read its contents.

mod marked;

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;

use self::marked::{BodyLine, LineMark, marked_lines};
use super::{contents::ExcerptObject, record_object::RecordObject};
use crate::{
    dispatch::ApiCall,
    pages::{
        format::{self, TimeText},
        layout::Layout,
        locale::Locale,
        operations, protocols,
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of},
    },
};

#[derive(Debug, Template)]
#[template(path = "translation.html")]
struct TranslationPage {
    layout: Layout,
    t: Locale,
    record: String,
    model: String,
    at: Option<TimeText>,
    /// Why there is nothing to show, with what to do.
    missing: Option<&'static str>,
    /// Whether the reader can switch storing on.
    is_admin: bool,
    group: Option<String>,
    key: String,
    /// Why the body for the upstream cannot be reconstructed.
    fault: Option<String>,
    is_current: bool,
    from: &'static str,
    to: Option<&'static str>,
    channel: Option<String>,
    path: Option<String>,
    parameters: Vec<ParameterRow>,
    request: Option<Pair>,
    answer: Option<Pair>,
}

/// A text in the caller's protocol and in the upstream's.
#[derive(Debug)]
struct Pair {
    caller: Vec<BodyLine>,
    length: String,
    upstream: Vec<BodyLine>,
}

#[derive(Debug)]
struct ParameterRow {
    name: String,
    tone: &'static str,
    word: &'static str,
    detail: String,
}

/// A translation of the admin API.
#[derive(Debug, Deserialize)]
struct TranslationObject {
    contents: String,
    fault: Option<String>,
    fault_fields: Vec<String>,
    protocol_in: String,
    protocol_out: Option<String>,
    channel: Option<String>,
    upstream_path: Option<String>,
    is_current: bool,
    request: Option<ExcerptObject>,
    upstream_request: Option<String>,
    answer: Option<ExcerptObject>,
    upstream_answer: Option<String>,
    parameters: Vec<ParameterObject>,
}

#[derive(Debug, Deserialize)]
struct ParameterObject {
    name: String,
    outcome: String,
    upstream_name: Option<String>,
    value: Option<String>,
}

impl Pair {
    fn of(
        t: Locale,
        (caller, here): (&ExcerptObject, &Vec<LineMark>),
        (upstream, there): (Option<&String>, &Vec<LineMark>),
    ) -> Self {
        Self {
            caller: marked_lines(&caller.text, here),
            length: caller.length(t),
            upstream: upstream.map(|text| marked_lines(text, there)).unwrap_or_default(),
        }
    }
}

impl ParameterRow {
    fn of(t: Locale, parameter: &ParameterObject) -> Self {
        let (tone, word) = match parameter.outcome.as_str() {
            "renamed" => ("info", t.say("translation.renamed")),
            "dropped" => ("bad", t.say("translation.dropped")),
            "set" => ("warn", t.say("translation.set")),
            "rewritten" => ("alt", t.say("translation.rewritten")),
            _ => ("ok", t.say("translation.kept")),
        };
        let detail = parameter.upstream_name.clone().or_else(|| parameter.value.clone()).unwrap_or_default();
        Self { name: parameter.name.clone(), tone, word, detail }
    }
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let of_record = || ApiCall { path: path_of(&[("record", request.path_param("record"))]), ..ApiCall::default() };
    let record: RecordObject = request.read(operations::GET_USAGE, of_record()).await?;
    let found: TranslationObject = request.read(operations::GET_TRANSLATION, of_record()).await?;
    let (sent, received, unmarked) = (marks(&found, Side::Caller), marks(&found, Side::Upstream), Vec::new());
    let template = TranslationPage {
        layout: request.layout(t.say("translation.title")).wide().below("/log", t.say("nav.log")),
        t,
        at: format::time(t, &record.at),
        missing: missing(t, &found.contents),
        is_admin: request.is_admin(),
        group: record.group.clone(),
        key: record.key.clone(),
        fault: found.fault.as_deref().map(|fault| fault_text(t, fault, &found.fault_fields)),
        is_current: found.is_current,
        from: protocols::label(t, &found.protocol_in),
        to: found.protocol_out.as_deref().map(|protocol| protocols::label(t, protocol)),
        channel: found.channel.clone(),
        path: found.upstream_path.clone(),
        parameters: found.parameters.iter().map(|parameter| ParameterRow::of(t, parameter)).collect(),
        request: found.request.as_ref().map(|body| Pair::of(t, (body, &sent), (found.upstream_request.as_ref(), &received))),
        answer: found.answer.as_ref().map(|answer| Pair::of(t, (answer, &unmarked), (found.upstream_answer.as_ref(), &unmarked))),
        model: record.model.unwrap_or_default(),
        record: record.id,
    };
    PageReply::ok(&template)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Caller,
    Upstream,
}

/// The marked members of both bodies: changed ones in the caller's, their results in the upstream's.
fn marks(found: &TranslationObject, side: Side) -> Vec<LineMark> {
    let mark = |parameter: &ParameterObject| {
        let (tone, sign) = match parameter.outcome.as_str() {
            "renamed" => ("info", '→'),
            "dropped" if side == Side::Caller => ("bad", '−'),
            "set" => ("warn", '='),
            _ => return None,
        };
        let path = match (side, &parameter.upstream_name) {
            (Side::Upstream, Some(name)) => name.clone(),
            (Side::Caller | Side::Upstream, _) => parameter.name.clone(),
        };
        Some(LineMark { path, tone, sign })
    };
    found.parameters.iter().filter_map(mark).collect()
}

/// Why there are no contents; `None` if there are.
fn missing(t: Locale, state: &str) -> Option<&'static str> {
    match state {
        "stored" => None,
        "off" => Some(t.say("translation.off")),
        "not_selected" => Some(t.say("translation.not_selected")),
        _ => Some(t.say("translation.gone")),
    }
}

fn fault_text(t: Locale, fault: &str, fields: &[String]) -> String {
    let fields = fields.join(t.say("list.separator"));
    match fault {
        "no_attempt" => t.say("translation.no_attempt").to_owned(),
        "channel_gone" => t.say("translation.channel_gone").to_owned(),
        "no_counter" => t.say("translation.no_counter").to_owned(),
        "unsupported" => t.say_with("translation.unsupported", &[("fields", &fields)]),
        _ => t.say("translation.malformed").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dropped_parameters_are_marked_where_they_were_and_renamed_ones_on_both_sides() {
        let found: TranslationObject = serde_json::from_value(json!({
            "contents": "stored", "fault": null, "fault_fields": [], "protocol_in": "openai", "protocol_out": "gemini", "channel": "c",
            "upstream_path": "/models/m:generateContent", "is_current": true, "request": null, "upstream_request": null, "answer": null,
            "upstream_answer": null, "parameters": [
                {"name": "seed", "outcome": "dropped", "upstream_name": null, "value": null},
                {"name": "stop", "outcome": "renamed", "upstream_name": "generationConfig.stopSequences", "value": null},
                {"name": "temperature", "outcome": "kept", "upstream_name": null, "value": null},
                {"name": "top_p", "outcome": "set", "upstream_name": null, "value": "1"},
            ],
        }))
        .unwrap();
        let paths = |side| marks(&found, side).into_iter().map(|mark| format!("{}{}", mark.sign, mark.path)).collect::<Vec<_>>();
        assert_eq!(paths(Side::Caller), ["−seed", "→stop", "=top_p"]);
        assert_eq!(paths(Side::Upstream), ["→generationConfig.stopSequences", "=top_p"]);
        let rows: Vec<_> = found.parameters.iter().map(|parameter| ParameterRow::of(Locale::EN, parameter)).collect();
        assert_eq!(rows.iter().map(|row| row.detail.as_str()).collect::<Vec<_>>(), ["", "generationConfig.stopSequences", "", "1"]);
    }

    #[test]
    fn missing_contents_are_explained() {
        assert_eq!(missing(Locale::EN, "stored"), None);
        let texts: Vec<_> = ["off", "not_selected", "gone"].map(|state| missing(Locale::EN, state).unwrap()).into();
        assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
        let fields = ["logit_bias".to_owned()];
        assert!(fault_text(Locale::EN, "unsupported", &fields).contains("logit_bias"));
    }
}
