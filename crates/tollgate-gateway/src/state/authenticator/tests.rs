//! Acceptance and refusal of keys. An unavailable database must never make a valid key look wrong.

use std::sync::atomic::Ordering;

use tollgate_core::Secret;
use tollgate_protocol::Protocol;

use super::*;
use crate::testing::{MemoryKeys, PausedClock, SECRET, head, key};

struct Rig {
    store: Arc<MemoryKeys>,
    authenticator: Authenticator,
    clock: Arc<PausedClock>,
}

fn rig(key: Option<Key>, settings: &Settings) -> Rig {
    let hasher = KeyHasher::new(&[7; 32]);
    let store = Arc::new(MemoryKeys::default());
    if let Some(key) = key {
        store.rows.lock().unwrap().insert(hasher.hash(SECRET).0, key);
    }
    let clock = Arc::new(PausedClock::start());
    let authenticator = Authenticator::new(
        Arc::clone(&store) as Arc<dyn KeyStore>,
        hasher,
        settings,
        Arc::clone(&clock) as Arc<dyn Clock>,
        Handle::current(),
        TaskTracker::new(),
    );
    Rig { store, authenticator, clock }
}

impl Rig {
    async fn ask(&self, secret: &str) -> Result<Caller, AuthError> {
        self.ask_on(None, secret).await
    }

    async fn ask_on(&self, connection: Option<&Arc<RecentKey>>, secret: &str) -> Result<Caller, AuthError> {
        let mut head = head("/v1/chat/completions");
        head.presented_key = Some(Secret::new(secret.to_owned()));
        head.recent_key = connection.cloned();
        self.authenticator.caller_of(&Catalog::default(), &head, self.clock.now()).await
    }

