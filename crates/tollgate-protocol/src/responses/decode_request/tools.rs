//! Tools, namespaces, and the choice among tools.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};

use super::FROM;
use crate::{
    Malformed,
    neutral::{Grammar, Located, NamespacedTool, Request, Schema, Tool, ToolChoice, ToolChoiceMode},
    object::{Field, Fields},
    tree::Tree,
};

/// Maximum length in bytes of the flat name of a tool in a namespace, and the length of the part of a longer name that is kept.
const MAX_FLAT_BYTES: usize = 64;
const KEPT_BYTES: usize = 55;

/// Hosted tools that a request works without. Agents offer them with every request.
const OFFERED: [&str; 5] =
    ["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "tool_search"];

/// Names of the tools that are in a namespace.
#[derive(Debug, Default)]
pub(super) struct ToolNames {
    flat: HashMap<(String, String), String>,
    declared: Vec<NamespacedTool>,
}

impl ToolNames {
    /// The name of a tool in the neutral form.
    pub(super) fn flat(&self, namespace: Option<&str>, name: &str) -> String {
        let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) else { return name.to_owned() };
        let declared = self.flat.get(&(namespace.to_owned(), name.to_owned()));
        declared.cloned().unwrap_or_else(|| joined(namespace, name))
    }

    fn declare(&mut self, namespace: &str, name: &str, used: &mut HashSet<String>) -> String {
        let preferred = joined(namespace, name);
        let numbered = (2_u32..).map(|number| format!("{preferred}_{number}"));
        let mut free = std::iter::once(preferred.clone()).chain(numbered).filter(|flat| !used.contains(flat));
        let flat = free.next().unwrap_or(preferred);
        used.insert(flat.clone());
        self.flat.insert((namespace.to_owned(), name.to_owned()), flat.clone());
        self.declared.push(NamespacedTool { flat: flat.clone(), namespace: namespace.to_owned(), name: name.to_owned() });
        flat
    }

    pub(super) fn into_namespaced(self) -> Vec<NamespacedTool> {
        self.declared
    }
}

/// Namespace and name as one name. The same pair always gives the same one.
fn joined(namespace: &str, name: &str) -> String {
    let whole = format!("{namespace}__{name}");
    if whole.len() <= MAX_FLAT_BYTES {
        return whole;
    }
    let digest = hex::encode(Sha256::digest(whole.as_bytes()));
    format!("{}_{}", &whole[..whole.floor_char_boundary(KEPT_BYTES)], &digest[..8])
}

/// Decodes `tools` and `tool_choice`.
pub(super) fn tools(fields: &mut Fields<'_, '_>, names: &mut ToolNames, request: &mut Request) -> Result<(), Malformed> {
    let items = fields.elements("tools")?;
    // Tools without a namespace keep their names; the joined names of others must not collide with them.
    let mut used: HashSet<String> =
        items.iter().filter_map(|(item, _)| item.get("name").and_then(Tree::str).map(str::to_owned)).collect();
    for (item, path) in items {
        let mut tool_fields = Fields::new(item, &path, FROM)?;
        match tool_fields.required_text("type")?.as_str() {
            "namespace" => namespace(&mut tool_fields, names, &mut used, request)?,
            kind if OFFERED.contains(&kind) => request.dropped.push(path),
            kind => match tool(kind, &mut tool_fields)? {
                Some(tool) => request.tools.push(tool),
                None => request.refuse(path),
            },
        }
    }
    if let Some(field) = fields.take("tool_choice") {
        request.choice = choice(&field, names, request)?;
    }
    let parallel = fields.bool("parallel_tool_calls")?.filter(|parallel| !parallel.value);
    if request.tools.is_empty() {
        // The encoder reports forced use of undeclared tools.
        request.choice = request.choice.take().filter(|choice| choice.mode == ToolChoiceMode::Any);
    } else {
        request.params.parallel = parallel.map(|given| Located::new(false, given.path));
    }
    Ok(())
}

fn namespace(
    fields: &mut Fields<'_, '_>,
    names: &mut ToolNames,
    used: &mut HashSet<String>,
    request: &mut Request,
) -> Result<(), Malformed> {
    let space = fields.required_text("name")?;
    let about = fields.text_or_empty("description")?;
    for (item, path) in fields.elements("tools")? {
        let mut inner = Fields::new(item, &path, FROM)?;
        let kind = inner.required_text("type")?;
        let Some(tool) = tool(&kind, &mut inner)? else {
            request.refuse(path);
            continue;
        };
        let own = tool.description.as_deref().unwrap_or_default();
        let descriptions: Vec<&str> = [about.as_str(), own].into_iter().filter(|text| !text.is_empty()).collect();
        let description = (!descriptions.is_empty()).then(|| descriptions.join("\n"));
        let name = names.declare(&space, &tool.name, used);
        request.tools.push(Tool { name, description, ..tool });
    }
    Ok(())
}

