//! The stored body and answer of a request: as messages, and as they were sent.

use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tollgate_protocol::Protocol;

use super::{
    messages::{self, Message, MessagePart, Role},
    record_object::RecordObject,
};
use crate::{
    dispatch::ApiCall,
    pages::{
        clients, format, home,
        layout::{Layout, Script},
        locale::Locale,
        operations,
        preferences::Toast,
        problem,
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of},
    },
};

/// Longest conversation that is handed to the playground, in bytes of its texts. It is part of the page.
const MAX_CONTINUED: usize = 200_000;

#[derive(Debug, Template)]
#[template(path = "contents.html")]
struct ContentsPage {
    layout: Layout,
    t: Locale,
    record: String,
    model: String,
    at: Option<format::TimeText>,
    /// Whether an admin reads the contents of another member.
    is_audited: bool,
    messages: Option<Vec<MessageRow>>,
    body: Text,
    answer: Option<Text>,
    curl: Option<String>,
    /// Whether the reader sees the request to the upstream.
    sees_translation: bool,
    /// The conversation as the playground takes it.
    continued: Option<String>,
    problem: Option<String>,
}

/// A text with its length.
#[derive(Debug)]
struct Text {
    text: String,
    length: String,
}

#[derive(Debug)]
struct MessageRow {
    tone: &'static str,
    role: &'static str,
    parts: Vec<PartRow>,
}

#[derive(Debug)]
struct PartRow {
    /// Its kind, unless it is plain text.
    title: Option<String>,
    text: String,
    is_code: bool,
}

/// Contents of the admin API.
#[derive(Debug, Deserialize)]
struct ContentsObject {
    member: String,
    request: ExcerptObject,
    answer: ExcerptObject,
}

#[derive(Debug, Deserialize)]
pub(super) struct ExcerptObject {
    pub(super) text: String,
    bytes: u64,
    is_cut: bool,
}

impl ExcerptObject {
    /// The length of the whole text, and whether its end is missing.
    pub(super) fn length(&self, t: Locale) -> String {
        let bytes = format::bytes(t, self.bytes);
        if self.is_cut { t.say_with("contents.cut", &[("bytes", &bytes)]) } else { bytes }
    }
}

impl Text {
    fn of(t: Locale, excerpt: &ExcerptObject) -> Self {
        Self { text: indented(&excerpt.text), length: excerpt.length(t) }
    }
}

/// JSON with a line for each member; other texts unchanged.
fn indented(text: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
    value.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| text.to_owned())
}

impl MessageRow {
    fn of(t: Locale, message: &Message) -> Self {
        let (tone, role) = match message.role {
            Role::System => ("", t.say("contents.system")),
            Role::User => ("info", t.say("contents.user")),
            Role::Model => ("ok", t.say("contents.model")),
            Role::Tool => ("alt", t.say("contents.tool_result")),
        };
        Self { tone, role, parts: message.parts.iter().map(|part| PartRow::of(t, part)).collect() }
    }
}

impl PartRow {
    fn of(t: Locale, part: &MessagePart) -> Self {
        let (title, text, is_code) = match part {
            MessagePart::Text(text) => (None, text.clone(), false),
            MessagePart::Thought(text) => (Some(t.say("contents.thought").to_owned()), text.clone(), false),
            MessagePart::Call(name, arguments) => {
                (Some(t.say_with("contents.tool_call", &[("name", name)])), indented(arguments), true)
            }
            MessagePart::Result(text) => (None, indented(text), true),
            MessagePart::Media(kind) => (Some(t.say_with("contents.media", &[("type", kind)])), String::new(), false),
        };
        Self { title, text, is_code }
    }
}

/// The conversation for the playground: texts only, because stored media and calls are not complete.
fn continued(protocol: Protocol, model: &str, messages: &[Message], answer: Option<&Message>) -> Option<String> {
    let text = |message: &Message| {
        let texts =
            message.parts.iter().filter_map(|part| if let MessagePart::Text(text) = part { Some(text.as_str()) } else { None });
        Some(texts.collect::<Vec<_>>().join("\n\n")).filter(|text| !text.is_empty())
    };
    let of = |wanted: Role| messages.iter().filter(move |message| message.role == wanted);
    let system = of(Role::System).filter_map(text).collect::<Vec<_>>().join("\n\n");
    let said = messages.iter().chain(answer).filter_map(|message| {
        let role = match message.role {
            Role::User => "user",
            Role::Model => "assistant",
            Role::System | Role::Tool => return None,
        };
        Some(json!({"role": role, "text": text(message)?}))
    });
    let said: Vec<_> = said.collect();
    let conversation = json!({"protocol": protocol.as_str(), "model": model, "system": system, "messages": said}).to_string();
    (!said.is_empty() && conversation.len() <= MAX_CONTINUED).then_some(conversation)
}

