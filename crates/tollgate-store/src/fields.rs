//! One table for each kind of row. An entry names a field, the kind of value it takes, who may set it and what it is for, and
//! converts between the field and its JSON form. The catalog file, the admin API with its OpenAPI document, `NAME FIELD=VALUE`
//! on the command line and the tables of `docs/catalog.md` are made from these tables.

mod account;
mod alert;
mod base_url;
mod channel;
mod check;
mod docs;
mod member;
mod offer;
mod parameter_edit;
mod price;
mod profile;
mod schema;
mod served_model;
mod text;
mod value;

use serde_json::{Map, Value};

use crate::FieldProblem;

pub use account::AccountInput;
pub use alert::DestinationInput;
pub use base_url::private_host;
pub(crate) use check::hint;
pub use check::nearest;
pub use check::{Fault, Problem, Step, article, check_field, check_object, unknown_member};
pub use docs::renew_page;
pub use member::KeyInput;
pub use price::{BUDGET, FREE, price};
pub use schema::{
    Access, FieldShape, Kind, MAX_DECIMAL, MAX_NETWORK, MAX_TEXT_NAME, MAX_TEXT_VALUE, MAX_TIME, Object, Review, Rule, WriteMode,
};
pub use text::parse_text;
pub(crate) use text::{is_written, toml_string, toml_value};
pub use value::{FieldValue, time_text};

/// A kind of row, or a value made of fields, such as a price.
pub trait Row: Sized + 'static {
    /// The table: the description of each field, and how it is read from and written to a row.
    const FIELDS: &'static [Field<Self>];
    /// [`Self::FIELDS`] without the row's type.
    const OBJECT: &'static Object;

    fn blank() -> Self;

    /// Faults of fields in combination.
    fn problems(&self) -> Vec<FieldProblem> {
        Vec::new()
    }
}

/// An entry of a row's table: the description of a field and its conversions.
pub struct Field<R: 'static> {
    /// The field's description.
    pub shape: FieldShape,
    /// The field's value in JSON; null if it has none.
    pub get: fn(&R) -> Value,
    /// Writes a value that fits `shape`. The error is the end of a sentence.
    pub set: fn(&mut R, &Value) -> Result<(), String>,
}

impl<R> std::fmt::Debug for Field<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shape.fmt(f)
    }
}

impl<R> Field<R> {
    /// Replaces the kind of value, for instance by one with narrower bounds.
    const fn kind(mut self, kind: Kind) -> Self {
        self.shape.kind = kind;
        self
    }

    const fn within(self, min: i64, max: i64) -> Self {
        self.kind(Kind::Integer { min, max })
    }

    const fn access(mut self, access: Access) -> Self {
        self.shape.access = access;
        self
    }

    const fn admin_only(mut self) -> Self {
        self.shape.admin_only = true;
        self
    }

    /// In a catalog file it may be `env:NAME` or `file:PATH`.
    const fn sourced(mut self) -> Self {
        self.shape.sourced = true;
        self
    }

    /// Never shown; in a catalog file it may be `env:NAME` or `file:PATH`.
    const fn secret(mut self) -> Self {
        self.shape.secret = true;
        self
    }

    const fn rule(mut self, rule: Rule) -> Self {
        self.shape.rule = Some(rule);
        self
    }

    /// Text shown instead of the default in the docs.
    const fn default_text(mut self, text: &'static str) -> Self {
        self.shape.default_text = Some(text);
        self
    }
}

/// The shapes of a table, for [`Object::fields`].
pub(crate) const fn shapes<R, const N: usize>(fields: &[Field<R>]) -> [FieldShape; N] {
    let mut shapes = [fields[0].shape; N];
    let mut i = 0;
    while i < N {
        shapes[i] = fields[i].shape;
        i += 1;
    }
    shapes
}