/// Decodes a function or a custom tool; `None` for others.
fn tool(kind: &str, fields: &mut Fields<'_, '_>) -> Result<Option<Tool>, Malformed> {
    let path = fields.path().to_owned();
    if !matches!(kind, "function" | "custom") {
        return Ok(None);
    }
    let name = fields.required_text("name")?;
    let description = fields.text("description")?.map(|text| text.value);
    if kind == "custom" {
        let grammar = fields.object("format")?.map(grammar).transpose()?.flatten();
        return Ok(Some(Tool { name, description, schema: None, strict: None, custom: true, grammar, path }));
    }
    let strict = fields.bool("strict")?.map(|strict| strict.value);
    let schema = match fields.take("parameters") {
        Some(field) if field.value.members().is_none() => return Err(Malformed::wrong_type(FROM, &field.path, "an object")),
        field => field.map(|field| Schema::Json(field.value.value())),
    };
    Ok(Some(Tool { name, description, schema, strict, custom: false, grammar: None, path }))
}

/// Decodes the format of a custom tool; `None` for plain text.
fn grammar(mut format: Fields<'_, '_>) -> Result<Option<Grammar>, Malformed> {
    let path = format.path().to_owned();
    match format.required_text("type")?.as_str() {
        "text" => Ok(None),
        "grammar" => {
            let (syntax, definition) = (format.required_text("syntax")?, format.required_text("definition")?);
            Ok(Some(Grammar { syntax, definition, path }))
        }
        _ => Err(Malformed::invalid(FROM, &format!("{path}.type"), "is neither 'text' nor 'grammar'")),
    }
}

fn mode_of(word: &str) -> Option<ToolChoiceMode> {
    match word {
        "none" => Some(ToolChoiceMode::None),
        "auto" => Some(ToolChoiceMode::Auto),
        "required" => Some(ToolChoiceMode::Any),
        _ => None,
    }
}

/// Decodes `tool_choice`. A hosted tool that it demands is refused.
fn choice(field: &Field<'_, '_>, names: &ToolNames, request: &mut Request) -> Result<Option<ToolChoice>, Malformed> {
    let path = field.path.clone();
    let unknown = || Malformed::invalid(FROM, &path, "is not a tool choice");
    if let Some(word) = field.value.str() {
        let mode = mode_of(word).ok_or_else(unknown)?;
        // `auto` is the default.
        return Ok((mode != ToolChoiceMode::Auto).then(|| ToolChoice { mode, names: Vec::new(), path }));
    }
    let mut fields = Fields::new(field.value, &path, FROM)?;
    match fields.required_text("type")?.as_str() {
        "function" | "custom" => {
            let chosen = chosen(&mut fields, names)?;
            Ok(Some(ToolChoice { mode: ToolChoiceMode::Any, names: vec![chosen], path }))
        }
        "allowed_tools" => {
            let mode = mode_of(&fields.required_text("mode")?).ok_or_else(unknown)?;
            let mut allowed = Vec::new();
            for (item, path) in fields.elements("tools")? {
                let mut item = Fields::new(item, &path, FROM)?;
                match item.required_text("type")?.as_str() {
                    "function" | "custom" => allowed.push(chosen(&mut item, names)?),
                    kind if OFFERED.contains(&kind) => request.dropped.push(path),
                    _ => request.refuse(path),
                }
            }
            Ok(Some(ToolChoice { mode, names: allowed, path }))
        }
        _ => {
            request.refuse(path);
            Ok(None)
        }
    }
}

fn chosen(fields: &mut Fields<'_, '_>, names: &ToolNames) -> Result<String, Malformed> {
    let name = fields.required_text("name")?;
    let namespace = fields.text("namespace")?.map(|namespace| namespace.value);
    Ok(names.flat(namespace.as_deref(), &name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_namespaced_names_are_truncated_with_a_distinguishing_hash() {
        let (space, name) = ("n".repeat(40), "t".repeat(40));
        let flat = joined(&space, &name);
        assert_eq!(flat.len(), 64);
        assert!(flat.starts_with(&format!("{space}__")));
        assert_ne!(flat, joined(&space, &format!("{}u", "t".repeat(39))));
        assert_eq!(joined("a", "b"), "a__b");
    }

    #[test]
    fn namespaced_tool_is_numbered_when_its_name_is_taken() {
        let mut names = ToolNames::default();
        let mut used = HashSet::from(["a__b".to_owned()]);
        assert_eq!(names.declare("a", "b", &mut used), "a__b_2");
        assert_eq!(names.flat(Some("a"), "b"), "a__b_2");
        assert_eq!((names.flat(None, "b"), names.flat(Some("x"), "b")), ("b".to_owned(), "x__b".to_owned()));
    }
}
