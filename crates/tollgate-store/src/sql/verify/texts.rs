//! Texts of the dictionary, for reports.

use std::collections::{BTreeSet, HashMap};

use super::VERIFY;
use crate::{
    StoreError,
    sql::{
        cells::{Cells, FromCells},
        shared_snapshot::SnapshotReader,
        usage::IDS_AT_ONCE,
        usage_filter::list,
    },
};

struct Text(i64, (String, String));

impl FromCells for Text {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        Ok(Self(c.number()?, (c.text()?.to_owned(), c.text()?.to_owned())))
    }
}

/// Ids and names by their numbers.
pub(super) async fn texts(
    reader: &mut SnapshotReader,
    numbers: BTreeSet<i64>,
) -> Result<HashMap<i64, (String, String)>, StoreError> {
    let mut texts = HashMap::new();
    let numbers: Vec<i64> = numbers.into_iter().collect();
    for numbers in numbers.chunks(IDS_AT_ONCE) {
        let sql = format!("SELECT ref, id, name FROM names WHERE ref IN ({})", list(numbers));
        let found: Vec<Text> = reader.rows(VERIFY, &sql.into(), Vec::new()).await?;
        texts.extend(found.into_iter().map(|Text(number, text)| (number, text)));
    }
    Ok(texts)
}
