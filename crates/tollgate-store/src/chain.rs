//! Hash chains that reveal removed, changed and added rows of the ledger and the audit log. Each transaction that writes such rows
//! adds a link: the MAC over its rows and over the link before. The head names the last link under a separate MAC, so that
//! truncation is detected too. The key is derived from the pepper, which only the master key decrypts.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::{AuditEvent, KeyHasher, Revision};

/// Chain of the ledger, by position.
pub(crate) const LEDGER: &str = "ledger";
/// Chain of the audit log, by revision.
pub(crate) const AUDIT: &str = "audit";

/// The key of the chains. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ChainKey(Hmac<Sha256>);

impl fmt::Debug for ChainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChainKey(…)")
    }
}

impl ChainKey {
    pub(crate) fn of(hasher: &KeyHasher) -> Self {
        // No key has this text, because keys contain no blanks.
        let key = hasher.hash("chains of the ledger and the audit log");
        Self(Hmac::new_from_slice(&key.0).expect("HMAC accepts keys of any length"))
    }

    /// Begins a link over the rows at `first` to `last`; `previous` is the link before, empty for the first one.
    pub(crate) fn link(&self, chain: &str, first: i64, last: i64, previous: &str) -> RowMac {
        let mut mac = RowMac(self.0.clone());
        mac.text("link").text(chain).number(first).number(last).text(previous);
        mac
    }

    /// The seal of the head: the last link is `link`, and ends at `last`.
    pub(crate) fn head(&self, chain: &str, last: i64, link: &str) -> String {
        let mut mac = RowMac(self.0.clone());
        mac.text("head").text(chain).number(last).text(link);
        mac.finish()
    }
}

/// A MAC over values, each with its type and length.
#[derive(Clone)]
pub(crate) struct RowMac(Hmac<Sha256>);

impl RowMac {
    pub(crate) fn number(&mut self, number: i64) -> &mut Self {
        self.0.update(b"n");
        self.0.update(&number.to_le_bytes());
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        // PostgreSQL does not accept NUL; a database that is moved there gets the replacement character instead.
        if text.contains('\0') {
            return self.text(&text.replace('\0', "\u{fffd}"));
        }
        self.0.update(b"t");
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
        self
    }

    pub(crate) fn maybe_text(&mut self, text: Option<&str>) -> &mut Self {
        if let Some(text) = text {
            return self.text(text);
        }
        self.0.update(b"-");
        self
    }

    /// Hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        hex::encode(self.0.finalize().into_bytes())
    }
}

/// A ledger entry as it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerLinkRow<'a> {
    pub(crate) seq: i64,
    pub(crate) member: &'a str,
    pub(crate) at: i64,
    pub(crate) kind: &'a str,
    pub(crate) amount: i64,
    pub(crate) balance: i64,
    /// Batch, number of requests, and first and last arrival; only for `settle` entries.
    pub(crate) covered: Option<[i64; 4]>,
    pub(crate) parts: Option<&'a str>,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) note: &'a str,
    pub(crate) actor: &'a str,
    pub(crate) address: Option<&'a str>,
}

impl LedgerLinkRow<'_> {
    pub(crate) fn add_to(&self, mac: &mut RowMac) {
        mac.number(self.seq).text(self.member).number(self.at).text(self.kind).number(self.amount).number(self.balance);
        for number in self.covered.into_iter().flatten() {
            mac.number(number);
        }
        mac.maybe_text(self.parts).maybe_text(self.idempotency_key).text(self.note).text(self.actor).maybe_text(self.address);
    }
}

/// Adds an event of the audit log.
pub(crate) fn add_audit(mac: &mut RowMac, revision: Revision, position: i64, event: &AuditEvent) {
    mac.number(revision.0).number(position).number(event.at.0).text(&event.origin).text(&event.actor).text(&event.action);
    mac.text(event.kind.as_str()).text(&event.id).text(&event.name).text(&event.detail).maybe_text(event.address.as_deref());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ChainKey {
        ChainKey::of(&KeyHasher::new(&[7; 32]))
    }

    #[test]
    fn adjacent_values_are_separated_in_the_mac() {
        let mac = |texts: &[&str]| {
            let mut mac = key().link(LEDGER, 1, 2, "");
            for text in texts {
                mac.text(text);
            }
            mac.finish()
        };
        assert_ne!(mac(&["ab", "c"]), mac(&["a", "bc"]));
        assert_ne!(mac(&["a", ""]), mac(&["", "a"]));
        assert_eq!(mac(&["a\0b"]), mac(&["a\u{fffd}b"]), "as PostgreSQL stores it");
        let (mut none, mut empty) = (key().link(LEDGER, 1, 2, ""), key().link(LEDGER, 1, 2, ""));
        none.maybe_text(None);
        empty.text("");
        assert_ne!(none.finish(), empty.finish());
    }

    #[test]
    fn link_depends_on_key_chain_position_and_previous_link() {
        let other = ChainKey::of(&KeyHasher::new(&[8; 32]));
        let links = [
            key().link(LEDGER, 1, 2, "x"),
            key().link(AUDIT, 1, 2, "x"),
            key().link(LEDGER, 1, 3, "x"),
            key().link(LEDGER, 1, 2, "y"),
            other.link(LEDGER, 1, 2, "x"),
        ];
        let macs: std::collections::HashSet<String> = links.into_iter().map(RowMac::finish).collect();
        assert_eq!(macs.len(), 5);
        assert_ne!(key().head(LEDGER, 1, "x"), key().head(LEDGER, 2, "x"));
    }
}
