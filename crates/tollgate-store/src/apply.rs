//! Applying a batch of changes: the same rules for every backend, over [`ChangeTransaction`] inside one transaction.

mod destinations;
mod identity;
mod keys;
mod offers;
mod passkeys;
mod prices;
mod rows;

use tollgate_core::{
    AccountId, AccountSpec, AdminKeyId, AlertDestinationId, ChannelId, ChannelSpec, GroupId, KeyId, KeyStatus, MemberId,
    MemberStatus, ModelId, Owner, Revision, Role, Secret, SettingId, Timestamp,
};

use crate::{
    Actor, AuditAction, AuditEvent, AuditKind, Change, ChangeOrigin, ChangeRefusal, ChangeRefused, ChangedRow, FieldProblem,
    GroupSpec, MemberSpec, PriceChange, RandomSource, RowKind, StoreError, StoredSetting, Toggle,
    client_certificate::check_pair,
    credential,
    fields::{AccountInput, check_row},
    proxy::ChannelSecrets,
    rows::{BatchRecord, ChangeTransaction, IdempotentBatch},
    seal::Sealer,
};

pub(crate) use keys::OWNER;
use offers::ChangedOffers;
use rows::{SecretInput, SecretRequirement};

/// Writes a batch. The caller commits when this is `Ok`, and rolls back otherwise.
pub(crate) async fn apply(
    rows: &mut dyn ChangeTransaction,
    sealer: &Sealer,
    random: &RandomSource,
    changes: &[Change],
    actor: &Actor,
    now: Timestamp,
) -> Result<Revision, StoreError> {
    let revision = rows.revision().await?;
    let mut batch = Batch {
        rows,
        sealer,
        random,
        actor,
        now,
        revision,
        changed: Vec::new(),
        audit: Vec::new(),
        prices: Vec::new(),
        price_source: None,
        named: Vec::new(),
        once: None,
        changed_offers: ChangedOffers::default(),
    };
    for change in changes {
        batch.apply(change).await?;
    }
    batch.check_names().await?;
    batch.check_admins().await?;
    batch.finish().await
}

pub(crate) fn new_id(kind: RowKind, at: Timestamp, random: [u8; 10]) -> String {
    match kind {
        RowKind::Channel => ChannelId::from_parts(at, random).to_string(),
        RowKind::Account => AccountId::from_parts(at, random).to_string(),
        RowKind::Model => ModelId::from_parts(at, random).to_string(),
        RowKind::Group => GroupId::from_parts(at, random).to_string(),
        RowKind::Member => MemberId::from_parts(at, random).to_string(),
        RowKind::Key => KeyId::from_parts(at, random).to_string(),
        RowKind::AdminKey => AdminKeyId::from_parts(at, random).to_string(),
        RowKind::Setting => SettingId::from_parts(at, random).to_string(),
        RowKind::AlertDestination => AlertDestinationId::from_parts(at, random).to_string(),
    }
}

struct Batch<'a> {
    rows: &'a mut dyn ChangeTransaction,
    sealer: &'a Sealer,
    random: &'a RandomSource,
    actor: &'a Actor,
    now: Timestamp,
    revision: Revision,
    changed: Vec<ChangedRow>,
    audit: Vec<AuditEvent>,
    prices: Vec<PriceChange>,
    /// List that the prices of the current change are imported from; `None` if they are set by hand.
    price_source: Option<String>,
    /// References of written rows: kind and name of the row, kind and name of the row it refers to.
    named: Vec<(RowKind, String, RowKind, String)>,
    /// Idempotency key and fingerprint.
    once: Option<(String, [u8; 32])>,
    changed_offers: ChangedOffers,
}

fn refused(kind: RowKind, name: &str, reason: ChangeRefusal) -> StoreError {
    StoreError::Refused(ChangeRefused { kind, name: name.to_owned(), reason })
}

fn checked(kind: RowKind, name: &str, problems: Vec<FieldProblem>) -> Result<(), StoreError> {
    if problems.is_empty() { Ok(()) } else { Err(refused(kind, name, ChangeRefusal::Invalid(problems))) }
}

