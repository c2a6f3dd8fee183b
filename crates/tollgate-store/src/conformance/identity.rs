//! The contract of every [`crate::IdentityStore`], and the changes of logins.

use tollgate_core::{Billing, InviteId, MemberId, MemberStatus, Role, Secret, SessionId, Timestamp};

use super::{apply, put_group, put_key, refusal};
use crate::{
    AdminKeySpec, AdminScope, AuditKind, Change, ChangeRefusal, IdentityChange, IdentityRefusal, IdleTimes, Invite, InviteSpec,
    InviteState, KeyHash, LinkKind, MAX_SESSIONS, MemberPreferences, MemberSpec, NewKey, NewSession, ObjectScope, RandomSource,
    RowFilter, RowKind, SavedView, SecondFactor, SessionClient, SessionFilter, SignInMethod, SortOrder, Store, StoreError,
    ViewPage, samples::MIDNIGHT,
};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const IDLE: IdleTimes = IdleTimes { idle_ms: HOUR_MS, remembered_ms: 3 * HOUR_MS };

fn identity(change: IdentityChange) -> Change {
    Change::Identity(Box::new(change))
}

fn member(name: &str, role: Role) -> Change {
    Change::PutMember(Box::new(MemberSpec { name: name.to_owned(), role, ..MemberSpec::default() }))
}

fn secret(text: &str) -> Secret {
    Secret::new(text.to_owned())
}

fn hash(byte: u8) -> KeyHash {
    KeyHash([byte; 32])
}

fn session_id(n: u8) -> SessionId {
    SessionId::from_parts(MIDNIGHT.plus_ms(i64::from(n)), [n; 10])
}

fn open(member: &str, n: u8, factor: SecondFactor) -> Change {
    opened(member, n, factor, "a browser", false)
}

fn opened(member: &str, n: u8, factor: SecondFactor, agent: &str, is_remembered: bool) -> Change {
    let client = SessionClient { address: "192.0.2.7".to_owned(), agent: agent.to_owned() };
    let (id, ends_at) = (session_id(n), MIDNIGHT.plus_ms(DAY_MS));
    let session = NewSession { id, hash: hash(n), method: SignInMethod::Password, is_remembered, ends_at, client };
    identity(IdentityChange::OpenSession { member: member.to_owned(), session: Box::new(session), factor })
}

fn set_password(member: &str) -> Change {
    identity(IdentityChange::SetPassword { member: member.to_owned(), hash: secret("$argon2id$v=19$…") })
}

async fn is_valid(store: &Store, n: u8, now: Timestamp) -> bool {
    store.identity.session(&hash(n), now, IDLE).await.unwrap().is_some()
}

async fn refused(store: &Store, change: Change) -> IdentityRefusal {
    let refused = refusal(apply(store, &[change]).await.unwrap_err());
    let ChangeRefusal::Identity(reason) = refused else { panic!("{refused:?}") };
    reason
}

async fn id_of(store: &Store, name: &str) -> MemberId {
    store.identity.find_login(name).await.unwrap().unwrap().id
}

