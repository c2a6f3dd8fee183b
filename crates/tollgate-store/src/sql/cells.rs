//! The values of a row, read from left to right through either driver, and the types that are stored in them.

use sqlx::{Row as _, postgres::PgRow};
use tollgate_core::{NanoUsd, RequestId, Tokens};
use uuid::Uuid;

use super::codes::Coded;

/// A type that is decoded from a row of a query.
pub(super) trait FromCells: Sized + Send + 'static {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error>;
}

/// The values of a row. Each call reads the next one.
pub(super) trait Cells {
    fn maybe(&mut self) -> Result<Option<i64>, sqlx::Error>;

    fn maybe_text(&mut self) -> Result<Option<&str>, sqlx::Error>;

    fn bytes(&mut self) -> Result<&[u8], sqlx::Error>;

    fn number(&mut self) -> Result<i64, sqlx::Error> {
        self.maybe()?.ok_or_else(|| broken("a number is missing"))
    }

    fn text(&mut self) -> Result<&str, sqlx::Error> {
        self.maybe_text()?.ok_or_else(|| broken("a text is missing"))
    }

    fn count(&mut self) -> Result<u64, sqlx::Error> {
        u64::try_from(self.number()?).map_err(broken)
    }

    fn maybe_count(&mut self) -> Result<Option<u64>, sqlx::Error> {
        self.maybe()?.map(u64::try_from).transpose().map_err(broken)
    }

    fn size(&mut self) -> Result<usize, sqlx::Error> {
        usize::try_from(self.number()?).map_err(broken)
    }

    fn request(&mut self) -> Result<RequestId, sqlx::Error> {
        request_id(self.bytes()?)
    }

    fn word<T: Coded>(&mut self) -> Result<T, sqlx::Error> {
        word(self.number()?)
    }

    fn maybe_word<T: Coded>(&mut self) -> Result<Option<T>, sqlx::Error> {
        self.maybe()?.map(word).transpose()
    }

    fn money(&mut self) -> Result<Option<NanoUsd>, sqlx::Error> {
        Ok(self.maybe()?.map(NanoUsd))
    }

    fn status(&mut self) -> Result<Option<u16>, sqlx::Error> {
        self.maybe()?.map(u16::try_from).transpose().map_err(broken)
    }

    /// The token counts of each kind, without the columns that follow them in rows of attempts.
    fn tokens(&mut self) -> Result<Tokens, sqlx::Error> {
        Ok(Tokens {
            input: self.count()?,
            output: self.count()?,
            cache_read: self.count()?,
            cache_write: self.count()?,
            cache_write_1h: self.count()?,
            thinking: self.count()?,
            image: self.count()?,
            audio: self.count()?,
            ..Tokens::default()
        })
    }
}

pub(super) fn broken(detail: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> sqlx::Error {
    sqlx::Error::Decode(detail.into())
}

fn word<T: Coded>(code: i64) -> Result<T, sqlx::Error> {
    T::of_code(code).ok_or_else(|| broken(format!("the code {code} is not known")))
}

pub(super) fn request_id(bytes: &[u8]) -> Result<RequestId, sqlx::Error> {
    Uuid::from_slice(bytes).map(RequestId::from_uuid).map_err(broken)
}

/// The values of a row of SQLite.
pub(super) struct SqliteCells<'a> {
    row: &'a rusqlite::Row<'a>,
    next: usize,
}

impl<'a> SqliteCells<'a> {
    pub(super) const fn new(row: &'a rusqlite::Row<'a>) -> Self {
        Self { row, next: 0 }
    }

    fn take(&mut self) -> Result<rusqlite::types::ValueRef<'a>, sqlx::Error> {
        self.next += 1;
        self.row.get_ref(self.next - 1).map_err(broken)
    }
}

impl Cells for SqliteCells<'_> {
    fn maybe(&mut self) -> Result<Option<i64>, sqlx::Error> {
        self.take()?.as_i64_or_null().map_err(broken)
    }

    fn maybe_text(&mut self) -> Result<Option<&str>, sqlx::Error> {
        self.take()?.as_str_or_null().map_err(broken)
    }

    fn bytes(&mut self) -> Result<&[u8], sqlx::Error> {
        self.take()?.as_blob().map_err(broken)
    }
}

/// The values of a row of PostgreSQL, in its binary format.
pub(super) struct PostgresCells<'a> {
    row: &'a PgRow,
    next: usize,
}

impl<'a> PostgresCells<'a> {
    pub(super) const fn new(row: &'a PgRow) -> Self {
        Self { row, next: 0 }
    }

    /// The bytes of the next value; `None` for NULL.
    fn take(&mut self) -> Result<Option<&'a [u8]>, sqlx::Error> {
        use sqlx::ValueRef as _;
        self.next += 1;
        let value = self.row.try_get_raw(self.next - 1)?;
        if value.is_null() { Ok(None) } else { value.as_bytes().map(Some).map_err(broken) }
    }
}

impl Cells for PostgresCells<'_> {
    /// A number of 16, 32 or 64 bits.
    fn maybe(&mut self) -> Result<Option<i64>, sqlx::Error> {
        Ok(match self.take()? {
            None => None,
            Some(&[a, b]) => Some(i16::from_be_bytes([a, b]).into()),
            Some(&[a, b, c, d]) => Some(i32::from_be_bytes([a, b, c, d]).into()),
            Some(bytes) => Some(i64::from_be_bytes(bytes.try_into().map_err(broken)?)),
        })
    }

    fn maybe_text(&mut self) -> Result<Option<&str>, sqlx::Error> {
        self.take()?.map(std::str::from_utf8).transpose().map_err(broken)
    }

    fn bytes(&mut self) -> Result<&[u8], sqlx::Error> {
        self.take()?.ok_or_else(|| broken("bytes are missing"))
    }
}
