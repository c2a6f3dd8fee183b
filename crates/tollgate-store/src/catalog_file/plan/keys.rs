//! Keys: known by member and name; those that end go first, since others may take up their names and secrets.

use std::collections::{HashMap, HashSet};

use tollgate_core::{MemberStatus, Role};

use super::{PlanAction, Planner, difference::differences};
use crate::{
    Change, KeyHash, KeySpec, MemberSpec, RowKind,
    apply::OWNER,
    catalog_file::{FileKey, FilePosition},
};

impl Planner<'_> {
    pub(super) fn keys(&mut self) {
        let (file, current) = (self.file, self.current);
        let default_member = self.default_member();
        let mut named = HashSet::new();
        let mut secrets: HashMap<KeyHash, FilePosition> = HashMap::new();
        for key in &file.keys {
            let mut spec = key.row.spec.clone();
            if spec.member.is_empty() {
                spec.member.clone_from(&default_member);
            }
            if let Some(secret) = &key.secret
                && let Some(first) = secrets.insert(current.hasher.hash(secret.expose()), key.row.place)
            {
                let (one, two) = (first.line, key.row.place.line);
                self.errors.push(key.row.place.error(format!("the keys in line {one} and in line {two} have the same secret")));
            }
            if !named.insert((spec.member.clone(), spec.name.clone())) {
                self.errors.push(key.row.place.error(format!("key '{}/{}' is defined twice", spec.member, spec.name)));
                continue;
            }
            self.key(key, spec);
        }
        for key in &current.keys {
            if self.removes(key.owner) && !named.contains(&(key.spec.member.clone(), key.spec.name.clone())) {
                self.line(PlanAction::Remove, RowKind::Key, &shown(&key.spec), "revoked");
                self.first.push(Change::RevokeKey { key: key.id });
            }
        }
    }

    fn key(&mut self, file: &FileKey, spec: KeySpec) {
        let shown = shown(&spec);
        let there = self.current.keys.iter().find(|key| key.spec.member == spec.member && key.spec.name == spec.name);
        let mut secret = file.secret.as_ref();
        let written = match there {
            None => {
                if secret.is_none() {
                    let message = format!("key '{shown}' is new and needs its secret; `tollgate key create` makes one without");
                    self.errors.push(file.row.place.error(message));
                }
                self.line(PlanAction::Add, RowKind::Key, &shown, "");
                true
            }
            Some(old) => {
                let mut details = differences(&old.spec, &spec);
                secret = secret.filter(|given| !self.current.hasher.matches(given, &old.secret.hash));
                if secret.is_some() {
                    details.push("secret replaced".to_owned());
                }
                self.may_write(RowKind::Key, &shown, old.owner, &details, file.row.place)
                    && self.compare(RowKind::Key, &shown, old.owner, details)
            }
        };
        if !written {
            return;
        }
        match secret.map(|secret| self.current.hasher.import(secret)).transpose() {
            Ok(secret) => self.puts.push(Change::PutKey { key: Box::new(spec), secret }),
            Err(bad) => self.errors.push(file.row.place.error(format!("key '{shown}': {bad}"))),
        }
    }

    /// Whose keys are that name no member: `owner`'s, or else an admin's.
    fn default_member(&self) -> String {
        let members = || self.current.members.iter().map(|row| &row.spec);
        let admin = |member: &&MemberSpec| member.role == Role::Admin && member.status == MemberStatus::Active;
        let found = members().find(|member| member.name == OWNER).or_else(|| members().find(admin));
        found.map_or_else(|| OWNER.to_owned(), |member| member.name.clone())
    }
}

fn shown(key: &KeySpec) -> String {
    format!("{}/{}", key.member, key.name)
}
