//! Encodes turns as contents.

use crate::{
    Protocol,
    json_writer::{Json, JsonObject},
    neutral::{
        Media, Part, PartKind, Role, Turn,
        encode_context::{EncodeContext, UpstreamMedia, arguments},
        signature::GoogleSignatures,
    },
    tree::Tree,
};

/// A content under construction. Function responses do not share a content with other parts.
struct Content {
    role: &'static str,
    results: bool,
    parts: Vec<Json>,
}

/// Encodes all contents. A blank user turn is added before a history that begins with calls, and replaces a history that had
/// only dropped thoughts, because upstreams refuse an empty list.
pub(super) fn contents(out: &mut EncodeContext<'_>) -> Vec<Json> {
    let mut contents: Vec<Content> = Vec::new();
    for turn in out.turns() {
        match turn.role {
            Role::System | Role::User => {
                let parts = turn.parts.iter().filter_map(|part| part_of(out, part)).collect();
                add(&mut contents, parts);
            }
            Role::Model => {
                let parts = model_parts(out, turn);
                if contents.is_empty() && turn.parts.iter().any(Part::is_call) {
                    add(&mut contents, vec![text_part(" ")]);
                }
                if !parts.is_empty() {
                    contents.push(Content { role: "model", results: false, parts });
                }
            }
            Role::ToolResults => {
                let (parts, media) = results(out, turn);
                contents.push(Content { role: "user", results: true, parts });
                add(&mut contents, media);
            }
        }
    }
    if contents.is_empty() {
        add(&mut contents, vec![text_part(" ")]);
    }
    let write = |content: Content| Json::object([("role", Json::text(content.role)), ("parts", Json::List(content.parts))]);
    contents.into_iter().map(write).collect()
}

/// Appends user parts, merged into a preceding user content.
fn add(contents: &mut Vec<Content>, parts: Vec<Json>) {
    match contents.last_mut() {
        _ if parts.is_empty() => {}
        Some(last) if last.role == "user" && !last.results => last.parts.extend(parts),
        _ => contents.push(Content { role: "user", results: false, parts }),
    }
}

pub(super) fn text_part(text: impl Into<String>) -> Json {
    Json::object([("text", Json::text(text))])
}

/// Encodes the parts of a model turn.
fn model_parts(out: &mut EncodeContext<'_>, turn: &Turn) -> Vec<Json> {
    let mut signatures = GoogleSignatures::of(out.profile, &turn.parts);
    let mut parts = Vec::with_capacity(turn.parts.len());
    for part in &turn.parts {
        let Some(json) = part_of(out, part) else { continue };
        let Json::Object(mut members) = json else { continue };
        members.extend(signatures.next(part, out).map(|signature| ("thoughtSignature", Json::Text(signature))));
        parts.push(Json::Object(members));
    }
    parts
}

/// Encodes any part except a function response.
fn part_of(out: &mut EncodeContext<'_>, part: &Part) -> Option<Json> {
    match &part.kind {
        PartKind::Text(text) => Some(text_part(text)),
        PartKind::Think { text, redacted: None }
            if out.request.is_native() && part.signature.as_ref().is_none_or(|s| s.owner == Protocol::Gemini) =>
        {
            Some(Json::object([("text", Json::text(text)), ("thought", Json::Bool(true))]))
        }
        PartKind::Think { .. } => {
            out.drop_thought(part);
            None
        }
        PartKind::Media(media) => media_part(out, media),
        PartKind::Call { id, name, args, custom } => {
            let mut call = JsonObject::default();
            if out.profile.call_ids == Some(true) {
                call.put("id", Json::text(id));
            }
            call.put("name", Json::text(out.names.get(name)));
            call.put("args", arguments(args, *custom));
            Some(Json::object([("functionCall", call.json())]))
        }
        PartKind::Code { language, text } => {
            let code = [("language", Json::text(language.to_ascii_uppercase())), ("code", Json::text(text))];
            Some(Json::object([("executableCode", Json::object(code))]))
        }
        PartKind::CodeOutput { outcome, text } => {
            let output = [("outcome", Json::text(outcome)), ("output", Json::text(text))];
            Some(Json::object([("codeExecutionResult", Json::object(output))]))
        }
        PartKind::Opaque { protocol: Protocol::Gemini, raw } => Some(raw_part(raw)),
        PartKind::Opaque { .. } | PartKind::Result { .. } => {
            out.report.refuse_part(&part.path, None);
            None
        }
    }
}