fn of_record(request: &PageRequest) -> ApiCall {
    ApiCall { path: path_of(&[("record", request.path_param("record"))]), ..ApiCall::default() }
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    page(&request, None).await
}

/// `problem`: why the contents were not removed.
async fn page(request: &PageRequest, problem: Option<String>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let record: RecordObject = request.read(operations::GET_USAGE, of_record(request)).await?;
    let found: ContentsObject = request.read(operations::GET_CONTENTS, of_record(request)).await?;
    let protocol = Protocol::parse(&record.protocol_in);
    let conversation = protocol.filter(|_| record.generates());
    let sent = conversation.map(|protocol| messages::of_request(protocol, &found.request.text));
    let answer = conversation.and_then(|protocol| messages::of_answer(protocol, &found.answer.text));
    let rows = sent
        .as_ref()
        .and_then(Option::as_ref)
        .map(|sent| sent.iter().chain(&answer).map(|message| MessageRow::of(t, message)).collect());
    let model = record.model.as_deref().unwrap_or_default();
    let template = ContentsPage {
        layout: request.layout(t.say("contents.title")).below("/log", t.say("nav.log")).with(Script::Contents),
        t,
        at: format::time(t, &record.at),
        is_audited: request.signed_in.as_ref().is_none_or(|own| own.member.id.to_string() != found.member),
        messages: rows,
        body: Text::of(t, &found.request),
        answer: (!found.answer.text.is_empty()).then(|| Text::of(t, &found.answer)),
        curl: conversation
            .filter(|_| !found.request.is_cut)
            .map(|protocol| clients::curl_of_body(&home::model_url(request), protocol, model, record.stream, &found.request.text)),
        continued: match (conversation, sent.flatten()) {
            (Some(protocol), Some(sent)) => continued(protocol, model, &sent, answer.as_ref()),
            _ => None,
        },
        sees_translation: request.is_operator(),
        model: model.to_owned(),
        record: record.id,
        problem,
    };
    let status = if template.problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    PageReply::page(status, &template)
}

pub(super) async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    if request.form.value("confirmed") != "true" {
        return page(&request, Some(request.t().say("contents.confirm_missing").to_owned())).await;
    }
    match request.call(operations::REMOVE_CONTENTS, of_record(&request)).await {
        Ok(_) => {
            let record = request.url(&format!("/log/{}", request.path_param("record")));
            Ok(PageReply::redirect(&record).toast(Toast::ContentsRemoved))
        }
        Err(error) => page(&request, Some(problem::say(request.t(), &error))).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: Role, text: &str) -> Message {
        Message { role, parts: vec![MessagePart::Text(text.to_owned())] }
    }

    #[test]
    fn playground_continues_with_the_text_messages() {
        let sent = [
            message(Role::System, "Be brief."),
            Message { role: Role::User, parts: vec![MessagePart::Text("Hi".to_owned()), MessagePart::Media("image".to_owned())] },
            Message { role: Role::Model, parts: vec![MessagePart::Call("look".to_owned(), "{}".to_owned())] },
            message(Role::Tool, "a cat"),
        ];
        let text = continued(Protocol::Anthropic, "m", &sent, Some(&message(Role::Model, "A cat."))).unwrap();
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            json!({"protocol": "anthropic", "model": "m", "system": "Be brief.", "messages": [
                {"role": "user", "text": "Hi"}, {"role": "assistant", "text": "A cat."}]})
        );
        assert_eq!(continued(Protocol::OpenAi, "m", &[], None), None);
        assert_eq!(continued(Protocol::OpenAi, "m", &[message(Role::User, &"x".repeat(MAX_CONTINUED))], None), None);
    }

    #[test]
    fn json_is_indented_and_other_text_is_unchanged() {
        assert_eq!(indented(r#"{"a":1,"b":[]}"#), "{\n  \"a\": 1,\n  \"b\": []\n}");
        assert_eq!(indented("data: {}\n\n"), "data: {}\n\n");
    }
}
