//! Names of other rows: they must exist once the plan is carried out.

use std::collections::HashSet;

use super::{Planner, Sign};
use crate::{
    Kind,
    catalog_file::{Place, nearest::hint},
};

impl Planner<'_> {
    pub(super) fn check_names(&mut self) {
        let file = self.file;
        let channels = self.known(Kind::Channel, file.channels.iter().map(|channel| channel.row.spec.name.as_str()));
        let groups = self.known(Kind::Group, file.groups.iter().map(|row| row.spec.name.as_str()));
        let members = self.known(Kind::Member, file.members.iter().map(|row| row.spec.name.as_str()));
        for row in &file.groups {
            self.names((Kind::Group, &row.spec.name), row.names_at, Kind::Channel, &row.spec.channels, &channels);
        }
        for row in &file.members {
            let who = (Kind::Member, row.spec.name.as_str());
            self.names(who, row.names_at, Kind::Group, &row.spec.groups, &groups);
            self.names(who, row.place, Kind::Group, row.spec.default_group.as_slice(), &groups);
        }
        for key in &file.keys {
            let who = (Kind::Key, key.row.spec.name.as_str());
            self.names(who, key.row.names_at, Kind::Group, &key.row.spec.groups, &groups);
            if !key.row.spec.member.is_empty() {
                self.names(who, key.row.place, Kind::Member, std::slice::from_ref(&key.row.spec.member), &members);
            }
        }
    }

    /// The names of a kind once the plan is carried out.
    fn known<'a>(&'a self, kind: Kind, file: impl Iterator<Item = &'a str>) -> HashSet<String> {
        let gone: HashSet<&str> = self
            .lines
            .iter()
            .filter(|line| line.kind == kind && line.sign == Sign::Remove)
            .map(|line| line.name.as_str())
            .collect();
        let current: Vec<&str> = match kind {
            Kind::Channel => self.current.channels.iter().map(|row| row.spec.name.as_str()).collect(),
            Kind::Group => self.current.groups.iter().map(|row| row.spec.name.as_str()).collect(),
            Kind::Member => self.current.members.iter().map(|row| row.spec.name.as_str()).collect(),
            Kind::Account | Kind::Model | Kind::Key | Kind::AdminKey => Vec::new(),
        };
        file.chain(current.into_iter().filter(|name| !gone.contains(name))).map(str::to_owned).collect()
    }

    fn names(&mut self, who: (Kind, &str), place: Place, kind: Kind, names: &[String], known: &HashSet<String>) {
        for name in names.iter().filter(|name| !known.contains(*name)) {
            let hint = hint(name, known.iter().map(String::as_str));
            let (who, called) = who;
            self.errors.push(place.error(format!("{who} '{called}' names {kind} '{name}', which does not exist{hint}")));
        }
    }
}
