//! Contents of requests: the bodies and answers that groups and keys ask to be stored.
//!
//! Contents are for people to read and not part of the accounting: they are stored some time after their usage record, in
//! their own table and for a shorter time, and contents not yet stored when a gateway is killed are lost.

use std::{fmt, io::Read as _};

use async_trait::async_trait;
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use minicbor::{Decode, Encode};
use tollgate_core::{Excerpt, RequestContents, RequestId, Timestamp};

use crate::{StoreError, seal::SealContext};

/// Stores contents of requests, compressed and sealed with the data key.
#[async_trait]
pub trait ContentStore: Send + Sync + fmt::Debug {
    /// Stores contents. Contents that are already stored for a request are kept.
    async fn store_contents(&self, contents: Vec<RequestContents>) -> Result<(), StoreError>;

    /// The contents of a request, if they are stored.
    async fn contents(&self, request: RequestId) -> Result<Option<RequestContents>, StoreError>;

    /// Whether the contents of a request are stored.
    async fn has_contents(&self, request: RequestId) -> Result<bool, StoreError>;

    /// Removes the contents of a request. Returns whether there were any.
    async fn remove_contents(&self, request: RequestId) -> Result<bool, StoreError>;

    /// Number and bytes of the stored contents.
    async fn stored_contents(&self) -> Result<StoredContents, StoreError>;

    /// Removes the contents of requests that arrived before a time. Once there are none, removes the oldest contents of the keys
    /// with more than their share until at most `max_bytes` are left. Removes at most 1,000 in one transaction and returns how many
    /// it removed in all; repeat until it returns 0.
    async fn prune_contents(&self, before: Timestamp, max_bytes: u64) -> Result<u64, StoreError>;
}

/// How much is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredContents {
    pub requests: u64,
    /// Bytes as they are stored: compressed and sealed.
    pub bytes: u64,
}

/// Contents removed in one transaction.
pub(crate) const PRUNED_AT_ONCE: usize = 1_000;

/// Longest text that is decompressed, so that a damaged row cannot fill the memory.
const MAX_OPENED: u64 = 1 << 28;

/// The texts, which are sealed together.
#[derive(Encode, Decode)]
struct Texts {
    #[n(0)]
    request: Excerpt,
    #[n(1)]
    answer: Excerpt,
}

pub(crate) const fn context(row: &str) -> SealContext<'_> {
    SealContext { table: "request_contents", column: "sealed", row }
}

/// Both texts, compressed.
pub(crate) fn pack(contents: &RequestContents) -> Vec<u8> {
    let texts = Texts { request: contents.request.clone(), answer: contents.answer.clone() };
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    minicbor::encode(&texts, minicbor::encode::write::Writer::new(&mut encoder)).expect("a vector takes all bytes");
    encoder.finish().expect("a vector takes all bytes")
}

/// Request and answer from the output of [`pack`]; `None` if it is damaged.
pub(crate) fn unpack(packed: &[u8]) -> Option<(Excerpt, Excerpt)> {
    let mut bytes = Vec::new();
    DeflateDecoder::new(packed).take(MAX_OPENED).read_to_end(&mut bytes).ok()?;
    let Texts { request, answer } = minicbor::decode(&bytes).ok()?;
    Some((request, answer))
}

#[cfg(test)]
mod tests {
    use tollgate_core::{KeyId, MemberId};

    use super::*;

    #[test]
    fn packed_contents_are_small_and_round_trip() {
        let excerpt = |text: &str| Excerpt { text: text.repeat(1_000), bytes: 7, is_cut: true };
        let contents = RequestContents {
            id: RequestId::from_parts(Timestamp(0), [1; 10]),
            at: Timestamp(0),
            key: KeyId::from_uuid(uuid::Uuid::nil()),
            member: MemberId::from_uuid(uuid::Uuid::nil()),
            request: excerpt("{\"model\":\"m\"}"),
            answer: excerpt("data: {}\n\n"),
        };
        let packed = pack(&contents);
        assert!(packed.len() < 500, "{}", packed.len());
        assert_eq!(unpack(&packed), Some((contents.request, contents.answer)));
        assert_eq!(unpack(&packed[..packed.len() / 2]), None);
        assert_eq!(unpack(b"no deflate"), None);
    }
}
