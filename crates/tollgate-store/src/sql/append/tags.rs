//! The tags of a batch: which names and values have separate sums. In each month these are the first hundred names and the first thousand
//! values of a name. Each member has a share of them, so that a caller that sends a new value with each request neither fills the sums
//! nor uses up the places of others. `tag_values` has the names and values of each month, in the order in which they were
//! first sent.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::RandomState;
use tollgate_core::{UsageRecord, is_within_share};

use super::{AppendTransaction, Bind, tables};
use crate::{
    StoreError,
    rollup::{MONTH, minute},
    sql::{
        names::{NameKind, NameMap, NameText},
        tags::TagRef,
        usage_rows::RecordRefs,
    },
};

/// Names that have sums in a month, and values of each.
pub(in crate::sql) const MAX_NAMES: usize = 100;
pub(in crate::sql) const MAX_VALUES: usize = 1_000;
/// Months kept in memory.
const MAX_MONTHS: usize = 3;

/// The names and values of one month after a position: numbers of name, value and member, then the texts.
const LOAD: &str = "SELECT CAST(t.tag AS TEXT) || ',' || CAST(t.value AS TEXT) || ',' || CAST(t.member AS TEXT) || ',' || n.name || '=' \
     || COALESCE(v.name, ''), CAST(t.place AS BIGINT) FROM tag_values t JOIN names n ON n.ref = t.tag LEFT JOIN names v ON v.ref = t.value \
     WHERE t.month = $1 AND t.place > $2 ORDER BY t.place";

/// Names and values with sums, by the minute in which their month begins.
#[derive(Debug, Default)]
pub(in crate::sql) struct SummedTags(BTreeMap<i64, MonthTags>);

#[derive(Debug, Default)]
struct MonthTags {
    /// The last row of `tag_values` that is known.
    place: i64,
    names: HashMap<Box<str>, SummedName, RandomState>,
    held: HeldByMember,
}

#[derive(Debug, Default)]
struct SummedName {
    tag: i64,
    values: HashMap<Box<str>, i64, RandomState>,
    held: HeldByMember,
}

/// Names or values first sent by each member.
#[derive(Debug, Default)]
struct HeldByMember(HashMap<i64, usize, RandomState>);

impl HeldByMember {
    /// Counts one more for a member if there is space for it. `used` of `total` are in use.
    fn claim(&mut self, member: i64, used: usize, total: usize) -> bool {
        let held = self.0.entry(member).or_default();
        let fits = used < total && (*held == 0 || is_within_share(total, used + 1, *held + 1));
        *held += usize::from(fits);
        fits
    }

    fn add(&mut self, member: i64) {
        *self.0.entry(member).or_default() += 1;
    }
}

/// A name, or a value of a name, that gets sums with this batch.
#[derive(Clone, Debug)]
struct NewTag {
    month: i64,
    name: String,
    value: Option<String>,
    member: i64,
}

impl SummedTags {
    /// Forgets the oldest months if there are many.
    pub(super) fn bounded(mut self) -> Self {
        while self.0.len() > MAX_MONTHS {
            self.0.pop_first();
        }
        self
    }
}

impl MonthTags {
    /// Adds a row of `tag_values`.
    fn add(&mut self, text: &str, place: i64) -> Option<()> {
        let mut parts = text.splitn(4, ',');
        let mut number = || parts.next()?.parse::<i64>().ok();
        let (tag, value, member) = (number()?, number()?, number()?);
        let (name, value_text) = parts.next()?.split_once('=')?;
        self.place = place;
        let summed = self.names.entry(name.into()).or_default();
        summed.tag = tag;
        if value == 0 {
            self.held.add(member);
        } else {
            summed.values.insert(value_text.into(), value);
            summed.held.add(member);
        }
        Some(())
    }

    /// Assigns sums to a name or value that has none, if space and the member's share permit, and calls `new` for it: with `None`
    /// for the name. Its numbers are 0 until they are known.
    fn claim(&mut self, name: &str, value: &str, member: i64, mut new: impl FnMut(Option<&str>)) {
        if !self.names.contains_key(name) {
            if !self.held.claim(member, self.names.len(), MAX_NAMES) {
                return;
            }
            self.names.insert(name.into(), SummedName::default());
            new(None);
        }
        let Some(summed) = self.names.get_mut(name) else { return };
        if !summed.values.contains_key(value) && summed.held.claim(member, summed.values.len(), MAX_VALUES) {
            summed.values.insert(value.into(), 0);
            new(Some(value));
        }
    }

    fn counted(&self, name: &str, value: &str) -> TagRef {
        match self.names.get(name) {
            None => TagRef::Unsummed,
            Some(SummedName { tag, values, .. }) => {
                values.get(value).map_or(TagRef::Other { tag: *tag }, |value| TagRef::Own { tag: *tag, value: *value })
            }
        }
    }
}

