//! The contract of [`crate::KeyStore`].

use tollgate_core::{Budget, BudgetAction, Key, KeyStatus, NanoUsd, Owner, Secret, Window};

use super::{apply, put_group, put_key, refusal};
use crate::{Change, ChangeRefusal, KeySpec, MemberSpec, NewKey, ObjectScope, RandomSource, RowKind, Store, samples::MIDNIGHT};

async fn find(store: &Store, secret: &str) -> Option<Key> {
    store.keys.find(&store.hasher.hash(secret)).await.unwrap()
}

fn put_member(name: &str) -> Change {
    Change::PutMember(Box::new(MemberSpec { name: name.to_owned(), ..MemberSpec::default() }))
}

const SECRET: &str = "tg-a-known-secret-0123456789";

pub(super) async fn key_is_found_by_hash_with_its_member(store: &Store) {
    let generated = NewKey::generate(&RandomSource::system());
    let secret = generated.secret(&store.hasher);
    let key = KeySpec {
        name: "ci".to_owned(),
        member: "ada".to_owned(),
        groups: vec!["second".to_owned(), "default".to_owned()],
        expires_at: Some(MIDNIGHT.plus_ms(1_000)),
        ip_allow: vec!["10.0.0.0/8".parse().unwrap()],
        ..KeySpec::default()
    };
    let ada = MemberSpec { name: "ada".to_owned(), groups: vec!["second".to_owned()], ..MemberSpec::default() };
    let put = Change::PutKey { key: Box::new(key), secret: Some(secret) };
    apply(store, &[put_group("default", &[]), put_group("second", &[]), Change::PutMember(Box::new(ada)), put]).await.unwrap();

    let text = generated.expose_once();
    let key = find(store, &text).await.unwrap();
    let catalog = store.catalog.load().await.unwrap();
    let id = |name: &str| catalog.group_by_name(name).unwrap().id;
    assert_eq!((key.name.as_str(), key.status, key.owner), ("ci", KeyStatus::Active, Owner::Database));
    assert_eq!(key.groups, [id("second"), id("default")]);
    assert_eq!((key.expires_at, key.ip_allow.len(), key.created_at), (Some(MIDNIGHT.plus_ms(1_000)), 1, MIDNIGHT));
    assert_eq!((key.member.name.as_str(), key.member.granted.as_slice()), ("ada", [id("second")].as_slice()));
    assert_eq!(key.member.default_group, Some(id("default")), "the group named `default`");
    assert!(text.starts_with(&key.prefix) && text.ends_with(&key.suffix));
    assert!(find(store, SECRET).await.is_none());
    assert_eq!(store.keys.list().await.unwrap().iter().map(|key| key.id).collect::<Vec<_>>(), [key.id]);
}

pub(super) async fn secret_of_a_revoked_key_can_be_imported_again(store: &Store) {
    apply(store, &[put_key(store, "ci", &[], Some(SECRET))]).await.unwrap();
    let id = find(store, SECRET).await.unwrap().id;
    apply(store, &[Change::SetKeyStatus { key: id, status: KeyStatus::Disabled }]).await.unwrap();
    assert_eq!(find(store, SECRET).await.unwrap().status, KeyStatus::Disabled);
    let budgets = vec![Budget { amount: NanoUsd(1), window: Window::Day, action: BudgetAction::Block }];
    apply(store, &[Change::SetKeyBudgets { key: id, budgets: budgets.clone() }]).await.unwrap();
    assert_eq!(find(store, SECRET).await.unwrap().budgets, budgets);

    let before = apply(store, &[Change::RevokeKey { key: id }]).await.unwrap();
    assert_eq!(apply(store, &[Change::RevokeKey { key: id }]).await.unwrap(), before, "revoking again changes nothing");
    assert_eq!(find(store, SECRET).await.unwrap().status, KeyStatus::Revoked);
    let reactivated = apply(store, &[Change::SetKeyStatus { key: id, status: KeyStatus::Active }]).await;
    assert_eq!(refusal(reactivated.unwrap_err()), ChangeRefusal::Revoked);

    apply(store, &[put_key(store, "ci", &[], Some(SECRET))]).await.unwrap();
    let again = find(store, SECRET).await.unwrap();
    assert!(again.id != id && again.status == KeyStatus::Active);
    assert_eq!(store.keys.list().await.unwrap().len(), 2);
}

pub(super) async fn rotated_key_has_two_secrets_for_a_while(store: &Store) {
    apply(store, &[put_key(store, "ci", &[], Some(SECRET))]).await.unwrap();
    let before = find(store, SECRET).await.unwrap();
    let rotate = |secret: &NewKey, until| Change::RotateKey { key: before.id, secret: secret.secret(&store.hasher), until };
    let new = NewKey::generate(&RandomSource::system());
    let until = MIDNIGHT.plus_ms(3_600_000);
    apply(store, &[rotate(&new, until)]).await.unwrap();
    let taken = apply(store, &[put_key(store, "two", &[], Some(SECRET))]).await;
    assert_eq!(refusal(taken.unwrap_err()), ChangeRefusal::SecretTaken, "it is still valid");
    let row = store.listing.row(RowKind::Key, &before.id.to_string(), ObjectScope::Everything).await.unwrap().unwrap();
    assert_eq!(row.previous_until, Some(until));
    let budgets = vec![Budget { amount: NanoUsd(1), window: Window::Day, action: BudgetAction::Block }];
    apply(store, &[Change::SetKeyBudgets { key: before.id, budgets }]).await.unwrap();
    let text = new.expose_once();
    let old = find(store, SECRET).await.unwrap();
    assert_eq!((old.id, old.expires_at, old.budgets.len()), (before.id, Some(until), 1), "it is the same key and ends earlier");
    let new = find(store, &text).await.unwrap();
    assert_eq!((new.id, new.expires_at), (before.id, None));
    assert!(text.starts_with(&new.prefix) && text.ends_with(&new.suffix) && new.suffix != before.suffix);

    let third = NewKey::generate(&RandomSource::system());
    apply(store, &[rotate(&third, MIDNIGHT)]).await.unwrap();
    let third = third.expose_once();
    assert!(find(store, SECRET).await.is_none() && find(store, &text).await.is_none(), "without an overlap");
    assert_eq!(find(store, &third).await.unwrap().id, before.id);
    apply(store, &[Change::RevokeKey { key: before.id }]).await.unwrap();
    let revoked = apply(store, &[rotate(&NewKey::generate(&RandomSource::system()), until)]).await;
    assert_eq!(refusal(revoked.unwrap_err()), ChangeRefusal::Revoked);
}

