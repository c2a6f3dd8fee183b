//! The dictionary of the usage log: texts that many rows share are stored once, in `names`, and rows have their number. A key with
//! another name than before is another text with the same id.

use std::collections::{BTreeSet, HashMap};

use tollgate_core::{AccountId, ChannelId, GroupId, IdHash, KeyId, MemberId};
use uuid::Uuid;

/// Texts kept in memory. Beyond it the memory is emptied.
const MAX_KNOWN: usize = 65_536;
/// Routing traces in the dictionary; others stay with their records. Accounts in random order have many.
pub(super) const MAX_TRACES: usize = 2_048;
/// Longest routing trace in the dictionary, in bytes.
pub(super) const MAX_TRACE_BYTES: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum NameKind {
    Key = 1,
    Member = 2,
    Group = 3,
    Channel = 4,
    Account = 5,
    Model = 6,
    UpstreamModel = 7,
    /// An error id or an exclusion code.
    Code = 8,
    Trace = 9,
}

impl NameKind {
    pub(super) const fn code(self) -> i64 {
        self as i64
    }
}

/// A text of the dictionary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameText {
    pub(super) kind: NameKind,
    /// The id of the row, if its kind has one.
    pub(super) id: Option<Uuid>,
    pub(super) name: String,
}

impl NameText {
    /// The id as stored.
    pub(super) fn stored_id(&self) -> String {
        let Some(id) = self.id else { return String::new() };
        match self.kind {
            NameKind::Key => KeyId::from_uuid(id).to_string(),
            NameKind::Member => MemberId::from_uuid(id).to_string(),
            NameKind::Group => GroupId::from_uuid(id).to_string(),
            NameKind::Channel => ChannelId::from_uuid(id).to_string(),
            NameKind::Account => AccountId::from_uuid(id).to_string(),
            NameKind::Model | NameKind::UpstreamModel | NameKind::Code | NameKind::Trace => String::new(),
        }
    }
}

/// The names of one id, with their numbers.
type NamesOfId = Vec<(Box<str>, i64)>;

/// Numbers of texts.
#[derive(Debug, Default)]
pub(super) struct NameMap {
    with_id: HashMap<(u8, Uuid), NamesOfId, IdHash>,
    without_id: HashMap<NameKind, HashMap<Box<str>, i64>>,
    len: usize,
}

impl NameMap {
    pub(super) fn get(&self, kind: NameKind, id: Option<Uuid>, name: &str) -> Option<i64> {
        match id {
            Some(id) => self.with_id.get(&(kind as u8, id))?.iter().find(|(known, _)| &**known == name).map(|(_, number)| *number),
            None => self.without_id.get(&kind)?.get(name).copied(),
        }
    }

    pub(super) fn insert(&mut self, text: NameText, number: i64) {
        let name = text.name.into_boxed_str();
        match text.id {
            Some(id) => self.with_id.entry((text.kind as u8, id)).or_default().push((name, number)),
            None => drop(self.without_id.entry(text.kind).or_default().insert(name, number)),
        }
        self.len += 1;
    }

    pub(super) fn traces(&self) -> usize {
        self.without_id.get(&NameKind::Trace).map_or(0, HashMap::len)
    }

    /// Empties a map that has become too large.
    pub(super) fn bounded(self) -> Self {
        if self.len > MAX_KNOWN { Self::default() } else { self }
    }
}

/// Looks texts up and notes those that are not known.
#[derive(Debug)]
pub(super) struct NameLookup<'a> {
    pub(super) known: &'a NameMap,
    pub(super) missing: BTreeSet<NameText>,
}

impl<'a> NameLookup<'a> {
    pub(super) const fn new(known: &'a NameMap) -> Self {
        Self { known, missing: BTreeSet::new() }
    }

    /// The number of a text; 0 if it is not known yet.
    pub(super) fn number(&mut self, kind: NameKind, id: Option<Uuid>, name: &str) -> i64 {
        if name.contains('\0') {
            return self.number(kind, id, &name.replace('\0', "\u{fffd}"));
        }
        if let Some(number) = self.known.get(kind, id, name) {
            return number;
        }
        self.missing.insert(NameText { kind, id, name: name.to_owned() });
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_apart_by_kind_id_and_name() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut map = NameMap::default();
        let text = |kind, id, name: &str| NameText { kind, id, name: name.to_owned() };
        map.insert(text(NameKind::Key, Some(one), "ci"), 1);
        map.insert(text(NameKind::Key, Some(one), "renamed"), 2);
        map.insert(text(NameKind::Model, None, "fast"), 3);
        map.insert(text(NameKind::UpstreamModel, None, "fast"), 4);
        assert_eq!(map.get(NameKind::Key, Some(one), "renamed"), Some(2));
        assert_eq!(map.get(NameKind::Key, Some(other), "ci"), None);
        assert_eq!(map.get(NameKind::UpstreamModel, None, "fast"), Some(4));
        let mut lookup = NameLookup::new(&map);
        assert_eq!([lookup.number(NameKind::Model, None, "fast"), lookup.number(NameKind::Model, None, "slow\0")], [3, 0]);
        assert_eq!(lookup.missing.into_iter().collect::<Vec<_>>(), [text(NameKind::Model, None, "slow\u{fffd}")]);
    }
}