pub(super) async fn login_is_found_by_name_email_and_subject(store: &Store) {
    apply(store, &[member("ann", Role::Member), member("bob", Role::Member)]).await.unwrap();
    let set = |member: &str, email: Option<&str>| {
        identity(IdentityChange::SetEmail { member: member.to_owned(), email: email.map(str::to_owned) })
    };
    let link = |member: &str, subject: &str| {
        identity(IdentityChange::SetSubject { member: member.to_owned(), subject: Some(subject.to_owned()) })
    };
    apply(store, &[set("ann", Some("Ann@Example.com")), link("ann", "https://id.example.com 1"), set_password("ann")])
        .await
        .unwrap();
    for text in ["ann", "ann@example.com", "ANN@example.com"] {
        let found = store.identity.find_login(text).await.unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.login.email.as_deref()), ("ann", Some("ann@example.com")), "{text}");
        assert!(found.login.password.is_some() && found.can_sign_in());
    }
    assert_eq!(store.identity.find_login("Ann").await.unwrap(), None, "names are case-sensitive");
    assert!(!store.identity.find_login("bob").await.unwrap().unwrap().can_sign_in());
    let found = store.identity.find_subject("https://id.example.com 1").await.unwrap().unwrap();
    assert_eq!(store.identity.login(found.id).await.unwrap(), Some(found));
    apply(store, &[open("ann", 1, SecondFactor::None), link("ann", "https://id.example.com 1")]).await.unwrap();
    assert!(is_valid(store, 1, MIDNIGHT).await, "the link is the same");
    assert_eq!(refused(store, set("bob", Some("ann@example.com"))).await, IdentityRefusal::EmailTaken);
    assert_eq!(refused(store, link("bob", "https://id.example.com 1")).await, IdentityRefusal::SubjectTaken);
    apply(store, &[member("eve@example.com", Role::Member)]).await.unwrap();
    assert_eq!(refused(store, set("bob", Some("Eve@example.com"))).await, IdentityRefusal::EmailTaken, "it is a name");
    let invalid = refusal(apply(store, &[set("bob", Some("bob"))]).await.unwrap_err());
    assert!(matches!(invalid, ChangeRefusal::Invalid(_)), "{invalid:?}");
    apply(store, &[identity(IdentityChange::SetSubject { member: "ann".to_owned(), subject: None })]).await.unwrap();
    assert_eq!(store.identity.find_subject("https://id.example.com 1").await.unwrap(), None);
    assert!(!is_valid(store, 1, MIDNIGHT).await, "its sessions ended with the link");
    apply(store, &[Change::RemoveMember { member: "ann".to_owned() }]).await.unwrap();
    assert_eq!(store.identity.find_login("ann@example.com").await.unwrap(), None);
    apply(store, &[set("bob", Some("ann@example.com"))]).await.expect("the address is free again");
}

pub(super) async fn session_ends_with_role_password_status_and_time(store: &Store) {
    apply(store, &[member("ann", Role::Operator), member("bob", Role::Member), set_password("ann")]).await.unwrap();
    let later = MIDNIGHT.plus_ms(HOUR_MS - 1);
    apply(store, &[open("ann", 1, SecondFactor::None), open("bob", 2, SecondFactor::None)]).await.unwrap();
    let (session, of) = store.identity.session(&hash(1), later, IDLE).await.unwrap().unwrap();
    assert_eq!((of.name.as_str(), of.role, session.id), ("ann", Role::Operator, session_id(1)));
    assert_eq!(session.spec.client.agent, "a browser");
    assert_eq!(of.login.signed_in_at, Some(MIDNIGHT));
    assert!(!is_valid(store, 1, MIDNIGHT.plus_ms(HOUR_MS)).await, "it was idle for too long");
    store.identity.touch_session(&session, later, "192.0.2.8").await.unwrap();
    let (session, _) = store.identity.session(&hash(1), MIDNIGHT.plus_ms(HOUR_MS), IDLE).await.unwrap().unwrap();
    assert_eq!((session.seen_at, session.spec.client.address.as_str()), (later, "192.0.2.8"));
    store.identity.touch_session(&session, MIDNIGHT.plus_ms(DAY_MS - 1), "").await.unwrap();
    assert!(is_valid(store, 1, MIDNIGHT.plus_ms(DAY_MS - 1)).await && !is_valid(store, 1, MIDNIGHT.plus_ms(DAY_MS)).await);

    apply(store, &[member("ann", Role::Admin)]).await.unwrap();
    assert!(!is_valid(store, 1, later).await, "the role is another one");
    apply(store, &[member("ann", Role::Operator)]).await.unwrap();
    assert!(!is_valid(store, 1, later).await, "a session is not restored with the role");
    apply(store, &[open("ann", 3, SecondFactor::None)]).await.unwrap();
    apply(store, &[set_password("ann")]).await.unwrap();
    assert!(!is_valid(store, 3, later).await, "the password is another one");
    apply(store, &[set_password("ann"), open("ann", 4, SecondFactor::None)]).await.unwrap();
    assert!(is_valid(store, 4, MIDNIGHT).await, "opened together with the new password");
    let (ann, now) = (id_of(store, "ann").await, MIDNIGHT);
    let of_ann = SessionFilter { scope: ObjectScope::Member(ann), id: None, member: None, after: None, now, idle: IDLE, limit: 10 };
    let listed = async || store.identity.sessions(&of_ann).await.unwrap().iter().map(|session| session.id).collect::<Vec<_>>();
    assert_eq!(listed().await, [session_id(4)], "those that ended are not listed");
    let suspend = |status| Change::SetMemberStatus { member: "ann".to_owned(), status };
    apply(store, &[suspend(MemberStatus::Suspended)]).await.unwrap();
    assert!(!is_valid(store, 4, MIDNIGHT).await && listed().await.is_empty());
    let refused = apply(store, &[open("ann", 5, SecondFactor::None)]).await.unwrap_err();
    assert_eq!(refusal(refused), ChangeRefusal::NotFound, "a suspended member cannot sign in");
    apply(store, &[suspend(MemberStatus::Active)]).await.unwrap();
    assert!(!is_valid(store, 4, MIDNIGHT).await, "a session is not restored with the status");
    apply(store, &[identity(IdentityChange::EndSession { session: session_id(2) })]).await.unwrap();
    assert!(!is_valid(store, 2, MIDNIGHT).await);
    apply(store, &[identity(IdentityChange::EndSession { session: session_id(2) })]).await.expect("it has ended already");
}