impl AppendTransaction {
    /// Chooses the sums for the tags of new records, and assigns sums to new names and values.
    pub(super) async fn count_tags(
        &mut self,
        records: &mut [(&UsageRecord, RecordRefs)],
        names: &mut NameMap,
        summed: &mut SummedTags,
    ) -> Result<(), StoreError> {
        let month = |record: &UsageRecord| minute(record.at, MONTH);
        let tagged = || records.iter().filter(|(record, _)| !record.tags.is_empty());
        let months: BTreeSet<i64> = tagged().map(|(record, _)| month(record)).collect();
        for month in &months {
            self.load_tags(*month, summed.0.entry(*month).or_default()).await?;
        }
        let mut new = Vec::new();
        for (record, refs) in tagged() {
            let (month, member) = (month(record), refs.member);
            let Some(tags) = summed.0.get_mut(&month) else { continue };
            for (name, value) in record.tags.iter() {
                tags.claim(name, value, member, |value| {
                    new.push(NewTag { month, name: name.to_owned(), value: value.map(str::to_owned), member });
                });
            }
        }
        self.add_tags(new, names, summed).await?;
        for (record, refs) in records.iter_mut().filter(|(record, _)| !record.tags.is_empty()) {
            if let Some(tags) = summed.0.get(&month(record)) {
                refs.tags = record.tags.iter().map(|(name, value)| tags.counted(name, value)).collect();
            }
        }
        Ok(())
    }

    /// Reads the rows that other nodes have added to a month.
    async fn load_tags(&mut self, month: i64, tags: &mut MonthTags) -> Result<(), StoreError> {
        for (text, place) in self.rows(LOAD, vec![Bind::Number(month), Bind::Number(tags.place)]).await? {
            // A row of another form is skipped, and its value counts among the others.
            let _ = tags.add(&text, place);
        }
        Ok(())
    }

    /// Writes new names and values, and stores their numbers.
    async fn add_tags(&mut self, new: Vec<NewTag>, names: &mut NameMap, summed: &mut SummedTags) -> Result<(), StoreError> {
        if new.is_empty() {
            return Ok(());
        }
        let text = |kind: NameKind, name: &str| NameText { kind, id: None, name: name.to_owned() };
        let texts = new.iter().flat_map(|tag| {
            [Some(text(NameKind::TagName, &tag.name)), tag.value.as_deref().map(|value| text(NameKind::TagValue, value))]
        });
        let known = |text: &NameText| names.get(text.kind, None, &text.name).is_some();
        let missing: BTreeSet<NameText> = texts.flatten().filter(|text| !known(text)).collect();
        self.add_names(missing.into_iter().collect(), names).await?;
        let mut rows = Vec::new();
        for NewTag { month, name, value, member } in new {
            let Some(tags) = summed.0.get_mut(&month) else { continue };
            let tag = names.get(NameKind::TagName, None, &name).unwrap_or(0);
            let number = value.as_deref().map(|value| names.get(NameKind::TagValue, None, value).unwrap_or(0));
            tags.place += 1;
            rows.push([month, tags.place, tag, number.unwrap_or(0), member]);
            let Some(known) = tags.names.get_mut(&*name) else { continue };
            known.tag = tag;
            if let Some((value, number)) = value.zip(number) {
                known.values.insert(value.into(), number);
            }
        }
        self.add(&tables::TAG_VALUES, tables::tag_values(&rows)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tags of a month after requests of these members, each with a different value.
    fn after(members: impl Iterator<Item = i64>) -> MonthTags {
        let mut tags = MonthTags::default();
        for (number, member) in members.enumerate() {
            tags.claim("project", &format!("p{number}"), member, |_| {});
        }
        tags
    }

    #[test]
    fn member_with_many_tag_values_cannot_take_all_sums() {
        let mut tags = after(std::iter::repeat_n(1, 5_000));
        assert_eq!(tags.names["project"].values.len(), MAX_VALUES * 3 / 4);
        assert_eq!(tags.counted("project", "p0"), TagRef::Own { tag: 0, value: 0 });
        assert_eq!(tags.counted("project", "p4999"), TagRef::Other { tag: 0 });
        for member in 2..300 {
            tags.claim("project", &format!("of {member}"), member, |_| {});
        }
        assert_eq!(tags.names["project"].values.len(), MAX_VALUES, "those of others have sums until all are taken");
        assert_eq!(tags.counted("team", "a"), TagRef::Unsummed);
        for name in 0..200 {
            tags.claim(&format!("n{name}"), "a", 1, |_| {});
        }
        assert!(tags.names.len() < MAX_NAMES);
        tags.claim("team", "a", 2, |_| {});
        assert_eq!(tags.counted("team", "a"), TagRef::Own { tag: 0, value: 0 });
    }

    #[test]
    fn stored_tag_rows_are_loaded_and_damaged_ones_skipped() {
        let mut tags = MonthTags::default();
        for (place, row) in (1..).zip(["5,0,9,project=", "5,6,9,project=a=b, c"]) {
            assert!(tags.add(row, place).is_some(), "{row}");
        }
        assert_eq!((tags.place, tags.counted("project", "a=b, c")), (2, TagRef::Own { tag: 5, value: 6 }));
        assert_eq!((tags.held.0[&9], tags.names["project"].held.0[&9]), (1, 1));
        for damaged in ["", "5,6", "x,6,9,project=a", "5,6,9,project"] {
            assert_eq!(tags.add(damaged, 3), None, "{damaged}");
        }
        assert_eq!(tags.place, 2);
    }
}
