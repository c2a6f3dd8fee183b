//! The contract of every [`crate::IdentityStore`] for passkeys.

use serde_json::Value;
use tollgate_core::{MemberId, PasskeyId, Role, SessionId, Timestamp};

use super::{actor, apply, refusal};
use crate::{
    Change, ChangeOrigin, ChangeRefusal, IdentityChange, IdentityRefusal, IdleTimes, KeyHash, MAX_PASSKEYS, MemberSpec, NewSession,
    Passkey, PasskeySpec, SecondFactor, SessionClient, SignInMethod, Store, UsedChallenge, samples::MIDNIGHT,
};

const MINUTE_MS: i64 = 60_000;

fn identity(change: IdentityChange) -> Change {
    Change::Identity(Box::new(change))
}

fn member(name: &str) -> Change {
    Change::PutMember(Box::new(MemberSpec { name: name.to_owned(), role: Role::Member, ..MemberSpec::default() }))
}

async fn id_of(store: &Store, name: &str) -> MemberId {
    store.identity.find_login(name).await.unwrap().unwrap().id
}

fn challenge(byte: u8) -> UsedChallenge {
    UsedChallenge { hash: KeyHash([byte; 32]), ends_at: MIDNIGHT.plus_ms(5 * MINUTE_MS) }
}

fn sample(member: MemberId, n: u8) -> Passkey {
    let spec = PasskeySpec { name: format!("key {n}"), sign_count: 3, is_backup_eligible: true, ..PasskeySpec::default() };
    let id = PasskeyId::from_parts(MIDNIGHT.plus_ms(i64::from(n)), [n; 10]);
    Passkey { id, member, credential: vec![0, 0xff, n], public_key: vec![n; 77], spec }
}

fn add(member: &str, passkey: &Passkey, answered: u8) -> Change {
    let (member, passkey) = (member.to_owned(), Box::new(passkey.clone()));
    identity(IdentityChange::AddPasskey { member, passkey, challenge: challenge(answered) })
}

fn used(passkey: &Passkey, sign_count: u32, answered: u8) -> Change {
    let challenge = challenge(answered);
    identity(IdentityChange::UsePasskey { passkey: passkey.id, sign_count, is_backed_up: true, challenge })
}

async fn refused(store: &Store, change: Change) -> IdentityRefusal {
    let refused = refusal(apply(store, &[change]).await.unwrap_err());
    let ChangeRefusal::Identity(reason) = refused else { panic!("{refused:?}") };
    reason
}

async fn found(store: &Store, passkey: &Passkey) -> Option<Passkey> {
    store.identity.find_passkey(&passkey.credential).await.unwrap().map(|(passkey, _)| passkey)
}

pub(super) async fn passkey_is_found_by_its_credential_and_kept_up_to_date(store: &Store) {
    apply(store, &[member("ann"), member("bob")]).await.unwrap();
    let (ann, bob) = (id_of(store, "ann").await, id_of(store, "bob").await);
    let (first, second) = (sample(ann, 1), sample(ann, 2));
    apply(store, &[add("ann", &first, 1), add("ann", &second, 2)]).await.unwrap();
    let (passkey, owner) = store.identity.find_passkey(&first.credential).await.unwrap().unwrap();
    assert_eq!((&passkey, owner.name.as_str()), (&first, "ann"));
    assert_eq!(passkey.created_at(), MIDNIGHT.plus_ms(1));
    assert_eq!(store.identity.find_passkey(&[0, 0xff]).await.unwrap(), None, "a part of its id is another id");
    assert_eq!(store.identity.passkeys(ann).await.unwrap(), [first.clone(), second.clone()]);
    assert!(store.identity.passkeys(bob).await.unwrap().is_empty());

    let rename = |name: &str| identity(IdentityChange::RenamePasskey { passkey: first.id, name: name.to_owned() });
    apply(store, &[rename("laptop"), rename("laptop"), used(&first, 4, 3)]).await.unwrap();
    let spec = found(store, &first).await.unwrap().spec;
    assert_eq!((spec.name.as_str(), spec.sign_count, spec.used_at), ("laptop", 4, Some(MIDNIGHT)));
    assert!(spec.is_backed_up && spec.is_backup_eligible);
    assert_eq!(found(store, &second).await.unwrap(), second, "the other is unchanged");
    assert_eq!(refused(store, add("bob", &Passkey { member: bob, ..first.clone() }, 4)).await, IdentityRefusal::PasskeyTaken);
    let foreign = refusal(apply(store, &[add("bob", &sample(ann, 5), 5)]).await.unwrap_err());
    assert_eq!(foreign, ChangeRefusal::NotFound, "it is made for another member");

    let remove = || identity(IdentityChange::RemovePasskey { passkey: first.id });
    apply(store, &[remove()]).await.unwrap();
    assert_eq!(found(store, &first).await, None);
    assert_eq!(refusal(apply(store, &[remove()]).await.unwrap_err()), ChangeRefusal::NotFound);
    let audit = store.catalog.audit(None, 100).await.unwrap();
    let actions: Vec<_> = audit.iter().filter(|event| event.action.ends_with("_passkey")).collect();
    let said: Vec<_> = actions.iter().map(|event| (event.action.as_str(), event.name.as_str())).collect();
    assert_eq!(
        said,
        [("remove_passkey", "ann"), ("rename_passkey", "ann"), ("add_passkey", "ann"), ("add_passkey", "ann")],
        "the newest first"
    );
    assert_eq!(serde_json::from_str::<Value>(&actions[0].detail).unwrap()["passkey"], "laptop");
}

