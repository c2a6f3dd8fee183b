//! A plan: the changes a catalog file would make, and the same as lines for display.

mod rows;

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use tollgate_core::{ModelSpec, Owner, Role};

use super::{CatalogFile, FileError, FilePosition, FileRow, render::FileForm};
use crate::{CatalogRows, Change, GroupSpec, MemberSpec, OwnedRow, RowKind, fields::hint};
use rows::differences;

/// How a file is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyMode {
    /// The file is served: its rows become its own, and rows it owned but no longer names are removed.
    Served,
    /// The file is applied once; the database owns its rows.
    Apply {
        /// Rows of the database that the file does not name are removed; admins stay.
        prune: bool,
    },
}

/// The changes a catalog file would make.
#[derive(Clone, Debug)]
pub struct CatalogPlan {
    /// The changes, for one batch; they begin with the revision they were made for.
    pub changes: Vec<Change>,
    /// Lines for display, in order of kind and name.
    pub lines: Vec<PlanLine>,
}

impl CatalogPlan {
    /// The catalog already matches the file.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// A row that a catalog file would change, as `apply` prints it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanLine {
    pub kind: RowKind,
    /// Its name, prefixed with its channel or member if it has one.
    pub name: String,
    pub sign: PlanAction,
    /// The fields that change, or the reason for the change.
    pub detail: String,
}

/// What applying the file does with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlanAction {
    Add,
    Change,
    Remove,
    /// Ownership moves from the database to the file.
    Take,
}

impl fmt::Display for PlanLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.sign {
            PlanAction::Add => '+',
            PlanAction::Change => '~',
            PlanAction::Remove => '-',
            PlanAction::Take => '!',
        };
        write!(f, "{sign} {} {}", self.kind, self.name)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// Compares a file with the current catalog.
pub fn plan(file: &CatalogFile, current: &CatalogRows, mode: ApplyMode) -> Result<CatalogPlan, Vec<FileError>> {
    let mut planner = Planner {
        file,
        current,
        mode,
        first: Vec::new(),
        puts: Vec::new(),
        last: Vec::new(),
        lines: Vec::new(),
        errors: Vec::new(),
    };
    planner.channels();
    planner.rows::<ModelSpec>(RowKind::Model, &file.models, &current.models, |model| Change::RemoveModel { model });
    planner.rows::<GroupSpec>(RowKind::Group, &file.groups, &current.groups, |group| Change::RemoveGroup { group });
    planner.rows::<MemberSpec>(RowKind::Member, &file.members, &current.members, |member| Change::RemoveMember { member });
    planner.keys();
    planner.check_names();
    planner.finish()
}

struct Planner<'a> {
    file: &'a CatalogFile,
    current: &'a CatalogRows,
    mode: ApplyMode,
    /// Revocations of keys come first: later changes may reuse their names and secrets.
    first: Vec<Change>,
    puts: Vec<Change>,
    /// Removals, after all references to the rows are removed.
    last: Vec<Change>,
    lines: Vec<PlanLine>,
    errors: Vec<FileError>,
}

trait NamedRow: FileForm + Clone + PartialEq {
    fn put(self) -> Change;

    /// Whether pruning keeps it.
    fn stays(&self) -> bool {
        false
    }
}

impl NamedRow for ModelSpec {
    fn put(self) -> Change {
        Change::PutModel(Box::new(self))
    }
}

impl NamedRow for GroupSpec {
    fn put(self) -> Change {
        Change::PutGroup(Box::new(self))
    }
}

impl NamedRow for MemberSpec {
    fn put(self) -> Change {
        Change::PutMember(Box::new(self))
    }

    fn stays(&self) -> bool {
        self.role == Role::Admin
    }
}