pub(super) async fn secret_belongs_to_one_key(store: &Store) {
    apply(store, &[put_key(store, "one", &[], Some(SECRET))]).await.unwrap();
    let taken = apply(store, &[put_key(store, "two", &[], Some(SECRET))]).await;
    assert_eq!(refusal(taken.unwrap_err()), ChangeRefusal::SecretTaken);
    let none = apply(store, &[put_key(store, "two", &[], None)]).await;
    assert_eq!(refusal(none.unwrap_err()), ChangeRefusal::NeedsSecret);
    let other = "tg-another-known-secret-012345";
    apply(store, &[put_key(store, "one", &[], Some(other))]).await.unwrap();
    assert!(find(store, SECRET).await.is_none());
    assert_eq!(find(store, other).await.unwrap().name, "one");
}

pub(super) async fn concurrent_changes_do_not_exceed_the_maximum_keys_of_a_member(store: &Store) {
    let first = put_key(store, "key-0", &[], Some(SECRET));
    apply(store, &[first]).await.unwrap();
    let batches: Vec<_> = (1..=4)
        .map(|n| {
            let put = put_key(store, &format!("key-{n}"), &[], Some(&format!("{SECRET}-{n}")));
            [Change::ExpectFewerKeys { member: "owner".to_owned(), than: 3 }, put]
        })
        .collect();
    let (a, b, c, d) =
        tokio::join!(apply(store, &batches[0]), apply(store, &batches[1]), apply(store, &batches[2]), apply(store, &batches[3]),);
    let refused: Vec<_> = [a, b, c, d].into_iter().filter_map(Result::err).map(refusal).collect();
    assert_eq!(refused, [ChangeRefusal::TooManyKeys { most: 3 }, ChangeRefusal::TooManyKeys { most: 3 }]);
    assert_eq!(store.keys.list().await.unwrap().len(), 3);

    let id = find(store, SECRET).await.unwrap().id;
    apply(store, &[Change::RevokeKey { key: id }]).await.unwrap();
    let again = put_key(store, "key-5", &[], Some(&format!("{SECRET}-5")));
    apply(store, &[Change::ExpectFewerKeys { member: "owner".to_owned(), than: 3 }, again]).await.unwrap();
}

pub(super) async fn key_of_a_removed_group_does_not_use_the_default_group(store: &Store) {
    apply(store, &[put_group("default", &[]), put_group("other", &[])]).await.unwrap();
    let other = store.catalog.load().await.unwrap().group_by_name("other").unwrap().id;
    apply(store, &[put_key(store, "ci", &["other"], Some(SECRET))]).await.unwrap();
    apply(store, &[Change::RemoveGroup { group: "other".to_owned() }]).await.unwrap();
    assert_eq!(find(store, SECRET).await.unwrap().groups, [other], "without any group the key would use the default one");
    apply(store, &[put_group("other", &[])]).await.unwrap();
    let again = store.catalog.load().await.unwrap().group_by_name("other").unwrap().id;
    assert_eq!(find(store, SECRET).await.unwrap().groups, [again]);
}

pub(super) async fn removing_a_member_revokes_its_keys(store: &Store) {
    let key = KeySpec { name: "ci".to_owned(), member: "ada".to_owned(), ..KeySpec::default() };
    let secret = store.hasher.import(&Secret::new(SECRET.to_owned())).unwrap();
    apply(store, &[put_member("ada"), Change::PutKey { key: Box::new(key), secret: Some(secret) }]).await.unwrap();
    let known = store.catalog.revision().await.unwrap();
    apply(store, &[Change::RemoveMember { member: "ada".to_owned() }]).await.unwrap();
    assert_eq!(find(store, SECRET).await.unwrap().status, KeyStatus::Revoked);
    let changed: Vec<_> = store.catalog.changed_since(known).await.unwrap().into_iter().map(|row| row.kind).collect();
    assert_eq!(changed, [RowKind::Key, RowKind::Member]);
}

pub(super) async fn key_without_a_member_belongs_to_the_owner(store: &Store) {
    apply(store, &[put_member("ada"), put_key(store, "ci", &[], Some(SECRET))]).await.unwrap();
    assert_eq!(find(store, SECRET).await.unwrap().member.name, "owner");
    let key = KeySpec { name: "x".to_owned(), member: "unknown".to_owned(), ..KeySpec::default() };
    let refused = apply(store, &[Change::PutKey { key: Box::new(key), secret: None }]).await.unwrap_err();
    assert_eq!(refusal(refused), ChangeRefusal::Unknown { kind: RowKind::Member, name: "unknown".to_owned() });
}
