//! Sums of many keys in one value, which is read in a tenth of the time of a row for each key. The keys of a part share a value; their
//! numbers in the dictionary differ only in the lowest bits.
//!
//! A value is a sequence of cells in the order of their columns, which begin with the key. A cell has the number of columns that equal
//! those of the cell before, the distance of the next column from that cell's, the other columns, a bit for each figure that is not 0,
//! and these figures. Numbers are in groups of seven bits, lowest first, the highest bit set on all but the last; those that can be
//! negative are doubled, and negative ones inverted.

use std::collections::BTreeMap;

use super::{Sums as _, UsageSums};
use crate::varint::{pull, push, signed, unsigned};

/// Keys of a part: `1 << PART_BITS` numbers.
const PART_BITS: u32 = 5;
/// The most columns of a cell.
pub(crate) const MAX_COLUMNS: usize = 11;

/// Separates values that are joined into one: the cell behind it is encoded like the first cell of a value. No cell begins with
/// this byte, because it is above [`MAX_COLUMNS`].
pub(crate) const VALUE_END: u8 = 0x7f;

/// The part that a key belongs to.
pub(crate) const fn part_of(key: i64) -> i64 {
    key >> PART_BITS
}

/// Parts from one to another.
pub(crate) type PartSpan = std::ops::Range<i64>;

/// The numbers of the keys of parts.
pub(crate) const fn keys_of_parts(parts: &PartSpan) -> std::ops::Range<i64> {
    parts.start << PART_BITS..parts.end << PART_BITS
}

/// Writes cells, which come in the order of their columns.
#[derive(Debug, Default)]
pub(crate) struct CellWriter {
    bytes: Vec<u8>,
    last: [i64; MAX_COLUMNS],
}

impl CellWriter {
    pub(crate) fn push(&mut self, columns: &[i64], sums: &UsageSums) {
        let equal = columns.iter().zip(&self.last).take_while(|(column, last)| column == last).count();
        push(&mut self.bytes, equal as u64);
        for (at, column) in columns.iter().enumerate().skip(equal) {
            let from = if at == equal { self.last[at] } else { 0 };
            push(&mut self.bytes, unsigned(column.wrapping_sub(from)));
        }
        self.last[..columns.len()].copy_from_slice(columns);
        let figures = || sums.0.iter().enumerate().filter(|(_, figure)| **figure != 0);
        push(&mut self.bytes, figures().fold(0, |bits, (at, _)| bits | 1 << at));
        for (_, figure) in figures() {
            push(&mut self.bytes, unsigned(*figure));
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// A value with damaged cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packed sums are damaged")]
pub(crate) struct DamagedCells;

/// Reads cells of `count` columns each.
#[derive(Debug)]
pub(crate) struct CellReader<'a> {
    bytes: std::slice::Iter<'a, u8>,
    columns: [i64; MAX_COLUMNS],
    count: usize,
}

impl<'a> CellReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], count: usize) -> Self {
        Self { bytes: bytes.iter(), columns: [0; MAX_COLUMNS], count }
    }

    /// The next cell: its columns and its sums.
    pub(crate) fn next(&mut self) -> Result<Option<(&[i64], UsageSums)>, DamagedCells> {
        if self.bytes.as_slice().is_empty() {
            return Ok(None);
        }
        let sums = self.read().ok_or(DamagedCells)?;
        Ok(Some((&self.columns[..self.count], sums)))
    }

    fn read(&mut self) -> Option<UsageSums> {
        if self.bytes.as_slice().first() == Some(&VALUE_END) {
            self.bytes.next();
            self.columns = [0; MAX_COLUMNS];
        }
        let equal = usize::try_from(pull(&mut self.bytes)?).ok().filter(|equal| *equal < self.count)?;
        self.columns[equal] = self.columns[equal].wrapping_add(signed(pull(&mut self.bytes)?));
        for column in &mut self.columns[equal + 1..self.count] {
            *column = signed(pull(&mut self.bytes)?);
        }
        let mut bits = pull(&mut self.bytes)?;
        let mut sums = UsageSums::default();
        while bits != 0 {
            *sums.0.get_mut(bits.trailing_zeros() as usize)? = signed(pull(&mut self.bytes)?);
            bits &= bits - 1;
        }
        Some(sums)
    }
}

