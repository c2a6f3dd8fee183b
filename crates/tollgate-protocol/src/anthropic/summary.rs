//! Summarises a Messages body in one pass without a tree. Only fields the gateway uses are validated; the upstream validates the
//! rest.

mod block;
mod tool;

use crate::{
    ErrorStyle, Malformed, Method, RequestSummary, Target,
    body_members::{BodyModel, metadata, output_limit},
    markers, price_effects,
    scan::{Name, Scanner, SyntaxError, Value, ValueKind},
    summary_builder::{SummaryBuilder, TurnRole, UniqueMember},
    validation::JsonPath,
};

/// Members that may appear once, because the gateway reads them.
const UNIQUE: &[&str] = &[
    "model",
    "messages",
    "max_tokens",
    "stream",
    "system",
    "tools",
    "service_tier",
    "metadata",
    "speed",
    "mcp_servers",
    "fallbacks",
    "container",
    "inference_geo",
    "context_management",
    "compaction",
    "thread",
];

#[derive(Debug, Default)]
struct Body {
    model: BodyModel,
    stream: bool,
    has_messages: bool,
    has_contents: bool,
    has_limit: bool,
}

/// Reads the body of a message or of a token count.
pub(super) fn summarise(target: &Target, bytes: &[u8]) -> Result<RequestSummary, Malformed> {
    let mut builder = SummaryBuilder::new(ErrorStyle::Anthropic);
    let mut body = Body::default();
    read(bytes, &mut builder, &mut body).map_err(|fault| fault.malformed(bytes))?;

    if !body.has_messages {
        let path = JsonPath::Root.member("messages");
        if body.has_contents { builder.errors.other_protocol(&path) } else { builder.errors.missing(&path) }
    }
    if !body.has_limit && target.method != Method::CountTokens {
        builder.errors.missing(&JsonPath::Root.member("max_tokens"));
    }
    let model = body.model.validated(&mut builder);
    builder.splices.markers = markers::has_suffixed_ids(bytes) || markers::has_thinking_signatures(bytes);
    // Usage is part of every stream.
    builder.build(model, target.method, body.stream && target.method.generates(), true)
}

fn read(bytes: &[u8], builder: &mut SummaryBuilder, body: &mut Body) -> Result<(), SyntaxError> {
    let mut scanner = Scanner::new(bytes)?;
    let range = scanner.object(|scanner, name| body.member(scanner, builder, &name))?;
    builder.splices.body_open = range.start + 1;
    scanner.end()
}

impl Body {
    fn member(&mut self, scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, name: &Name<'_>) -> Result<(), SyntaxError> {
        let word = name.word();
        if let Some((number, known)) = (0..).zip(UNIQUE).find(|(_, known)| **known == word) {
            builder.members.check_unique(UniqueMember::new(number, known), name)?;
        }
        let present = scanner.peek() != ValueKind::Null;
        match word {
            "model" => {
                self.model = BodyModel::read(scanner, builder)?;
                return Ok(());
            }
            "messages" => {
                self.has_messages = true;
                return builder.required_list(scanner, &JsonPath::Root.member("messages"), message);
            }
            "max_tokens" => {
                self.has_limit = present;
                builder.max_output = output_limit(scanner, builder, "max_tokens")?;
                return Ok(());
            }
            "stream" => match scanner.value()?.0 {
                Value::Bool(stream) => self.stream = stream,
                Value::Null => {}
                Value::Number(_) | Value::Text(_) | Value::Array | Value::Object => {
                    builder.errors.wrong_type(&JsonPath::Root.member("stream"), "a boolean");
                }
            },
            "system" if present => system(scanner, builder)?,
            "tools" if present => tool::tools(scanner, builder)?,
            "service_tier" => builder.service_tier(&scanner.value()?.0),
            "metadata" if scanner.peek() == ValueKind::Object => metadata(scanner, builder)?,
            "output_config" if scanner.peek() == ValueKind::Object => return output_config(scanner, builder),
            "context_management" => context_management(scanner, builder)?,
            "thread" => thread(scanner, builder)?,
            "metadata" | "system" | "tools" => {
                scanner.skip()?;
            }
            word => {
                self.has_contents |= word == "contents";
                builder.costly_option(scanner, price_effects(word))?;
            }
        }
        if present {
            builder.field(&JsonPath::Root.member(word));
        }
        Ok(())
    }
}

/// Edits of the history. Those that only remove something have no charge.
fn context_management(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    scanner.members(|scanner, name| {
        if name.word() == "edits" {
            scanner.elements(|scanner, _| edit(scanner, builder))?;
        }
        Ok(())
    })?;
    Ok(())
}

fn edit(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    scanner.members(|scanner, name| {
        if name.word() == "type" {
            let kind = scanner.optional_string()?;
            builder.extras.unseen.compaction |= kind.is_some_and(|kind| !kind.decode().starts_with("clear_"));
        }
        Ok(())
    })?;
    Ok(())
}

/// A conversation that the provider keeps. Continuing one adds it to the input.
fn thread(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    scanner.members(|scanner, name| {
        if name.word() == "previous_message_id" {
            builder.cached_content(scanner.peek());
        }
        Ok(())
    })?;
    Ok(())
}

/// Records the names of the members.
fn output_config(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    let path = JsonPath::Root.member("output_config");
    let members = scanner.object(|scanner, name| {
        if scanner.peek() != ValueKind::Null {
            builder.field(&path.member(name.word()));
        }
        scanner.skip().map(drop)
    });
    members.map(drop)
}

fn system(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    builder.begin_instruction();
    block::content(builder, scanner, &JsonPath::Root.member("system"))?;
    builder.end_turn(TurnRole::System);
    Ok(())
}

fn message(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let (mut role, mut has_content) = (Value::Null, false);
    builder.begin_turn();
    scanner.object(|scanner, name| {
        match name.word() {
            "role" => role = scanner.value()?.0,
            "content" => {
                has_content = scanner.peek() != ValueKind::Null;
                block::content(builder, scanner, &path.member("content"))?;
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    if !has_content {
        builder.errors.missing(&path.member("content"));
    }
    let speaker = match role {
        Value::Text(text) if !text.is_blank() => match &*text.decode() {
            "user" => TurnRole::User,
            // This includes instructions within the conversation. They may change from turn to turn, so they are not part of the affinity
            // hash.
            _ => TurnRole::Other,
        },
        Value::Null | Value::Text(_) => {
            builder.errors.missing(&path.member("role"));
            TurnRole::Other
        }
        Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => {
            builder.errors.wrong_type(&path.member("role"), "a string");
            TurnRole::Other
        }
    };
    builder.end_turn(speaker);
    Ok(())
}

#[cfg(test)]
mod tests;
