//! Inlines the secrets of a catalog file before it is sent to an admin API: `env:` and `file:` references are resolved on this
//! machine. Everything else is kept byte for byte, so that line numbers stay valid.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use crate::{config, failure::Failure};

/// Replaces secret references by the secrets. A file that is not valid TOML is returned unchanged: the admin API reports its faults.
pub(crate) fn inline_secrets(text: &str) -> Result<String, Failure> {
    let (root, faults) = DeTable::parse_recoverable(text);
    if !faults.is_empty() {
        return Ok(text.to_owned());
    }
    let mut references = Vec::new();
    for channel in tables(root.get_ref(), "channel") {
        for account in tables(channel, "account") {
            references.extend(secret_reference(account, "credential"));
        }
    }
    for key in tables(root.get_ref(), "key") {
        references.extend(secret_reference(key, "secret"));
    }
    references.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = text.to_owned();
    for (span, reference) in references {
        let secret = match reference.strip_prefix("file:") {
            Some(path) => std::fs::read_to_string(Path::new(path))
                .map(|secret| secret.trim_end_matches(['\n', '\r']).to_owned())
                .map_err(|error| format!("cannot read {path}: {error}")),
            None => config::reference(&reference),
        };
        let secret = secret.map_err(Failure::written)?;
        text.replace_range(span, &toml::Value::String(secret).to_string());
    }
    Ok(text)
}

fn tables<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Vec<&'a DeTable<'i>> {
    match table.get(name).map(toml::Spanned::get_ref) {
        Some(DeValue::Array(items)) => items.iter().filter_map(|item| item.get_ref().as_table()).collect(),
        Some(value) => value.as_table().into_iter().collect(),
        None => Vec::new(),
    }
}

/// Position and text of a field that references a secret.
fn secret_reference(table: &DeTable<'_>, member: &str) -> Option<(std::ops::Range<usize>, String)> {
    let value = table.get(member)?;
    let text = value.get_ref().as_str()?;
    ["env:", "file:"].iter().any(|prefix| text.starts_with(prefix)).then(|| (value.span(), text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_secret_references_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "a\"b\\c ü\n").unwrap();
        let named = format!("file:{}", file.display());
        let text = format!(
            "# env:NOT_THIS\n[[channel]]\nname = \"c\" # kept\n[[channel.account]]\nname = \"env:NAME\"\ncredential = \"{named}\"\n\
             [[channel.account]]\nname = \"b\"\ncredential = '{named}' # behind\n[[key]]\nname = \"k\"\nsecret = \"plain\"\n"
        );
        let inlined = inline_secrets(&text).unwrap();
        assert_eq!(inlined.lines().count(), text.lines().count());
        assert!(
            inlined.contains("name = \"env:NAME\"") && inlined.contains("# behind") && inlined.contains("secret = \"plain\""),
            "{inlined}"
        );
        let read: toml::Table = inlined.parse().unwrap();
        for account in 0..2 {
            assert_eq!(read["channel"][0]["account"][account]["credential"].as_str(), Some("a\"b\\c ü"), "{inlined}");
        }
    }

    #[test]
    fn missing_secret_is_an_error_and_invalid_file_is_unchanged() {
        let text = "[[key]]\nname = \"k\"\nsecret = \"env:NO_SUCH_NAME_HERE\"\n";
        let failure = inline_secrets(text).unwrap_err();
        assert!(failure.code() == 3 && failure.to_string().contains("NO_SUCH_NAME_HERE"), "{failure}");
        assert_eq!(inline_secrets("[[key]\nsecret = \"env:X\"").unwrap(), "[[key]\nsecret = \"env:X\"");
    }
}