pub(super) async fn sessions_are_listed_by_member_and_bounded(store: &Store) {
    apply(store, &[member("ann", Role::Member), member("bob", Role::Member)]).await.unwrap();
    let (ann, bob) = (id_of(store, "ann").await, id_of(store, "bob").await);
    for n in 1..=u8::try_from(MAX_SESSIONS + 2).unwrap() {
        apply(store, &[open("ann", n, SecondFactor::None)]).await.unwrap();
    }
    apply(store, &[open("bob", 100, SecondFactor::None)]).await.unwrap();
    let filter = |scope, member, after| SessionFilter { scope, id: None, member, after, now: MIDNIGHT, idle: IDLE, limit: 1_000 };
    let list = async |filter: SessionFilter| store.identity.sessions(&filter).await.unwrap();
    let all = list(filter(ObjectScope::Everything, None, None)).await;
    assert_eq!((all.len(), all[0].id), (MAX_SESSIONS + 1, session_id(3)), "the oldest ones ended");
    assert_eq!(list(filter(ObjectScope::Everything, Some(bob), None)).await.len(), 1);
    assert_eq!(list(filter(ObjectScope::Member(bob), None, None)).await[0].member, bob);
    assert!(list(filter(ObjectScope::Member(bob), Some(ann), None)).await.is_empty());
    assert_eq!(list(filter(ObjectScope::Everything, None, Some(session_id(3)))).await[0].id, session_id(4));
    let one = SessionFilter { id: Some(session_id(4)), ..filter(ObjectScope::Member(ann), None, None) };
    assert_eq!(list(one).await.len(), 1);
    assert!(list(SessionFilter { scope: ObjectScope::Member(bob), ..one }).await.is_empty());
    assert!(list(SessionFilter { now: MIDNIGHT.plus_ms(DAY_MS), ..filter(ObjectScope::Everything, None, None) }).await.is_empty());
    assert!(list(SessionFilter { now: MIDNIGHT.plus_ms(HOUR_MS), ..filter(ObjectScope::Everything, None, None) }).await.is_empty());
}

pub(super) async fn remembered_session_has_its_own_idle_timeout(store: &Store) {
    apply(store, &[member("ann", Role::Member)]).await.unwrap();
    // The browser's description must not be read as the member's choice.
    let lying = "\"remembered\":true";
    let changes = [opened("ann", 1, SecondFactor::None, lying, false), opened("ann", 2, SecondFactor::None, "a browser", true)];
    apply(store, &changes).await.unwrap();
    let (session, _) = store.identity.session(&hash(2), MIDNIGHT, IDLE).await.unwrap().unwrap();
    assert!(session.spec.is_remembered);
    store.identity.touch_session(&session, MIDNIGHT.plus_ms(HOUR_MS), "192.0.2.8").await.unwrap();
    let listed = async |now| {
        let filter =
            SessionFilter { scope: ObjectScope::Everything, id: None, member: None, after: None, now, idle: IDLE, limit: 10 };
        store.identity.sessions(&filter).await.unwrap().iter().map(|session| session.id).collect::<Vec<_>>()
    };
    for (hours, expected) in [(0, vec![1, 2]), (1, vec![2]), (3, vec![2]), (4, vec![])] {
        let now = MIDNIGHT.plus_ms(hours * HOUR_MS);
        let valid = [is_valid(store, 1, now).await, is_valid(store, 2, now).await];
        assert_eq!(valid, [expected.contains(&1), expected.contains(&2)], "after {hours} h");
        assert_eq!(listed(now).await, expected.into_iter().map(session_id).collect::<Vec<_>>(), "after {hours} h");
    }
}

