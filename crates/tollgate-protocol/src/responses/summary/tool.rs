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

/// Reads the tools that an item of the conversation adds to those of the request. A tool that OpenAI runs costs the same in both places.
/// The tools of a remote server are listed without types. The upstream validates all of them.
pub(super) fn added(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    let begin = scanner.position();
    let has_charge = added_list(scanner, builder)?;
    builder.text_of(scanner.slice(begin..scanner.position()));
    if has_charge {
        builder.field(path);
    }
    Ok(())
}

/// Whether one of the tools has a charge.
fn added_list(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<bool, SyntaxError> {
    let mut has_charge = false;
    scanner.elements(|scanner, _| {
        scanner.members(|scanner, name| {
            match name.word() {
                "type" => {
                    let kind = scanner.optional_string()?;
                    has_charge |= kind.is_some_and(|kind| charge(builder, &kind.decode()));
                }
                "tools" => has_charge |= added_list(scanner, builder)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(())
    })?;
    Ok(has_charge)
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
    if !CALLERS_OWN.contains(&&*kind) {
        if kind.starts_with(OFFERED_SEARCH) {
            builder.own_search(path);
        } else {
            charge(builder, &kind);
        }
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

/// Prefix of the types of search tools. Upstreams of other protocols serve requests without them (docs/translation.md).
pub(super) const OFFERED_SEARCH: &str = "web_search";

/// Tools that the caller defines.
const CALLERS_OWN: &[&str] = &["function", "custom", "namespace"];
/// Tools built into the model that the caller runs, and tools without a charge.
const WITHOUT_CHARGE: &[&str] =
    &["local_shell", "apply_patch", "computer", "computer_use_preview", "tool_search", "programmatic_tool_calling"];

/// Records the possible charge for a tool of this type. Returns whether there may be one.
fn charge(builder: &mut SummaryBuilder, kind: &str) -> bool {
    if CALLERS_OWN.contains(&kind) || WITHOUT_CHARGE.contains(&kind) {
        return false;
    }
    builder.extras.output_media |= kind == "image_generation";
    builder.server_tool(if kind == "image_generation" { ToolCharge::Other } else { ToolCharge::of_chat_tool(kind) });
    true
}
