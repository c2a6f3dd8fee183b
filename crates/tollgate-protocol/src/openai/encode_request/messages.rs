//! Encodes turns as messages.

use crate::{
    Protocol,
    json_writer::{Json, JsonObject},
    neutral::{
        Media, Part, PartKind, Role, Turn,
        encode_context::{EncodeContext, UpstreamMedia, fenced},
        signature::{GoogleSignatures, ThoughtMember},
    },
    tree::compact,
};

/// Encodes the leading system texts: one message each from an OpenAI caller, one joined message from others.
pub(super) fn system(out: &EncodeContext<'_>) -> Vec<Json> {
    let texts: Vec<&str> = out.system().into_iter().filter_map(Part::as_text).collect();
    if texts.is_empty() {
        return Vec::new();
    }
    if out.request.origin == Protocol::OpenAi {
        return texts.into_iter().map(|text| system_message(out, Json::text(text))).collect();
    }
    vec![system_message(out, Json::text(texts.join("\n")))]
}

/// Appends a line to the first system message; inserts a system message if there is none.
pub(super) fn add_system_line(messages: &mut Vec<Json>, line: &str) {
    if let Some(Json::Object(members)) = messages.first_mut()
        && let Some((_, Json::Text(text))) = members.iter_mut().find(|(name, _)| *name == "content")
    {
        text.push('\n');
        text.push_str(line);
        return;
    }
    messages.insert(0, Json::object([("role", Json::text("system")), ("content", Json::text(line))]));
}

fn system_message(out: &EncodeContext<'_>, content: Json) -> Json {
    let role = out.profile.system_role.as_deref().unwrap_or("system");
    Json::object([("role", Json::text(role)), ("content", content)])
}

/// Encodes the turns. A history that had only dropped thoughts becomes one blank user message, because upstreams refuse an empty list.
pub(super) fn conversation(out: &mut EncodeContext<'_>) -> Vec<Json> {
    let mut messages = Vec::new();
    for turn in out.turns() {
        match turn.role {
            Role::System => {
                let texts: Vec<&str> = turn.parts.iter().filter_map(Part::as_text).collect();
                let content = match texts.as_slice() {
                    [only] => Json::text(*only),
                    _ => Json::List(texts.into_iter().map(text_part).collect()),
                };
                messages.push(system_message(out, content));
            }
            Role::User => messages.extend(user(out, turn)),
            Role::Model => messages.extend(assistant(out, turn)),
            Role::ToolResults => results(out, turn, &mut messages),
        }
    }
    if messages.is_empty() {
        messages.push(user_message(Json::text(" ")));
    }
    messages
}

fn text_part(text: &str) -> Json {
    Json::object([("type", Json::text("text")), ("text", Json::text(text))])
}

fn user(out: &mut EncodeContext<'_>, turn: &Turn) -> Option<Json> {
    if let [Part { kind: PartKind::Text(text), .. }] = turn.parts.as_slice() {
        return Some(user_message(Json::text(text)));
    }
    let mut parts = Vec::with_capacity(turn.parts.len());
    for part in &turn.parts {
        match &part.kind {
            PartKind::Text(text) => parts.push(text_part(text)),
            PartKind::Media(media) => parts.extend(media_part(out, media)),
            PartKind::Code { language, text } => parts.push(text_part(&fenced(language, text))),
            PartKind::CodeOutput { text, .. } => parts.push(text_part(&fenced("", text))),
            PartKind::Think { .. } => out.drop_thought(part),
            PartKind::Call { .. } | PartKind::Result { .. } | PartKind::Opaque { .. } => out.report.refuse_part(&part.path, None),
        }
    }
    (!parts.is_empty()).then(|| user_message(Json::List(parts)))
}

fn user_message(content: Json) -> Json {
    Json::object([("role", Json::text("user")), ("content", content)])
}

