//! The contract of [`crate::ListingStore`], of preconditions and of idempotent batches.

use std::collections::HashMap;

use tollgate_core::{AdminKeyId, ChannelSpec, KeyId, MemberId, Revision, Secret, Timestamp};

use super::{apply, put_account, put_channel, put_group, put_key, refusal};
use crate::{
    AdminKeySpec, AdminScope, AuditFilter, AuditKind, Change, ChangeRefusal, GroupUsers, IdentityChange, JobAction, KeyEntry,
    KeySpec, MemberSpec, NewKey, ObjectScope, RandomSource, RowFilter, RowKind, RowName, RowSearch, Store, StoredRow, WorkControl,
    samples::MIDNIGHT,
};

pub(super) async fn rows_are_listed_in_pages_with_their_revisions(store: &Store) {
    let names = ["a", "b", "c", "d", "e"];
    let mut last = Revision(0);
    for name in names {
        last = apply(store, &[put_channel(name), put_account(name, "one", Some("secret-credential"))]).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut filter = RowFilter::of(RowKind::Channel, 2);
    loop {
        let page = store.listing.page(&filter).await.unwrap();
        let Some(end) = page.last() else { break };
        filter.after = Some(end.id.clone());
        seen.extend(page);
    }
    let mut found: Vec<&str> = seen.iter().map(|row| row.name.as_str()).collect();
    found.sort_unstable();
    assert_eq!(found, names);
    let e = seen.iter().find(|row| row.name == "e").unwrap();
    assert_eq!(e.revision, last);
    assert_eq!(e.read::<ChannelSpec>().unwrap().name, "e");
    let accounts = RowFilter { parent: Some(e.id.clone()), ..RowFilter::of(RowKind::Account, 10) };
    let accounts = store.listing.page(&accounts).await.unwrap();
    assert_eq!(accounts.iter().map(|row| (row.name.as_str(), row.parent.as_str())).collect::<Vec<_>>(), [("one", e.id.as_str())]);

    apply(store, &[Change::RemoveChannel { channel: "a".to_owned() }]).await.unwrap();
    let named = RowFilter { name: Some("a".to_owned()), ..RowFilter::of(RowKind::Channel, 10) };
    assert!(store.listing.page(&named).await.unwrap().is_empty());
    let removed = store.listing.page(&RowFilter { removed: true, ..named }).await.unwrap();
    assert!(removed.len() == 1 && removed[0].removed_at == Some(MIDNIGHT), "{removed:?}");

    apply(store, &[put_group("g", &["b"]), put_key(store, "k", &["g"], Some("a-secret-of-some-length"))]).await.unwrap();
    let keys = store.listing.page(&RowFilter::of(RowKind::Key, 10)).await.unwrap();
    assert_eq!(keys[0].shown, Some(("a-sec".to_owned(), "th".to_owned())));
    assert_eq!(store.listing.row(RowKind::Key, &keys[0].id, ObjectScope::Everything).await.unwrap().as_ref(), Some(&keys[0]));
    assert_eq!(
        store.listing.row(RowKind::Channel, &keys[0].id, ObjectScope::Everything).await.unwrap(),
        None,
        "an id belongs to a row of one kind"
    );
}

pub(super) async fn size_of_the_database_is_known(store: &Store) {
    let size = store.listing.database_size().await.unwrap();
    assert_eq!(size.schema, crate::sql::newest_schema());
    assert_eq!(size.bytes > 0, size.kind != "memory", "{size:?}");
    assert_eq!(size.log_bytes.is_some(), size.kind == "sqlite", "{size:?}");
    assert!(size.log_bytes.is_none_or(|log| log <= size.bytes), "{size:?}");
}

pub(super) async fn key_entries_match_their_rows(store: &Store) {
    let member = Change::PutMember(Box::new(MemberSpec { name: "ada".to_owned(), ..MemberSpec::default() }));
    let keys = ["k1", "k2", "k3", "k4"].map(|name| put_key(store, name, &["g"], Some(&format!("a-secret-of-the-key-{name}"))));
    let mut of_ada = put_key(store, "hers", &["g"], Some("a-secret-of-the-key-of-ada"));
    if let Change::PutKey { key, .. } = &mut of_ada {
        key.member = "ada".to_owned();
    }
    apply(store, &[put_channel("a"), put_group("g", &["a"]), member, of_ada]).await.unwrap();
    apply(store, &keys).await.unwrap();
    let k2 = store.listing.page(&RowFilter { name: Some("k2".to_owned()), ..RowFilter::of(RowKind::Key, 1) }).await.unwrap();
    apply(store, &[Change::RevokeKey { key: KeyId::parse(&k2[0].id).unwrap() }]).await.unwrap();
    let ada = store.listing.page(&RowFilter { name: Some("ada".to_owned()), ..RowFilter::of(RowKind::Member, 1) }).await.unwrap();
    let ada = ada[0].id.clone();
    let all = RowFilter::of(RowKind::Key, 1_000);
    let first = store.listing.page(&all).await.unwrap()[0].id.clone();
    let own = ObjectScope::Member(MemberId::parse(&ada).unwrap());
    for filter in [
        all.clone(),
        RowFilter { removed: true, ..all.clone() },
        RowFilter { parent: Some(ada), ..all.clone() },
        RowFilter { after: Some(first), ..all.clone() },
        RowFilter { scope: own, ..all.clone() },
        RowFilter { scope: ObjectScope::Nothing, ..all.clone() },
        RowFilter { parent: Some("' OR 1 = 1 --".to_owned()), ..all },
    ] {
        let rows = store.listing.page(&filter).await.unwrap();
        let entry = |row: &StoredRow| KeyEntry {
            id: row.id.clone(),
            member: row.parent.clone(),
            name: row.name.clone(),
            suffix: row.shown.clone().unwrap_or_default().1,
            created_at: row.created_at,
        };
        let expected: Vec<KeyEntry> = rows.iter().map(entry).collect();
        assert_eq!(store.listing.key_entries(&filter, 100).await.unwrap(), expected, "{filter:?}");
        assert_eq!(store.listing.key_entries(&filter, 1).await.unwrap(), expected[..expected.len().min(1)], "{filter:?}");

        let mut by_id =
            store.listing.rows(RowKind::Key, expected.into_iter().map(|entry| entry.id).collect(), filter.scope).await.unwrap();
        by_id.sort_by(|one, other| one.id.cmp(&other.id));
        assert_eq!(by_id, rows, "{filter:?}");
    }
    let all = store.listing.page(&RowFilter { removed: true, ..RowFilter::of(RowKind::Key, 1_000) }).await.unwrap();
    assert_eq!(all.len(), 5);
    let ids: Vec<String> = all.into_iter().map(|row| row.id).chain(["key_none".to_owned()]).collect();
    let seen = async |kind, scope| store.listing.rows(kind, ids.clone(), scope).await.unwrap().len();
    assert_eq!(seen(RowKind::Key, ObjectScope::Everything).await, 5);
    assert_eq!(seen(RowKind::Key, own).await, 1);
    assert_eq!(seen(RowKind::Key, ObjectScope::Nothing).await, 0);
    assert_eq!(seen(RowKind::Member, ObjectScope::Everything).await, 0);
}

pub(super) async fn members_are_found_by_a_part_of_name_or_email_address(store: &Store) {
    let member = |name: &str| Change::PutMember(Box::new(MemberSpec { name: name.to_owned(), ..MemberSpec::default() }));
    let email = IdentityChange::SetEmail { member: "Ärzte_1".to_owned(), email: Some("Ada.Okafor@example.com".to_owned()) };
    let changes = [member("Ada Okafor"), member("Ärzte_1"), member("50%"), Change::Identity(Box::new(email))];
    apply(store, &changes).await.unwrap();
    let found = async |part: &str, in_emails: bool| {
        let search = Some(RowSearch { part: part.to_owned(), in_emails });
        let rows = store.listing.page(&RowFilter { search, ..RowFilter::of(RowKind::Member, 10) }).await.unwrap();
        let mut names: Vec<String> = rows.into_iter().map(|row| row.name).collect();
        names.sort_unstable();
        names
    };
    for (part, of_names, of_both) in [
        ("OKA", &["Ada Okafor"][..], &["Ada Okafor", "Ärzte_1"][..]),
        ("Ärz", &["Ärzte_1"], &["Ärzte_1"]),
        ("@example", &[], &["Ärzte_1"]),
        // The pattern characters of SQL are plain characters in a search.
        ("%", &["50%"], &["50%"]),
        ("e_1", &["Ärzte_1"], &["Ärzte_1"]),
        ("a_a", &[], &[]),
        ("!", &[], &[]),
    ] {
        assert_eq!(found(part, false).await, of_names, "{part}");
        assert_eq!(found(part, true).await, of_both, "{part}");
    }
}

pub(super) async fn members_and_keys_are_counted_by_group(store: &Store) {
    let member = |name: &str, groups: &[&str], default_group: Option<&str>| {
        Change::PutMember(Box::new(MemberSpec {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            default_group: default_group.map(str::to_owned),
            ..MemberSpec::default()
        }))
    };
    let key = |name: &str, member: &str, groups: &[&str]| {
        let mut change = put_key(store, name, groups, Some(&format!("a-secret-of-the-key-{name}")));
        if let Change::PutKey { key, .. } = &mut change {
            key.member = member.to_owned();
        }
        change
    };
    assert_eq!(store.listing.group_users().await.unwrap(), HashMap::new());
    let groups = ["g", "h", "default"].map(|name| put_group(name, &["a"]));
    apply(store, &[put_channel("a")]).await.unwrap();
    apply(store, &groups).await.unwrap();
    apply(store, &[member("ada", &["g", "h"], Some("h")), member("bob", &[], Some("g")), member("eve", &["g"], None)])
        .await
        .unwrap();
    let keys = [
        key("k1", "ada", &["g", "h"]),
        key("k2", "ada", &[]),
        key("k3", "bob", &["h"]),
        key("k4", "eve", &[]),
        key("k5", "eve", &["g"]),
    ];
    apply(store, &keys).await.unwrap();
    let k5 = store.listing.page(&RowFilter { name: Some("k5".to_owned()), ..RowFilter::of(RowKind::Key, 1) }).await.unwrap();
    apply(store, &[Change::RevokeKey { key: KeyId::parse(&k5[0].id).unwrap() }]).await.unwrap();
    apply(store, &[Change::RemoveMember { member: "bob".to_owned() }]).await.unwrap();
    let users = |members, keys, default_keys| GroupUsers { members, keys, default_keys };
    let expected = [("g", users(2, 1, 0)), ("h", users(1, 1, 1)), ("default", users(0, 0, 1))];
    let expected: HashMap<String, GroupUsers> = expected.into_iter().map(|(name, users)| (name.to_owned(), users)).collect();
    assert_eq!(store.listing.group_users().await.unwrap(), expected, "revoked keys and members who were removed are left out");
}

pub(super) async fn only_names_of_visible_rows_are_returned(store: &Store) {
    let changes = [put_channel("a"), put_channel("b"), put_account("b", "one", Some("secret-credential")), put_group("g", &["b"])];
    apply(store, &changes).await.unwrap();
    apply(store, &[Change::RemoveChannel { channel: "a".to_owned() }]).await.unwrap();
    let member = |name: &str| Change::PutMember(Box::new(MemberSpec { name: name.to_owned(), ..MemberSpec::default() }));
    let key = |name: &str, member: &str| {
        let spec = KeySpec { name: name.to_owned(), member: member.to_owned(), ..KeySpec::default() };
        let secret = store.hasher.import(&Secret::new(format!("a-secret-of-some-length-{name}"))).unwrap();
        Change::PutKey { key: Box::new(spec), secret: Some(secret) }
    };
    apply(store, &[member("m"), member("n"), key("of-m", "m"), key("of-n", "n")]).await.unwrap();
    let rows = async |kind| {
        let mut rows = store.listing.page(&RowFilter { removed: true, ..RowFilter::of(kind, 10) }).await.unwrap();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    };
    let names = async |kind, ids: &[&StoredRow], scope| {
        let ids = ids.iter().map(|row| row.id.clone()).chain(["none has it".to_owned()]).collect();
        let mut names = store.listing.names(kind, ids, scope).await.unwrap();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        names
    };
    let name_of = |row: &StoredRow| RowName { id: row.id.clone(), name: row.name.clone(), parent: row.parent.clone() };
    let (channels, accounts) = (rows(RowKind::Channel).await, rows(RowKind::Account).await);
    let (members, keys) = (rows(RowKind::Member).await, rows(RowKind::Key).await);
    let everything = ObjectScope::Everything;
    let found = names(RowKind::Channel, &[&channels[0], &channels[1], &accounts[0]], everything).await;
    assert_eq!(found, [name_of(&channels[0]), name_of(&channels[1])], "removed ones too, of this kind");
    assert_eq!(names(RowKind::Account, &[&accounts[0]], everything).await, [name_of(&accounts[0])]);
    assert_eq!(accounts[0].parent, channels[1].id);

    let (m, all) = (members.iter().find(|row| row.name == "m").unwrap(), keys.iter().collect::<Vec<_>>());
    assert_eq!(names(RowKind::Key, &all, everything).await.len(), 2);
    let own = ObjectScope::Member(MemberId::parse(&m.id).unwrap());
    let found = names(RowKind::Key, &all, own).await;
    assert!(found.len() == 1 && found[0].name == "of-m" && found[0].parent == m.id, "{found:?}");
    assert_eq!(names(RowKind::Member, &members.iter().collect::<Vec<_>>(), own).await, [name_of(m)]);
    assert_eq!(names(RowKind::Channel, &[&channels[1]], own).await, []);
    assert_eq!(names(RowKind::Key, &all, ObjectScope::Nothing).await, []);
}

pub(super) async fn row_preconditions_are_checked(store: &Store) {
    apply(store, &[put_channel("a"), put_channel("b")]).await.unwrap();
    let page = store.listing.page(&RowFilter::of(RowKind::Channel, 10)).await.unwrap();
    let a = page.iter().find(|row| row.name == "a").unwrap();
    let expect = Change::ExpectRow { kind: RowKind::Channel, id: a.id.clone(), revision: a.revision };
    let heavier = |weight| Change::PutChannel(Box::new(ChannelSpec { weight, ..super::channel("a") }));
    let other = Change::PutChannel(Box::new(ChannelSpec { weight: 9, ..super::channel("b") }));
    apply(store, &[other]).await.unwrap();
    let now = apply(store, &[expect.clone(), heavier(2)]).await.expect("changes of other rows do not matter");
    let refused = apply(store, &[expect, heavier(3)]).await.unwrap_err();
    assert_eq!(refusal(refused), ChangeRefusal::RowStale { expected: a.revision, found: now });

    let new = |name: &str| Change::ExpectNew { kind: RowKind::Channel, parent: String::new(), name: name.to_owned() };
    assert_eq!(refusal(apply(store, &[new("a"), heavier(4)]).await.unwrap_err()), ChangeRefusal::Exists);
    apply(store, &[new("c"), put_channel("c")]).await.unwrap();
    apply(store, &[put_account("a", "one", Some("secret-credential"))]).await.unwrap();
    let account = |channel: &str| Change::ExpectNew { kind: RowKind::Account, parent: channel.to_owned(), name: "one".to_owned() };
    assert_eq!(refusal(apply(store, &[account("a")]).await.unwrap_err()), ChangeRefusal::Exists);
    apply(store, &[account("b")]).await.unwrap();

    let member = |name: &str| Change::ExpectNew { kind: RowKind::Member, parent: String::new(), name: name.to_owned() };
    apply(store, &[Change::PutMember(Box::new(crate::MemberSpec { name: "Zoë".to_owned(), ..Default::default() }))]).await.unwrap();
    for name in ["Zoë", "ZOË", "zoë"] {
        assert_eq!(refusal(apply(store, &[member(name)]).await.unwrap_err()), ChangeRefusal::Exists, "{name}");
    }
    apply(store, &[member("zoe")]).await.unwrap();
}

pub(super) async fn idempotent_batch_is_applied_once(store: &Store) {
    let idempotent = |key: &str, byte: u8| Change::Idempotent { key: key.to_owned(), fingerprint: [byte; 32] };
    let revision =
        apply(store, &[idempotent("k", 1), put_channel("a"), put_account("a", "one", Some("secret-credential"))]).await.unwrap();
    let id = store.listing.page(&RowFilter::of(RowKind::Channel, 10)).await.unwrap()[0].id.clone();
    let again = apply(store, &[idempotent("k", 1), put_channel("b")]).await.unwrap_err();
    assert_eq!(refusal(again), ChangeRefusal::Repeated { kind: RowKind::Channel, id });
    assert_eq!(
        refusal(apply(store, &[idempotent("k", 2), put_channel("b")]).await.unwrap_err()),
        ChangeRefusal::IdempotencyKeyReused
    );
    assert_eq!(store.catalog.revision().await.unwrap(), revision);
    apply(store, &[idempotent("other", 1), put_channel("b")]).await.unwrap();
    let later = Timestamp(MIDNIGHT.0 + 86_400_000_000);
    let actor = super::actor(crate::ChangeOrigin::Api);
    store.catalog.apply(&[idempotent("third", 1), put_channel("c")], &actor, later).await.unwrap();
    store
        .catalog
        .apply(&[idempotent("k", 9), put_channel("d")], &actor, later)
        .await
        .expect("the idempotency key expires after a day");
}

pub(super) async fn admin_key_is_found_by_hash_until_revoked_or_expired(store: &Store) {
    let make = |name: &str, scope, expires_at| {
        let new = NewKey::generate_admin(&RandomSource::system());
        let secret = new.secret(&store.hasher);
        let key = Box::new(AdminKeySpec { name: name.to_owned(), scope, expires_at, member: None });
        (Change::MakeAdminKey { key, secret: secret.clone() }, secret.hash)
    };
    let (ops, ops_hash) = make("ops", AdminScope::Operator, None);
    let (brief, brief_hash) = make("brief", AdminScope::Admin, Some(MIDNIGHT.plus_ms(10)));
    apply(store, &[ops, brief]).await.unwrap();
    let found = store.listing.admin_key(&ops_hash, MIDNIGHT).await.unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.scope), ("ops", AdminScope::Operator));
    assert!(store.listing.admin_key(&brief_hash, MIDNIGHT).await.unwrap().is_some());
    assert_eq!(store.listing.admin_key(&brief_hash, MIDNIGHT.plus_ms(10)).await.unwrap(), None, "the key has expired");
    assert_eq!(store.keys.find(&ops_hash).await.unwrap().map(|key| key.name), None, "it is not a service key");
    assert!(store.keys.list().await.unwrap().is_empty());
    let (twice, _) = make("ops", AdminScope::Admin, None);
    assert_eq!(refusal(apply(store, &[twice]).await.unwrap_err()), ChangeRefusal::Exists);

    let listed = store.listing.page(&RowFilter::of(RowKind::AdminKey, 10)).await.unwrap();
    assert_eq!(listed.len(), 2);
    apply(store, &[Change::RevokeAdminKey { key: found.id }]).await.unwrap();
    assert_eq!(store.listing.admin_key(&ops_hash, MIDNIGHT).await.unwrap(), None);
    apply(store, &[Change::RevokeAdminKey { key: found.id }]).await.expect("it stays revoked");
    let unknown = AdminKeyId::from_parts(MIDNIGHT, [9; 10]);
    assert_eq!(refusal(apply(store, &[Change::RevokeAdminKey { key: unknown }]).await.unwrap_err()), ChangeRefusal::NotFound);
    let row = store.listing.row(RowKind::AdminKey, &found.id.to_string(), ObjectScope::Everything).await.unwrap().unwrap();
    assert_eq!(row.removed_at, Some(MIDNIGHT));
    let audit = store.catalog.audit(None, 10).await.unwrap();
    assert!(
        audit
            .iter()
            .any(|event| event.kind == AuditKind::Row(RowKind::AdminKey) && event.action == "revoke" && event.name == "ops")
    );
    apply(store, &[make("ops", AdminScope::Admin, None).0]).await.expect("the name is free again");
    audit_events_are_paged_and_filtered(store).await;
}

