//! The contract of [`crate::CatalogStore`].

use std::time::Duration;

use tollgate_core::{
    AccountSpec, ChannelSpec, MemberStatus, ModelMapping, ModelSpec, Owner, PriceLimit, PriceLimitMode, PriceLimitOn, Provider,
    Revision, Role,
};

use super::{actor, apply, channel, put_account, put_channel, put_group, put_key, refusal};
use crate::{AuditKind, Change, ChangeOrigin, ChangeRefusal, KeyScope, MemberSpec, RowKind, Store, Toggle, samples::MIDNIGHT};

pub(super) async fn catalog_loads_as_written(store: &Store) {
    let model = ModelSpec { name: "fast".to_owned(), max_output: Some(4_096), ..ModelSpec::default() };
    let served = ModelMapping { model: "slow".to_owned(), upstream: "slow-1".to_owned(), ..ModelMapping::default() };
    let batch = [
        put_channel("main"),
        put_account("main", "team-a", Some("sk-upstream-secret")),
        Change::PutModelMapping { channel: "main".to_owned(), mapping: Box::new(served) },
        Change::PutModel(Box::new(model)),
        put_group("default", &["main"]),
        Change::SwitchAccount { channel: "main".to_owned(), account: "team-a".to_owned(), to: Toggle::Off },
    ];
    let revision = apply(store, &batch).await.unwrap();
    let catalog = store.catalog.load().await.unwrap();
    assert_eq!(catalog.revision, revision);
    let main = catalog.channel_by_name("main").unwrap();
    assert_eq!((main.owner, main.spec.budgets.len(), main.spec.serves.len()), (Owner::Database, 1, 2));
    let account = &main.accounts[0];
    assert_eq!((account.spec.name.as_str(), account.spec.on, account.spec.concurrency), ("team-a", false, 4));
    assert_eq!(account.credential.as_ref().unwrap().expose(), "sk-upstream-secret");
    assert_eq!(catalog.group_by_name("default").unwrap().channels, [main.id]);
    assert_eq!(catalog.models["fast"].spec.max_output, Some(4_096));

    let unserve = Change::RemoveModelMapping { channel: "main".to_owned(), model: "slow".to_owned() };
    apply(store, &[unserve, Change::SwitchChannel { channel: "main".to_owned(), to: Toggle::Off }]).await.unwrap();
    let catalog = store.catalog.load().await.unwrap();
    let main = catalog.channel_by_name("main").unwrap();
    assert_eq!((main.spec.on, main.spec.serves.len(), main.accounts.len()), (false, 1, 1));
}

pub(super) async fn batch_is_atomic(store: &Store) {
    let before = store.catalog.revision().await.unwrap();
    let missing = ChangeRefusal::Unknown { kind: RowKind::Channel, name: "nowhere".to_owned() };
    let refused = apply(store, &[put_channel("main"), put_group("default", &["main", "nowhere"])]).await;
    assert_eq!(refusal(refused.unwrap_err()), missing);
    let of = |provider| Change::PutChannel(Box::new(tollgate_core::ChannelSpec { provider, ..channel("main") }));
    let refused = apply(store, &[of(Provider::OpenAi), put_account("main", "new", None)]).await;
    assert_eq!(refusal(refused.unwrap_err()), ChangeRefusal::NeedsSecret);
    let bad = Change::PutChannel(Box::new(tollgate_core::ChannelSpec { weight: 0, ..channel("other") }));
    assert!(matches!(refusal(apply(store, &[put_channel("main"), bad]).await.unwrap_err()), ChangeRefusal::Invalid(_)));
    assert_eq!(store.catalog.revision().await.unwrap(), before);
    assert!(store.catalog.load().await.unwrap().channels.is_empty());
    // The order within a batch does not matter for names.
    apply(store, &[put_group("default", &["main"]), put_channel("main")]).await.unwrap();
}

