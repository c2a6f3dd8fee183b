//! Tools of a Messages body.

use crate::{
    scan::{Scanner, SyntaxError, ValueKind},
    summary_builder::{MAX_TOOLS, SummaryBuilder, ToolCharge},
    validation::JsonPath,
};

/// Tools that the caller runs, by the beginning of their type.
const CALLERS_OWN: &[&str] = &["custom", "bash_", "text_editor_", "memory_", "computer_", "browser_"];

/// Reads `tools`: an array of objects.
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
    scanner.object(|scanner, name| {
        if name.word() != "type" {
            return scanner.skip().map(drop);
        }
        let charge = scanner.optional_string()?.and_then(|kind| charge_of(&kind.decode()));
        if let Some(charge) = charge {
            builder.server_tool(charge);
        }
        Ok(())
    })?;
    Ok(())
}

/// The charge for a tool by its type (Anthropic API docs, "Pricing"); `None`: the caller runs the tool.
fn charge_of(kind: &str) -> Option<ToolCharge> {
    if CALLERS_OWN.iter().any(|own| kind.starts_with(own)) {
        return None;
    }
    Some(match kind {
        kind if kind.starts_with("web_search") => ToolCharge::Search,
        kind if kind.starts_with("web_fetch") || kind.starts_with("tool_search") => ToolCharge::Tokens,
        _ => ToolCharge::Other,
    })
}
