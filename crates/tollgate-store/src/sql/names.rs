//! The dictionary of the usage log: texts that many rows share are stored once, in `names`, and rows have their number. A renamed
//! key is another text with the same id.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use tollgate_core::{AccountId, ChannelId, GroupId, IdHash, KeyId, MemberId, TraceEntry};
use uuid::Uuid;

/// Maximum number of texts kept in memory. Beyond it, all are dropped.
const MAX_KNOWN: usize = 65_536;
/// Maximum number of routing traces in the dictionary; further ones are stored with their records. Randomly ordered
/// accounts give many different traces.
const MAX_TRACES: usize = 2_048;
/// Longest routing trace in the dictionary, in bytes.
const MAX_TRACE_BYTES: usize = 300;

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
    TagName = 10,
    /// A value of a tag that has separate sums.
    TagValue = 11,
}

/// Length of tables indexed by the code of a kind: one more than the largest.
const KINDS: usize = 12;

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
            NameKind::Model
            | NameKind::UpstreamModel
            | NameKind::Code
            | NameKind::Trace
            | NameKind::TagName
            | NameKind::TagValue => String::new(),
        }
    }
}

/// The id that [`NameText::stored_id`] wrote; `None` for a kind without one.
pub(super) fn parse_id(kind: i64, text: &str) -> Option<Uuid> {
    let is = |other: NameKind| kind == other.code();
    match text.get(..4)? {
        KeyId::PREFIX if is(NameKind::Key) => KeyId::parse(text).map(KeyId::uuid),
        MemberId::PREFIX if is(NameKind::Member) => MemberId::parse(text).map(MemberId::uuid),
        GroupId::PREFIX if is(NameKind::Group) => GroupId::parse(text).map(GroupId::uuid),
        ChannelId::PREFIX if is(NameKind::Channel) => ChannelId::parse(text).map(ChannelId::uuid),
        AccountId::PREFIX if is(NameKind::Account) => AccountId::parse(text).map(AccountId::uuid),
        _ => None,
    }
}

/// The names of one id, with their numbers.
type NamesOfId = Vec<(Box<str>, i64)>;

/// Numbers of texts.
#[derive(Debug, Default)]
pub(super) struct NameMap {
    with_id: HashMap<(u8, Uuid), NamesOfId, IdHash>,
    /// By kind.
    without_id: [HashMap<Box<str>, i64, RandomState>; KINDS],
    len: usize,
}

impl NameMap {
    pub(super) fn get(&self, kind: NameKind, id: Option<Uuid>, name: &str) -> Option<i64> {
        match id {
            Some(id) => self.with_id.get(&(kind as u8, id))?.iter().find(|(known, _)| &**known == name).map(|(_, number)| *number),
            None => self.without_id[kind as usize].get(name).copied(),
        }
    }

    pub(super) fn insert(&mut self, text: NameText, number: i64) {
        let name = text.name.into_boxed_str();
        match text.id {
            Some(id) => self.with_id.entry((text.kind as u8, id)).or_default().push((name, number)),
            None => drop(self.without_id[text.kind as usize].insert(name, number)),
        }
        self.len += 1;
    }

    pub(super) fn traces(&self) -> usize {
        self.without_id[NameKind::Trace as usize].len()
    }

    /// Empties a map that has become too large.
    pub(super) fn bounded(self) -> Self {
        if self.len > MAX_KNOWN { Self::default() } else { self }
    }
}

/// Looks texts up and collects unknown ones.
#[derive(Debug)]
pub(super) struct NameLookup<'a> {
    pub(super) known: &'a NameMap,
    pub(super) missing: BTreeSet<NameText>,
    /// The text of each kind that was looked up last, and its number: most consecutive records have the same.
    last: [Option<LastName<'a>>; KINDS],
    /// The numbers of traces, so that a trace is written as JSON once, and the last one.
    traces: HashMap<&'a [TraceEntry], Option<i64>, RandomState>,
    last_trace: Option<(&'a [TraceEntry], Option<i64>)>,
}

#[derive(Clone, Copy, Debug)]
struct LastName<'a> {
    id: Option<Uuid>,
    name: &'a str,
    number: i64,
}

impl<'a> NameLookup<'a> {
    pub(super) fn new(known: &'a NameMap) -> Self {
        Self { known, missing: BTreeSet::new(), last: [None; KINDS], traces: HashMap::default(), last_trace: None }
    }

    /// The number of a text; 0 if it is not known yet.
    pub(super) fn number(&mut self, kind: NameKind, id: Option<Uuid>, name: &'a str) -> i64 {
        if let Some(last) = self.last[kind as usize]
            && last.id == id
            && last.name == name
        {
            return last.number;
        }
        let number =
            if name.contains('\0') { self.find(kind, id, &name.replace('\0', "\u{fffd}")) } else { self.find(kind, id, name) };
        self.last[kind as usize] = Some(LastName { id, name, number });
        number
    }

    /// The number of a trace; `None` if it does not belong in the dictionary.
    pub(super) fn trace(&mut self, trace: &'a [TraceEntry]) -> Option<i64> {
        if let Some((last, number)) = self.last_trace
            && last == trace
        {
            return number;
        }
        let number = self.traces.get(trace).copied().unwrap_or_else(|| self.find_trace(trace));
        self.traces.insert(trace, number);
        self.last_trace = Some((trace, number));
        number
    }

    fn find_trace(&mut self, trace: &[TraceEntry]) -> Option<i64> {
        if trace.is_empty() || trace.iter().any(|entry| entry.detail.is_some()) {
            return None;
        }
        let text = serde_json::to_string(trace).expect("texts serialise to JSON");
        if let Some(number) = self.known.get(NameKind::Trace, None, &text) {
            return Some(number);
        }
        let missing = self.missing.iter().filter(|text| text.kind == NameKind::Trace).count();
        let is_full = self.known.traces() + missing >= MAX_TRACES;
        (text.len() <= MAX_TRACE_BYTES && !is_full).then(|| self.find(NameKind::Trace, None, &text))
    }

    fn find(&mut self, kind: NameKind, id: Option<Uuid>, name: &str) -> i64 {
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
    fn names_are_distinguished_by_kind_id_and_text() {
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

    #[test]
    fn stored_ids_round_trip() {
        use NameKind::{Account, Channel, Code, Group, Key, Member, Model, Trace, UpstreamModel};
        for kind in [Key, Member, Group, Channel, Account] {
            let text = NameText { kind, id: Some(Uuid::from_u128(7)), name: String::new() };
            assert_eq!(parse_id(kind.code(), &text.stored_id()), text.id);
            assert_eq!(parse_id(kind.code() % 5 + 1, &text.stored_id()), None, "{kind:?}");
        }
        for kind in [Model, UpstreamModel, Code, Trace] {
            assert_eq!(parse_id(kind.code(), &NameText { kind, id: None, name: "fast".to_owned() }.stored_id()), None);
        }
    }
}