/// Adds sums to a stored value, and returns the new one. Cells after damage are lost; `verify` reports it. The first number of a
/// key is its minute, which is not part of a cell.
pub(crate) fn add_to_cells<'a, const N: usize>(
    stored: &[u8],
    sums: impl Iterator<Item = (&'a [i64; N], &'a UsageSums)>,
) -> Vec<u8> {
    let mut written = CellWriter { bytes: Vec::with_capacity(stored.len() + 256), ..CellWriter::default() };
    let mut stored = CellReader::new(stored, N - 1);
    let mut more = sums.peekable();
    while let Ok(Some((columns, mut sums))) = stored.next() {
        while let Some((key, before)) = more.next_if(|(key, _)| key[1..] < *columns) {
            written.push(&key[1..], before);
        }
        if let Some((_, added)) = more.next_if(|(key, _)| key[1..] == *columns) {
            sums.merge(added);
        }
        written.push(columns, &sums);
    }
    for (key, sums) in more {
        written.push(&key[1..], sums);
    }
    written.finish()
}

/// The rows of a minute and a part.
pub(crate) type PartRows<'a, const N: usize, S> = ((i64, i64), Vec<(&'a [i64; N], &'a S)>);

/// The rows of sums by their minute and part, in order.
pub(crate) fn by_part<const N: usize, S>(rows: &BTreeMap<[i64; N], S>) -> Vec<PartRows<'_, N, S>> {
    let mut parts: Vec<PartRows<'_, N, S>> = Vec::new();
    for (key, sums) in rows {
        let place = (key[0], part_of(key[1]));
        match parts.last_mut() {
            Some((last, rows)) if *last == place => rows.push((key, sums)),
            _ => parts.push((place, vec![(key, sums)])),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Rows = BTreeMap<[i64; 4], UsageSums>;

    fn read(bytes: &[u8]) -> Result<Rows, DamagedCells> {
        let (mut cells, mut rows) = (CellReader::new(bytes, 3), Rows::new());
        while let Some((columns, sums)) = cells.next()? {
            rows.insert([0, columns[0], columns[1], columns[2]], sums);
        }
        Ok(rows)
    }

    fn rows() -> impl Strategy<Value = Rows> {
        let figure = prop_oneof![Just(0), -3..1_000_i64, any::<i64>()];
        let sums = prop::array::uniform12(figure).prop_map(UsageSums);
        prop::collection::btree_map([0..1_i64, 30..40_i64, -1..2_i64, 0..3_i64], sums, 0..20)
    }

    #[test]
    fn damaged_cells_are_an_error_and_cells_before_the_damage_are_kept() {
        assert_eq!(read(&[]), Ok(Rows::new()));
        for damaged in [&[0x80][..], &[3], &[0, 2, 2], &[0, 2, 2, 2, 0x80, 0x40, 2], &[0xff; 40]] {
            assert_eq!(read(damaged), Err(DamagedCells), "{damaged:?}");
        }
        let one = Rows::from([([0, 40, 7, 1], UsageSums([1; 12]))]);
        let mut bytes = add_to_cells(&[], one.iter());
        bytes.push(0x80);
        assert_eq!(read(&add_to_cells(&bytes, Rows::new().iter())), Ok(one), "cells before the damage are kept");
    }

    #[test]
    fn rows_are_divided_by_minute_and_part() {
        let rows: BTreeMap<[i64; 2], i64> = [[5, 31], [5, 32], [5, 63], [10, 63]].into_iter().zip(0..).collect();
        let parts = by_part(&rows);
        let places: Vec<_> = parts.iter().map(|(place, rows)| (*place, rows.len())).collect();
        assert_eq!(places, [((5, 0), 1), ((5, 1), 2), ((10, 1), 1)]);
    }

    proptest! {
        #[test]
        fn packing_and_adding_cells_is_lossless(one in rows(), other in rows()) {
            let packed = add_to_cells(&[], one.iter());
            prop_assert_eq!(read(&packed).unwrap(), one.clone());
            let joined = [packed.clone(), add_to_cells(&[], other.iter())].into_iter().filter(|value| !value.is_empty());
            let both = read(&joined.collect::<Vec<_>>().join(&VALUE_END)).unwrap();
            prop_assert_eq!(both, one.iter().chain(&other).map(|(key, sums)| (*key, *sums)).collect::<Rows>());
            let mut merged = one;
            for (key, sums) in &other {
                merged.entry(*key).or_default().merge(sums);
            }
            prop_assert_eq!(read(&add_to_cells(&packed, other.iter())).unwrap(), merged);
        }
    }
}
