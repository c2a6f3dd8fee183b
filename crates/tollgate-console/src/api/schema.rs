//! Fields that several resources share, and the schemas of rows.

use tollgate_store::fields::{Access, FieldShape, Kind};

/// In requests and answers.
pub(crate) const fn both(name: &'static str, kind: Kind, doc: &'static str) -> FieldShape {
    FieldShape::new(name, kind, doc)
}

/// Required in requests.
pub(crate) const fn needed(name: &'static str, kind: Kind, doc: &'static str) -> FieldShape {
    FieldShape::new(name, kind, doc).with(Access::Required)
}

/// In answers only.
pub(crate) const fn read(name: &'static str, kind: Kind, doc: &'static str) -> FieldShape {
    FieldShape::new(name, kind, doc).with(Access::ReadOnly)
}

pub(crate) const NAME: Kind = Kind::Text { min: 1, max: 100 };
pub(crate) const MODEL_NAME: Kind = Kind::Text { min: 1, max: 256 };
/// An amount in USD, above or below zero.
pub(crate) const USD: Kind = Kind::Usd { min: i64::MIN, max: i64::MAX };
pub(crate) const COUNT: Kind = Kind::Integer { min: 0, max: i64::MAX };
pub(crate) const TEXT: Kind = Kind::Text { min: 0, max: 10_000 };

pub(crate) const OWNER: FieldShape =
    read("owner", Kind::Word(&["file", "database"]), "Rows of a served catalog file are changed there only.");
pub(crate) const CREATED_AT: FieldShape = read("created_at", Kind::Time, "When it was made.");
/// The names of `ChangeOrigin::as_str`.
pub(crate) const ORIGIN: FieldShape =
    read("origin", Kind::Word(&["file", "cli", "console", "api", "gateway"]), "Origin of the change.");
pub(crate) const REVISION: FieldShape = read("revision", COUNT, "Its last change, for `If-Match`.");

/// Number of fields in these lists.
pub(crate) const fn count(lists: &[&[FieldShape]]) -> usize {
    let (mut total, mut i) = (0, 0);
    while i < lists.len() {
        total += lists[i].len();
        i += 1;
    }
    total
}

/// The concatenation of these lists; `N` is their [`count`].
pub(crate) const fn join<const N: usize>(lists: &[&[FieldShape]]) -> [FieldShape; N] {
    let mut joined = [OWNER; N];
    let (mut at, mut i) = (0, 0);
    while i < lists.len() {
        let mut j = 0;
        while j < lists[i].len() {
            joined[at] = lists[i][j];
            (at, j) = (at + 1, j + 1);
        }
        i += 1;
    }
    joined
}

/// A row as an object of the API: `row_object!(Row, [fields before], [fields after])` around the fields of its table.
macro_rules! row_object {
    ($row:ty, [$($before:expr),* $(,)?], [$($after:expr),* $(,)?]) => {{
        const LISTS: &[&[tollgate_store::fields::FieldShape]] =
            &[&[$($before),*], <$row as tollgate_store::fields::Row>::OBJECT.fields, &[$($after),*]];
        static FIELDS: [tollgate_store::fields::FieldShape; $crate::api::schema::count(LISTS)] = $crate::api::schema::join(LISTS);
        tollgate_store::fields::Object {
            fields: &FIELDS,
            sparse: false,
            ..*<$row as tollgate_store::fields::Row>::OBJECT
        }
    }};
}
pub(crate) use row_object;