async fn audit_events_are_paged_and_filtered(store: &Store) {
    apply(store, &[put_channel("a"), put_channel("b"), put_channel("c")]).await.unwrap();
    let all = store.listing.audit_page(&AuditFilter { limit: 100, ..AuditFilter::default() }).await.unwrap();
    let (mut filter, mut seen) = (AuditFilter { limit: 2, ..AuditFilter::default() }, Vec::new());
    loop {
        let page = store.listing.audit_page(&filter).await.unwrap();
        let Some((position, _)) = page.last() else { break };
        filter.before = Some(*position);
        seen.extend(page);
    }
    assert!(seen.len() >= 7 && seen == all, "{seen:?}");
    let page = async |filter: AuditFilter| store.listing.audit_page(&AuditFilter { limit: 10, ..filter }).await.unwrap();
    let kind = Some(AuditKind::Row(RowKind::Channel));
    let found = page(AuditFilter { kind, id: Some(seen[0].1.id.clone()), ..AuditFilter::default() }).await;
    assert!(found.len() == 1 && found[0].1.name == "c", "{found:?}");
    let newest = &seen[0].1;
    let (at, actor) = (newest.at, newest.actor.clone());
    let found = page(AuditFilter { kind, name: Some("b".to_owned()), actor: Some(actor.clone()), ..AuditFilter::default() }).await;
    assert!(found.len() == 1 && found[0].1.name == "b", "{found:?}");
    let from = |address: &str| AuditFilter { kind, address: Some(address.to_owned()), ..AuditFilter::default() };
    assert_eq!((page(from("203.0.113.9")).await.len(), page(from("203.0.113.8")).await.len()), (3, 0));
    assert_eq!(newest.address.as_deref(), Some("203.0.113.9"));
    let before = store.catalog.revision().await.unwrap();
    let job = "job_00000000000000000000000001";
    for action in [JobAction::Start, JobAction::Cancel] {
        apply(store, &[Change::RecordJob { id: job.to_owned(), name: "verify", action }]).await.unwrap();
    }
    assert_eq!(store.catalog.revision().await.unwrap(), Revision(before.0 + 2));
    assert!(store.catalog.changed_since(before).await.unwrap().is_empty(), "no row is changed");
    let jobs = page(AuditFilter { kind: Some(AuditKind::Job), ..AuditFilter::default() }).await;
    let recorded: Vec<_> = jobs.iter().map(|(_, it)| (it.action.as_str(), it.id.as_str(), it.name.as_str())).collect();
    assert_eq!(recorded, [("cancel", job, "verify"), ("start", job, "verify")]);
    assert!(store.ledger.verify(MIDNIGHT, &WorkControl::unattended()).await.unwrap().agrees(), "the chain covers them");
    let beginning = Some(actor.chars().take(2).collect());
    assert!(page(AuditFilter { actor: beginning, ..AuditFilter::default() }).await.is_empty(), "a part of a name is another name");
    assert!(page(AuditFilter { until: Some(at), name: Some("c".to_owned()), ..AuditFilter::default() }).await.is_empty());
    assert!(!page(AuditFilter { since: Some(at), name: Some("c".to_owned()), ..AuditFilter::default() }).await.is_empty());
}
