//! The changes of channels, including served models and accounts, and of keys.

use std::collections::{HashMap, HashSet};

use subtle::ConstantTimeEq as _;
use tollgate_core::{ChannelSpec, MemberStatus, Owner, Provider, Role, Secret};

use super::{
    super::{FileAccount, FileChannel, FileKey, FilePosition, FileSecret, render::FileForm},
    ApplyMode, PlanAction, Planner,
};
use crate::{AccountRow, Change, ChannelRow, KeyHash, KeySpec, MemberSpec, RowKind, apply::OWNER, proxy::ChannelSecrets};

impl Planner<'_> {
    pub(super) fn channels(&mut self) {
        let (file, current) = (self.file, self.current);
        let existing: HashMap<&str, &ChannelRow> = current.channels.iter().map(|row| (row.spec.name.as_str(), row)).collect();
        for channel in &file.channels {
            self.channel(channel, existing.get(channel.row.spec.name.as_str()).copied());
        }
        let named: HashSet<&str> = file.channels.iter().map(|channel| channel.row.spec.name.as_str()).collect();
        for channel in current.channels.iter().filter(|channel| !named.contains(channel.spec.name.as_str())) {
            if self.removes(channel.owner) {
                let name = &channel.spec.name;
                self.line(PlanAction::Remove, RowKind::Channel, name, "");
                for account in &channel.accounts {
                    self.line(PlanAction::Remove, RowKind::Account, &format!("{name}/{}", account.spec.name), "with its channel");
                }
                self.last.push(Change::RemoveChannel { channel: name.clone() });
            }
        }
    }

    fn channel(&mut self, file: &FileChannel, existing: Option<&ChannelRow>) {
        let name = file.row.spec.name.as_str();
        let mut spec = file.row.spec.clone();
        match existing {
            None => {
                self.line(PlanAction::Add, RowKind::Channel, name, "");
                self.puts.push(Change::PutChannel(Box::new(spec)));
            }
            Some(old) => {
                if self.mode == (ApplyMode::Apply { prune: false }) {
                    // Without pruning nothing is removed, so models that the file does not name stay served.
                    let named: HashSet<&str> = file.row.spec.serves.iter().map(|serves| serves.model.as_str()).collect();
                    spec.serves.extend(old.spec.serves.iter().filter(|serves| !named.contains(serves.model.as_str())).cloned());
                    spec = in_old_order(spec, &old.spec);
                }
                let mut named = spec.clone();
                let secrets = ChannelSecrets::take_from(&mut named, Some(&(old.spec.clone(), old.secrets.clone())));
                let mut details = differences(&old.spec, &named);
                details.extend(served_differences(&old.spec, &spec));
                match secrets.as_ref().map(|secrets| secrets.differ(&old.secrets)) {
                    Ok([proxy, headers, key]) => {
                        // An added or removed password or header is a difference of its field already.
                        if proxy && old.spec.proxy == named.proxy {
                            details.push("password of its proxy replaced".to_owned());
                        }
                        if headers && old.spec.headers == named.headers {
                            details.push("values of its headers replaced".to_owned());
                        }
                        if key && old.spec.client_key == named.client_key {
                            details.push("private key of its client certificate replaced".to_owned());
                        }
                    }
                    // The change would be refused; the line has the reason.
                    Err(problem) => details.push(format!("{}: {}", problem.field, problem.message)),
                }
                if details.is_empty() && old.spec != named {
                    details.push("order of its models".to_owned());
                }
                if self.may_write(RowKind::Channel, name, old.owner, &details, file.row.position)
                    && self.compare(RowKind::Channel, name, old.owner, details)
                {
                    self.puts.push(Change::PutChannel(Box::new(spec)));
                }
            }
        }
        let accounts = existing.map_or(&[][..], |old| &old.accounts);
        for account in &file.accounts {
            self.account(
                name,
                account,
                accounts.iter().find(|old| old.spec.name == account.spec.name),
                existing.map(|old| old.owner),
            );
        }
        let whole = match self.mode {
            ApplyMode::Served => true,
            ApplyMode::Apply { prune } => prune && existing.is_some_and(|old| old.owner == Owner::Database),
        };
        for old in accounts.iter().filter(|_| whole) {
            if !file.accounts.iter().any(|account| account.spec.name == old.spec.name) {
                self.line(PlanAction::Remove, RowKind::Account, &format!("{name}/{}", old.spec.name), "");
                self.puts.push(Change::RemoveAccount { channel: name.to_owned(), account: old.spec.name.clone() });
            }
        }
    }

    fn account(&mut self, channel: &str, file: &FileAccount, existing: Option<&AccountRow>, owner: Option<Owner>) {
        let shown = format!("{channel}/{}", file.spec.name);
        let provider = self.file.channels.iter().find(|it| it.row.spec.name == channel).map(|it| it.row.spec.provider);
        let mut credential = file.credential.given().cloned();
        let owner = owner.unwrap_or_else(|| self.owner());
        let written = match existing {
            None if !self.may_write(RowKind::Account, &shown, owner, &["new".to_owned()], file.position) => false,
            None => {
                if matches!(file.credential, FileSecret::Absent) && !provider.is_some_and(Provider::works_without_credential) {
                    self.errors.push(file.position.error(format!("account '{shown}' is new and needs its credential")));
                }
                self.line(PlanAction::Add, RowKind::Account, &shown, "");
                true
            }
            Some(old) => {
                let mut details = differences(&old.spec, &file.spec);
                credential = credential.filter(|given| !old.credential.as_ref().is_some_and(|kept| is_same(kept, given)));
                if credential.is_some() {
                    details.push("credential replaced".to_owned());
                }
                self.may_write(RowKind::Account, &shown, owner, &details, file.position)
                    && self.compare(RowKind::Account, &shown, owner, details)
            }
        };
        if written {
            self.puts.push(Change::PutAccount { channel: channel.to_owned(), account: file.spec.clone(), credential });
        }
    }
}