pub(super) async fn batch_without_effect_makes_no_revision(store: &Store) {
    let batch = [put_channel("main"), put_account("main", "a", Some("secret-1")), put_group("g", &["main"])];
    let first = apply(store, &batch).await.unwrap();
    assert_eq!(apply(store, &batch).await.unwrap(), first, "the same secret is not sealed again");
    assert_eq!(apply(store, &[put_account("main", "a", None)]).await.unwrap(), first, "an absent secret keeps the stored one");
    let second = apply(store, &[put_account("main", "a", Some("secret-2"))]).await.unwrap();
    assert_eq!(second.0, first.0 + 1);
    let changed = store.catalog.changed_since(first).await.unwrap();
    assert_eq!(changed.iter().map(|row| (row.revision, row.kind)).collect::<Vec<_>>(), [(second, RowKind::Account)]);
    assert_eq!(store.catalog.changed_since(Revision(first.0 - 1)).await.unwrap().len(), 4);
}

pub(super) async fn removing_a_channel_removes_its_accounts_and_frees_its_name(store: &Store) {
    apply(store, &[put_channel("main"), put_account("main", "a", Some("secret-1")), put_group("g", &["main"])]).await.unwrap();
    let before = store.catalog.load().await.unwrap().channel_by_name("main").unwrap().id;
    apply(store, &[Change::RemoveChannel { channel: "main".to_owned() }]).await.unwrap();
    let catalog = store.catalog.load().await.unwrap();
    assert!(catalog.channels.is_empty());
    assert!(catalog.group_by_name("g").unwrap().channels.is_empty());
    let gone = apply(store, &[Change::RemoveChannel { channel: "main".to_owned() }]).await;
    assert_eq!(refusal(gone.unwrap_err()), ChangeRefusal::NotFound);
    apply(store, &[put_channel("main")]).await.unwrap();
    let after = store.catalog.load().await.unwrap();
    let again = after.channel_by_name("main").unwrap();
    assert!(again.id != before && again.accounts.is_empty());
    assert_eq!(after.group_by_name("g").unwrap().channels, [again.id], "groups refer to channels by name");
}

pub(super) async fn file_owned_rows_are_changed_by_the_file_only(store: &Store) {
    apply(store, &[put_channel("main"), put_account("main", "a", Some("secret-1"))]).await.unwrap();
    store.catalog.apply(&[put_channel("main")], &actor(ChangeOrigin::File), MIDNIGHT).await.unwrap();
    assert_eq!(store.catalog.load().await.unwrap().channel_by_name("main").unwrap().owner, Owner::File);
    let account = AccountSpec { name: "a".to_owned(), ..AccountSpec::default() };
    let changes = [
        put_channel("main"),
        Change::SwitchChannel { channel: "main".to_owned(), to: Toggle::Off },
        Change::PutAccount { channel: "main".to_owned(), account, credential: None },
        Change::RemoveChannel { channel: "main".to_owned() },
        Change::RemoveModelMapping { channel: "main".to_owned(), model: "fast".to_owned() },
    ];
    for change in changes {
        assert_eq!(
            refusal(apply(store, std::slice::from_ref(&change)).await.unwrap_err()),
            ChangeRefusal::OwnedByFile,
            "{change:?}"
        );
    }
    apply(store, &[Change::ReleaseFile]).await.unwrap();
    apply(store, &[Change::RemoveChannel { channel: "main".to_owned() }]).await.unwrap();
}