/// The table of one type: `table!(Type, "Name", blank, [entries], more methods)`.
macro_rules! table {
    ($row:ty, $name:literal, $blank:expr, $fields:expr $(, example $example:literal)? $(, short $short:expr)?
        $(, review $review:expr)? $(, problems $problems:expr)?) => {
        impl $crate::fields::Row for $row {
            const FIELDS: &'static [$crate::fields::Field<Self>] = $fields;
            const OBJECT: &'static $crate::fields::Object = &{
                const SHAPES: &[$crate::fields::FieldShape] = &$crate::fields::shapes::<$row, {
                    <$row as $crate::fields::Row>::FIELDS.len()
                }>(<$row as $crate::fields::Row>::FIELDS);
                $crate::fields::Object {
                    sparse: true,
                    blank: || $crate::fields::whole(&$blank),
                    $(example: $example,)?
                    $(short: Some($short),)?
                    $(review: Some($review),)?
                    ..$crate::fields::Object::of($name, SHAPES)
                }
            };

            fn blank() -> Self {
                $blank
            }

            $(fn problems(&self) -> Vec<$crate::FieldProblem> {
                $problems(self)
            })?
        }
    };
}

/// An entry whose value is stored in one field of the row: `field!("name", path.to.field: Type, "What it is.")`.
macro_rules! field {
    ($name:literal, $($path:ident).+ : $type:ty, $doc:literal) => {
        $crate::fields::Field {
            shape: $crate::fields::FieldShape {
                nullable: <$type as $crate::fields::FieldValue>::NULLABLE,
                ..$crate::fields::FieldShape::new($name, <$type as $crate::fields::FieldValue>::KIND, $doc)
            },
            get: |row: &Self| <$type as $crate::fields::FieldValue>::show(&row.$($path).+),
            set: |row: &mut Self, value| {
                row.$($path).+ = <$type as $crate::fields::FieldValue>::read(value)?;
                Ok(())
            },
        }
    };
}
use {field, table};

/// Every field of a row that answers show, null included.
pub fn whole<R: Row>(row: &R) -> Map<String, Value> {
    let shown = R::FIELDS.iter().filter(|field| field.shape.access.is_shown() && !field.shape.secret);
    shown.map(|field| (field.shape.name.to_owned(), (field.get)(row))).collect()
}

/// Only the members that are not null.
pub(crate) fn sparse<R: Row>(row: &R) -> Value {
    let mut members = whole(row);
    members.retain(|_, value| !value.is_null());
    Value::Object(members)
}

/// Writes members into a row, in the order of its table. Skips members named in `problems`, and adds the problems of the values.
pub fn assign<R: Row>(row: &mut R, members: &Map<String, Value>, problems: &mut Vec<Problem>) {
    for field in R::FIELDS {
        let name = field.shape.name;
        let Some(value) = members.get(name) else { continue };
        if problems.iter().any(|problem| problem.begins_at(name)) {
            continue;
        }
        if let Err(message) = (field.set)(row, value) {
            problems.push(Problem::at(name, Fault::Value(message)));
        }
    }
}

/// Faults of a row, field by field: every value against its kind, then fields in combination.
pub fn check_row<R: Row>(row: &R) -> Vec<FieldProblem> {
    let mut found = Vec::new();
    for field in R::FIELDS.iter().filter(|field| !field.shape.secret) {
        let mut problems = Vec::new();
        check_field(&field.shape, &(field.get)(row), WriteMode::File, &mut Vec::new(), &mut problems);
        found.extend(problems.iter().map(|problem| FieldProblem { field: field.shape.name, message: problem.below(1) }));
    }
    found.extend(row.problems());
    found
}

/// The fields only admins may set that differ between two rows.
pub fn admin_changes<R: Row>(before: &R, after: &R) -> Vec<&'static str> {
    let differing = R::FIELDS.iter().filter(|field| field.shape.admin_only && (field.get)(before) != (field.get)(after));
    differing.map(|field| field.shape.name).collect()
}

#[cfg(test)]
mod tests;