/// Compares in constant time, so that the duration does not reveal how much of the secrets agrees.
fn is_same(one: &Secret, other: &Secret) -> bool {
    one.expose().as_bytes().ct_eq(other.expose().as_bytes()).into()
}

/// The served models in their previous order, followed by new ones.
fn in_old_order(mut spec: ChannelSpec, old: &ChannelSpec) -> ChannelSpec {
    let position = |model: &str| old.serves.iter().position(|serves| serves.model == model).unwrap_or(usize::MAX);
    spec.serves.sort_by_key(|serves| position(&serves.model));
    spec
}

impl Planner<'_> {
    pub(super) fn keys(&mut self) {
        let (file, current) = (self.file, self.current);
        let default_member = self.default_member();
        let mut named = HashSet::new();
        // Keys that name no member may equal keys that name the default one. Reading has found all other duplicates.
        let mut written = HashSet::new();
        let mut secrets: HashMap<KeyHash, FilePosition> = HashMap::new();
        for key in &file.keys {
            let mut spec = key.row.spec.clone();
            if spec.member.is_empty() {
                spec.member.clone_from(&default_member);
            }
            if let Some(secret) = key.secret.given()
                && let Some(first) = secrets.insert(current.hasher.hash(secret.expose()), key.row.position)
            {
                let (one, two) = (first.line, key.row.position.line);
                self.errors.push(key.row.position.error(format!("the keys in line {one} and in line {two} have the same secret")));
            }
            let is_new = written.insert((&key.row.spec.member, &key.row.spec.name));
            if !named.insert((spec.member.clone(), spec.name.clone())) {
                if !is_new || spec.name.is_empty() {
                    continue;
                }
                self.errors.push(key.row.position.error(format!("key '{}/{}' is defined twice", spec.member, spec.name)));
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
        let existing = self.current.keys.iter().find(|key| key.spec.member == spec.member && key.spec.name == spec.name);
        let mut secret = file.secret.given();
        let written = match existing {
            None => {
                if matches!(file.secret, FileSecret::Absent) {
                    let message = format!("key '{shown}' is new and needs its secret; `tollgate key create` makes one without");
                    self.errors.push(file.row.position.error(message));
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
                self.may_write(RowKind::Key, &shown, old.owner, &details, file.row.position)
                    && self.compare(RowKind::Key, &shown, old.owner, details)
            }
        };
        if !written {
            return;
        }
        match secret.map(|secret| self.current.hasher.import(secret)).transpose() {
            Ok(secret) => self.puts.push(Change::PutKey { key: Box::new(spec), secret }),
            Err(bad) => self.errors.push(file.row.position.error(format!("key '{shown}': {bad}"))),
        }
    }

    /// Member of keys that name none: `owner`, else an admin.
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

/// The fields that differ, as a file spells them.
pub(super) fn differences<T: FileForm>(old: &T, new: &T) -> Vec<String> {
    let (old, new) = (old.fields(), new.fields());
    let value = |fields: &[(&'static str, String)], name: &str| {
        fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone())
    };
    let shown = |value: Option<String>| value.map_or_else(|| "default".to_owned(), |value| short(&value));
    let mut seen = HashSet::new();
    let mut details = Vec::new();
    for (name, _) in new.iter().chain(&old).filter(|(name, _)| seen.insert(*name)) {
        let (before, after) = (value(&old, name), value(&new, name));
        if before != after {
            details.push(format!("{name} {} -> {}", shown(before), shown(after)));
        }
    }
    details
}

pub(super) fn served_differences(old: &ChannelSpec, new: &ChannelSpec) -> Vec<String> {
    let find = |spec: &ChannelSpec, model: &str| spec.serves.iter().find(|serves| serves.model == model).cloned();
    let mut details = Vec::new();
    for serves in &new.serves {
        match find(old, &serves.model) {
            None => details.push(format!("serves {} (new)", serves.model)),
            Some(before) if before != *serves => {
                details.push(format!("serves {} ({})", serves.model, differences(&before, serves).join(", ")));
            }
            Some(_) => {}
        }
    }
    let gone = old.serves.iter().filter(|serves| find(new, &serves.model).is_none());
    details.extend(gone.map(|serves| format!("no longer serves {}", serves.model)));
    details
}

/// A value short enough for a line.
fn short(value: &str) -> String {
    const MAX_CHARS: usize = 60;
    match value.char_indices().nth(MAX_CHARS) {
        Some((cut, _)) => format!("{}…", &value[..cut]),
        None => value.to_owned(),
    }
}
