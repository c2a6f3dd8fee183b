//! One channel with its accounts as a separate catalog file, for an editor; and the changes that an edited text makes.

use tollgate_core::{AccountSpec, ChannelSpec};

use super::{ApplyMode, CatalogFile, CatalogPlan, FileError, FilePosition, plan, render::render_channel};
use crate::{CatalogRows, ChannelRow, proxy::ChannelSecrets};

/// The changes that an edited channel makes.
#[derive(Clone, Debug)]
pub struct ChannelEdit {
    pub plan: CatalogPlan,
    /// The channel afterwards, as [`show_channel`] would show it.
    pub after: String,
}

/// A channel of the current catalog as a file, without secrets. `None` if no channel has this name.
pub fn show_channel(current: &CatalogRows, name: &str) -> Option<String> {
    let channel = find(current, name)?;
    Some(shown(&channel.spec, channel.accounts.iter().map(|account| &account.spec)))
}

/// Compares a file that holds one channel with the catalog. Unlike with [`plan`], accounts and models that the file does not name
/// are removed: the text is the whole channel. Nothing but the channel and its accounts can change.
pub fn edit_channel(file: &CatalogFile, current: &CatalogRows, name: &str) -> Result<ChannelEdit, Vec<FileError>> {
    let begin = FilePosition { line: 1, column: 1 };
    let (Some(channel), Some(existing)) = (file.channels.first(), find(current, name)) else {
        return Err(vec![begin.error(format!("the channel '{name}' is missing"))]);
    };
    let mut faults = foreign_rows(file, name);
    if channel.row.spec.name != name {
        faults.push(channel.row.position.error(format!("the channel is '{name}'; a channel keeps its name")));
    }
    let mut spec = channel.row.spec.clone();
    if let Err(problem) = ChannelSecrets::take_from(&mut spec, Some(&(existing.spec.clone(), existing.secrets.clone()))) {
        faults.push(channel.row.position.error(format!("{}: {}", problem.field, problem.message)));
    }
    if !faults.is_empty() {
        faults.sort();
        return Err(faults);
    }
    // A catalog of this channel alone, so that pruning removes no rows of other channels.
    let alone = CatalogRows {
        revision: current.revision,
        channels: vec![existing.clone()],
        models: Vec::new(),
        groups: Vec::new(),
        members: Vec::new(),
        keys: Vec::new(),
        keys_cut: false,
        hasher: current.hasher.clone(),
    };
    let plan = plan(file, &alone, ApplyMode::Apply { prune: true })?;
    let mut accounts: Vec<&AccountSpec> = channel.accounts.iter().map(|account| &account.spec).collect();
    accounts.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(ChannelEdit { plan, after: shown(&spec, accounts.into_iter()) })
}

fn find<'a>(current: &'a CatalogRows, name: &str) -> Option<&'a ChannelRow> {
    current.channels.iter().find(|channel| channel.spec.name == name)
}

fn shown<'a>(spec: &ChannelSpec, accounts: impl Iterator<Item = &'a AccountSpec>) -> String {
    let mut out = String::new();
    render_channel(&mut out, spec, accounts);
    out.trim_start().to_owned()
}

