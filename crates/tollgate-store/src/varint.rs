//! Variable-length numbers: groups of seven bits, lowest first; all bytes but the last have the highest bit set.

/// Appends a number.
pub(crate) fn push(bytes: &mut Vec<u8>, mut number: u64) {
    let low = |number: u64| u8::try_from(number & 0x7f).expect("seven bits are a byte");
    while number >= 0x80 {
        bytes.push(low(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low(number));
}

/// Reads the next number; `None` if there is none.
pub(crate) fn pull(bytes: &mut std::slice::Iter<'_, u8>) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.next()?;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// A signed number as an unsigned one that is small if its magnitude is small (zigzag encoding).
pub(crate) const fn unsigned(number: i64) -> u64 {
    (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned()
}

/// The inverse of [`unsigned`].
pub(crate) const fn signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_round_trip(numbers: Vec<u64>, signs: Vec<i64>) {
            let mut bytes = Vec::new();
            for number in &numbers {
                push(&mut bytes, *number);
            }
            for number in &signs {
                push(&mut bytes, unsigned(*number));
            }
            let mut bytes = bytes.iter();
            for number in numbers {
                prop_assert_eq!(pull(&mut bytes), Some(number));
            }
            for number in signs {
                prop_assert_eq!(pull(&mut bytes).map(signed), Some(number));
            }
            prop_assert_eq!(pull(&mut bytes), None);
        }
    }
}
