//! The light scan of a chat completions or embeddings body: one pass, no tree. What is checked here and nothing else is
//! refused here (chat completions wire reference, section 11.7); the rest is the upstream's to judge.

mod message;
mod tool;

use std::ops::Range;

use crate::{
    Malformed, Method, Outline, Target, markers,
    scan::{Fault, Kind, Scanner, Text, Value, whole},
    shape::{Path, Wording},
    survey::{MAX_TURNS, Survey, candidates_of, is_finite_number},
};

/// Longest name of a model, in bytes; names are told back in errors and written into records.
const MAX_MODEL_BYTES: usize = 1_024;
/// Most tokens a limit may name.
const MAX_LIMIT: u64 = i64::MAX.unsigned_abs();

/// What a body says besides what the survey collects.
#[derive(Debug, Default)]
struct Body {
    model: Model,
    stream: bool,
    include_usage: bool,
    has_messages: bool,
    has_contents: bool,
    has_input: bool,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
}

#[derive(Debug, Default)]
enum Model {
    #[default]
    Missing,
    WrongType,
    Invalid(&'static str),
    Named(String),
}

/// Reads a chat completions body, or an embeddings body where the target says so.
pub(super) fn outline(target: &Target, bytes: &[u8]) -> Result<Outline, Malformed> {
    let mut survey = Survey::new(Wording::OpenAi);
    let mut body = Body::default();
    let chat = target.method != Method::Embeddings;
    read(bytes, &mut survey, &mut body, chat).map_err(|fault| fault.malformed(bytes))?;

    if !chat && !body.has_input {
        survey.faults.missing(&Path::Root.member("input"));
    }
    if chat && !body.has_messages {
        let path = Path::Root.member("messages");
        if body.has_contents { survey.faults.other_protocol(&path) } else { survey.faults.missing(&path) }
    }
    // The model's faults stand behind the others: shape is checked before the model is looked up.
    let path = Path::Root.member("model");
    let model = match body.model {
        Model::Named(name) => name,
        Model::Missing => {
            survey.faults.missing(&path);
            String::new()
        }
        Model::WrongType => {
            survey.faults.wrong_type(&path, "a string");
            String::new()
        }
        Model::Invalid(rule) => {
            survey.faults.invalid(&path, rule);
            String::new()
        }
    };
    // Both are passed on, and not every upstream reads the newer one: the larger is what the request may come to.
    survey.max_output = body.max_completion_tokens.max(body.max_tokens);
    survey.splices.markers = chat && (markers::has_suffixed_ids(bytes) || markers::has_google_signatures(bytes));
    survey.into_outline(model, target.method, chat && body.stream, chat && body.include_usage)
}

fn read(bytes: &[u8], survey: &mut Survey, body: &mut Body, chat: bool) -> Result<(), Fault> {
    let mut scanner = Scanner::new(bytes)?;
    let range = scanner.object(|scanner, name| {
        let word = name.decode();
        let present = scanner.peek() != Kind::Null;
        let optional = match &*word {
            "model" => {
                body.model = model(scanner, survey, &name)?;
                false
            }
            "messages" if chat => {
                survey.once("messages", &name)?;
                body.has_messages = true;
                let path = Path::Root.member("messages");
                survey.required_list(scanner, &path, message::message)?;
                false
            }
            "input" if !chat => {
                survey.once("input", &name)?;
                body.has_input = present;
                input(scanner, survey)?;
                false
            }
            word if chat => {
                body.has_contents |= word == "contents";
                body.option(scanner, survey, word, &name)?;
                true
            }
            _ => {
                scanner.skip()?;
                true
            }
        };
        if optional && present {
            survey.field(&Path::Root.member(&word));
        }
        Ok(())
    })?;
    survey.splices.body_open = range.start + 1;
    scanner.end()
}

fn model(scanner: &mut Scanner<'_>, survey: &mut Survey, name: &Text<'_>) -> Result<Model, Fault> {
    survey.once("model", name)?;
    let (value, range) = scanner.value()?;
    survey.splices.model = Some(range);
    Ok(match value {
        Value::Null => Model::Missing,
        Value::Text(text) if text.is_blank() => Model::Missing,
        Value::Text(text) => {
            let name = text.decode();
            if name.len() > MAX_MODEL_BYTES {
                Model::Invalid("must have at most 1024 bytes")
            } else if name.contains(char::is_control) {
                Model::Invalid("must not hold control characters")
            } else {
                Model::Named(name.into_owned())
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => Model::WrongType,
    })
}

impl Body {
    /// An optional member of a chat body; `null` is the same as absent.
    fn option(&mut self, scanner: &mut Scanner<'_>, survey: &mut Survey, word: &str, name: &Text<'_>) -> Result<(), Fault> {
        match word {
            "stream" => {
                survey.once("stream", name)?;
                match scanner.value()?.0 {
                    Value::Bool(stream) => self.stream = stream,
                    Value::Null => {}
                    Value::Number(_) | Value::Text(_) | Value::Array | Value::Object => {
                        survey.faults.wrong_type(&Path::Root.member("stream"), "a boolean");
                    }
                }
            }
            "stream_options" => {
                survey.once("stream_options", name)?;
                self.stream_options(scanner, survey)?;
            }
            "max_tokens" => {
                survey.once("max_tokens", name)?;
                self.max_tokens = limit(scanner, survey, "max_tokens")?;
            }
            "max_completion_tokens" => {
                survey.once("max_completion_tokens", name)?;
                self.max_completion_tokens = limit(scanner, survey, "max_completion_tokens")?;
            }
            "n" => {
                survey.once("n", name)?;
                survey.candidates = candidates_of(&scanner.value()?.0);
            }
            "temperature" => {
                survey.once("temperature", name)?;
                let (value, _) = scanner.value()?;
                if value != Value::Null && !is_finite_number(&value) {
                    survey.faults.wrong_type(&Path::Root.member("temperature"), "a finite number");
                }
            }
            "tools" => {
                survey.once("tools", name)?;
                tool::tools(scanner, survey)?;
            }
            "functions" => {
                survey.once("functions", name)?;
                tool::functions(scanner, survey)?;
            }
            "prompt_cache_key" => {
                survey.once("prompt_cache_key", name)?;
                if let (Value::Text(key), _) = scanner.value()? {
                    survey.cache_key(&key);
                }
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    }

    fn stream_options(&mut self, scanner: &mut Scanner<'_>, survey: &mut Survey) -> Result<(), Fault> {
        let range = if scanner.peek() == Kind::Object {
            scanner.object(|scanner, name| {
                if name.decode() != "include_usage" {
                    return scanner.skip().map(drop);
                }
                survey.once("stream_options.include_usage", &name)?;
                let (value, range) = scanner.value()?;
                self.include_usage = value == Value::Bool(true);
                survey.splices.include_usage = Some(range);
                Ok(())
            })?
        } else {
            scanner.skip()?
        };
        survey.splices.stream_options = Some(range);
        Ok(())
    }
}

/// An output limit: a whole number of 0 … 2^63−1. Its place is noted also where it is `null`, because a limit may have to be
/// written there.
fn limit(scanner: &mut Scanner<'_>, survey: &mut Survey, name: &'static str) -> Result<Option<u64>, Fault> {
    let (value, range): (Value<'_>, Range<usize>) = scanner.value()?;
    survey.splices.max_output.push(range);
    let limit = match value {
        Value::Null => return Ok(None),
        Value::Number(number) => whole(number).filter(|limit| *limit <= MAX_LIMIT),
        Value::Bool(_) | Value::Text(_) | Value::Array | Value::Object => None,
    };
    if limit.is_none() {
        survey.faults.wrong_type(&Path::Root.member(name), "a whole number from 0 to 9223372036854775807");
    }
    Ok(limit)
}

/// What is to be embedded: a text, texts, token ids, or lists of token ids.
fn input(scanner: &mut Scanner<'_>, survey: &mut Survey) -> Result<(), Fault> {
    let path = Path::Root.member("input");
    match scanner.peek() {
        // Absent: told as missing behind the scan.
        Kind::Null => scanner.skip().map(drop),
        Kind::Text => survey.any_text(scanner),
        Kind::Array => survey.list(scanner, &path, MAX_TURNS, |survey, scanner, _| embedded(scanner, survey)).map(drop),
        Kind::Bool | Kind::Number | Kind::Object => {
            survey.faults.wrong_type(&path, "a string or an array");
            scanner.skip().map(drop)
        }
    }
}

fn embedded(scanner: &mut Scanner<'_>, survey: &mut Survey) -> Result<(), Fault> {
    match scanner.peek() {
        Kind::Array => scanner.array(|scanner, _| token_or_text(scanner, survey)).map(drop),
        Kind::Null | Kind::Bool | Kind::Number | Kind::Text | Kind::Object => token_or_text(scanner, survey),
    }
}

fn token_or_text(scanner: &mut Scanner<'_>, survey: &mut Survey) -> Result<(), Fault> {
    match scanner.value()?.0 {
        Value::Text(text) => survey.text(&text),
        // A token stands for about four bytes of text.
        Value::Number(_) => survey.text_of("0000"),
        Value::Null | Value::Bool(_) | Value::Array | Value::Object => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
