//! The catalog file: the whole catalog as one TOML text. [`parse`] reads a file, [`plan`] computes the changes that it would make,
//! and [`render`] writes the current catalog in this form. [`show_channel`] and [`edit_channel`] do the same for a single channel.

mod one_channel;
mod plan;
mod reader;
mod render;
mod rows;

use std::{collections::HashMap, fmt, io, path::Path};

use tollgate_core::{AccountSpec, ChannelSpec, ModelSpec, Secret};
use toml::de::DeTable;

use crate::{CatalogRows, GroupSpec, KeySpec, MemberSpec, RowKind};
use reader::{FileProblems, TableReader};

pub use one_channel::{ChannelEdit, edit_channel, show_channel};
pub use plan::{ApplyMode, CatalogPlan, PlanAction, PlanLine, plan};
pub use render::{render, render_channels};

/// One problem of a catalog file, with its position; lines and columns begin at 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileError {
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
    /// Description of the fault; never holds a secret.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

/// A catalog file that was read without a problem.
#[derive(Clone, Debug, Default)]
pub struct CatalogFile {
    pub(crate) channels: Vec<FileChannel>,
    pub(crate) models: Vec<FileRow<ModelSpec>>,
    pub(crate) groups: Vec<FileRow<GroupSpec>>,
    pub(crate) members: Vec<FileRow<MemberSpec>>,
    pub(crate) keys: Vec<FileKey>,
}

