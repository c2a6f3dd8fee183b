//! `/playground`: models tried in the browser, with the reader's own key, over the gateway's own model paths. Requests and the
//! conversation never reach the console. The key stays in the memory of the browser's tab.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use tollgate_protocol::Protocol;
use tollgate_store::AdminScope;
use url::Url;

use super::{
    home::{model_url, own_model_url},
    layout::{Layout, Script},
    locale::Locale,
    models::{document_for, group_label},
    money, operations, protocols,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest},
    route::{PageRoute, SeenBy, page},
};
use crate::dispatch::ApiCall;

pub(super) static ROUTES: &[PageRoute] = &[PageRoute::get("/playground", SeenBy::Role(AdminScope::Member), page!(show))];

/// Models to choose from.
const MAX_MODELS: usize = 1_000;
const EFFORTS: [&str; 3] = ["low", "medium", "high"];

#[derive(Debug, Template)]
#[template(path = "playground.html")]
struct PlaygroundPage {
    layout: Layout,
    t: Locale,
    /// The address to which the page sends model requests, and the address for callers.
    send: String,
    base: String,
    models: Vec<String>,
    choices: Vec<ProtocolChoice>,
    /// Groups of which a key can be made here.
    groups: Vec<OwnGroup>,
    efforts: [&'static str; 3],
    /// Prefix for the names of icons.
    icons: String,
    /// Messages about a refused key, by the code of the error, as JSON.
    faults: String,
    words: Vec<(&'static str, &'static str)>,
    /// Of the currency in which amounts are shown.
    symbol: &'static str,
    rate: String,
}

/// A protocol of callers, and how a browser sends a key in it.
#[derive(Debug)]
pub(super) struct ProtocolChoice {
    pub(super) word: &'static str,
    label: &'static str,
    pub(super) credential: &'static str,
    pub(super) prefix: &'static str,
    /// Headers of every request, as JSON.
    pub(super) headers: String,
    is_first: bool,
}

impl ProtocolChoice {
    pub(super) fn of(t: Locale, protocol: Protocol) -> Self {
        let spec = protocol.spec();
        let headers = spec.fixed_headers.iter().map(|(name, value)| ((*name).to_owned(), serde_json::Value::from(*value)));
        Self {
            word: spec.word,
            label: protocols::label(t, spec.word),
            credential: spec.credential.name,
            prefix: spec.credential.prefix,
            headers: serde_json::Value::Object(headers.collect()).to_string(),
            is_first: protocol == Protocol::ALL[0],
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct OwnGroup {
    pub(super) name: String,
    pub(super) description: Option<String>,
    multiplier: String,
    multiplier_varies: bool,
    pub(super) self_service: bool,
    pub(super) default: bool,
    /// With its factor on prices.
    #[serde(skip)]
    pub(super) label: String,
}

/// The groups of which the reader makes keys.
pub(super) async fn groups_for_keys(request: &PageRequest) -> Result<Vec<OwnGroup>, PageFailure> {
    let groups: ApiPage<OwnGroup> = request.read(operations::LIST_OWN_GROUPS, ApiCall::default()).await?;
    let may = |group: &OwnGroup| group.self_service || request.is_operator();
    let t = request.t();
    let labelled = |group: OwnGroup| {
        let label = group_label(t, &group.name, &group.multiplier, group.multiplier_varies);
        OwnGroup { label, ..group }
    };
    Ok(groups.items.into_iter().filter(may).map(labelled).collect())
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let document = document_for(&request, None, None).await?;
    let generates = |offer: &super::models::ModelOffer| offer.kind == "generation";
    let models = document.data.iter().filter(|model| model.groups.iter().any(generates));
    let (send, other) = sending(&request);
    let layout = request.layout(t.say("nav.playground")).with(Script::Playground);
    let template = PlaygroundPage {
        icons: layout.icon(""),
        layout,
        t,
        send,
        base: model_url(&request),
        models: models.take(MAX_MODELS).map(|model| model.id.clone()).collect(),
        choices: protocols::of_callers().map(|(protocol, _)| ProtocolChoice::of(t, protocol)).collect(),
        groups: groups_for_keys(&request).await?,
        efforts: EFFORTS,
        faults: faults(t),
        words: words(t),
        symbol: money::symbol(t),
        rate: t.currency.per_usd.to_decimal(),
    };
    Ok(PageReply::ok(&template)?.connects_to(other))
}

/// The address to which pages send model requests, which is where this process takes them, and its origin if that is not the console's.
/// Other addresses of model requests are only shown.
pub(super) fn sending(request: &PageRequest) -> (String, Option<String>) {
    let own = own_model_url(request);
    let other = other_origin(request, &own);
    (if other.is_some() { own } else { request.url("") }, other)
}

/// The origin of model requests if the console has an address of its own.
fn other_origin(request: &PageRequest, base: &str) -> Option<String> {
    let origin = Url::parse(base).ok()?.origin();
    (origin != request.state.identity.settings.url.origin()).then(|| origin.ascii_serialization())
}

/// Messages about a refused key, or about why no key can be made, by the code of the error.
fn faults(t: Locale) -> String {
    let said = [
        ("invalid_api_key", t.say("key_check.invalid")),
        ("api_key_expired", t.say("key_check.expired")),
        ("api_key_disabled", t.say("key_check.disabled")),
        ("ip_not_allowed", t.say("key_check.address")),
        ("account_suspended", t.say("key_check.suspended")),
        ("key_disabled", t.say("playground.key_disabled")),
        ("operator_only", t.say("problem.no_self_service")),
        // The script sends a key with every request but those of the session.
        ("missing_api_key", t.say("problem.session_ended")),
        ("session_ended", t.say("problem.session_ended")),
        ("wrong_csrf_token", t.say("problem.form_expired")),
        ("rate_limit_exceeded", t.say("playground.too_many")),
        ("server_overloaded", t.say("problem.overloaded")),
        ("database_unavailable", t.say("problem.no_database")),
    ];
    let said = said.map(|(code, text)| (code.to_owned(), serde_json::Value::from(text)));
    serde_json::Value::Object(said.into_iter().collect()).to_string()
}

/// Texts of the script.
fn words(t: Locale) -> Vec<(&'static str, &'static str)> {
    vec![
        ("answer", t.say("playground.answer")),
        ("done", t.say("playground.done")),
        ("dropped", t.say("playground.dropped")),
        ("failed", t.say("playground.failed")),
        ("free", t.say("price.free")),
        ("image-limit", t.say("playground.image_limit")),
        ("left", t.say("playground.left")),
        ("left-share", t.say("playground.left_share")),
        ("lost", t.say("playground.lost")),
        ("no-budget", t.say("playground.no_budget")),
        ("no-images", t.say("playground.no_images")),
        ("nothing-yet", t.say("playground.nothing_yet")),
        ("not-in-protocol", t.say("playground.not_in_protocol")),
        ("price", t.say("playground.price")),
        ("refused", t.say("playground.refused")),
        ("remove", t.say("playground.remove")),
        ("result", t.say("playground.result")),
        ("send-result", t.say("playground.send_result")),
        ("speed", t.say("unit.tokens_per_s")),
        ("stopped", t.say("playground.stopped")),
        ("streaming", t.say("playground.streaming")),
        ("thinking", t.say("price.thinking")),
        ("tokens", t.say("playground.tokens")),
        ("unpriced", t.say("price.none")),
        ("waiting", t.say("playground.waiting")),
        ("write", t.say("playground.write")),
        ("write-all", t.say("playground.write_all")),
        ("write-both", t.say("playground.write_both")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api_error::ApiError, gateway_handle::KeyRefusal, pages::problem};

    #[test]
    fn playground_script_has_a_codec_for_every_protocol() {
        let script = include_str!("../../assets/playground-protocols.js");
        for (protocol, _) in protocols::of_callers() {
            let word = protocol.as_str();
            assert!(script.contains(&format!("const {word} = {{")), "playground-protocols.js has no codec for {word}");
            for names in [protocol.spec().output_limit_fields, &["temperature", "topP", "top_p"]] {
                assert!(names.iter().any(|name| script.contains(&format!("\"{name}\""))), "{word}: {names:?}");
            }
        }
    }

    #[test]
    fn refusals_of_keys_are_said_in_the_language_of_the_page() {
        let said: serde_json::Value = serde_json::from_str(&faults(Locale::ZH_CN)).unwrap();
        for refusal in
            [KeyRefusal::Invalid, KeyRefusal::Expired, KeyRefusal::Disabled, KeyRefusal::AddressBlocked, KeyRefusal::Suspended]
        {
            let error = ApiError::service_key(refusal);
            assert_eq!(said[error.code()], problem::say_of_service_key(Locale::ZH_CN, &error), "{}", error.code());
        }
        assert!(said["key_disabled"].as_str().unwrap().contains("操练场"), "{said}");
    }

    #[test]
    fn playground_sends_the_key_in_the_header_of_the_protocol() {
        let choices: Vec<ProtocolChoice> =
            protocols::of_callers().map(|(protocol, _)| ProtocolChoice::of(Locale::EN, protocol)).collect();
        let first = choices.iter().filter(|choice| choice.is_first).count();
        assert_eq!(first, 1);
        let messages = choices.iter().find(|choice| choice.word == "anthropic").unwrap();
        assert_eq!((messages.credential, messages.headers.as_str()), ("x-api-key", r#"{"anthropic-version":"2023-06-01"}"#));
    }
}
