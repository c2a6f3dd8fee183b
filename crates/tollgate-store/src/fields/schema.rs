//! Types of row fields, members of requests and answers, and query parameters: one description for checks,
//! conversions and documents.

use serde_json::{Map, Value};

use super::Fault;

/// Type of a value. Amounts and factors are decimal strings; a number is accepted and read through its shortest decimal form.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An id with this prefix.
    Id(&'static str),
    /// A text of `min` to `max` characters.
    Text { min: usize, max: usize },
    /// The name of a row: visible, without white space at its ends, of at most `max` bytes.
    Name { max: usize },
    /// RFC 3339 with its offset.
    Time,
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Integer { min: i64, max: i64 },
    /// 0, or a whole number within bounds.
    ZeroOr { min: i64, max: i64 },
    /// An amount or a price in USD with at most 9 decimals; bounds in nano-USD.
    Usd { min: i64, max: i64 },
    /// A factor with at most 6 decimals; the bound in millionths.
    Factor { max: i64 },
    /// A number from 0 to `max`.
    Number { max: i64 },
    /// A number from 0 to `max`, or null in a list.
    NumberOrNull { max: i64 },
    /// One of these words.
    Word(&'static [&'static str]),
    /// An IP address or a network such as `10.0.0.0/8`.
    Network,
    /// A list of at most `max` entries.
    List { of: &'static Kind, max: usize },
    /// One object, or a list of them.
    OneOrMore { of: &'static Object, min: usize, max: usize },
    /// Texts by name.
    TextMap { max: usize },
    /// Factors by name or pattern.
    FactorMap { max: usize },
    /// An object with these fields.
    Object(&'static Object),
    /// A value that is parsed by the field's rule, such as `"none"` or `{ level = ["low"] }`, with its JSON schema.
    Form { expected: &'static str, schema: fn() -> Value },
    /// An object whose members are not described.
    Any,
}

/// Maximum lengths of a time, of a network and of a decimal number, in characters.
pub const MAX_TIME: usize = 64;
pub const MAX_NETWORK: usize = 64;
pub const MAX_DECIMAL: usize = 40;
/// Longest name and longest value in a table of texts, in characters.
pub const MAX_TEXT_NAME: usize = 256;
pub const MAX_TEXT_VALUE: usize = 10_000;

/// A rule of a value beyond its kind. The error is the end of a sentence.
pub type Rule = fn(&Value) -> Result<(), String>;

/// Rules between the members of an object: the member at fault (empty: the object) and the fault.
pub type Review = fn(&Map<String, Value>) -> Option<(&'static str, Fault)>;

/// An object with a name of its own in the OpenAPI document.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    pub name: &'static str,
    pub fields: &'static [FieldShape],
    /// Whether answers omit absent fields instead of showing null.
    pub sparse: bool,
    /// The defaults of its fields; a catalog file leaves them out.
    pub blank: fn() -> Map<String, Value>,
    /// Rules between its members.
    pub review: Option<Review>,
    /// Parses the object's short form on a command line, such as `5/month`; `None` for a text that is not one.
    pub short: Option<fn(&str) -> Option<Value>>,
    /// Valid examples for a command line.
    pub example: &'static str,
}

impl Object {
    /// An object without defaults and rules.
    pub const fn of(name: &'static str, fields: &'static [FieldShape]) -> Self {
        Self { name, fields, sparse: false, blank: Map::new, review: None, short: None, example: "" }
    }

    pub fn field(&self, name: &str) -> Option<&'static FieldShape> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// Declaration of a field.
#[derive(Clone, Copy, Debug)]
pub struct FieldShape {
    /// Its name in files, requests, answers and on the command line.
    pub name: &'static str,
    /// Type of its value.
    pub kind: Kind,
    pub access: Access,
    /// Whether it may be null, for a missing value.
    pub nullable: bool,
    /// Whether only admins may set it.
    pub admin_only: bool,
    /// Whether it is never shown.
    pub secret: bool,
    /// Whether a catalog file may name where its text is, with `env:` or `file:`.
    pub sourced: bool,
    /// A rule beyond its kind.
    pub rule: Option<Rule>,
    /// Text shown instead of the default in the docs.
    pub default_text: Option<&'static str>,
    /// One sentence about it.
    pub doc: &'static str,
}

impl FieldShape {
    /// A field that may be set and is shown.
    pub const fn new(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            access: Access::ReadWrite,
            nullable: false,
            admin_only: false,
            secret: false,
            sourced: false,
            rule: None,
            default_text: None,
            doc,
        }
    }

    /// This field, which may be null.
    #[must_use]
    pub const fn or_null(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// This field with another access.
    #[must_use]
    pub const fn with(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
}

/// Where a field occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Optional in requests, present in answers.
    ReadWrite,
    /// Like `ReadWrite`, but required for a new row.
    Required,
    /// Like `Required`, and cannot be changed later.
    Fixed,
    /// Like `ReadWrite`, but can only be set for a new row.
    CreateOnly,
    /// In requests only.
    WriteOnly,
    /// In requests for a new row only.
    CreateWriteOnly,
    /// In catalog files only.
    FileOnly,
    /// In answers only.
    ReadOnly,
    /// Only in the answer to the request that made the row.
    ShownOnce,
}

/// The operation that values are checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// A new row: required fields must be present.
    Create,
    /// Some fields of an existing row.
    Update,
    /// A row of a catalog file.
    File,
}

impl Access {
    /// Whether it may be written.
    pub const fn is_written(self, mode: WriteMode) -> bool {
        match self {
            Self::ReadWrite | Self::Required | Self::WriteOnly => true,
            Self::Fixed | Self::CreateOnly | Self::CreateWriteOnly => matches!(mode, WriteMode::Create | WriteMode::File),
            Self::FileOnly => matches!(mode, WriteMode::File),
            Self::ReadOnly | Self::ShownOnce => false,
        }
    }

    /// Whether it is required.
    pub const fn is_needed(self, mode: WriteMode) -> bool {
        matches!((self, mode), (Self::Fixed | Self::Required, WriteMode::Create | WriteMode::File))
    }

    /// Whether answers have it.
    pub const fn is_shown(self) -> bool {
        matches!(self, Self::ReadWrite | Self::Fixed | Self::Required | Self::CreateOnly | Self::ReadOnly | Self::ShownOnce)
    }
}