impl CatalogFile {
    /// Number of rows of each kind, without kinds that it does not name.
    pub fn counts(&self) -> Vec<(RowKind, usize)> {
        let accounts = self.channels.iter().map(|channel| channel.accounts.len()).sum();
        let all = [
            (RowKind::Channel, self.channels.len()),
            (RowKind::Account, accounts),
            (RowKind::Model, self.models.len()),
            (RowKind::Group, self.groups.len()),
            (RowKind::Member, self.members.len()),
            (RowKind::Key, self.keys.len()),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Keys whose secret looks like a shell variable, which is not expanded.
    #[must_use]
    pub fn unexpanded_keys(&self) -> Vec<&str> {
        let literal = |key: &&FileKey| key.secret.given().is_some_and(|secret| tollgate_core::is_unexpanded(secret.expose()));
        self.keys.iter().filter(literal).map(|key| key.row.spec.name.as_str()).collect()
    }

    /// The names of its keys, for [`crate::KeyScope::FileAnd`].
    #[must_use]
    pub fn key_names(&self) -> std::collections::HashSet<String> {
        self.keys.iter().map(|key| key.row.spec.name.clone()).collect()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilePosition {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl FilePosition {
    pub(crate) fn error(self, message: impl Into<String>) -> FileError {
        FileError { line: self.line, column: self.column, message: message.into() }
    }
}

/// A row of the file.
#[derive(Clone, Debug)]
pub(crate) struct FileRow<T> {
    pub(crate) spec: T,
    pub(crate) position: FilePosition,
    /// Positions at which it names other rows.
    pub(crate) names_at: FilePosition,
}

#[derive(Clone, Debug)]
pub(crate) struct FileChannel {
    pub(crate) row: FileRow<ChannelSpec>,
    pub(crate) accounts: Vec<FileAccount>,
}

/// An account with its credential, where the file has one.
#[derive(Clone, Debug)]
pub(crate) struct FileAccount {
    pub(crate) spec: AccountSpec,
    pub(crate) credential: FileSecret,
    pub(crate) position: FilePosition,
}

/// A key with its secret, where the file has one. An empty member is the owner.
#[derive(Clone, Debug)]
pub(crate) struct FileKey {
    pub(crate) row: FileRow<KeySpec>,
    pub(crate) secret: FileSecret,
}

/// The secret of a row as the file has it.
#[derive(Clone, Debug)]
pub(crate) enum FileSecret {
    Absent,
    Given(Secret),
    /// It could not be read; one of the faults says why.
    Unreadable,
}

impl FileSecret {
    pub(crate) const fn given(&self) -> Option<&Secret> {
        match self {
            Self::Given(secret) => Some(secret),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// A catalog file with faults.
#[derive(Debug)]
pub struct UnreadableFile {
    /// Every fault that reading found, by position.
    pub faults: Vec<FileError>,
    /// The readable part; `None` if the text is not TOML. Unreadable names are empty.
    readable: Option<CatalogFile>,
}

impl UnreadableFile {
    /// The names of its keys that could be read, for [`crate::KeyScope::FileAnd`].
    #[must_use]
    pub fn key_names(&self) -> std::collections::HashSet<String> {
        self.readable.as_ref().map(CatalogFile::key_names).unwrap_or_default()
    }

    /// Every fault, including those found only by comparison with the current catalog, such as references to unknown rows.
    #[must_use]
    pub fn faults_beside(self, current: &CatalogRows, mode: ApplyMode) -> Vec<FileError> {
        let mut faults = self.faults;
        faults.extend(self.readable.and_then(|file| plan(&file, current, mode).err()).into_iter().flatten());
        faults.sort();
        faults.dedup();
        faults
    }
}

/// Sources of the secrets that a file refers to.
pub(crate) struct Sources<'a> {
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) read_file: &'a dyn Fn(&Path) -> io::Result<String>,
}

/// Reads a catalog file. `env` gives the value of an environment variable, `read_file` the text of a file; both are
/// asked only for secrets the file names with `env:` and `file:`.
/// The error lists every problem of the file, by position.
pub fn parse(
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<CatalogFile, Box<UnreadableFile>> {
    let problems = FileProblems::new(text);
    let (root, faults) = DeTable::parse_recoverable(text);
    for fault in &faults {
        problems.add(fault.span().map_or(0, |span| span.start), fault.message().to_owned());
    }
    if !faults.is_empty() {
        // Checking the recovered part of a broken text would report problems that do not exist.
        return Err(Box::new(UnreadableFile { faults: problems.sorted(), readable: None }));
    }
    let file = read_root(&TableReader::new(root.get_ref(), root.span(), "the catalog", &problems), &Sources { env, read_file });
    let faults = problems.sorted();
    if faults.is_empty() { Ok(file) } else { Err(Box::new(UnreadableFile { faults, readable: Some(file) })) }
}

fn read_root(root: &TableReader<'_>, sources: &Sources<'_>) -> CatalogFile {
    let mut names = UniqueNames::default();
    let mut file = CatalogFile::default();
    for table in root.tables("channel", "[[channel]]") {
        file.channels.push(rows::channel(&table, sources, &mut names));
    }
    for table in root.tables("model", "[[model]]") {
        let row = rows::row::<ModelSpec>(&table, "name", sources);
        names.add(&table, RowKind::Model, &row.spec.name, row.position);
        file.models.push(row);
    }
    for table in root.tables("group", "[[group]]") {
        let row = rows::row::<GroupSpec>(&table, "channels", sources);
        names.add(&table, RowKind::Group, &row.spec.name, row.position);
        file.groups.push(row);
    }
    for table in root.tables("member", "[[member]]") {
        let row = rows::row::<MemberSpec>(&table, "groups", sources);
        names.add(&table, RowKind::Member, &row.spec.name, row.position);
        file.members.push(row);
    }
    for table in root.tables("key", "[[key]]") {
        let key = rows::key(&table, sources);
        let shown = match key.row.spec.member.as_str() {
            "" => key.row.spec.name.clone(),
            member => format!("{member}/{}", key.row.spec.name),
        };
        names.add(&table, RowKind::Key, &shown, key.row.position);
        file.keys.push(key);
    }
    root.only(&["channel", "model", "group", "member", "key"]);
    file
}

/// The names seen so far, to find duplicates.
#[derive(Default)]
struct UniqueNames(HashMap<(&'static str, String), FilePosition>);

impl UniqueNames {
    fn add(&mut self, table: &TableReader<'_>, kind: RowKind, name: &str, position: FilePosition) {
        self.add_word(table, kind.as_str(), name, position);
    }

    fn add_word(&mut self, table: &TableReader<'_>, word: &'static str, name: &str, position: FilePosition) {
        if name.is_empty() {
            return;
        }
        if let Some(first) = self.0.insert((word, name.to_owned()), position) {
            table.problem(format!("{word} '{name}' is defined twice: in line {} and in line {}", first.line, position.line));
        }
    }
}

#[cfg(test)]
mod tests;