pub(super) async fn preferences_are_kept_with_the_login(store: &Store) {
    apply(store, &[member("ann", Role::Member), open("ann", 1, SecondFactor::None)]).await.unwrap();
    let of = async || store.identity.find_login("ann").await.unwrap().unwrap().login.preferences;
    assert_eq!(of().await, MemberPreferences::default());
    let view = |name: &str, is_shared| SavedView {
        page: if is_shared { ViewPage::Keys } else { ViewPage::Log },
        name: name.to_owned(),
        query: "range=7d".to_owned(),
        is_shared,
    };
    let views = vec![view("mine", false), view("\"shared\":true", false), view("ours", true)];
    let preferences = MemberPreferences {
        language: Some("zh-CN".to_owned()),
        time_zone: Some("Asia/Shanghai".to_owned()),
        views,
        ..MemberPreferences::default()
    };
    let change = IdentityChange::SetPreferences { member: "ann".to_owned(), preferences: preferences.clone() };
    apply(store, &[identity(change.clone())]).await.unwrap();
    apply(store, &[identity(change)]).await.unwrap();
    assert_eq!(of().await, preferences);
    assert!(is_valid(store, 1, MIDNIGHT).await, "sessions go on");
    assert_eq!(store.identity.shared_views().await.unwrap(), [(id_of(store, "ann").await, view("ours", true))]);
}

pub(super) async fn members_are_notified_by_mail_once_they_ask_for_it(store: &Store) {
    apply(store, &[member("ann", Role::Member), member("ben", Role::Member), member("eve", Role::Member)]).await.unwrap();
    let email = |name: &str| {
        let email = Some(format!("{name}@example.com"));
        identity(IdentityChange::SetEmail { member: name.to_owned(), email })
    };
    let prefer = |name: &str, notice_mail| {
        let notice_percents = Some(vec![50, 90]);
        let preferences = MemberPreferences { notice_percents, notice_mail, ..MemberPreferences::default() };
        identity(IdentityChange::SetPreferences { member: name.to_owned(), preferences })
    };
    apply(store, &[email("ann"), prefer("ann", true), email("ben"), prefer("ben", false), prefer("eve", true)]).await.unwrap();
    let mailed = async || store.identity.mailed_members().await.unwrap();
    let found = mailed().await;
    let ann = id_of(store, "ann").await;
    assert_eq!(found.iter().map(|it| (it.member, it.email.as_str())).collect::<Vec<_>>(), [(ann, "ann@example.com")]);
    assert_eq!((found[0].preferences.effective_percents(), found[0].notified.len()), ([50, 90].as_slice(), 0));
    assert_eq!(found[0].preferences.effective_balance(), MemberPreferences::NOTICE_BALANCE);
    let notified = ["member month 80".to_owned(), "\"quoted\"".to_owned()];
    store.identity.record_notified(ann, &notified).await.unwrap();
    apply(store, &[open("ann", 1, SecondFactor::None)]).await.unwrap();
    assert_eq!(mailed().await[0].notified, notified, "a sign-in keeps it");
    store.identity.record_notified(ann, &[]).await.unwrap();
    assert!(mailed().await[0].notified.is_empty());
    apply(store, &[prefer("ann", false)]).await.unwrap();
    assert!(mailed().await.is_empty());
}

