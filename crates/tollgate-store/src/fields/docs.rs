//! The tables of fields in `docs/catalog.md`.

use std::fmt::Write as _;

use tollgate_core::{Budget, ChannelSpec, Hedge, ModelMapping, ModelSpec, PriceLimit, ScheduledPrice};
use tollgate_protocol::{ParameterEdit, Profile};

use super::{Access, AccountInput, FieldShape, KeyInput, Kind, Object, Row as _, text};
use crate::{GroupSpec, MemberSpec};

const OBJECTS: [&Object; 13] = [
    ChannelSpec::OBJECT,
    AccountInput::OBJECT,
    ModelMapping::OBJECT,
    Profile::OBJECT,
    ParameterEdit::OBJECT,
    ModelSpec::OBJECT,
    ScheduledPrice::OBJECT,
    GroupSpec::OBJECT,
    Budget::OBJECT,
    PriceLimit::OBJECT,
    Hedge::OBJECT,
    MemberSpec::OBJECT,
    KeyInput::OBJECT,
];

/// The page with its tables regenerated, each between a line `<!-- fields of NAME: … -->` and `<!-- end -->`.
/// The error names the object whose markers are missing.
pub fn renew_page(page: &str) -> Result<String, String> {
    let mut text = page.to_owned();
    for object in OBJECTS {
        let missing = || format!("the page lacks the markers for the fields of {}", object.name);
        let mark = text.find(&format!("<!-- fields of {}:", object.name)).ok_or_else(missing)?;
        let begin = mark + text[mark..].find('\n').ok_or_else(missing)? + 1;
        let end = begin + text[begin..].find("<!-- end -->").ok_or_else(missing)?;
        text.replace_range(begin..end, &field_table(object));
    }
    Ok(text)
}

/// The fields of an object that a catalog file may have, as a Markdown table.
fn field_table(object: &Object) -> String {
    let blank = (object.blank)();
    let mut text = "| field | value | default | meaning |\n|---|---|---|---|\n".to_owned();
    for field in object.fields.iter().filter(|field| field.access.is_written(super::WriteMode::File)) {
        let default = match (field.default_text, blank.get(field.name)) {
            _ if field.access.is_needed(super::WriteMode::File) => "required".to_owned(),
            (Some(text), _) => text.to_owned(),
            (None, None | Some(serde_json::Value::Null)) => String::new(),
            (None, Some(value)) => match text::toml_value(&field.kind, value) {
                empty if empty == "\"\"" => String::new(),
                shown => format!("`{shown}`"),
            },
        };
        let (name, value, doc) = (field.name, cell(&kind(&field.kind)), cell(&doc(field)));
        writeln!(text, "| `{name}` | {value} | {default} | {doc} |").expect("writing to a string cannot fail");
    }
    text
}

fn doc(field: &FieldShape) -> String {
    let mut doc = field.doc.to_owned();
    if field.admin_only {
        doc.push_str(" Admins only.");
    }
    if field.access == Access::FileOnly {
        doc.push_str(" In files only.");
    }
    if field.sourced {
        doc.push_str(" In files also `env:NAME` or `file:PATH`.");
    }
    if field.secret {
        doc.push_str(" `env:NAME`, `file:PATH` or the text itself; never shown.");
    }
    doc
}

fn kind(kind: &Kind) -> String {
    let number = |number: i64| {
        let digits = number.unsigned_abs().to_string();
        let mut text = String::new();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        if number < 0 { format!("-{text}") } else { text }
    };
    match kind {
        Kind::Id(_) | Kind::Text { .. } | Kind::Name { .. } => "text".to_owned(),
        Kind::Time => "time".to_owned(),
        Kind::Flag => "`true`, `false`".to_owned(),
        Kind::Integer { min, max: i64::MAX } => format!("{} or more", number(*min)),
        Kind::Integer { max, .. } if *max == i64::from(u32::MAX) => "0 or more".to_owned(),
        Kind::Integer { min, .. } if *min == i64::from(i32::MIN) => "number".to_owned(),
        Kind::Integer { min, max } => format!("{} to {}", number(*min), number(*max)),
        Kind::ZeroOr { min, max } => format!("0, {} to {}", number(*min), number(*max)),
        Kind::Usd { .. } => "USD".to_owned(),
        Kind::Factor { .. } => "factor".to_owned(),
        Kind::Number { max } | Kind::NumberOrNull { max } => format!("0 to {}", number(*max)),
        Kind::Word(words) => words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", "),
        Kind::Network => "address or network".to_owned(),
        Kind::List { of: Kind::Object(_), .. } => "tables".to_owned(),
        Kind::List { .. } => "list".to_owned(),
        Kind::OneOrMore { .. } => "table or list".to_owned(),
        Kind::TextMap { .. } => "table of texts".to_owned(),
        Kind::FactorMap { .. } => "table of factors".to_owned(),
        Kind::Object(_) | Kind::Any => "table".to_owned(),
        Kind::Form { expected, .. } if expected.starts_with("a ") => expected["a ".len()..].to_owned(),
        Kind::Form { expected, .. } => {
            format!("`{}`", expected.replace(" or ", "`, `").replace("}, {", "}`, `{").replace("\", {", "\"`, `{"))
        }
    }
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_catalog_page_are_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/catalog.md");
        let page = std::fs::read_to_string(path).expect("docs/catalog.md");
        assert!(renew_page(&page).unwrap() == page, "docs/catalog.md differs from the tables: run `cargo xtask docs`");
    }
}