pub(super) async fn channel_is_added_to_a_group_and_removed_from_it(store: &Store) {
    let set = |group: &str, channel: &str, is_offered| {
        let (group, channel) = (group.to_owned(), channel.to_owned());
        Change::SetGroupChannel { group, channel, is_offered }
    };
    apply(store, &[put_channel("gone"), put_channel("main"), put_group("g", &["gone", "main"])]).await.unwrap();
    apply(store, &[Change::RemoveChannel { channel: "gone".to_owned() }]).await.unwrap();
    // The group still names the removed channel; that does not prevent adding another one.
    let added = apply(store, &[put_channel("new"), set("g", "new", true)]).await.unwrap();
    let offered = async || {
        let catalog = store.catalog.load().await.unwrap();
        let group = catalog.group_by_name("g").unwrap();
        let is_offered = |name: &str| group.channels.contains(&catalog.channel_by_name(name).unwrap().id);
        ["main", "new"].map(is_offered)
    };
    assert_eq!(offered().await, [true, true]);
    assert_eq!(apply(store, &[set("g", "new", true), set("g", "other", false)]).await.unwrap(), added, "nothing changes");
    apply(store, &[set("g", "main", false)]).await.unwrap();
    assert_eq!(offered().await, [false, true]);

    // If a group does not exist, the channel of the same batch is not made either.
    let refused = apply(store, &[put_channel("next"), set("nowhere", "next", true)]).await.unwrap_err();
    assert_eq!(refusal(refused), ChangeRefusal::Unknown { kind: RowKind::Group, name: "nowhere".to_owned() });
    assert!(store.catalog.load().await.unwrap().channel_by_name("next").is_none());
    let refused = apply(store, &[set("g", "nowhere", true)]).await.unwrap_err();
    assert_eq!(refusal(refused), ChangeRefusal::Unknown { kind: RowKind::Channel, name: "nowhere".to_owned() });

    store.catalog.apply(&[put_group("g", &["new"])], &actor(ChangeOrigin::File), MIDNIGHT).await.unwrap();
    assert_eq!(refusal(apply(store, &[set("g", "main", true)]).await.unwrap_err()), ChangeRefusal::OwnedByFile);
    apply(store, &[set("g", "new", true)]).await.unwrap();
}

pub(super) async fn change_for_another_revision_is_refused(store: &Store) {
    let revision = apply(store, &[put_channel("main")]).await.unwrap();
    let stale = Revision(revision.0 - 1);
    let refused = apply(store, &[Change::Expect(stale), put_channel("other")]).await.unwrap_err();
    assert_eq!(refusal(refused), ChangeRefusal::Stale { expected: stale, found: revision });
    apply(store, &[Change::Expect(revision), put_channel("other")]).await.unwrap();
}

pub(super) async fn audit_log_has_every_change_without_secrets(store: &Store) {
    let first = apply(store, &[put_channel("main"), put_account("main", "a", Some("sk-very-secret"))]).await.unwrap();
    apply(store, &[put_key(store, "ci", &[], Some("sk-also-very-secret"))]).await.unwrap();
    let second = apply(store, &[put_account("main", "a", Some("sk-other-secret"))]).await.unwrap();
    let events = store.catalog.audit(None, 100).await.unwrap();
    let shown: Vec<_> =
        events.iter().map(|event| (event.revision, event.action.as_str(), event.kind, event.name.as_str())).collect();
    assert_eq!(shown[0], (second, "put", AuditKind::Row(RowKind::Account), "a"));
    assert_eq!(
        shown[2..4],
        [(first, "put", AuditKind::Row(RowKind::Account), "a"), (first, "put", AuditKind::Row(RowKind::Channel), "main")]
    );
    assert!(
        events.iter().all(|event| event.at == MIDNIGHT && !event.detail.contains("very-secret") && !event.detail.contains("sk-"))
    );
    assert!(events[0].detail.contains("secret replaced"));
    assert_eq!(store.catalog.audit(Some(first), 1).await.unwrap()[0].actor, "first start");
}