    async fn id(&self, secret: &str) -> &'static str {
        self.id_on(None, secret).await
    }

    async fn id_on(&self, connection: Option<&Arc<RecentKey>>, secret: &str) -> &'static str {
        match self.ask_on(connection, secret).await {
            Ok(_) => "in",
            Err(error) => error.refusal.id(Protocol::OpenAi),
        }
    }

    fn edit(&self, edit: impl FnMut(&mut Key)) {
        self.store.rows.lock().unwrap().values_mut().for_each(edit);
    }

    fn asked(&self) -> usize {
        self.store.asked.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn known_key_is_looked_up_once() {
    let rig = rig(Some(key()), &Settings::default());
    for _ in 0..3 {
        assert_eq!(rig.ask(SECRET).await.unwrap().key.id, key().id);
    }
    assert_eq!(rig.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn wrong_key_is_looked_up_once_and_a_malformed_one_never() {
    let rig = rig(None, &Settings::default());
    for _ in 0..3 {
        assert_eq!(rig.id(SECRET).await, "E2");
    }
    assert_eq!(rig.asked(), 1);
    for malformed in ["", "short", "sk-tg-with-a-wrong-checksum-0123456789012345678901234567890", "umlaut-schlüssel-0123456789"] {
        assert_eq!(rig.id(malformed).await, "E2");
    }
    assert_eq!(rig.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn missing_key_needs_no_look_up() {
    let rig = rig(Some(key()), &Settings::default());
    let refused = rig.authenticator.caller_of(&Catalog::default(), &head("/v1/models"), rig.clock.now()).await.unwrap_err();
    assert_eq!(refused.refusal, Refusal::KeyMissing);
    assert!(refused.key.is_none());
    assert_eq!(rig.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn refusal_of_a_known_key_names_the_key() {
    type Edit = fn(&mut Key);
    let cases: [(&str, Edit); 8] = [
        ("E3", |key| key.expires_at = Some(Timestamp(1_794_999_999_000_000))),
        ("in", |key| key.expires_at = Some(Timestamp(1_900_000_000_000_000))),
        ("E4", |key| key.status = KeyStatus::Disabled),
        ("E4", |key| key.status = KeyStatus::Revoked),
        ("E5", |key| key.ip_allow = vec!["198.51.100.0/24".parse().unwrap()]),
        ("in", |key| key.ip_allow = vec!["203.0.113.0/24".parse().unwrap()]),
        ("E6", |key| key.member.status = MemberStatus::Suspended),
        ("E3", |key| {
            key.expires_at = Some(Timestamp(0));
            key.status = KeyStatus::Disabled;
        }),
    ];
    for (expected, edit) in cases {
        let mut row = key();
        edit(&mut row);
        let rig = rig(Some(row), &Settings::default());
        assert_eq!(rig.id(SECRET).await, expected);
        if expected != "in" {
            assert_eq!(rig.ask(SECRET).await.unwrap_err().key.map(|known| known.key.id), Some(key().id), "{expected}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unavailable_store_is_never_a_401() {
    let rig = rig(Some(key()), &Settings::default());
    rig.store.unreachable.store(true, Ordering::SeqCst);
    assert_eq!(rig.id(SECRET).await, "E68");
    rig.store.unreachable.store(false, Ordering::SeqCst);
    assert_eq!(rig.id(SECRET).await, "in");
    rig.store.unreachable.store(true, Ordering::SeqCst);
    assert_eq!(rig.id(SECRET).await, "in", "a cached key needs no store");
}

#[tokio::test(start_paused = true)]
async fn hanging_store_times_out() {
    let rig = rig(Some(key()), &Settings::default());
    rig.store.slow.store(true, Ordering::SeqCst);
    let before = rig.clock.instant();
    assert_eq!(rig.id(SECRET).await, "E68");
    assert_eq!(rig.clock.instant() - before, LOOKUP_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn evicted_key_is_looked_up_again() {
    let rig = rig(Some(key()), &Settings::default());
    assert_eq!(rig.id(SECRET).await, "in");
    let set = |status| rig.store.rows.lock().unwrap().values_mut().for_each(|row| row.status = status);
    set(KeyStatus::Revoked);
    assert_eq!(rig.id(SECRET).await, "in", "the cache was not invalidated yet");
    rig.authenticator.drop_key(key().id);
    assert_eq!(rig.id(SECRET).await, "E4");
    set(KeyStatus::Active);
    rig.authenticator.clear();
    assert_eq!(rig.id(SECRET).await, "in");
}

#[tokio::test(start_paused = true)]
async fn created_key_works_at_once_after_a_negative_look_up() {
    let rig = rig(None, &Settings::default());
    assert_eq!(rig.id(SECRET).await, "E2");
    rig.store.rows.lock().unwrap().insert(KeyHasher::new(&[7; 32]).hash(SECRET).0, key());
    rig.authenticator.clear_negatives();
    assert_eq!(rig.id(SECRET).await, "in");
}

#[tokio::test(start_paused = true)]
async fn look_up_from_before_a_change_is_not_cached() {
    let cache = KeyCache::new(10, Duration::from_secs(10));
    let fingerprint = KeyFingerprints::new(&KeyHasher::new(&[7; 32])).of(SECRET);
    let before = cache.generation();
    cache.evict(key().id);
    cache.insert(fingerprint, Some(Arc::new(key())), before);
    assert!(cache.get(fingerprint).is_none());
    cache.insert(fingerprint, Some(Arc::new(key())), cache.generation());
    assert!(matches!(cache.get(fingerprint), Some(CachedLookup::Key(_))));
}

#[tokio::test(start_paused = true)]
async fn too_many_wrong_keys_block_only_wrong_keys() {
    let settings = Settings { wrong_keys_per_minute: 3, ..Settings::default() };
    let rig = rig(Some(key()), &settings);
    for _ in 0..3 {
        assert_eq!(rig.id("another-key-that-is-not-known").await, "E2");
    }
    assert_eq!(rig.id("another-key-that-is-not-known").await, "E31");
    assert_eq!(rig.id("nope").await, "E31");
    assert_eq!(rig.id(SECRET).await, "in", "a valid key is accepted even when it is not cached yet");
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(rig.id("another-key-that-is-not-known").await, "E2");
}

#[tokio::test(start_paused = true)]
async fn key_of_the_last_request_is_cached_per_connection() {
    let rig = rig(Some(key()), &Settings::default());
    let (one, other) = (Arc::default(), Arc::default());
    assert_eq!(rig.id_on(Some(&one), SECRET).await, "in");
    // Without the cache, the key is kept on that connection alone.
    rig.authenticator.cache.forget_entries();
    rig.store.unreachable.store(true, Ordering::SeqCst);
    assert_eq!(rig.id_on(Some(&one), SECRET).await, "in");
    assert_eq!(rig.asked(), 1);
    assert_eq!(rig.id_on(Some(&other), SECRET).await, "E68");
    for another in ["tg-a-key-of-the-tests-0123456780", "tg-a-key-of-the-tests-01234567890", "", "x"] {
        assert_ne!(rig.id_on(Some(&one), another).await, "in", "{another}");
    }
    assert_eq!(rig.id_on(Some(&one), SECRET).await, "in", "a wrong key does not replace it");
}

#[tokio::test(start_paused = true)]
async fn key_changes_apply_at_once_on_a_connection_that_used_it() {
    let rig = rig(Some(Key { expires_at: Some(Timestamp(1_795_000_060_000_000)), ..key() }), &Settings::default());
    let connection = Arc::default();
    let ask = || rig.id_on(Some(&connection), SECRET);
    assert_eq!(ask().await, "in");
    rig.edit(|key| key.status = KeyStatus::Disabled);
    assert_eq!(ask().await, "in", "the change is not announced yet");
    rig.authenticator.drop_key(key().id);
    assert_eq!(ask().await, "E4");
    rig.edit(|key| key.status = KeyStatus::Active);
    rig.authenticator.clear();
    assert_eq!(ask().await, "in");
    rig.edit(|key| key.member.status = MemberStatus::Suspended);
    rig.authenticator.clear();
    assert_eq!(ask().await, "E6");
    rig.edit(|key| key.member.status = MemberStatus::Active);
    rig.authenticator.clear();
    assert_eq!(ask().await, "in");
    tokio::time::advance(Duration::from_mins(2)).await;
    assert_eq!(ask().await, "E3", "its time is over");
}

#[tokio::test(start_paused = true)]
async fn revoked_key_is_refused_at_once_on_a_connection_that_had_it() {
    let rig = rig(Some(key()), &Settings::default());
    let connection = Arc::default();
    assert_eq!(rig.id_on(Some(&connection), SECRET).await, "in");
    assert_eq!(rig.authenticator.revoke([key().id]), [key().id]);
    assert_eq!(rig.id_on(Some(&connection), SECRET).await, "E4");
}

#[tokio::test(start_paused = true)]
async fn reported_block_holds_until_it_is_lifted_or_reread_from_the_database() {
    let member = Subject::Member(key().member.id);
    for (subject, refused) in [(Subject::Key(key().id), "E4"), (member, "E6")] {
        let rig = rig(Some(key()), &Settings::default());
        let connection = Arc::default();
        let asked = async || rig.id_on(Some(&connection), SECRET).await;
        let blocked_at = |revision| rig.authenticator.block(subject, Revision(revision));
        assert_eq!(asked().await, "in");
        assert!(blocked_at(7) && !blocked_at(7));
        assert_eq!(asked().await, refused);
        assert!(!rig.authenticator.allow(subject, Revision(6)), "a report of an older revision");
        rig.authenticator.has_read(Revision(6));
        rig.authenticator.forget_blocks_after(Revision(7));
        assert_eq!(asked().await, refused);
        assert!(rig.authenticator.allow(subject, Revision(8)));
        assert_eq!(asked().await, "in");
        blocked_at(9);
        rig.authenticator.has_read(Revision(9));
        assert_eq!(asked().await, "in", "the database has the key's state");
        blocked_at(10);
        rig.authenticator.forget_blocks_after(Revision(9));
        assert_eq!(asked().await, "in", "the database that had revision 10 was replaced");
    }
}

#[tokio::test(start_paused = true)]
async fn evicting_a_key_invalidates_reads_in_progress() {
    let cache = KeyCache::new(10, Duration::from_secs(10));
    let before = cache.generation();
    cache.evict(key().id);
    // A reader that started between the two steps found the old entry, and has a generation that is over.
    assert_eq!(cache.generation(), before + 2);
}