pub(super) async fn one_time_code_is_used_once(store: &Store) {
    apply(store, &[member("ann", Role::Member), open("ann", 1, SecondFactor::None)]).await.unwrap();
    let enable = IdentityChange::EnableTotp {
        member: "ann".to_owned(),
        secret: secret("JBSWY3DPEHPK3PXP"),
        step: 100,
        recovery_codes: vec![hash(7), hash(8)],
    };
    apply(store, &[identity(enable)]).await.unwrap();
    assert!(!is_valid(store, 1, MIDNIGHT).await, "sessions from before have ended");
    let found = store.identity.find_login("ann").await.unwrap().unwrap();
    assert_eq!(found.login.totp.map(|secret| secret.expose().to_owned()).as_deref(), Some("JBSWY3DPEHPK3PXP"));
    assert_eq!(refused(store, open("ann", 2, SecondFactor::TotpStep(100))).await, IdentityRefusal::CodeUsed);
    apply(store, &[open("ann", 2, SecondFactor::TotpStep(101))]).await.unwrap();
    assert_eq!(refused(store, open("ann", 3, SecondFactor::TotpStep(101))).await, IdentityRefusal::CodeUsed);
    apply(store, &[open("ann", 3, SecondFactor::RecoveryCode(hash(7)))]).await.unwrap();
    assert_eq!(refused(store, open("ann", 4, SecondFactor::RecoveryCode(hash(7)))).await, IdentityRefusal::CodeUsed);
    assert_eq!(store.identity.find_login("ann").await.unwrap().unwrap().login.recovery_codes, [hash(8)]);
    apply(store, &[identity(IdentityChange::DisableTotp { member: "ann".to_owned() })]).await.unwrap();
    let found = store.identity.find_login("ann").await.unwrap().unwrap();
    assert!(found.login.totp.is_none() && found.login.recovery_codes.is_empty());
}

fn invite(n: u8, groups: &[&str]) -> (Change, InviteId) {
    let id = InviteId::from_parts(MIDNIGHT.plus_ms(i64::from(n)), [n; 10]);
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let spec = InviteSpec { role: Role::Operator, groups, created_by: "tester".to_owned(), ..InviteSpec::default() };
    let invite = Box::new(Invite { id, expires_at: MIDNIGHT.plus_ms(DAY_MS), spec });
    (identity(IdentityChange::MakeInvite { invite, hash: hash(n) }), id)
}

fn accept(n: u8, member: &str) -> Change {
    let (member, email) = (member.to_owned(), Some(format!("{member}@example.com")));
    identity(IdentityChange::AcceptInvite { hash: hash(n), member, email, password: secret("$argon2id$…") })
}

pub(super) async fn invite_makes_one_member(store: &Store) {
    let (open, id) = invite(1, &["staff"]);
    let unknown = refusal(apply(store, std::slice::from_ref(&open)).await.unwrap_err());
    assert!(matches!(unknown, ChangeRefusal::Unknown { kind: RowKind::Group, .. }), "{unknown:?}");
    apply(store, &[put_group("staff", &[]), open, invite(2, &[]).0]).await.unwrap();
    assert_eq!(store.identity.find_invite(&hash(1)).await.unwrap().unwrap().id, id);
    assert_eq!(refusal(apply(store, &[accept(1, "owner")]).await.unwrap_err()), ChangeRefusal::Exists);
    apply(store, &[accept(1, "ann")]).await.unwrap();
    let made = store.identity.find_login("ann@example.com").await.unwrap().unwrap();
    assert_eq!((made.name.as_str(), made.role, made.can_sign_in()), ("ann", Role::Operator, true));
    let row = store.listing.row(RowKind::Member, &made.id.to_string(), ObjectScope::Everything).await.unwrap().unwrap();
    assert_eq!(row.read::<MemberSpec>().unwrap().groups, ["staff"]);
    assert_eq!(refused(store, accept(1, "eve")).await, IdentityRefusal::InviteInvalid);
    assert_eq!(
        refused(store, accept(2, "Ann@example.com")).await,
        IdentityRefusal::EmailTaken,
        "a name cannot be another member's address"
    );
    let revoke = |invite| identity(IdentityChange::RevokeInvite { invite });
    assert_eq!(refused(store, revoke(id)).await, IdentityRefusal::InviteInvalid, "it was accepted");
    let second = invite(2, &[]).1;
    apply(store, &[revoke(second)]).await.unwrap();
    assert_eq!(refused(store, accept(2, "eve")).await, IdentityRefusal::InviteInvalid);
    apply(store, &[invite(3, &[]).0]).await.unwrap();
    let late = store.catalog.apply(&[accept(3, "eve")], &super::actor(crate::ChangeOrigin::Api), MIDNIGHT.plus_ms(DAY_MS)).await;
    assert!(matches!(late, Err(StoreError::Refused(_))), "it is over");
    let listed = store.identity.invites(None, SortOrder::Oldest, 10).await.unwrap();
    let states: Vec<_> = listed.iter().map(|invite| invite.spec.state.clone()).collect();
    assert_eq!(states, [InviteState::Accepted("ann".to_owned()), InviteState::Revoked, InviteState::Open]);
    assert_eq!(store.identity.invites(Some(id), SortOrder::Oldest, 1).await.unwrap()[0].id, second);
    let newest = store.identity.invites(None, SortOrder::Newest, 2).await.unwrap();
    assert_eq!((newest.len(), newest[0].id, newest[1].id), (2, listed[2].id, second));
    let rest = store.identity.invites(Some(second), SortOrder::Newest, 10).await.unwrap();
    assert_eq!(rest.iter().map(|invite| invite.id).collect::<Vec<_>>(), [id]);
    assert_eq!(store.identity.invite(id).await.unwrap().map(|invite| invite.id), Some(id));
}

