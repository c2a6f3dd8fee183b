//! Summarises a Responses body in one pass without a tree. Only fields the gateway uses are validated; the upstream validates the rest.

mod choice;
mod item;
mod tool;

use choice::SearchChoice;

use crate::{
    ErrorStyle, Malformed, Method, RequestSummary, Target,
    body_members::{BodyModel, metadata, output_limit},
    markers, price_effects,
    scan::{JsonStr, Name, Scanner, SyntaxError, Value, ValueKind, is_finite, whole},
    summary_builder::{MAX_TURNS, SummaryBuilder, TurnRole, UniqueMember},
    validation::JsonPath,
};

/// The error for a body that is written for chat completions.
pub(super) const CHAT_BODY: &str = "Missing required parameter: 'input'. The body has 'messages', which belongs to \
                                    /v1/chat/completions; this endpoint expects 'input'.";

/// A member that the gateway reads. It may appear once.
fn unique(word: &str) -> Option<UniqueMember> {
    let (number, name) = match word {
        "model" => (0, "model"),
        "input" => (1, "input"),
        "instructions" => (2, "instructions"),
        "stream" => (3, "stream"),
        "max_output_tokens" => (4, "max_output_tokens"),
        "tools" => (5, "tools"),
        "service_tier" => (6, "service_tier"),
        "metadata" => (7, "metadata"),
        "prompt_cache_key" => (8, "prompt_cache_key"),
        "previous_response_id" => (9, "previous_response_id"),
        "conversation" => (10, "conversation"),
        "prompt" => (11, "prompt"),
        "background" => (12, "background"),
        "tool_choice" => (13, "tool_choice"),
        "max_tool_calls" => (14, "max_tool_calls"),
        _ => return None,
    };
    Some(UniqueMember::new(number, name))
}

#[derive(Debug, Default)]
struct Body<'a> {
    model: BodyModel,
    stream: bool,
    input: Input,
    has_instructions: bool,
    has_messages: bool,
    /// The conversation that the request continues, by the service's name for it.
    thread: Option<JsonStr<'a>>,
    cache_key: Option<JsonStr<'a>>,
    search: SearchChoice,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Input {
    #[default]
    Missing,
    Empty,
    Given,
}

/// Reads the body of a response, of a token count or of a compaction.
pub(super) fn summarise(target: &Target, bytes: &[u8]) -> Result<RequestSummary, Malformed> {
    let mut builder = SummaryBuilder::new(ErrorStyle::OpenAi);
    let mut body = Body::default();
    read(bytes, &mut builder, &mut body).map_err(|fault| fault.malformed(bytes))?;

    let path = JsonPath::Root.member("input");
    match body.input {
        // A stored response can be compacted.
        Input::Missing if target.method == Method::Compact && body.thread.is_some() => {}
        Input::Missing if body.has_messages => builder.errors.missing_because(&path, CHAT_BODY),
        Input::Missing => builder.errors.missing(&path),
        Input::Empty if !body.has_instructions => builder.errors.invalid(&path, "must not be empty"),
        Input::Empty | Input::Given => {}
    }
    body.search.apply(&mut builder);
    // The caller's own key stays the same in all turns.
    if let Some(key) = body.cache_key.or(body.thread) {
        builder.cache_key(&key);
    }
    if !target.method.takes_output_limit() {
        // An output limit has no effect for this method.
        builder.max_output = None;
    }
    let model = body.model.validated(&mut builder);
    builder.splices.markers =
        markers::has_suffixed_ids(bytes) || markers::has_thinking_signatures(bytes) || markers::has_translated_reasoning(bytes);
    // Usage is part of every stream.
    builder.build(model, target.method, body.stream && target.method == Method::Chat, true)
}

fn read<'a>(bytes: &'a [u8], builder: &mut SummaryBuilder, body: &mut Body<'a>) -> Result<(), SyntaxError> {
    let mut scanner = Scanner::new(bytes)?;
    let range = scanner.object(|scanner, name| body.member(scanner, builder, &name))?;
    builder.splices.body_open = range.start + 1;
    scanner.end()
}

