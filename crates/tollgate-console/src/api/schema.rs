//! What members of requests and answers are: one description from which bodies and queries are checked and the OpenAPI
//! document is written.

/// What a value is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueSchema {
    /// An id with this prefix.
    Id(&'static str),
    /// A text of so many characters.
    String { least: usize, most: usize },
    /// RFC 3339.
    Time,
    /// `true` or `false`.
    Boolean,
    /// A whole number within bounds.
    Integer { least: i64, most: i64 },
    /// A decimal number as text, with at most so many decimals.
    Decimal { places: u32, signed: bool },
    /// A number that is measured; answers only.
    Number,
    /// One of these words.
    Enum(&'static [&'static str]),
    /// At most so many of them.
    List { of: &'static ValueSchema, most: usize },
    /// At most so many texts by name.
    StringMap { most: usize },
    /// An object.
    Object(&'static ObjectSchema),
    /// An object whose members are not described here.
    Any,
}

/// An object with a name of its own in the OpenAPI document.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [FieldSchema],
}

/// A member of an object, or a parameter of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSchema {
    pub(crate) name: &'static str,
    pub(crate) shape: ValueSchema,
    pub(crate) usage: FieldAccess,
    pub(crate) nullable: bool,
    pub(crate) doc: &'static str,
}

/// Where a member occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldAccess {
    /// In requests, where it may be left out, and in answers.
    Both,
    /// As `Both`, but a new row needs it, and it stays as it is afterwards.
    Fixed,
    /// As `Both`, but a new row needs it.
    Needed,
    /// As `Both`, but a new row alone may have it; it stays as it is afterwards.
    AtFirst,
    /// In requests only.
    Write,
    /// In requests for a new row only.
    WriteAtFirst,
    /// In answers only.
    Read,
    /// In the one answer that made the row.
    Once,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// A new row: what is needed must be there.
    Create,
    /// A part of a row that is there.
    Update,
}

impl FieldAccess {
    /// Whether a request may have it.
    pub(crate) const fn is_written(self, how: WriteMode) -> bool {
        match self {
            Self::Both | Self::Needed | Self::Write => true,
            Self::Fixed | Self::AtFirst | Self::WriteAtFirst => matches!(how, WriteMode::Create),
            Self::Read | Self::Once => false,
        }
    }

    /// Whether a request must have it.
    pub(crate) const fn is_needed(self, how: WriteMode) -> bool {
        matches!((self, how), (Self::Fixed | Self::Needed, WriteMode::Create))
    }

    /// Whether answers have it.
    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Both | Self::Fixed | Self::Needed | Self::AtFirst | Self::Read | Self::Once)
    }
}

const fn field(name: &'static str, shape: ValueSchema, usage: FieldAccess, doc: &'static str) -> FieldSchema {
    FieldSchema { name, shape, usage, nullable: false, doc }
}

/// In requests and answers.
pub(crate) const fn both(name: &'static str, shape: ValueSchema, doc: &'static str) -> FieldSchema {
    field(name, shape, FieldAccess::Both, doc)
}

/// Needed in requests.
pub(crate) const fn needed(name: &'static str, shape: ValueSchema, doc: &'static str) -> FieldSchema {
    field(name, shape, FieldAccess::Needed, doc)
}

/// Needed for a new row, fixed afterwards.
pub(crate) const fn fixed(name: &'static str, shape: ValueSchema, doc: &'static str) -> FieldSchema {
    field(name, shape, FieldAccess::Fixed, doc)
}

/// In answers only.
pub(crate) const fn read(name: &'static str, shape: ValueSchema, doc: &'static str) -> FieldSchema {
    field(name, shape, FieldAccess::Read, doc)
}

impl FieldSchema {
    /// `null` where there is none.
    pub(crate) const fn or_null(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// With another usage.
    pub(crate) const fn with(mut self, usage: FieldAccess) -> Self {
        self.usage = usage;
        self
    }
}

/// A name of a row.
pub(crate) const NAME: ValueSchema = ValueSchema::String { least: 1, most: 100 };
/// A name of a model.
pub(crate) const MODEL_NAME: ValueSchema = ValueSchema::String { least: 1, most: 256 };
/// An amount or price in nano-USD.
pub(crate) const NANO_USD: ValueSchema = ValueSchema::Integer { least: i64::MIN, most: i64::MAX };
/// A figure in nano-USD that is not below zero.
pub(crate) const POSITIVE_NANO_USD: ValueSchema = ValueSchema::Integer { least: 0, most: i64::MAX };
/// The same in USD.
pub(crate) const USD: ValueSchema = ValueSchema::Decimal { places: 9, signed: true };
/// A figure in USD that is not below zero.
pub(crate) const POSITIVE_USD: ValueSchema = ValueSchema::Decimal { places: 9, signed: false };
/// A factor.
pub(crate) const FACTOR: ValueSchema = ValueSchema::Decimal { places: 6, signed: false };
/// A count.
pub(crate) const COUNT: ValueSchema = ValueSchema::Integer { least: 0, most: i64::MAX };
/// A count that fits 32 bits.
pub(crate) const COUNT_32: ValueSchema = ValueSchema::Integer { least: 0, most: u32::MAX as i64 };
/// Any short text.
pub(crate) const TEXT: ValueSchema = ValueSchema::String { least: 0, most: 10_000 };

/// The members every stored row has in answers.
pub(crate) const OWNER: FieldSchema =
    read("owner", ValueSchema::Enum(&["file", "database"]), "Rows of a served catalog file are changed there only.");
pub(crate) const CREATED_AT: FieldSchema = read("created_at", ValueSchema::Time, "When it was made.");
pub(crate) const REVISION: FieldSchema = read("revision", COUNT, "Its last change; what `If-Match` takes.");
