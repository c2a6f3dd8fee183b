//! Tools of a Messages body.

use crate::{
    scan::{Scanner, SyntaxError, Value, ValueKind, whole},
    summary_builder::{MAX_TOOLS, SummaryBuilder, ToolCharge},
    validation::JsonPath,
};

/// Tools that the caller runs, by the beginning of their type.
const CALLERS_OWN: &[&str] = &["custom", "bash_", "text_editor_", "memory_", "computer_", "browser_"];

/// Reads `tools`: an array of objects.
pub(super) fn tools(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder) -> Result<(), SyntaxError> {
    let mut limit = SearchLimit::default();
    let path = JsonPath::Root.member("tools");
    let (count, raw) =
        builder.list(scanner, &path, MAX_TOOLS, |builder, scanner, path| tool(builder, scanner, path, &mut limit))?;
    builder.tools(count, raw);
    builder.max_searches = limit.total;
    Ok(())
}

/// Reads a tool that a block of the conversation adds to those of the request (`tool_addition`, whose `definition` is an element of
/// `tools`). A tool that Anthropic runs costs the same in both places. The upstream validates it.
pub(super) fn added(scanner: &mut Scanner<'_>, builder: &mut SummaryBuilder, path: &JsonPath<'_>) -> Result<(), SyntaxError> {
    let begin = scanner.position();
    let mut charges = Vec::new();
    scanner.members(|scanner, name| {
        match name.word() {
            "type" => charges.extend(added_charge(scanner)?),
            "definition" => {
                scanner.members(|scanner, name| {
                    if name.word() == "type" {
                        charges.extend(added_charge(scanner)?);
                    }
                    Ok(())
                })?;
            }
            _ => {}
        }
        Ok(())
    })?;
    builder.text_of(scanner.slice(begin..scanner.position()));
    if !charges.is_empty() {
        builder.field(path);
    }
    for charge in charges {
        builder.adds_searches |= charge == ToolCharge::Search;
        builder.server_tool(charge);
    }
    Ok(())
}

/// The charge for a tool in a block of the conversation. References to tools, and the type of a definition itself, have none.
fn added_charge(scanner: &mut Scanner<'_>) -> Result<Option<ToolCharge>, SyntaxError> {
    let kind = scanner.optional_string()?;
    Ok(kind.and_then(|kind| match &*kind.decode() {
        "tool_definition" | "tool_reference" => None,
        kind => charge_of(kind),
    }))
}

/// The `max_uses` of all search tools together.
#[derive(Debug, Default)]
struct SearchLimit {
    /// `None` if there is no search tool, or one without a limit.
    total: Option<u64>,
    is_unlimited: bool,
}

fn tool(
    builder: &mut SummaryBuilder,
    scanner: &mut Scanner<'_>,
    path: &JsonPath<'_>,
    limit: &mut SearchLimit,
) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        builder.errors.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let (mut charge, mut max_uses) = (None, None);
    scanner.object(|scanner, name| {
        match name.word() {
            "type" => charge = scanner.optional_string()?.and_then(|kind| charge_of(&kind.decode())),
            "max_uses" => {
                if let Value::Number(uses) = scanner.value()?.0 {
                    max_uses = whole(uses);
                }
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    if charge == Some(ToolCharge::Search) {
        limit.is_unlimited |= max_uses.is_none();
        let total = limit.total.unwrap_or(0).saturating_add(max_uses.unwrap_or(0));
        limit.total = (!limit.is_unlimited).then_some(total);
    }
    if let Some(charge) = charge {
        builder.server_tool(charge);
    }
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
