//! Effect of `tool_choice` and `max_tool_calls` of a Responses body on the tools that search the web.

use super::tool::OFFERED_SEARCH;
use crate::{
    FieldPath,
    scan::{Scanner, SyntaxError, Value, ValueKind},
    summary_builder::{MAX_TOOLS, SummaryBuilder},
    validation::JsonPath,
};

#[derive(Debug, Default)]
pub(super) struct SearchChoice {
    /// No tool may be called.
    is_forbidden: bool,
    /// Some tool has to be called.
    is_any_required: bool,
    /// The choice names nothing but searches.
    is_demanded: bool,
    /// Paths at which a list of permitted tools names a search.
    named: Vec<FieldPath>,
    /// Uses of the provider's tools, at most.
    max_calls: Option<u64>,
}

impl SearchChoice {
    /// Reads `tool_choice`: a word, a tool, or a list of permitted tools.
    pub(super) fn read(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        if scanner.peek() != ValueKind::Object {
            if let Value::Text(word) = scanner.value()?.0 {
                let word = word.decode();
                self.is_forbidden |= word == "none";
                self.is_any_required |= word == "required";
            }
            return Ok(());
        }
        let mut others = 0_usize;
        scanner.members(|scanner, name| {
            match name.word() {
                "type" => self.is_demanded = is_search(scanner)?,
                "tools" => {
                    scanner.elements(|scanner, index| {
                        let mut searches = false;
                        scanner.members(|scanner, name| {
                            if name.word() == "type" {
                                searches = is_search(scanner)?;
                            }
                            Ok(())
                        })?;
                        // Bounded like the tools of a request, because each of these is searched for when fields are removed.
                        if searches && self.named.len() < MAX_TOOLS {
                            let path = JsonPath::Root.member("tool_choice");
                            self.named.push(path.member("tools").element(index).to_string());
                        } else {
                            others += 1;
                        }
                        Ok(())
                    })?;
                }
                _ => {}
            }
            Ok(())
        })?;
        self.is_demanded |= !self.named.is_empty() && others == 0;
        Ok(())
    }

    /// `max_tool_calls`, which bounds the tools that the provider runs.
    pub(super) fn limit_calls(&mut self, calls: u64) {
        self.is_forbidden |= calls == 0;
        self.max_calls = Some(calls);
    }

    /// Applies the choice to the summary, after the tools were read.
    pub(super) fn apply(self, builder: &mut SummaryBuilder) {
        builder.max_searches = self.max_calls;
        if self.is_forbidden {
            builder.extras.own_search = false;
            builder.offered_searches.clear();
        } else if self.is_demanded || (self.is_any_required && builder.offered_searches.len() >= builder.tool_count()) {
            builder.offered_searches.clear();
        } else if builder.extras.own_search {
            builder.offered_searches.extend(self.named);
        }
    }
}

/// Reads the type of a tool.
fn is_search(scanner: &mut Scanner<'_>) -> Result<bool, SyntaxError> {
    Ok(scanner.optional_string()?.is_some_and(|kind| kind.decode().starts_with(OFFERED_SEARCH)))
}
