//! A catalog file as it can be sent away: secrets that it only names, with `env:` and `file:`, are of this machine, and are
//! put in their place. Everything else stays as it is, on its line.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use crate::{config, failure::Failure};

/// The file's text with its secrets in it.
///
/// # Errors
/// When a secret that is named is not there. Faults of the file itself are left to those who read it next.
pub(crate) fn put_in(text: &str) -> Result<String, Failure> {
    let (root, faults) = DeTable::parse_recoverable(text);
    if !faults.is_empty() {
        return Ok(text.to_owned());
    }
    let mut found = Vec::new();
    for channel in tables(root.get_ref(), "channel") {
        for account in tables(channel, "account") {
            found.extend(named(account, "credential"));
        }
    }
    for key in tables(root.get_ref(), "key") {
        found.extend(named(key, "secret"));
    }
    found.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = text.to_owned();
    for (span, reference) in found {
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

/// Where a member stands that names a secret, and the name.
fn named(table: &DeTable<'_>, member: &str) -> Option<(std::ops::Range<usize>, String)> {
    let value = table.get(member)?;
    let text = value.get_ref().as_str()?;
    ["env:", "file:"].iter().any(|prefix| text.starts_with(prefix)).then(|| (value.span(), text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_come_in_their_place_and_nothing_else_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "a\"b\\c ü\n").unwrap();
        let named = format!("file:{}", file.display());
        let text = format!(
            "# env:NOT_THIS\n[[channel]]\nname = \"c\" # kept\n[[channel.account]]\nname = \"env:NAME\"\ncredential = \"{named}\"\n\
             [[channel.account]]\nname = \"b\"\ncredential = '{named}' # behind\n[[key]]\nname = \"k\"\nsecret = \"plain\"\n"
        );
        let put = put_in(&text).unwrap();
        assert_eq!(put.lines().count(), text.lines().count());
        assert!(put.contains("name = \"env:NAME\"") && put.contains("# behind") && put.contains("secret = \"plain\""), "{put}");
        let read: toml::Table = put.parse().unwrap();
        for account in 0..2 {
            assert_eq!(read["channel"][0]["account"][account]["credential"].as_str(), Some("a\"b\\c ü"), "{put}");
        }
    }

    #[test]
    fn a_secret_that_is_not_there_is_named_and_a_broken_file_is_left_alone() {
        let text = "[[key]]\nname = \"k\"\nsecret = \"env:NO_SUCH_NAME_HERE\"\n";
        let failure = put_in(text).unwrap_err();
        assert!(failure.code() == 3 && failure.to_string().contains("NO_SUCH_NAME_HERE"), "{failure}");
        assert_eq!(put_in("[[key]\nsecret = \"env:X\"").unwrap(), "[[key]\nsecret = \"env:X\"");
    }
}
