//! The column `packed` of a record: its numbers that no query compares or adds up, in one value. A column takes both databases the
//! same time whether a query reads it or not; sixteen columns would be a sixth of the time to book a record.
//!
//! The value begins with a bit for each number that is not 0, and these numbers follow, in the order of [`PackedNumbers::numbers`],
//! each as a [`varint`]. A number that may be absent is stored as 0 if it is, and as one more than its value otherwise. New numbers
//! are added at the end: records that were stored before lack their bits.

use tollgate_core::{AttemptResult, Multiplier, Revision, TokenSource};
use tollgate_protocol::Protocol;

use crate::{
    sql::codes::Coded,
    varint::{self, signed, unsigned},
};

/// Number of values in the column.
const COUNT: usize = 18;

/// Number of those values that belong to the attempt. They are adjacent.
const ATTEMPT_COUNT: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sql) struct PackedNumbers {
    pub(in crate::sql) protocol_out: Option<Protocol>,
    pub(in crate::sql) token_source: TokenSource,
    pub(in crate::sql) web_searches: u64,
    pub(in crate::sql) price_version: Revision,
    pub(in crate::sql) sale_multiplier: Multiplier,
    /// The number of the routing trace in the dictionary.
    pub(in crate::sql) trace: Option<i64>,
    /// The number of the model's name at the upstream, of the attempt whose channel is that of the record.
    pub(in crate::sql) upstream_model: Option<i64>,
    pub(in crate::sql) request_bytes: u64,
    /// The attempt that is in the row of its request.
    pub(in crate::sql) attempt: Option<PackedAttempt>,
}

/// The numbers of an attempt that are not those of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sql) struct PackedAttempt {
    /// Its index among the attempts of the record.
    pub(in crate::sql) position: u64,
    /// The microseconds from the arrival of the request to its start.
    pub(in crate::sql) start_us: i64,
    /// `None`: the protocol that the record was sent in.
    pub(in crate::sql) protocol: Option<Protocol>,
    pub(in crate::sql) status: PackedStatus,
    pub(in crate::sql) result: AttemptResult,
    /// The number of the error's id in the dictionary.
    pub(in crate::sql) error: Option<i64>,
    pub(in crate::sql) first_byte_us: Option<u64>,
    pub(in crate::sql) duration_us: u64,
    pub(in crate::sql) cost_multiplier: Multiplier,
    pub(in crate::sql) sent_us: Option<u64>,
}

/// The HTTP status of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sql) enum PackedStatus {
    /// The status that the caller got.
    OfRecord,
    /// There was no answer.
    None,
    Other(u16),
}

/// A value that this module did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packed numbers of a record are damaged, or a newer version wrote them")]
pub(in crate::sql) struct DamagedNumbers;

impl PackedNumbers {
    fn numbers(&self) -> [u64; COUNT] {
        let record = [
            optional(self.protocol_out.map(code)),
            code(self.token_source),
            self.web_searches,
            unsigned(self.price_version.0),
            factor(self.sale_multiplier),
            optional(self.trace.map(unsigned)),
            optional(self.upstream_model.map(unsigned)),
        ];
        let attempt = self.attempt.map_or([0; ATTEMPT_COUNT], |attempt| {
            [
                optional(Some(attempt.position)),
                unsigned(attempt.start_us),
                optional(attempt.protocol.map(code)),
                match attempt.status {
                    PackedStatus::OfRecord => 0,
                    PackedStatus::None => 1,
                    PackedStatus::Other(status) => u64::from(status) + 2,
                },
                code(attempt.result),
                optional(attempt.error.map(unsigned)),
                optional(attempt.first_byte_us),
                attempt.duration_us,
                factor(attempt.cost_multiplier),
            ]
        });
        let mut numbers = [0; COUNT];
        let end = record.len() + attempt.len();
        numbers[..record.len()].copy_from_slice(&record);
        numbers[record.len()..end].copy_from_slice(&attempt);
        numbers[end..].copy_from_slice(&[self.request_bytes, optional(self.attempt.and_then(|attempt| attempt.sent_us))]);
        numbers
    }

    fn of(numbers: [u64; COUNT]) -> Result<Self, DamagedNumbers> {
        let [protocol_out, token_source, web_searches, price_version, sale_multiplier, trace, upstream_model, later @ ..] = numbers;
        let [attempt @ .., request_bytes, sent_us] = later;
        Ok(Self {
            protocol_out: present(protocol_out).map(word).transpose()?,
            token_source: word(token_source)?,
            web_searches,
            price_version: Revision(signed(price_version)),
            sale_multiplier: multiplier(sale_multiplier),
            trace: present(trace).map(signed),
            upstream_model: present(upstream_model).map(signed),
            request_bytes,
            attempt: present(attempt[0]).map(|position| PackedAttempt::of(position, attempt, sent_us)).transpose()?,
        })
    }

    /// Appends the value.
    pub(in crate::sql) fn encode(&self, bytes: &mut Vec<u8>) {
        let numbers = self.numbers();
        let written = || numbers.iter().enumerate().filter(|(_, number)| **number != 0);
        varint::push(bytes, written().fold(0, |bits, (at, _)| bits | 1 << at));
        for (_, number) in written() {
            varint::push(bytes, *number);
        }
    }