impl Planner<'_> {
    const fn owner(&self) -> Owner {
        match self.mode {
            ApplyMode::Served => Owner::File,
            ApplyMode::Apply { .. } => Owner::Database,
        }
    }

    /// Whether a row that the file does not name is removed.
    const fn removes(&self, owner: Owner) -> bool {
        match (self.mode, owner) {
            (ApplyMode::Served, Owner::File) | (ApplyMode::Apply { prune: true }, Owner::Database) => true,
            (ApplyMode::Served, Owner::Database) | (ApplyMode::Apply { .. }, _) => false,
        }
    }

    fn line(&mut self, sign: PlanAction, kind: RowKind, name: &str, detail: impl Into<String>) {
        self.lines.push(PlanLine { kind, name: name.to_owned(), sign, detail: detail.into() });
    }

    /// A file that is applied once must not change rows owned by a served file; listing them unchanged is allowed.
    fn may_write(&mut self, kind: RowKind, name: &str, owner: Owner, details: &[String], position: FilePosition) -> bool {
        let may = self.owner() == Owner::File || owner == Owner::Database;
        if !may && !details.is_empty() {
            self.errors.push(position.error(format!("{kind} '{name}' is owned by the served catalog file; change it there")));
        }
        may
    }

    /// Adds the line of an existing row; false if the row does not change.
    fn compare(&mut self, kind: RowKind, name: &str, owner: Owner, mut details: Vec<String>) -> bool {
        let taken = owner != self.owner();
        if taken {
            details.insert(0, "passes from the database to the file".to_owned());
        }
        if details.is_empty() {
            return false;
        }
        self.line(if taken { PlanAction::Take } else { PlanAction::Change }, kind, name, details.join(", "));
        true
    }

    fn rows<T: NamedRow>(
        &mut self,
        kind: RowKind,
        file: &[FileRow<T>],
        current: &[OwnedRow<T>],
        remove: impl Fn(String) -> Change,
    ) {
        let existing: HashMap<&str, &OwnedRow<T>> = current.iter().map(|row| (row.spec.name(), row)).collect();
        for row in file {
            let name = row.spec.name();
            let written = match existing.get(name) {
                None => {
                    self.line(PlanAction::Add, kind, name, "");
                    true
                }
                Some(old) => {
                    let details = differences(&old.spec, &row.spec);
                    self.may_write(kind, name, old.owner, &details, row.position) && self.compare(kind, name, old.owner, details)
                }
            };
            if written {
                self.puts.push(row.spec.clone().put());
            }
        }
        let named: HashSet<&str> = file.iter().map(|row| row.spec.name()).collect();
        for row in current.iter().filter(|row| !named.contains(row.spec.name())) {
            if self.removes(row.owner) && !(row.spec.stays() && row.owner == Owner::Database) {
                self.line(PlanAction::Remove, kind, row.spec.name(), "");
                self.last.push(remove(row.spec.name().to_owned()));
            }
        }
    }

    fn finish(mut self) -> Result<CatalogPlan, Vec<FileError>> {
        if !self.errors.is_empty() {
            self.errors.sort();
            return Err(self.errors);
        }
        self.lines.sort();
        let mut changes = self.first;
        changes.extend(self.puts);
        changes.extend(self.last);
        if !changes.is_empty() {
            changes.insert(0, Change::Expect(self.current.revision));
        }
        Ok(CatalogPlan { changes, lines: self.lines })
    }
}

impl Planner<'_> {
    fn check_names(&mut self) {
        let file = self.file;
        let channels = self.known(RowKind::Channel, file.channels.iter().map(|channel| channel.row.spec.name.as_str()));
        let groups = self.known(RowKind::Group, file.groups.iter().map(|row| row.spec.name.as_str()));
        let members = self.known(RowKind::Member, file.members.iter().map(|row| row.spec.name.as_str()));
        for row in &file.groups {
            self.names((RowKind::Group, &row.spec.name), row.names_at, RowKind::Channel, &row.spec.channels, &channels);
        }
        for row in &file.members {
            let referrer = (RowKind::Member, row.spec.name.as_str());
            self.names(referrer, row.names_at, RowKind::Group, &row.spec.groups, &groups);
            self.names(referrer, row.position, RowKind::Group, row.spec.default_group.as_slice(), &groups);
        }
        for key in &file.keys {
            let referrer = (RowKind::Key, key.row.spec.name.as_str());
            self.names(referrer, key.row.names_at, RowKind::Group, &key.row.spec.groups, &groups);
            if !key.row.spec.member.is_empty() {
                self.names(referrer, key.row.position, RowKind::Member, std::slice::from_ref(&key.row.spec.member), &members);
            }
        }
    }

    /// The names of a kind once the plan is carried out.
    fn known<'a>(&'a self, kind: RowKind, file: impl Iterator<Item = &'a str>) -> HashSet<String> {
        let gone: HashSet<&str> = self
            .lines
            .iter()
            .filter(|line| line.kind == kind && line.sign == PlanAction::Remove)
            .map(|line| line.name.as_str())
            .collect();
        let current: Vec<&str> = match kind {
            RowKind::Channel => self.current.channels.iter().map(|row| row.spec.name.as_str()).collect(),
            RowKind::Group => self.current.groups.iter().map(|row| row.spec.name.as_str()).collect(),
            RowKind::Member => self.current.members.iter().map(|row| row.spec.name.as_str()).collect(),
            RowKind::Account | RowKind::Model | RowKind::Key | RowKind::AdminKey | RowKind::Setting | RowKind::AlertDestination => {
                Vec::new()
            }
        };
        file.chain(current.into_iter().filter(|name| !gone.contains(name))).map(str::to_owned).collect()
    }

    /// Reports references to unknown rows. If the name of some row of the kind could not be read, any reference may be to that row, so
    /// none is reported.
    fn names(
        &mut self,
        referrer: (RowKind, &str),
        position: FilePosition,
        kind: RowKind,
        names: &[String],
        known: &HashSet<String>,
    ) {
        if known.contains("") {
            return;
        }
        for name in names.iter().filter(|name| !known.contains(*name)) {
            let hint = hint(name, known.iter().map(String::as_str));
            let (referrer_kind, referrer_name) = referrer;
            self.errors.push(position.error(format!("{referrer_kind} '{referrer_name}' refers to unknown {kind} '{name}'{hint}")));
        }
    }
}