impl<'a> Body<'a> {
    fn member(&mut self, scanner: &mut Scanner<'a>, builder: &mut SummaryBuilder, name: &Name<'a>) -> Result<(), SyntaxError> {
        let word = name.word();
        if let Some(member) = unique(word) {
            builder.members.check_unique(member, name)?;
        }
        let present = scanner.peek() != ValueKind::Null;
        match word {
            "model" => {
                self.model = BodyModel::read(scanner, builder)?;
                return Ok(());
            }
            "input" => {
                self.input = input(scanner, builder)?;
                return Ok(());
            }
            "instructions" => {
                self.has_instructions = present;
                builder.begin_instruction();
                if let Some(text) = builder.string(scanner, &JsonPath::Root.member("instructions"))? {
                    builder.text(&text);
                }
                builder.end_turn(TurnRole::System);
            }
            "max_output_tokens" => builder.max_output = output_limit(scanner, builder, "max_output_tokens")?,
            "stream" => match scanner.value()?.0 {
                Value::Bool(stream) => self.stream = stream,
                Value::Null => {}
                Value::Number(_) | Value::Text(_) | Value::Array | Value::Object => {
                    builder.errors.wrong_type(&JsonPath::Root.member("stream"), "a boolean");
                }
            },
            "temperature" => {
                let (value, _) = scanner.value()?;
                if !matches!(value, Value::Null) && !matches!(value, Value::Number(number) if is_finite(number)) {
                    builder.errors.wrong_type(&JsonPath::Root.member("temperature"), "a finite number");
                }
            }
            "tools" if present => tool::tools(scanner, builder)?,
            "tool_choice" => self.search.read(scanner)?,
            "max_tool_calls" => {
                if let Value::Number(calls) = scanner.value()?.0
                    && let Some(calls) = whole(calls)
                {
                    self.search.limit_calls(calls);
                }
            }
            "service_tier" => builder.service_tier(&scanner.value()?.0),
            "metadata" if scanner.peek() == ValueKind::Object => metadata(scanner, builder)?,
            "prompt_cache_key" => self.cache_key = scanner.optional_string()?,
            "reasoning" | "text" if scanner.peek() == ValueKind::Object => return members_of(word, scanner, builder),
            "tools" | "metadata" => {
                scanner.skip()?;
            }
            word => {
                self.has_messages |= word == "messages";
                let begin = scanner.position();
                builder.costly_option(scanner, price_effects(word))?;
                if matches!(word, "previous_response_id" | "conversation") {
                    self.thread = thread_of(scanner.slice(begin..scanner.position()))?.or(self.thread.take());
                }
            }
        }
        if present {
            builder.field(&JsonPath::Root.member(word));
        }
        Ok(())
    }
}

/// The name of a stored response or conversation: a string, or an object with one.
fn thread_of(value: &str) -> Result<Option<JsonStr<'_>>, SyntaxError> {
    let mut scanner = Scanner::new(value.as_bytes())?;
    if scanner.peek() == ValueKind::Text {
        return scanner.optional_string();
    }
    let mut found = None;
    scanner.members(|scanner, name| {
        if name.word() == "id" {
            found = scanner.optional_string()?;
        }
        Ok(())
    })?;
    Ok(found)
}

/// Records the names of the members.
fn members_of(word: &str, scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    let path = JsonPath::Root.member(word);
    let members = scanner.object(|scanner, name| {
        if scanner.peek() != ValueKind::Null {
            builder.field(&path.member(name.word()));
        }
        scanner.skip().map(drop)
    });
    members.map(drop)
}

fn input(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<Input, SyntaxError> {
    let path = JsonPath::Root.member("input");
    match scanner.peek() {
        ValueKind::Null => {
            scanner.skip()?;
            Ok(Input::Missing)
        }
        ValueKind::Text => {
            builder.begin_turn();
            builder.any_text(scanner)?;
            builder.end_turn(TurnRole::User);
            Ok(Input::Given)
        }
        ValueKind::Array => {
            let (count, _) = builder.list(scanner, &path, MAX_TURNS, item::item)?;
            Ok(if count == 0 { Input::Empty } else { Input::Given })
        }
        ValueKind::Bool | ValueKind::Number | ValueKind::Object => {
            builder.errors.wrong_type(&path, "a string or an array");
            scanner.skip()?;
            Ok(Input::Given)
        }
    }
}

#[cfg(test)]
mod tests;