/// Faults for rows that do not belong to the channel.
fn foreign_rows(file: &CatalogFile, name: &str) -> Vec<FileError> {
    let CatalogFile { channels, models, groups, members, keys } = file;
    let positions = channels.iter().skip(1).map(|channel| channel.row.position);
    let positions = positions.chain(models.iter().map(|row| row.position)).chain(groups.iter().map(|row| row.position));
    let positions = positions.chain(members.iter().map(|row| row.position)).chain(keys.iter().map(|key| key.row.position));
    positions.map(|position| position.error(format!("only the channel '{name}' with its accounts is changed here"))).collect()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::{
        ChangeOrigin, KeyScope, Store,
        catalog_file::parse,
        conformance::{actor, options, sqlite},
        open,
        samples::MIDNIGHT,
    };

    const CATALOG: &str = r#"
[[channel]]
name = "a"
provider = "openai"
headers = { x-tier = "gold" }
[[channel.account]]
name = "one"
credential = "secret-one"
[[channel.account]]
name = "two"
credential = "secret-two"
[[channel.serves]]
model = "m"
[[channel.serves]]
model = "n"
[[channel]]
name = "b"
provider = "echo"
[[channel.account]]
name = "main"
[[group]]
name = "default"
channels = ["a", "b"]
"#;

    fn file(text: &str) -> CatalogFile {
        parse(text, &|_| None, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap()
    }

    async fn current(store: &Store) -> CatalogRows {
        store.catalog.live_rows(&KeyScope::All).await.unwrap()
    }

    async fn filled(dir: &TempDir) -> Store {
        let store = open(options(sqlite(dir), dir)).await.unwrap();
        let plan = plan(&file(CATALOG), &current(&store).await, ApplyMode::Apply { prune: false }).unwrap();
        store.catalog.apply(&plan.changes, &actor(ChangeOrigin::Cli), MIDNIGHT).await.unwrap();
        store
    }

    #[tokio::test]
    async fn unchanged_channel_text_changes_nothing() {
        let dir = TempDir::new().unwrap();
        let store = filled(&dir).await;
        let rows = current(&store).await;
        let shown = show_channel(&rows, "a").unwrap();
        assert!(shown.starts_with("[[channel]]\nname = \"a\"") && shown.contains("***") && !shown.contains("gold"), "{shown}");
        assert!(!shown.contains("secret") && !shown.contains("default"), "{shown}");
        let edit = edit_channel(&file(&shown), &rows, "a").unwrap();
        assert!(edit.plan.is_empty() && edit.after == shown, "{edit:?}");
        assert_eq!(show_channel(&rows, "c"), None);
    }

    #[tokio::test]
    async fn edited_text_replaces_the_whole_channel_and_nothing_else() {
        let dir = TempDir::new().unwrap();
        let store = filled(&dir).await;
        let rows = current(&store).await;
        let text = "[[channel]]\nname = \"a\"\nprovider = \"openai\"\nweight = 3\nheaders = { x-tier = \"silver\" }\n\
                    [[channel.account]]\nname = \"one\"\n[[channel.serves]]\nmodel = \"n\"\n";
        let edit = edit_channel(&file(text), &rows, "a").unwrap();
        let lines: Vec<String> = edit.plan.lines.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["~ channel a: weight default -> 3, no longer serves m, values of its headers replaced", "- account a/two"]
        );
        assert!(!edit.after.contains("silver"), "{}", edit.after);
        store.catalog.apply(&edit.plan.changes, &actor(ChangeOrigin::Cli), MIDNIGHT).await.unwrap();
        let rows = current(&store).await;
        assert_eq!(show_channel(&rows, "a").unwrap(), edit.after, "what was announced is what is there");
        assert_eq!((rows.channels.len(), rows.groups.len()), (2, 1));
        assert_eq!(rows.channels[0].accounts[0].credential.as_ref().unwrap().expose(), "secret-one", "it keeps its credential");
    }

    #[tokio::test]
    async fn other_rows_and_unknown_names_are_refused_by_line() {
        let dir = TempDir::new().unwrap();
        let rows = current(&filled(&dir).await).await;
        let faults = |text: &str| {
            let faults = edit_channel(&file(text), &rows, "b").expect_err("it must be refused");
            faults.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let of_b = "[[channel]]\nname = \"b\"\nprovider = \"echo\"\n";
        assert_eq!(
            faults(&format!("{of_b}[[group]]\nname = \"g\"\n[[channel]]\nname = \"x\"\nprovider = \"echo\"\n")),
            [
                "line 4, column 1: only the channel 'b' with its accounts is changed here",
                "line 6, column 1: only the channel 'b' with its accounts is changed here"
            ]
        );
        assert_eq!(faults(&of_b.replace("\"b\"", "\"c\"")), ["line 1, column 1: the channel is 'b'; a channel keeps its name"]);
        assert_eq!(faults(""), ["line 1, column 1: the channel 'b' is missing"]);
        let stars = faults(&format!("{of_b}headers = {{ x = \"***\" }}\n"));
        assert!(stars[0].contains("'***' means the stored value"), "{stars:?}");
    }
}