pub(super) async fn challenge_is_answered_once(store: &Store) {
    apply(store, &[member("ann")]).await.unwrap();
    let ann = id_of(store, "ann").await;
    let first = sample(ann, 1);
    apply(store, &[add("ann", &first, 1)]).await.unwrap();
    assert_eq!(refused(store, add("ann", &sample(ann, 2), 1)).await, IdentityRefusal::ChallengeUsed);
    assert_eq!(refused(store, used(&first, 10, 1)).await, IdentityRefusal::ChallengeUsed, "nor with another change");
    apply(store, &[used(&first, 10, 2)]).await.unwrap();
    assert_eq!(refused(store, used(&first, 11, 2)).await, IdentityRefusal::ChallengeUsed);
    let at = async |change: Change, now: Timestamp| store.catalog.apply(&[change], &actor(ChangeOrigin::Api), now).await;
    let late = at(used(&first, 11, 3), MIDNIGHT.plus_ms(5 * MINUTE_MS)).await;
    assert!(late.is_err(), "it is over");
    // An expired challenge is deleted, and refused because it has expired.
    let challenge = UsedChallenge { ends_at: MIDNIGHT.plus_ms(9 * MINUTE_MS), ..challenge(4) };
    let change = IdentityChange::UsePasskey { passkey: first.id, sign_count: 11, is_backed_up: false, challenge };
    at(identity(change), MIDNIGHT.plus_ms(6 * MINUTE_MS)).await.unwrap();
    assert!(at(used(&first, 12, 2), MIDNIGHT.plus_ms(6 * MINUTE_MS)).await.is_err());
    assert_eq!(found(store, &first).await.unwrap().spec.sign_count, 11);
}

pub(super) async fn counter_that_does_not_advance_is_refused(store: &Store) {
    apply(store, &[member("ann")]).await.unwrap();
    let ann = id_of(store, "ann").await;
    let mut without = sample(ann, 2);
    without.spec.sign_count = 0;
    let with = sample(ann, 1);
    apply(store, &[add("ann", &with, 1), add("ann", &without, 2)]).await.unwrap();
    for count in [0, 2, 3] {
        assert_eq!(refused(store, used(&with, count, 3)).await, IdentityRefusal::PasskeyCounter, "{count} after 3");
    }
    let (id, hash) = (SessionId::from_parts(MIDNIGHT, [1; 10]), KeyHash([99; 32]));
    let client = SessionClient::default();
    let session =
        NewSession { id, hash, method: SignInMethod::Passkey, is_remembered: false, ends_at: MIDNIGHT.plus_ms(MINUTE_MS), client };
    let open =
        identity(IdentityChange::OpenSession { member: "ann".to_owned(), session: Box::new(session), factor: SecondFactor::None });
    assert!(apply(store, &[used(&with, 3, 3), open.clone()]).await.is_err());
    let idle = IdleTimes { idle_ms: MINUTE_MS, remembered_ms: MINUTE_MS };
    assert_eq!(store.identity.session(&hash, MIDNIGHT, idle).await.unwrap(), None, "no session is opened with it");
    // The challenge of a refused answer is not used up: none of its changes was made.
    apply(store, &[used(&with, 4, 3), open]).await.unwrap();
    let (session, _) = store.identity.session(&hash, MIDNIGHT, idle).await.unwrap().unwrap();
    assert_eq!(session.spec.method, SignInMethod::Passkey);
    apply(store, &[used(&without, 0, 4), used(&without, 0, 5)]).await.expect("it has no counter");
    let report = IdentityChange::ReportPasskey { passkey: with.id, sign_count: 3 };
    apply(store, &[identity(report)]).await.unwrap();
    let audit = store.catalog.audit(None, 1).await.unwrap();
    let detail: Value = serde_json::from_str(&audit[0].detail).unwrap();
    assert_eq!((audit[0].action.as_str(), &detail["counter"], &detail["counter_before"]), ("refuse_passkey", &3.into(), &4.into()));
}

pub(super) async fn passkeys_of_a_member_are_bounded_and_end_with_the_member(store: &Store) {
    apply(store, &[member("ann"), member("bob")]).await.unwrap();
    let (ann, bob) = (id_of(store, "ann").await, id_of(store, "bob").await);
    let most = u8::try_from(MAX_PASSKEYS).unwrap();
    for n in 1..=most {
        apply(store, &[add("ann", &sample(ann, n), n)]).await.unwrap();
    }
    assert_eq!(refused(store, add("ann", &sample(ann, 50), 50)).await, IdentityRefusal::TooManyPasskeys);
    let of_bob = sample(bob, 51);
    apply(store, &[add("bob", &of_bob, 51)]).await.expect("others have their own");
    let version = async || store.identity.login(ann).await.unwrap().unwrap().login.version;
    let before = version().await;
    apply(store, &[identity(IdentityChange::RemovePasskeys { member: "ann".to_owned() })]).await.unwrap();
    assert!(store.identity.passkeys(ann).await.unwrap().is_empty() && version().await > before, "its sessions ended");
    assert_eq!(found(store, &of_bob).await, Some(of_bob.clone()));
    apply(store, &[Change::RemoveMember { member: "bob".to_owned() }]).await.unwrap();
    assert_eq!(found(store, &of_bob).await, None);
    apply(store, &[add("ann", &Passkey { member: ann, ..of_bob }, 52)]).await.expect("its id is free again");
}