pub(super) async fn link_of_the_set_up_makes_an_admin_of_another_name(store: &Store) {
    let make = |n: u8, kind| {
        let expires_at = MIDNIGHT.plus_ms(HOUR_MS);
        identity(IdentityChange::MakeLink { member: "owner".to_owned(), kind, hash: hash(n), expires_at })
    };
    let link = |n: u8, name: &str| {
        identity(IdentityChange::UseLink { hash: hash(n), password: secret("$argon2id$…"), name: Some(name.to_owned()) })
    };
    apply(store, &[member("ann", Role::Member), make(1, LinkKind::Reset)]).await.unwrap();
    assert_eq!(refused(store, link(1, "ada")).await, IdentityRefusal::LinkInvalid, "it is for a member of another name");
    apply(store, &[make(2, LinkKind::SetUp)]).await.unwrap();
    assert_eq!(refusal(apply(store, &[link(2, "ann")]).await.unwrap_err()), ChangeRefusal::Exists, "ann is not an admin");
    apply(store, &[link(2, "ada")]).await.unwrap();
    let made = store.identity.find_login("ada").await.unwrap().unwrap();
    assert_eq!((made.role, made.status, made.can_sign_in()), (Role::Admin, MemberStatus::Active, true));
    assert!(!store.identity.find_login("owner").await.unwrap().unwrap().can_sign_in());
    assert_eq!(refused(store, link(2, "eve")).await, IdentityRefusal::LinkInvalid, "it was used");
    apply(store, &[make(3, LinkKind::SetUp), link(3, "owner")]).await.unwrap();
    assert!(store.identity.find_login("owner").await.unwrap().unwrap().can_sign_in(), "its own name makes no other member");
}

fn register(member: &str, group: Option<&str>, email: Option<&str>) -> Change {
    identity(IdentityChange::Register {
        member: member.to_owned(),
        group: group.map(str::to_owned),
        billing: Billing::Prepaid,
        email: email.map(str::to_owned),
        password: secret("$argon2id$…"),
    })
}

