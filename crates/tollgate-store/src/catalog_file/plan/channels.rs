//! Channels with what they serve and their accounts.

use std::collections::{HashMap, HashSet};

use subtle::ConstantTimeEq as _;
use tollgate_core::{Owner, Provider, Secret};

use super::{
    ApplyMode, PlanAction, Planner,
    difference::{differences, served_differences},
};
use crate::{
    AccountRow, Change, ChannelRow, ChannelSpec, RowKind,
    catalog_file::{FileAccount, FileChannel},
    proxy::ProxyPassword,
};

impl Planner<'_> {
    pub(super) fn channels(&mut self) {
        let (file, current) = (self.file, self.current);
        let there: HashMap<&str, &ChannelRow> = current.channels.iter().map(|row| (row.spec.name.as_str(), row)).collect();
        for channel in &file.channels {
            self.channel(channel, there.get(channel.row.spec.name.as_str()).copied());
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

    fn channel(&mut self, file: &FileChannel, there: Option<&ChannelRow>) {
        let name = file.row.spec.name.as_str();
        let mut spec = file.row.spec.clone();
        match there {
            None => {
                self.line(PlanAction::Add, RowKind::Channel, name, "");
                self.puts.push(Change::PutChannel(Box::new(spec)));
            }
            Some(old) => {
                if self.mode == (ApplyMode::Apply { prune: false }) {
                    // Nothing is removed without pruning, models that are served included.
                    let named: HashSet<&str> = file.row.spec.serves.iter().map(|serves| serves.model.as_str()).collect();
                    spec.serves.extend(old.spec.serves.iter().filter(|serves| !named.contains(serves.model.as_str())).cloned());
                    spec = in_old_order(spec, &old.spec);
                }
                let mut named = spec.clone();
                let password = ProxyPassword::take_from(&mut named);
                let mut details = differences(&old.spec, &named);
                details.extend(served_differences(&old.spec, &spec));
                if let ProxyPassword::Given(whole) = password
                    && !old.proxy.as_ref().is_some_and(|kept| is_same(kept, &whole))
                {
                    details.push("password of its proxy replaced".to_owned());
                }
                if details.is_empty() && old.spec != named {
                    details.push("order of its models".to_owned());
                }
                if self.may_write(RowKind::Channel, name, old.owner, &details, file.row.place)
                    && self.compare(RowKind::Channel, name, old.owner, details)
                {
                    self.puts.push(Change::PutChannel(Box::new(spec)));
                }
            }
        }
        let accounts = there.map_or(&[][..], |old| &old.accounts);
        for account in &file.accounts {
            self.account(name, account, accounts.iter().find(|old| old.spec.name == account.spec.name), there.map(|old| old.owner));
        }
        let whole = match self.mode {
            ApplyMode::Served => true,
            ApplyMode::Apply { prune } => prune && there.is_some_and(|old| old.owner == Owner::Database),
        };
        for old in accounts.iter().filter(|_| whole) {
            if !file.accounts.iter().any(|account| account.spec.name == old.spec.name) {
                self.line(PlanAction::Remove, RowKind::Account, &format!("{name}/{}", old.spec.name), "");
                self.puts.push(Change::RemoveAccount { channel: name.to_owned(), account: old.spec.name.clone() });
            }
        }
    }

    fn account(&mut self, channel: &str, file: &FileAccount, there: Option<&AccountRow>, owner: Option<Owner>) {
        let shown = format!("{channel}/{}", file.spec.name);
        let provider = self.file.channels.iter().find(|it| it.row.spec.name == channel).map(|it| it.row.spec.provider);
        let mut credential = file.credential.clone();
        let owner = owner.unwrap_or_else(|| self.owner());
        let written = match there {
            None if !self.may_write(RowKind::Account, &shown, owner, &["new".to_owned()], file.place) => false,
            None => {
                if credential.is_none() && !provider.is_some_and(Provider::works_without_credential) {
                    self.errors.push(file.place.error(format!("account '{shown}' is new and needs its credential")));
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
                self.may_write(RowKind::Account, &shown, owner, &details, file.place)
                    && self.compare(RowKind::Account, &shown, owner, details)
            }
        };
        if written {
            self.puts.push(Change::PutAccount { channel: channel.to_owned(), account: file.spec.clone(), credential });
        }
    }
}

/// Compares whole texts; how far they agree cannot be told from the time it takes.
fn is_same(one: &Secret, other: &Secret) -> bool {
    one.expose().as_bytes().ct_eq(other.expose().as_bytes()).into()
}

/// The served models in the order they had, new ones behind.
fn in_old_order(mut spec: ChannelSpec, old: &ChannelSpec) -> ChannelSpec {
    let place = |model: &str| old.serves.iter().position(|serves| serves.model == model).unwrap_or(usize::MAX);
    spec.serves.sort_by_key(|serves| place(&serves.model));
    spec
}