/// Encodes a model turn; `None` if it contains only thoughts.
fn assistant(out: &mut EncodeContext<'_>, turn: &Turn) -> Option<Json> {
    let (mut content, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
    let mut thoughts_member = None;
    let mut signatures = out.is_gemini_behind_chat().then(|| GoogleSignatures::of(out.profile, &turn.parts));
    for part in &turn.parts {
        match &part.kind {
            PartKind::Text(text) => content.push_str(text),
            PartKind::Think { text, .. } => match thought_member(out, part) {
                Some(member) => {
                    thoughts_member = Some(member);
                    thoughts.push_str(text);
                }
                None => out.drop_thought(part),
            },
            PartKind::Code { language, text } => content.push_str(&fenced(language, text)),
            PartKind::CodeOutput { text, .. } => content.push_str(&fenced("", text)),
            PartKind::Call { id, name, args, custom } => {
                let signature = signatures.as_mut().and_then(|signatures| signatures.next(part, out));
                calls.push(call(out, id, name, (args, *custom), signature));
            }
            PartKind::Media(media) => out.refuse_media(media),
            PartKind::Result { .. } | PartKind::Opaque { .. } => out.report.refuse_part(&part.path, None),
        }
    }
    if content.is_empty() && calls.is_empty() {
        return None;
    }
    let mut message = JsonObject(vec![("role", Json::text("assistant"))]);
    message.put("content", if content.is_empty() { Json::Raw("null".to_owned()) } else { Json::Text(content) });
    if let Some(member) = thoughts_member.filter(|_| !thoughts.is_empty()) {
        message.put(member.as_str(), Json::Text(thoughts));
    }
    if !calls.is_empty() {
        message.put("tool_calls", Json::List(calls));
    }
    Some(message.json())
}

/// The member in which a thought of a chat upstream is sent back; `None` if it is dropped. Histories of chat callers do not contain
/// the upstream of a thought.
fn thought_member(out: &EncodeContext<'_>, part: &Part) -> Option<ThoughtMember> {
    let of_chat_caller = (out.request.origin == Protocol::OpenAi).then_some(ThoughtMember::ReasoningContent);
    let came_in = ThoughtMember::of(part.signature.as_ref()).or(of_chat_caller)?;
    match out.profile.thought_field.as_deref() {
        Some(field) => ThoughtMember::named(field),
        None => Some(came_in).filter(|member| *member == ThoughtMember::ReasoningContent),
    }
}

/// `signature` is Google's, for a Gemini model behind a chat endpoint.
fn call(out: &EncodeContext<'_>, id: &str, name: &str, (args, custom): (&str, bool), signature: Option<String>) -> Json {
    let name = Json::text(out.names.get(name));
    let (kind, inner) = if custom {
        ("custom", Json::object([("name", name), ("input", Json::text(args))]))
    } else {
        let as_given = matches!(out.request.origin, Protocol::OpenAi | Protocol::Responses);
        let args = if as_given { args.to_owned() } else { compact(args) };
        ("function", Json::object([("name", name), ("arguments", Json::Text(args))]))
    };
    let mut call = JsonObject(vec![("id", Json::text(out.ids.get(id))), ("type", Json::text(kind)), (kind, inner)]);
    if let Some(signature) = signature {
        let google = Json::object([("thought_signature", Json::Text(signature))]);
        call.put("extra_content", Json::object([("google", google)]));
    }
    call.json()
}

/// Encodes one `tool` message per result, then their media in one user message.
fn results(out: &mut EncodeContext<'_>, turn: &Turn, messages: &mut Vec<Json>) {
    let mut following = Vec::new();
    for part in &turn.parts {
        let PartKind::Result { call_id, content, media, .. } = &part.kind else { continue };
        out.drop_error_flag(part);
        messages.push(Json::object([
            ("role", Json::text("tool")),
            ("tool_call_id", Json::text(out.ids.get(call_id))),
            ("content", Json::text(content)),
        ]));
        following.extend(media.iter().filter_map(|item| media_part(out, item)));
    }
    if !following.is_empty() {
        messages.push(user_message(Json::List(following)));
    }
}

fn media_part(out: &mut EncodeContext<'_>, media: &Media) -> Option<Json> {
    let carried = out.encodable_media(media)?;
    let detail = media.detail.as_deref().or_else(|| out.request.params.media_resolution.as_ref().map(|given| given.value.as_str()));
    let expressible = |detail: &str| out.request.origin == Protocol::OpenAi || matches!(detail, "low" | "high");
    if media.detail.as_deref().is_some_and(|detail| !expressible(detail)) {
        out.report.drop_field(&format!("{}.mediaResolution", media.path));
    }
    let detail = detail.filter(|detail| expressible(detail));
    let image = |url: String| {
        let mut image = JsonObject(vec![("url", Json::Text(url))]);
        image.put_some("detail", detail.map(Json::text));
        Json::object([("type", Json::text("image_url")), ("image_url", image.json())])
    };
    match carried {
        UpstreamMedia::Url(_, url) => Some(image(url)),
        UpstreamMedia::Bytes(mime, data) if mime.starts_with("image/") => Some(image(format!("data:{mime};base64,{data}"))),
        UpstreamMedia::Bytes(mime, data) if matches!(mime.as_str(), "audio/wav" | "audio/mp3") => {
            let format = mime.trim_start_matches("audio/");
            let audio = Json::object([("data", Json::Text(data)), ("format", Json::text(format))]);
            Some(Json::object([("type", Json::text("input_audio")), ("input_audio", audio)]))
        }
        UpstreamMedia::Bytes(mime, data) if mime == "application/pdf" => {
            let name = media.name.as_deref().unwrap_or("file.pdf");
            let file = [("filename", Json::text(name)), ("file_data", Json::Text(format!("data:{mime};base64,{data}")))];
            Some(Json::object([("type", Json::text("file")), ("file", Json::object(file))]))
        }
        UpstreamMedia::Bytes(..) => {
            out.refuse_media(media);
            None
        }
    }
}