impl Batch<'_> {
    async fn apply(&mut self, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::Expect(expected) if *expected != self.revision => {
                Err(refused(RowKind::Channel, "", ChangeRefusal::Stale { expected: *expected, found: self.revision }))
            }
            Change::Expect(_) => Ok(()),
            Change::ExpectRow { kind, id, revision } => self.expect_row(*kind, id, *revision).await,
            Change::ExpectNew { kind, parent, name } => self.expect_new(*kind, parent, name).await,
            Change::ExpectFewerKeys { member, than } => self.expect_fewer_keys(member, *than).await,
            Change::Idempotent { key, fingerprint } => self.once(key, fingerprint).await,
            Change::PutChannel(spec) => self.put_channel(spec).await,
            Change::SwitchChannel { channel, to } => {
                self.edit::<ChannelSpec>(RowKind::Channel, "", channel, AuditAction::Switch, |spec| spec.on = *to == Toggle::On)
                    .await
            }
            Change::RemoveChannel { channel } => self.remove_channel(channel).await,
            Change::PutAccount { channel, account, credential } => self.put_account(channel, account, credential.as_ref()).await,
            Change::SwitchAccount { channel, account, to } => {
                let parent = self.need(RowKind::Channel, "", channel).await?;
                let switch = |spec: &mut AccountSpec| spec.on = *to == Toggle::On;
                self.edit(RowKind::Account, &parent.id, account, AuditAction::Switch, switch).await
            }
            Change::RemoveAccount { channel, account } => self.remove_account(channel, account).await,
            Change::PutModelMapping { channel, mapping } => {
                checked(RowKind::Channel, channel, check_row(mapping.as_ref()))?;
                let put = |spec: &mut ChannelSpec| match spec.serves.iter_mut().find(|it| it.model == mapping.model) {
                    Some(there) => there.clone_from(mapping),
                    None => spec.serves.push(mapping.as_ref().clone()),
                };
                self.edit(RowKind::Channel, "", channel, AuditAction::Serve, put).await
            }
            Change::RemoveModelMapping { channel, model } => {
                let remove = |spec: &mut ChannelSpec| spec.serves.retain(|serves| serves.model != *model);
                self.edit(RowKind::Channel, "", channel, AuditAction::Unserve, remove).await
            }
            Change::PutModel(spec) => {
                checked(RowKind::Model, &spec.name, check_row(spec.as_ref()))?;
                self.put(RowKind::Model, "", &spec.name, spec.as_ref(), SecretInput::Keep(SecretRequirement::NeedsNone)).await
            }
            Change::SetPrice { model, price, source } => self.set_price(model, price.as_ref(), source.as_deref()).await,
            Change::SetCosts { channel, costs, source } => self.set_costs(channel, costs, source.as_deref()).await,
            Change::RemoveModel { model } => self.remove(RowKind::Model, model).await,
            Change::PutGroup(spec) => self.put_group(spec).await,
            Change::SetGroupChannel { group, channel, is_offered } => self.set_group_channel(group, channel, *is_offered).await,
            Change::RemoveGroup { group } => self.remove(RowKind::Group, group).await,
            Change::PutMember(spec) => self.put_member(spec).await,
            Change::SetMemberStatus { member, status } => self.set_member_status(member, *status).await,
            Change::RemoveMember { member } => self.remove_member(member).await,
            Change::PutKey { key, secret } => self.put_key(key, secret.as_ref()).await,
            Change::SetKeyStatus { key, status } => self.set_key_status(*key, *status).await,
            Change::RotateKey { key, secret, until } => self.rotate_key(*key, secret, *until).await,
            Change::SetKeyBudgets { key, budgets } => self.set_key_budgets(*key, budgets).await,
            Change::RevokeKey { key } => self.set_key_status(*key, KeyStatus::Revoked).await,
            Change::ReleaseFile => self.release_file().await,
            Change::MakeAdminKey { key, secret } => self.make_admin_key(key, secret).await,
            Change::RevokeAdminKey { key } => self.revoke_admin_key(*key).await,
            Change::Identity(change) => self.change_identity(change).await,
            Change::SetSetting { name, value } => self.set_setting(name, value).await,
            Change::UnsetSetting { name } => self.remove(RowKind::Setting, name).await,
            Change::PutAlertDestination(input) => self.put_destination(input).await,
            Change::RemoveAlertDestination { destination } => self.remove(RowKind::AlertDestination, destination).await,
            Change::RecordJob { .. } | Change::RecordContents { .. } => {
                self.record_event(change);
                Ok(())
            }
        }
    }

    async fn put_channel(&mut self, spec: &ChannelSpec) -> Result<(), StoreError> {
        checked(RowKind::Channel, &spec.name, check_row(spec))?;
        let mut spec = spec.clone();
        let there = self.rows.by_name(RowKind::Channel, "", &spec.name).await?;
        let old = match &there {
            Some(row) => Some((row.read::<ChannelSpec>()?, ChannelSecrets::open(row, self.sealer).unwrap_or_default())),
            None => None,
        };
        let secrets = ChannelSecrets::take_from(&mut spec, old.as_ref())
            .map_err(|problem| refused(RowKind::Channel, &spec.name, ChangeRefusal::Invalid(vec![problem])))?;
        if let (Some(chain), Some(key)) = (&spec.client_certificate, secrets.client_key()) {
            check_pair(chain, key)
                .map_err(|problem| refused(RowKind::Channel, &spec.name, ChangeRefusal::Invalid(vec![problem])))?;
        }
        let secret = secrets.to_secret();
        let given = secret.as_ref().map_or(SecretInput::NoSecret, SecretInput::Credential);
        self.put(RowKind::Channel, "", &spec.name, &spec, given).await
    }

    async fn put_account(&mut self, channel: &str, spec: &AccountSpec, credential: Option<&Secret>) -> Result<(), StoreError> {
        let parent = self.need(RowKind::Channel, "", channel).await?;
        self.may_write(&parent, channel)?;
        let shown = format!("{channel}/{}", spec.name);
        let mut problems = check_row(&AccountInput { spec: spec.clone(), credential: None });
        if credential.is_some_and(|secret| !credential::can_be_sent(secret.expose())) {
            problems.push(FieldProblem { field: "credential", message: credential::CANNOT_BE_SENT.to_owned() });
        }
        checked(RowKind::Account, &shown, problems)?;
        let needs_none = parent.read::<ChannelSpec>()?.provider.works_without_credential();
        let given = match credential {
            Some(secret) => SecretInput::Credential(secret),
            None => SecretInput::Keep(if needs_none { SecretRequirement::NeedsNone } else { SecretRequirement::NeedsSecret }),
        };
        self.put(RowKind::Account, &parent.id, &spec.name, spec, given).await
    }

    /// Compares in constant time.
    async fn put_group(&mut self, spec: &GroupSpec) -> Result<(), StoreError> {
        checked(RowKind::Group, &spec.name, check_row(spec))?;
        self.names(RowKind::Group, &spec.name, RowKind::Channel, &spec.channels);
        self.put(RowKind::Group, "", &spec.name, spec, SecretInput::Keep(SecretRequirement::NeedsNone)).await
    }

    /// Only the channel itself is checked: a group may still name channels that were removed.
    async fn set_group_channel(&mut self, group: &str, channel: &str, is_offered: bool) -> Result<(), StoreError> {
        let Some(row) = self.rows.by_name(RowKind::Group, "", group).await? else {
            let reason = ChangeRefusal::Unknown { kind: RowKind::Group, name: group.to_owned() };
            return Err(refused(RowKind::Channel, channel, reason));
        };
        let mut spec: GroupSpec = row.read()?;
        if spec.channels.iter().any(|known| known == channel) == is_offered {
            return Ok(());
        }
        let channel = channel.to_owned();
        if is_offered {
            self.names(RowKind::Group, group, RowKind::Channel, std::slice::from_ref(&channel));
            spec.channels.push(channel);
        } else {
            spec.channels.retain(|known| *known != channel);
        }
        checked(RowKind::Group, group, check_row(&spec))?;
        self.put(RowKind::Group, "", group, &spec, SecretInput::Keep(SecretRequirement::NeedsNone)).await
    }

    async fn put_member(&mut self, spec: &MemberSpec) -> Result<(), StoreError> {
        checked(RowKind::Member, &spec.name, check_row(spec))?;
        self.names(RowKind::Member, &spec.name, RowKind::Group, &spec.groups);
        self.names(RowKind::Member, &spec.name, RowKind::Group, spec.default_group.as_slice());
        let before = self.rows.by_name(RowKind::Member, "", &spec.name).await?;
        self.put(RowKind::Member, "", &spec.name, spec, SecretInput::Keep(SecretRequirement::NeedsNone)).await?;
        match before {
            Some(before) => self.end_sessions_unless(&before, spec.role, spec.status).await,
            None => Ok(()),
        }
    }

    async fn set_member_status(&mut self, member: &str, status: MemberStatus) -> Result<(), StoreError> {
        let before = self.need(RowKind::Member, "", member).await?;
        self.edit::<MemberSpec>(RowKind::Member, "", member, AuditAction::Status, |spec| spec.status = status).await?;
        let role = before.read::<MemberSpec>()?.role;
        self.end_sessions_unless(&before, role, status).await
    }

    async fn remove_channel(&mut self, channel: &str) -> Result<(), StoreError> {
        let row = self.need(RowKind::Channel, "", channel).await?;
        self.may_write(&row, channel)?;
        for account in self.rows.list(RowKind::Account, Some(&row.id)).await? {
            self.remove_row(account, AuditAction::Remove).await?;
        }
        self.remove_row(row, AuditAction::Remove).await
    }

    async fn remove_account(&mut self, channel: &str, account: &str) -> Result<(), StoreError> {
        let parent = self.need(RowKind::Channel, "", channel).await?;
        let row = self.need(RowKind::Account, &parent.id, account).await?;
        self.remove_row(row, AuditAction::Remove).await
    }

    async fn remove_member(&mut self, member: &str) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        self.may_write(&row, member)?;
        for key in self.rows.list(RowKind::Key, Some(&row.id)).await? {
            self.revoke(key).await?;
        }
        for key in self.rows.list(RowKind::AdminKey, Some(&row.id)).await? {
            self.remove_row(key, AuditAction::Revoke).await?;
        }
        self.rows.delete_login(&row.id).await?;
        self.remove_row(row, AuditAction::Remove).await
    }

    async fn remove(&mut self, kind: RowKind, name: &str) -> Result<(), StoreError> {
        let row = self.need(kind, "", name).await?;
        self.remove_row(row, AuditAction::Remove).await
    }

    async fn set_setting(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        let setting = StoredSetting { value: value.to_owned() };
        self.put(RowKind::Setting, "", name, &setting, SecretInput::Keep(SecretRequirement::NeedsNone)).await
    }

    async fn release_file(&mut self) -> Result<(), StoreError> {
        if self.actor.origin == ChangeOrigin::File {
            return Ok(());
        }
        for kind in RowKind::ALL {
            for mut row in self.rows.of_file(kind).await? {
                row.owner = Owner::Database;
                self.rows.put(&row).await?;
                let spec = row.spec.clone();
                self.changed(&row, AuditAction::Release, Some(&spec), "");
            }
        }
        Ok(())
    }

    fn names(&mut self, kind: RowKind, name: &str, other: RowKind, names: &[String]) {
        self.named.extend(names.iter().map(|named| (kind, name.to_owned(), other, named.clone())));
    }

    /// Every referenced row must exist after the batch.
    async fn check_names(&mut self) -> Result<(), StoreError> {
        for (kind, name, other, named) in std::mem::take(&mut self.named) {
            if self.rows.by_name(other, "", &named).await?.is_none() {
                return Err(refused(kind, &name, ChangeRefusal::Unknown { kind: other, name: named }));
            }
        }
        Ok(())
    }

    /// One member with the role admin must remain.
    async fn check_admins(&mut self) -> Result<(), StoreError> {
        let Some(last) =
            self.audit.iter().rfind(|event| event.kind == AuditKind::Row(RowKind::Member)).map(|event| event.name.clone())
        else {
            return Ok(());
        };
        for row in self.rows.list(RowKind::Member, None).await? {
            let spec: MemberSpec = row.read()?;
            if spec.role == Role::Admin && spec.status == MemberStatus::Active {
                return Ok(());
            }
        }
        Err(refused(RowKind::Member, &last, ChangeRefusal::LastAdmin))
    }

    async fn finish(mut self) -> Result<Revision, StoreError> {
        if self.audit.is_empty() {
            return Ok(self.revision);
        }
        let revision = Revision(self.revision.0 + 1);
        let offers = self.offer_changes().await?;
        let record = BatchRecord { changed: &self.changed, audit: &self.audit, prices: &self.prices, offers: &offers };
        self.rows.record(revision, &record).await?;
        if let Some((key, fingerprint)) = self.once
            && let Some(made) = self.changed.first()
        {
            let once = IdempotentBatch { key, fingerprint, at: self.now, kind: made.kind, id: made.id.clone() };
            self.rows.put_idempotent_batch(&once).await?;
        }
        Ok(revision)
    }
}