pub(super) async fn proxy_password_is_sealed_like_a_credential(store: &Store) {
    let put = |proxy: Option<&str>| {
        Change::PutChannel(Box::new(tollgate_core::ChannelSpec { proxy: proxy.map(str::to_owned), ..channel("main") }))
    };
    let (plain, shown) = ("http://me:proxy-secret@127.0.0.1:3128", "http://me:***@127.0.0.1:3128");
    let first = apply(store, &[put(Some(plain))]).await.unwrap();
    let used = async || store.catalog.load().await.unwrap().channel_by_name("main").unwrap().proxy.clone();
    assert_eq!(used().await.as_ref().map(tollgate_core::Secret::expose), Some(plain));
    let current = store.catalog.live_rows(&KeyScope::All).await.unwrap();
    assert_eq!(current.channels[0].spec.proxy.as_deref(), Some(shown));
    let listed = store.listing.page(&crate::RowFilter::of(RowKind::Channel, 10)).await.unwrap();
    assert_eq!(listed[0].read::<tollgate_core::ChannelSpec>().unwrap().proxy.as_deref(), Some(shown));
    for same in [plain, shown] {
        assert_eq!(apply(store, &[put(Some(same))]).await.unwrap(), first, "{same} changes nothing");
    }
    let switched = Change::SwitchChannel { channel: "main".to_owned(), to: Toggle::Off };
    apply(store, &[switched]).await.unwrap();
    assert_eq!(used().await.as_ref().map(tollgate_core::Secret::expose), Some(plain));
    // The stored password is not reused for another address.
    for proxy in ["http://me:***@127.0.0.1:3129", "http://you:***@127.0.0.1:3128"] {
        assert!(matches!(refusal(apply(store, &[put(Some(proxy))]).await.unwrap_err()), ChangeRefusal::Invalid(_)), "{proxy}");
    }
    let other = plain.replace("proxy-secret", "other-proxy-secret");
    apply(store, &[put(Some(&other))]).await.unwrap();
    assert_eq!(used().await, Some(tollgate_core::Secret::new(other)));
    apply(store, &[put(None)]).await.unwrap();
    assert_eq!(used().await, None);
    assert!(
        matches!(refusal(apply(store, &[put(Some(shown))]).await.unwrap_err()), ChangeRefusal::Invalid(_)),
        "the password was deleted"
    );
    let events = store.catalog.audit(None, 100).await.unwrap();
    assert!(events.iter().all(|event| !event.detail.contains("proxy-secret")));
    let notes = ["secret removed", "secret replaced"].map(|note| events.iter().filter(|it| it.detail.contains(note)).count());
    assert_eq!(notes, [1, 2]);
}

pub(super) async fn header_values_are_sealed_like_a_credential(store: &Store) {
    let put = |headers: &[(&str, &str)]| {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Change::PutChannel(Box::new(ChannelSpec { headers, ..channel("main") }))
    };
    let first = apply(store, &[put(&[("api-key", "header-secret"), ("x-title", "one")])]).await.unwrap();
    let used = async || store.catalog.load().await.unwrap().channel_by_name("main").unwrap().spec.headers.clone();
    let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>();
    assert_eq!(used().await, pairs(&[("api-key", "header-secret"), ("x-title", "one")]));
    let current = store.catalog.live_rows(&KeyScope::All).await.unwrap();
    assert_eq!(current.channels[0].spec.headers, pairs(&[("api-key", "***"), ("x-title", "***")]));
    let same = put(&[("api-key", "***"), ("x-title", "one")]);
    assert_eq!(apply(store, &[same]).await.unwrap(), first, "nothing changes");
    apply(store, &[put(&[("api-key", "***"), ("x-title", "two")])]).await.unwrap();
    assert_eq!(used().await, pairs(&[("api-key", "header-secret"), ("x-title", "two")]));
    let unknown = refusal(apply(store, &[put(&[("cookie", "***")])]).await.unwrap_err());
    assert!(matches!(&unknown, ChangeRefusal::Invalid(problems) if problems[0].field == "headers"), "{unknown:?}");
    apply(store, &[put(&[])]).await.unwrap();
    assert_eq!(used().await, []);
    let events = store.catalog.audit(None, 100).await.unwrap();
    assert!(events.iter().all(|event| !event.detail.contains("header-secret")));
}

