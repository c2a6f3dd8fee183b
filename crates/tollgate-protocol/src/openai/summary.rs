//! Summarises a chat completions or embeddings body in one pass without a tree. Only fields the gateway uses are validated;
//! the upstream validates the rest.

mod chat_member;
mod message;
mod tool;

use self::chat_member::{ChatMember, EMBEDDINGS_INPUT, INCLUDE_USAGE};
use crate::{
    ErrorStyle, Malformed, Method, PriceEffect, RequestSummary, Target,
    body_members::{BodyModel, metadata, output_limit},
    markers, price_effects,
    scan::{Name, Scanner, SyntaxError, Value, ValueKind, is_finite},
    summary_builder::{MAX_TURNS, SummaryBuilder, ToolCharge, candidates_of},
    validation::JsonPath,
};

#[derive(Debug, Default)]
struct Body {
    model: BodyModel,
    stream: bool,
    include_usage: bool,
    has_messages: bool,
    has_contents: bool,
    has_input: bool,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
}

/// Reads a chat completions body, or an embeddings body where the target is one of embeddings.
pub(super) fn summarise(target: &Target, bytes: &[u8]) -> Result<RequestSummary, Malformed> {
    let mut builder = SummaryBuilder::new(ErrorStyle::OpenAi);
    let mut body = Body::default();
    let chat = target.method != Method::Embeddings;
    read(bytes, &mut builder, &mut body, chat).map_err(|fault| fault.malformed(bytes))?;

    if !chat && !body.has_input {
        builder.errors.missing(&JsonPath::Root.member("input"));
    }
    if chat && !body.has_messages {
        let path = JsonPath::Root.member("messages");
        if body.has_contents { builder.errors.other_protocol(&path) } else { builder.errors.missing(&path) }
    }
    let model = body.model.validated(&mut builder);
    // Both fields are passed on and upstreams differ in which one they use: the larger is the worst case.
    builder.max_output = body.max_completion_tokens.max(body.max_tokens);
    builder.splices.markers |= chat && markers::has_suffixed_ids(bytes);
    builder.build(model, target.method, chat && body.stream, chat && body.include_usage)
}

fn read(bytes: &[u8], builder: &mut SummaryBuilder, body: &mut Body, chat: bool) -> Result<(), SyntaxError> {
    let mut scanner = Scanner::new(bytes)?;
    let range = scanner.object(|scanner, name| {
        if chat { body.chat_member(scanner, builder, &name) } else { body.embeddings_member(scanner, builder, &name) }
    })?;
    builder.splices.body_open = range.start + 1;
    scanner.end()
}

impl Body {
    fn embeddings_member(
        &mut self,
        scanner: &mut Scanner<'_>,
        builder: &mut SummaryBuilder,
        name: &Name<'_>,
    ) -> Result<(), SyntaxError> {
        let present = scanner.peek() != ValueKind::Null;
        match name.word() {
            "model" => {
                builder.members.check_unique(ChatMember::Model.unique(), name)?;
                self.model = BodyModel::read(scanner, builder)?;
            }
            "input" => {
                builder.members.check_unique(EMBEDDINGS_INPUT, name)?;
                self.has_input = present;
                input(scanner, builder)?;
            }
            word => {
                // Embeddings have no price but that of their tokens.
                let effects = price_effects(word);
                let effects = if effects.contains(&PriceEffect::OtherRoutes) { effects } else { &[] };
                builder.costly_option(scanner, effects)?;
                if present {
                    builder.field(&JsonPath::Root.member(word));
                }
            }
        }
        Ok(())
    }

    fn chat_member(&mut self, scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, name: &Name<'_>) -> Result<(), SyntaxError> {
        let word = name.word();
        let member = ChatMember::of(word);
        if let Some(member) = member {
            builder.members.check_unique(member.unique(), name)?;
        }
        let present = scanner.peek() != ValueKind::Null;
        match member {
            Some(ChatMember::Model) => {
                self.model = BodyModel::read(scanner, builder)?;
                return Ok(());
            }
            Some(ChatMember::Messages) => {
                self.has_messages = true;
                return builder.required_list(scanner, &JsonPath::Root.member("messages"), message::message);
            }
            Some(member) => self.option(scanner, builder, member)?,
            None => self.other_option(scanner, builder, word)?,
        }
        if present {
            builder.field(&JsonPath::Root.member(word));
        }
        Ok(())
    }

