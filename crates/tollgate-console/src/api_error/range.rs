//! The whole numbers that a field takes, so that pages can name them beside the field.

use tollgate_store::fields::Kind;

use super::ApiError;

/// Bounds of a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberRange {
    pub(crate) min: i64,
    /// `i64::MAX`: no bound.
    pub(crate) max: i64,
    /// 0 is taken, too.
    pub(crate) or_zero: bool,
}

impl NumberRange {
    /// The bounds of a kind of value; `None` if it is not a whole number.
    pub(crate) const fn of(kind: &Kind) -> Option<Self> {
        if let Kind::Integer { min, max } = *kind {
            Some(Self { min, max, or_zero: false })
        } else if let Kind::ZeroOr { min, max } = *kind {
            Some(Self { min, max, or_zero: true })
        } else {
            None
        }
    }
}

impl ApiError {
    /// Adds the numbers that the field takes.
    pub(crate) fn within(self, range: Option<NumberRange>) -> Self {
        Self { range, ..self }
    }

    pub(crate) const fn range(&self) -> Option<NumberRange> {
        self.range
    }
}
