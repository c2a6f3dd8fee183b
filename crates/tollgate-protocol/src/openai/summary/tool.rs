//! Tools of a chat body.

use crate::{
    scan::{Scanner, SyntaxError, Value, ValueKind},
    summary_builder::{MAX_TOOLS, SummaryBuilder, ToolCharge},
    validation::JsonPath,
};

/// Reads `tools`: an array of objects, function tools with a name.
pub(super) fn tools(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    if scanner.peek() == ValueKind::Null {
        return scanner.skip().map(drop);
    }
    let (count, raw) = builder.list(scanner, &JsonPath::Root.member("tools"), MAX_TOOLS, tool)?;
    builder.tools(count, raw);
    Ok(())
}

/// Reads the deprecated `functions`; the upstream validates their members.
pub(super) fn functions(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Array {
        return scanner.skip().map(drop);
    }
    let path = JsonPath::Root.member("functions");
    let (count, raw) = builder.list(scanner, &path, MAX_TOOLS, |_, scanner, _| scanner.skip().map(drop))?;
    builder.tools(count, raw);
    Ok(())
}

/// Reads `plugins`: tools run by a gateway between this one and the provider.
pub(super) fn plugins(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    scanner.elements(|scanner, _| {
        let mut charge = ToolCharge::Other;
        scanner.members(|scanner, name| {
            if name.word() == "id"
                && let Some(id) = scanner.optional_string()?
            {
                charge = ToolCharge::of_chat_tool(&id.decode());
            }
            Ok(())
        })?;
        builder.server_tool(charge);
        Ok(())
    })?;
    Ok(())
}

enum Function {
    Absent,
    NotAnObject,
    /// Whether `name` is a string; `None` if absent.
    Object(Option<bool>),
}

fn tool(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut kind = None;
    let mut function = Function::Absent;
    // The member that names a tool without a type, such as `{"googleSearch": {}}`.
    let mut member = None;
    scanner.object(|scanner, name| {
        match name.word() {
            "type" => kind = scanner.optional_string()?.map(|kind| kind.decode().into_owned()),
            "function" => function = read_function(scanner)?,
            word => {
                if scanner.peek() != ValueKind::Null {
                    member.get_or_insert_with(|| word.to_owned());
                }
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    match (kind.as_deref(), &function) {
        (Some("function" | "custom"), _) | (None, Function::NotAnObject | Function::Object(_)) => {}
        (kind, _) => {
            if let Some(name) = kind.or(member.as_deref()) {
                builder.server_tool(ToolCharge::of_chat_tool(name));
            }
        }
    }
    if kind.as_deref() == Some("function") {
        let at = path.member("function");
        match function {
            Function::Absent => builder.errors.missing(&at),
            Function::NotAnObject => builder.errors.wrong_type(&at, "an object"),
            Function::Object(None) => builder.errors.missing(&at.member("name")),
            Function::Object(Some(false)) => builder.errors.wrong_type(&at.member("name"), "a string"),
            Function::Object(Some(true)) => {}
        }
    }
    Ok(())
}

fn read_function(scanner: &mut Scanner<'_>) -> Result<Function, SyntaxError> {
    match scanner.peek() {
        ValueKind::Object => {}
        ValueKind::Null => {
            scanner.skip()?;
            return Ok(Function::Absent);
        }
        ValueKind::Bool | ValueKind::Number | ValueKind::Text | ValueKind::Array => {
            scanner.skip()?;
            return Ok(Function::NotAnObject);
        }
    }
    let mut named = None;
    scanner.object(|scanner, name| {
        if name.word() != "name" {
            return scanner.skip().map(drop);
        }
        named = match scanner.value()?.0 {
            Value::Null => None,
            Value::Text(_) => Some(true),
            Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => Some(false),
        };
        Ok(())
    })?;
    Ok(Function::Object(named))
}