    /// A member that may appear once; `null` is the same as absent.
    fn option(&mut self, scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, member: ChatMember) -> Result<(), SyntaxError> {
        match member {
            // Read by the caller.
            ChatMember::Model | ChatMember::Messages => {}
            ChatMember::Stream => match scanner.value()?.0 {
                Value::Bool(stream) => self.stream = stream,
                Value::Null => {}
                Value::Number(_) | Value::Text(_) | Value::Array | Value::Object => {
                    builder.errors.wrong_type(&JsonPath::Root.member("stream"), "a boolean");
                }
            },
            ChatMember::StreamOptions => self.stream_options(scanner, builder)?,
            ChatMember::MaxTokens => self.max_tokens = output_limit(scanner, builder, "max_tokens")?,
            ChatMember::MaxCompletionTokens => {
                self.max_completion_tokens = output_limit(scanner, builder, "max_completion_tokens")?;
            }
            // `best_of` is charged for all its answers.
            ChatMember::N | ChatMember::BestOf => {
                builder.candidates = builder.candidates.max(candidates_of(&scanner.value()?.0));
            }
            ChatMember::ServiceTier => builder.service_tier(&scanner.value()?.0),
            ChatMember::WebSearchOptions => {
                if scanner.peek() != ValueKind::Null {
                    builder.server_tool(ToolCharge::Search);
                }
                scanner.skip()?;
            }
            ChatMember::Temperature => {
                let (value, _) = scanner.value()?;
                if !matches!(value, Value::Null) && !matches!(value, Value::Number(number) if is_finite(number)) {
                    builder.errors.wrong_type(&JsonPath::Root.member("temperature"), "a finite number");
                }
            }
            ChatMember::Tools => tool::tools(scanner, builder)?,
            ChatMember::Functions => tool::functions(scanner, builder)?,
            ChatMember::PromptCacheKey => {
                if let (Value::Text(key), _) = scanner.value()? {
                    builder.cache_key(&key);
                }
            }
        }
        Ok(())
    }

    /// A member that may appear more than once.
    fn other_option(&mut self, scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, word: &str) -> Result<(), SyntaxError> {
        self.has_contents |= word == "contents";
        match word {
            "cached_content" | "cachedContent" => builder.cached_content(scanner.peek()),
            "extra_body" if scanner.peek() == ValueKind::Object => return extra_body(scanner, builder),
            "google" if scanner.peek() == ValueKind::Object => return google(scanner, builder),
            "modalities" => return builder.modalities(scanner),
            "plugins" => return tool::plugins(scanner, builder),
            "metadata" if scanner.peek() == ValueKind::Object => return metadata(scanner, builder),
            // Other providers' names for a search.
            "search_parameters" if scanner.peek() == ValueKind::Object => builder.server_tool(ToolCharge::Search),
            "enable_search" => {
                if scanner.value()?.0 == Value::Bool(true) {
                    builder.server_tool(ToolCharge::Search);
                }
                return Ok(());
            }
            "search_parameters" | "google" | "extra_body" => {}
            word => return builder.costly_option(scanner, price_effects(word)),
        }
        scanner.skip().map(drop)
    }

    fn stream_options(&mut self, scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
        let range = if scanner.peek() == ValueKind::Object {
            scanner.object(|scanner, name| {
                if name.word() != "include_usage" {
                    return scanner.skip().map(drop);
                }
                builder.members.check_unique(INCLUDE_USAGE, &name)?;
                let (value, range) = scanner.value()?;
                self.include_usage = value == Value::Bool(true);
                builder.splices.include_usage = Some(range);
                Ok(())
            })?
        } else {
            scanner.skip()?
        };
        builder.splices.stream_options = Some(range);
        Ok(())
    }
}

fn extra_body(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    let members = scanner.object(|scanner, name| {
        if name.word() == "google" && scanner.peek() == ValueKind::Object {
            return google(scanner, builder);
        }
        scanner.skip().map(drop)
    });
    members.map(drop)
}

/// Google's own members.
fn google(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    let members = scanner.object(|scanner, name| {
        match name.word() {
            "cached_content" | "cachedContent" => builder.cached_content(scanner.peek()),
            "tools" if scanner.peek() != ValueKind::Null => builder.server_tool(ToolCharge::Other),
            _ => {}
        }
        scanner.skip().map(drop)
    });
    members.map(drop)
}

/// Reads the input of embeddings: a text, texts, token ids, or lists of token ids.
fn input(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    let path = JsonPath::Root.member("input");
    match scanner.peek() {
        // Reported as missing after the scan.
        ValueKind::Null => scanner.skip().map(drop),
        ValueKind::Text => builder.any_text(scanner),
        ValueKind::Array => builder.list(scanner, &path, MAX_TURNS, |builder, scanner, _| embedded(scanner, builder)).map(drop),
        ValueKind::Bool | ValueKind::Number | ValueKind::Object => {
            builder.errors.wrong_type(&path, "a string or an array");
            scanner.skip().map(drop)
        }
    }
}

fn embedded(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    match scanner.peek() {
        ValueKind::Array => scanner.array(|scanner, _| token_or_text(scanner, builder)).map(drop),
        ValueKind::Null | ValueKind::Bool | ValueKind::Number | ValueKind::Text | ValueKind::Object => {
            token_or_text(scanner, builder)
        }
    }
}

fn token_or_text(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    match scanner.value()?.0 {
        Value::Text(text) => builder.text(&text),
        // A token is about four bytes of text.
        Value::Number(_) => builder.text_of("0000"),
        Value::Null | Value::Bool(_) | Value::Array | Value::Object => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