    pub(in crate::sql) fn decode(bytes: &[u8]) -> Result<Self, DamagedNumbers> {
        let mut bytes = bytes.iter();
        let mut read = || {
            let mut numbers = [0; COUNT];
            let mut bits = varint::pull(&mut bytes)?;
            while bits != 0 {
                *numbers.get_mut(bits.trailing_zeros() as usize)? = varint::pull(&mut bytes)?;
                bits &= bits - 1;
            }
            Some(numbers)
        };
        let numbers = read().filter(|_| bytes.as_slice().is_empty()).ok_or(DamagedNumbers)?;
        Self::of(numbers)
    }
}

impl PackedAttempt {
    fn of(position: u64, numbers: [u64; ATTEMPT_COUNT], sent_us: u64) -> Result<Self, DamagedNumbers> {
        let [_, start_us, protocol, status, result, error, first_byte_us, duration_us, cost_multiplier] = numbers;
        Ok(Self {
            position,
            start_us: signed(start_us),
            protocol: present(protocol).map(word).transpose()?,
            status: match status {
                0 => PackedStatus::OfRecord,
                1 => PackedStatus::None,
                other => PackedStatus::Other(u16::try_from(other - 2).map_err(|_| DamagedNumbers)?),
            },
            result: word(result)?,
            error: present(error).map(signed),
            first_byte_us: present(first_byte_us),
            duration_us,
            cost_multiplier: multiplier(cost_multiplier),
            sent_us: present(sent_us),
        })
    }
}

/// Encodes `None` as 0 and a number as one more. Saturates at `u64::MAX`; such counts do not occur.
const fn optional(number: Option<u64>) -> u64 {
    match number {
        None => 0,
        Some(number) => number.saturating_add(1),
    }
}

const fn present(number: u64) -> Option<u64> {
    number.checked_sub(1)
}

/// 0 for a factor of one, which most records have.
fn factor(multiplier: Multiplier) -> u64 {
    optional((!multiplier.is_one()).then(|| unsigned(multiplier.0)))
}

fn multiplier(number: u64) -> Multiplier {
    present(number).map_or(Multiplier::ONE, |number| Multiplier(signed(number)))
}

fn code(word: impl Coded) -> u64 {
    word.code().cast_unsigned()
}

fn word<T: Coded>(code: u64) -> Result<T, DamagedNumbers> {
    i64::try_from(code).ok().and_then(T::of_code).ok_or(DamagedNumbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EMPTY: PackedNumbers = PackedNumbers {
        protocol_out: None,
        token_source: TokenSource::None,
        web_searches: 0,
        price_version: Revision(0),
        sale_multiplier: Multiplier::ONE,
        trace: None,
        upstream_model: None,
        request_bytes: 0,
        attempt: None,
    };

    fn encoded(numbers: &PackedNumbers) -> Vec<u8> {
        let mut bytes = Vec::new();
        numbers.encode(&mut bytes);
        bytes
    }

    /// The numbers of an attempt without a position are not stored, because they belong to no attempt.
    fn numbers() -> impl Strategy<Value = PackedNumbers> {
        let number = || prop_oneof![Just(0), Just(1), 0..300_u64, 0..u64::MAX];
        let words = (1..5_u64, 0..4_u64, 0..5_u64, 0..6_u64);
        (prop::array::uniform18(number()), words, any::<bool>()).prop_map(|(mut numbers, words, has_attempt)| {
            (numbers[0], numbers[1], numbers[9], numbers[11]) = words;
            numbers[10] %= u64::from(u16::MAX) + 3;
            numbers[7] = u64::from(has_attempt) * (numbers[7] / 2 + 1);
            numbers[17] *= u64::from(has_attempt);
            PackedNumbers::of(numbers).expect("all words have codes")
        })
    }

    #[test]
    fn stored_encoding_does_not_change() {
        assert_eq!(encoded(&EMPTY), [0]);
        let attempt = PackedAttempt {
            position: 0,
            start_us: 300,
            protocol: Some(Protocol::Gemini),
            status: PackedStatus::Other(200),
            result: AttemptResult::Broke,
            error: Some(9),
            first_byte_us: Some(0),
            duration_us: 5,
            cost_multiplier: Multiplier(0),
            sent_us: Some(6),
        };
        let all = PackedNumbers {
            protocol_out: Some(Protocol::OpenAi),
            token_source: TokenSource::Provider,
            web_searches: 2,
            price_version: Revision(3),
            sale_multiplier: Multiplier(2_000_000),
            trace: Some(1),
            upstream_model: Some(2),
            request_bytes: 500,
            attempt: Some(attempt),
        };
        let bytes = [
            0xff, 0xff, 0xf, // bits
            1, 1, 2, 6, 0x81, 0x92, 0xf4, 1, 3, 5, // record
            1, 0xd8, 4, 2, 0xca, 1, 4, 19, 1, 5, 1, // attempt
            0xf4, 3, 7, // size of the request, and when it was sent
        ];
        assert_eq!(encoded(&all), bytes);
        assert_eq!(PackedNumbers::decode(&bytes), Ok(all));
    }

    #[test]
    fn damaged_numbers_are_detected() {
        for damaged in [&[][..], &[2], &[2, 9], &[0, 0], &[0x80, 0x80, 0x10, 1], &[0x80, 9, 1, 0xff, 0xff, 0xff, 1], &[0xff; 12]] {
            assert_eq!(PackedNumbers::decode(damaged), Err(DamagedNumbers), "{damaged:?}");
        }
    }

    proptest! {
        #[test]
        fn packed_numbers_round_trip(numbers in numbers()) {
            prop_assert_eq!(PackedNumbers::decode(&encoded(&numbers)), Ok(numbers));
        }
    }
}