pub(super) async fn registration_makes_a_plain_member(store: &Store) {
    apply(store, &[put_group("guests", &[]), register("ann", Some("guests"), Some("Ann@example.com"))]).await.unwrap();
    let made = store.identity.find_login("ann@example.com").await.unwrap().unwrap();
    assert_eq!((made.name.as_str(), made.role, made.status), ("ann", Role::Member, MemberStatus::Active));
    assert!(made.can_sign_in());
    let row = store.listing.row(RowKind::Member, &made.id.to_string(), ObjectScope::Everything).await.unwrap().unwrap();
    let spec: MemberSpec = row.read().unwrap();
    assert_eq!((spec.billing, spec.default_group.as_deref()), (Billing::Prepaid, Some("guests")));
    assert_eq!(spec.groups, ["guests"]);
    assert_eq!(refusal(apply(store, &[register("ann", None, None)]).await.unwrap_err()), ChangeRefusal::Exists);
    assert_eq!(refused(store, register("ANN@example.com", None, None)).await, IdentityRefusal::EmailTaken);
    assert_eq!(refused(store, register("eve", None, Some("ann@EXAMPLE.com"))).await, IdentityRefusal::EmailTaken);
    let unknown = refusal(apply(store, &[register("eve", Some("gone"), None)]).await.unwrap_err());
    assert!(matches!(unknown, ChangeRefusal::Unknown { kind: RowKind::Group, .. }), "{unknown:?}");
    assert!(store.identity.find_login("eve").await.unwrap().is_none(), "nothing of the refused batch is kept");
    let audit = store.catalog.audit(None, 100).await.unwrap();
    let entry = audit.iter().find(|event| event.action == "register").unwrap();
    assert_eq!((entry.kind, entry.name.as_str()), (AuditKind::Login, "ann"));
    assert!(!audit.iter().any(|event| event.detail.contains("argon2")), "{audit:?}");
}

pub(super) async fn link_sets_a_password_once(store: &Store) {
    apply(store, &[member("ann", Role::Member)]).await.unwrap();
    let make = |n: u8, kind| {
        let expires_at = MIDNIGHT.plus_ms(HOUR_MS);
        identity(IdentityChange::MakeLink { member: "ann".to_owned(), kind, hash: hash(n), expires_at })
    };
    let link = |n: u8| identity(IdentityChange::UseLink { hash: hash(n), password: secret("$argon2id$…"), name: None });
    let no_link = || identity(IdentityChange::ExpectNoLink { member: "ann".to_owned() });
    apply(store, &[no_link(), make(1, LinkKind::Reset)]).await.unwrap();
    assert_eq!(refused(store, no_link()).await, IdentityRefusal::LinkExists);
    apply(store, &[make(2, LinkKind::SetUp)]).await.unwrap();
    assert_eq!(refused(store, link(1)).await, IdentityRefusal::LinkInvalid, "it was replaced");
    let found = store.identity.find_link(&hash(2)).await.unwrap().unwrap();
    assert_eq!((found.kind, found.member), (LinkKind::SetUp, id_of(store, "ann").await));
    apply(store, &[open("ann", 5, SecondFactor::None)]).await.unwrap();
    apply(store, &[link(2)]).await.unwrap();
    assert!(!is_valid(store, 5, MIDNIGHT).await, "sessions from before have ended");
    assert_eq!(refused(store, link(2)).await, IdentityRefusal::LinkInvalid);
    assert!(store.identity.find_login("ann").await.unwrap().unwrap().can_sign_in());
    apply(store, &[make(3, LinkKind::Reset)]).await.unwrap();
    let late = store.catalog.apply(&[link(3)], &super::actor(crate::ChangeOrigin::Api), MIDNIGHT.plus_ms(HOUR_MS)).await;
    assert!(late.is_err(), "it is over");
    let later = store.catalog.apply(&[no_link()], &super::actor(crate::ChangeOrigin::Api), MIDNIGHT.plus_ms(HOUR_MS)).await;
    assert!(later.is_ok(), "links that are over do not count");
    apply(store, &[set_password("ann")]).await.unwrap();
    assert_eq!(refused(store, link(3)).await, IdentityRefusal::LinkInvalid, "a new password ends links");
    let audit = store.catalog.audit(None, 100).await.unwrap();
    let logins: Vec<_> = audit.iter().filter(|event| event.kind == AuditKind::Login).collect();
    assert!(logins.len() >= 5 && logins.iter().any(|event| event.action == "use_link"), "{logins:?}");
    assert!(!audit.iter().any(|event| event.detail.contains("argon2")), "{audit:?}");
}