pub(super) async fn keys_with_a_price_limit_are_selected_up_to_a_bound(store: &Store) {
    let limit = PriceLimit { mode: PriceLimitMode::PricedOnly, on: PriceLimitOn::Cost };
    let ceiling = PriceLimit { mode: PriceLimitMode::Ceiling { max_input: Some(1), max_output: None }, on: PriceLimitOn::Sale };
    let mut batch = vec![put_group("default", &[])];
    for (name, price_limit) in [("a", None), ("b", Some(limit)), ("c", Some(ceiling)), ("d", Some(limit))] {
        let put = put_key(store, name, &[], Some(&format!("sk-of-{name}-and-more-characters")));
        let Change::PutKey { mut key, secret } = put else { panic!("no key") };
        key.price_limit = price_limit;
        batch.push(Change::PutKey { key, secret });
    }
    apply(store, &batch).await.unwrap();
    let found = async |names: &[&str], max| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let current = store.catalog.live_rows(&KeyScope::Limited { names, max }).await.unwrap();
        let names: Vec<String> = current.keys.iter().map(|key| key.spec.name.clone()).collect();
        (names.join(" "), current.keys_cut)
    };
    assert_eq!(found(&[], 3).await, ("b c d".to_owned(), false));
    assert_eq!(found(&["a", "b"], 2).await, ("a b c d".to_owned(), false), "keys selected by name do not count");
    let (names, cut) = found(&["a"], 2).await;
    assert_eq!((names.split(' ').count(), cut), (3, true), "{names}");
    assert_eq!(found(&["a"], 0).await, ("a".to_owned(), true));
    let id = store.catalog.live_rows(&KeyScope::All).await.unwrap().keys.iter().find(|key| key.spec.name == "b").unwrap().id;
    apply(store, &[Change::RevokeKey { key: id }]).await.unwrap();
    assert_eq!(found(&[], 3).await, ("c d".to_owned(), false));
}

pub(super) async fn last_admin_cannot_be_removed(store: &Store) {
    let suspend = Change::SetMemberStatus { member: "owner".to_owned(), status: MemberStatus::Suspended };
    for change in [suspend.clone(), Change::RemoveMember { member: "owner".to_owned() }] {
        assert_eq!(refusal(apply(store, &[change]).await.unwrap_err()), ChangeRefusal::LastAdmin);
    }
    let second = MemberSpec { name: "ada".to_owned(), role: Role::Admin, ..MemberSpec::default() };
    apply(store, &[Change::PutMember(Box::new(second)), suspend]).await.unwrap();
}

pub(super) async fn waiting_for_a_change_returns_the_new_revision(store: &Store) {
    let known = store.catalog.revision().await.unwrap();
    let batch = [put_channel("main")];
    let waiting = tokio::time::timeout(Duration::from_secs(10), store.catalog.wait_for_change(known));
    let (seen, made) = tokio::join!(waiting, apply(store, &batch));
    assert_eq!(seen.unwrap().unwrap(), made.unwrap());
    let current = store.catalog.live_rows(&KeyScope::All).await.unwrap();
    assert_eq!(current.channels[0].spec, channel("main"));
}

pub(super) async fn concurrent_batches_are_serialised(store: &Store) {
    let before = store.catalog.revision().await.unwrap();
    let names: Vec<String> = (0..8).map(|n| format!("channel-{n}")).collect();
    let batches: Vec<_> = names.iter().map(|name| [put_channel(name), put_account(name, "a", Some("secret"))]).collect();
    let (a, b, c, d) = tokio::join!(
        async { (apply(store, &batches[0]).await.unwrap(), apply(store, &batches[1]).await.unwrap()) },
        async { (apply(store, &batches[2]).await.unwrap(), apply(store, &batches[3]).await.unwrap()) },
        async { (apply(store, &batches[4]).await.unwrap(), apply(store, &batches[5]).await.unwrap()) },
        async { (apply(store, &batches[6]).await.unwrap(), apply(store, &batches[7]).await.unwrap()) },
    );
    let mut revisions = [a.0, a.1, b.0, b.1, c.0, c.1, d.0, d.1].map(|revision| revision.0);
    revisions.sort_unstable();
    assert_eq!(revisions.to_vec(), (before.0 + 1..=before.0 + 8).collect::<Vec<_>>());
    assert_eq!(store.catalog.load().await.unwrap().channels.len(), 8);
    assert_eq!(store.catalog.changed_since(before).await.unwrap().len(), 16);
}
