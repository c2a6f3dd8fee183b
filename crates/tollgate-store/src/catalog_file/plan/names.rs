//! Names of other rows: they must exist once the plan is carried out.

use std::collections::HashSet;

use super::{PlanAction, Planner};
use crate::{RowKind, catalog_file::FilePosition, fields::hint};

impl Planner<'_> {
    pub(super) fn check_names(&mut self) {
        let file = self.file;
        let channels = self.known(RowKind::Channel, file.channels.iter().map(|channel| channel.row.spec.name.as_str()));
        let groups = self.known(RowKind::Group, file.groups.iter().map(|row| row.spec.name.as_str()));
        let members = self.known(RowKind::Member, file.members.iter().map(|row| row.spec.name.as_str()));
        for row in &file.groups {
            self.names((RowKind::Group, &row.spec.name), row.names_at, RowKind::Channel, &row.spec.channels, &channels);
        }
        for row in &file.members {
            let who = (RowKind::Member, row.spec.name.as_str());
            self.names(who, row.names_at, RowKind::Group, &row.spec.groups, &groups);
            self.names(who, row.place, RowKind::Group, row.spec.default_group.as_slice(), &groups);
        }
        for key in &file.keys {
            let who = (RowKind::Key, key.row.spec.name.as_str());
            self.names(who, key.row.names_at, RowKind::Group, &key.row.spec.groups, &groups);
            if !key.row.spec.member.is_empty() {
                self.names(who, key.row.place, RowKind::Member, std::slice::from_ref(&key.row.spec.member), &members);
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
            RowKind::Account | RowKind::Model | RowKind::Key | RowKind::AdminKey => Vec::new(),
        };
        file.chain(current.into_iter().filter(|name| !gone.contains(name))).map(str::to_owned).collect()
    }

    fn names(&mut self, who: (RowKind, &str), place: FilePosition, kind: RowKind, names: &[String], known: &HashSet<String>) {
        for name in names.iter().filter(|name| !known.contains(*name)) {
            let hint = hint(name, known.iter().map(String::as_str));
            let (who, called) = who;
            self.errors.push(place.error(format!("{who} '{called}' names {kind} '{name}', which does not exist{hint}")));
        }
    }
}