pub(super) async fn admins_are_listed_with_their_logins(store: &Store) {
    apply(store, &[member("ann", Role::Admin), member("bob", Role::Operator), set_password("ann")]).await.unwrap();
    let admins = store.identity.admins().await.unwrap();
    let mut shown: Vec<_> = admins.iter().map(|admin| (admin.name.as_str(), admin.can_sign_in())).collect();
    shown.sort_unstable();
    assert_eq!(shown, [("ann", true), ("owner", false)]);
    apply(store, &[Change::SetMemberStatus { member: "owner".to_owned(), status: MemberStatus::Suspended }]).await.unwrap();
    assert_eq!(store.identity.admins().await.unwrap().len(), 1);
}

pub(super) async fn admin_key_of_a_member_is_narrowed_and_ends_with_the_member(store: &Store) {
    apply(store, &[member("ann", Role::Operator)]).await.unwrap();
    let new = NewKey::generate_admin(&RandomSource::system()).secret(&store.hasher);
    let make = |name: &str, scope, member: Option<&str>| {
        let member = member.map(str::to_owned);
        let key = Box::new(AdminKeySpec { name: name.to_owned(), scope, member, expires_at: None });
        Change::MakeAdminKey { key, secret: new.clone() }
    };
    let invalid = refusal(apply(store, &[make("k", AdminScope::Member, None)]).await.unwrap_err());
    assert!(matches!(invalid, ChangeRefusal::Invalid(_)), "{invalid:?}");
    let unknown = refusal(apply(store, &[make("k", AdminScope::Admin, Some("unknown"))]).await.unwrap_err());
    assert!(matches!(unknown, ChangeRefusal::Unknown { kind: RowKind::Member, .. }), "{unknown:?}");
    apply(store, &[make("k", AdminScope::Admin, Some("ann"))]).await.unwrap();
    assert_eq!(refusal(apply(store, &[make("k", AdminScope::Admin, None)]).await.unwrap_err()), ChangeRefusal::Exists);
    let find = async || store.listing.admin_key(&new.hash, MIDNIGHT).await.unwrap();
    let found = find().await.unwrap();
    let ann = id_of(store, "ann").await;
    assert_eq!((found.scope, found.member), (AdminScope::Operator, Some((ann, "ann".to_owned()))));
    apply(store, &[member("ann", Role::Member)]).await.unwrap();
    assert_eq!(find().await.unwrap().scope, AdminScope::Member);
    let status = |status| Change::SetMemberStatus { member: "ann".to_owned(), status };
    apply(store, &[status(MemberStatus::Suspended)]).await.unwrap();
    assert_eq!(find().await, None);
    apply(store, &[status(MemberStatus::Active)]).await.unwrap();
    assert!(find().await.is_some());
    apply(store, &[Change::RemoveMember { member: "ann".to_owned() }]).await.unwrap();
    assert_eq!(find().await, None);
}

pub(super) async fn rows_of_others_are_out_of_scope(store: &Store) {
    apply(store, &[member("ann", Role::Member), member("bob", Role::Member), put_group("g", &[])]).await.unwrap();
    let mut keys = Vec::new();
    for of in ["ann", "bob"] {
        let Change::PutKey { mut key, secret } = put_key(store, "k", &["g"], Some(&format!("a-secret-of-{of}-0123"))) else {
            panic!("it is a key")
        };
        of.clone_into(&mut key.member);
        keys.push(Change::PutKey { key, secret });
    }
    apply(store, &keys).await.unwrap();
    let ann = id_of(store, "ann").await;
    let (own, everything) = (ObjectScope::Member(ann), ObjectScope::Everything);
    for (kind, visible) in [(RowKind::Key, 1), (RowKind::Member, 1), (RowKind::Group, 0), (RowKind::AdminKey, 0)] {
        let of = |scope| RowFilter { scope, ..RowFilter::of(kind, 100) };
        let seen = store.listing.page(&of(own)).await.unwrap();
        assert_eq!(seen.len(), visible, "{kind}");
        for row in store.listing.page(&of(everything)).await.unwrap() {
            let is_own = row.parent == ann.to_string() || row.id == ann.to_string();
            let found = store.listing.row(kind, &row.id, own).await.unwrap();
            assert_eq!(found.is_some(), is_own, "{kind} {}", row.id);
        }
    }
}
