//! The contract of [`crate::ContentStore`].

use tollgate_core::{Excerpt, KeyId, MemberId, RequestContents, RequestId};
use uuid::Uuid;

use crate::{Store, samples::MIDNIGHT};

/// The contents of the request of a key that arrived `minute` minutes after midnight. The body cannot be compressed.
fn contents(key: u8, minute: u8) -> RequestContents {
    let at = MIDNIGHT.plus_ms(i64::from(minute) * 60_000);
    let id = RequestId::from_parts(at, [key; 10]);
    let mut state = u64::from(key) * 256 + u64::from(minute);
    let number = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{state:x}")
    };
    let noise: String = (0..80).map(number).collect();
    RequestContents {
        id,
        at,
        key: KeyId::from_uuid(Uuid::from_bytes([key; 16])),
        member: MemberId::from_uuid(Uuid::from_bytes([9; 16])),
        request: Excerpt { bytes: noise.len() as u64, text: noise, is_cut: false },
        answer: Excerpt { text: "data: {\"grüße\":\"你好\"}\n\n".to_owned(), bytes: 5_000, is_cut: true },
    }
}

pub(super) async fn contents_are_stored_once_and_removed(store: &Store) {
    let (one, two) = (contents(1, 0), contents(1, 1));
    store.contents.store_contents(Vec::new()).await.unwrap();
    store.contents.store_contents(vec![one.clone(), two.clone()]).await.unwrap();
    let other = RequestContents { answer: Excerpt::default(), ..one.clone() };
    store.contents.store_contents(vec![other]).await.unwrap();
    assert_eq!(store.contents.contents(one.id).await.unwrap(), Some(one.clone()));
    assert_eq!(store.contents.contents(contents(2, 0).id).await.unwrap(), None);
    assert!(store.contents.has_contents(one.id).await.unwrap() && !store.contents.has_contents(contents(2, 0).id).await.unwrap());
    let stored = store.contents.stored_contents().await.unwrap();
    assert!(stored.requests == 2 && stored.bytes > 1_000, "{stored:?}");
    assert!(store.contents.remove_contents(one.id).await.unwrap());
    assert!(!store.contents.remove_contents(one.id).await.unwrap());
    assert_eq!(store.contents.contents(one.id).await.unwrap(), None);
    assert_eq!(store.contents.contents(two.id).await.unwrap(), Some(two));
}

/// The minutes of the remaining contents of each key.
async fn left(store: &Store) -> Vec<(u8, u8)> {
    let mut left = Vec::new();
    for (key, minute) in (1..=3).flat_map(|key| (0..60).map(move |minute| (key, minute))) {
        if store.contents.contents(contents(key, minute).id).await.unwrap().is_some() {
            left.push((key, minute));
        }
    }
    left
}

async fn prune(store: &Store, minute: u8, max_bytes: u64) -> u64 {
    let mut all = 0;
    loop {
        match store.contents.prune_contents(contents(1, minute).at, max_bytes).await.unwrap() {
            0 => return all,
            removed => all += removed,
        }
    }
}

pub(super) async fn contents_of_the_key_that_stores_the_most_are_removed_first(store: &Store) {
    let many: Vec<RequestContents> = (0..60).map(|minute| contents(1, minute)).collect();
    store.contents.store_contents(many).await.unwrap();
    let bytes = store.contents.stored_contents().await.unwrap().bytes;
    store.contents.store_contents(vec![contents(2, 5), contents(3, 50)]).await.unwrap();
    assert_eq!(prune(store, 0, u64::MAX).await, 0);
    // The age limit applies to every key.
    assert_eq!(prune(store, 6, u64::MAX).await, 7);
    assert_eq!(left(store).await.first(), Some(&(1, 6)));
    // Contents of the key that stores the most are removed first; those of other keys are kept, regardless of their
    // age.
    store.contents.store_contents(vec![contents(2, 7)]).await.unwrap();
    let removed = prune(store, 0, bytes / 2).await;
    let after = left(store).await;
    assert!(removed > 20, "{removed}");
    assert!(after.contains(&(2, 7)) && after.contains(&(3, 50)) && after.contains(&(1, 59)), "{after:?}");
    assert!(store.contents.stored_contents().await.unwrap().bytes <= bytes / 2);
    assert!(prune(store, 0, 0).await > 0);
    assert_eq!(store.contents.stored_contents().await.unwrap(), crate::StoredContents::default());
}