/// A part that only Gemini has; its single member keeps its name.
fn raw_part(raw: &str) -> Json {
    let known = ["toolCall", "toolResponse"];
    let tree = Tree::parse(raw.as_bytes()).ok();
    let member = tree
        .as_ref()
        .and_then(|tree| known.iter().find_map(|name| tree.get_proto(name).map(|value| (*name, Json::Raw(value.compact())))));
    Json::Object(member.into_iter().collect())
}

/// Function responses, and the media that follow them in a separate content.
fn results(out: &mut EncodeContext<'_>, turn: &Turn) -> (Vec<Json>, Vec<Json>) {
    let (mut parts, mut following) = (Vec::with_capacity(turn.parts.len()), Vec::new());
    for part in &turn.parts {
        let PartKind::Result { call_id, name, content, json, media, is_error } = &part.kind else { continue };
        let mut response = JsonObject::default();
        if out.profile.call_ids == Some(true) {
            response.put("id", Json::text(call_id));
        }
        response.put("name", Json::text(out.names.get(name)));
        let value = match (json, is_error) {
            (true, _) => Json::Raw(content.clone()),
            (false, true) => Json::object([("error", Json::text(content))]),
            (false, false) => Json::object([("output", Json::text(content))]),
        };
        response.put("response", value);
        let mut inside = Vec::new();
        for item in media {
            match out.encodable_media(item) {
                Some(UpstreamMedia::Bytes(mime, data)) if is_supported(&mime) => {
                    let bytes = Json::object([("inlineData", inline(&mime, data))]);
                    if out.profile.media_in_results == Some(true) { inside.push(bytes) } else { following.push(bytes) }
                }
                Some(UpstreamMedia::Bytes(..)) => out.refuse_media(item),
                Some(UpstreamMedia::Url(mime, address)) => following.push(Json::object([("fileData", file(&mime, address))])),
                None => {}
            }
        }
        if !inside.is_empty() {
            response.put("parts", Json::List(inside));
        }
        parts.push(Json::object([("functionResponse", response.json())]));
    }
    (parts, following)
}

fn media_part(out: &mut EncodeContext<'_>, media: &Media) -> Option<Json> {
    let mut part = JsonObject::default();
    match out.encodable_media(media)? {
        UpstreamMedia::Bytes(mime, data) if is_supported(&mime) => part.put("inlineData", inline(&mime, data)),
        UpstreamMedia::Bytes(..) => {
            out.refuse_media(media);
            return None;
        }
        UpstreamMedia::Url(mime, address) => part.put("fileData", file(&mime, address)),
    }
    // Other values of `image_url.detail` are not resolutions.
    let detail = media.detail.as_ref().filter(|detail| out.request.is_native() || matches!(detail.as_str(), "low" | "high"));
    if let (Some(detail), Some(true)) = (detail, out.profile.part_media_resolution) {
        let level = format!("MEDIA_RESOLUTION_{}", detail.to_ascii_uppercase());
        part.put("mediaResolution", Json::object([("level", Json::text(level))]));
    }
    Some(part.json())
}

/// Whether Gemini accepts media of this type.
fn is_supported(mime: &str) -> bool {
    ["image/", "audio/", "video/", "text/"].iter().any(|kind| mime.starts_with(kind)) || mime == "application/pdf"
}

fn inline(mime: &str, data: String) -> Json {
    Json::object([("mimeType", Json::text(mime)), ("data", Json::Text(data))])
}

fn file(mime: &str, address: String) -> Json {
    let mut file = JsonObject::default();
    if !mime.is_empty() {
        file.put("mimeType", Json::text(mime));
    }
    file.put("fileUri", Json::Text(address));
    file.json()
}
