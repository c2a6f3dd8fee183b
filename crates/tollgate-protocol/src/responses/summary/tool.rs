//! Tools of a Responses body.

use crate::{
    scan::{Scanner, SyntaxError, Value, ValueKind},
    summary_builder::{MAX_TOOLS, SummaryBuilder, ToolCharge},
    validation::JsonPath,
};

/// Reads `tools`: an array of objects with a type. Functions, custom tools and namespaces have a name.
pub(super) fn tools(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    let (count, raw) = builder.list(scanner, &JsonPath::Root.member("tools"), MAX_TOOLS, tool)?;
    builder.tools(count, raw);
    Ok(())
}

fn tool(builder: &mut SummaryBuilder, scanner: &mut Scanner<'_>, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let (mut kind, mut tool_name) = (Value::Null, Value::Null);
    scanner.object(|scanner, name| {
        match name.word() {
            "type" => kind = scanner.value()?.0,
            "name" => tool_name = scanner.value()?.0,
            "tools" if scanner.peek() == ValueKind::Array => {
                builder.list(scanner, &path.member("tools"), MAX_TOOLS, tool)?;
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    let kind = match &kind {
        Value::Text(kind) => kind.decode(),
        Value::Null => {
            builder.errors.missing(&path.member("type"));
            return Ok(());
        }
        Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => {
            builder.errors.wrong_type(&path.member("type"), "a string");
            return Ok(());
        }
    };
    if !matches!(&*kind, "function" | "custom" | "namespace") {
        hosted(builder, &kind, path);
        return Ok(());
    }
    match tool_name {
        Value::Text(_) => {}
        Value::Null => builder.errors.missing(&path.member("name")),
        Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => {
            builder.errors.wrong_type(&path.member("name"), "a string");
        }
    }
    Ok(())
}

/// How the types of search begin that other upstreams do without (docs/translation.md).
pub(super) const OFFERED_SEARCH: &str = "web_search";

/// A tool that OpenAI runs, or that the caller runs for a model which knows it.
fn hosted(builder: &mut SummaryBuilder, kind: &str, path: &JsonPath<'_>) {
    match kind {
        kind if kind.starts_with(OFFERED_SEARCH) => builder.own_search(path),
        "local_shell" | "apply_patch" | "computer" | "computer_use_preview" | "tool_search" | "programmatic_tool_calling" => {}
        "image_generation" => {
            builder.extras.output_media = true;
            builder.server_tool(ToolCharge::Other);
        }
        kind => builder.server_tool(ToolCharge::of_chat_tool(kind)),
    }
}
