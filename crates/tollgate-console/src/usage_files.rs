//! An export as several Parquet files, each of which can be kept in memory: for storage that takes whole objects.

use std::future::Future;

use tollgate_core::UsageRecord;
use tollgate_store::{Page, SortOrder, StoreError, UsageFilter};

use crate::{usage_columns::ExportView, usage_parquet::ParquetFile};

/// Records in a page that is read.
const PAGE_SIZE: u32 = 1_000;

/// A complete Parquet file.
#[derive(Debug)]
pub struct UsageFile {
    pub records: u64,
    pub bytes: Vec<u8>,
}

/// The records of a filter, oldest first, as files. The same records make the same files.
#[derive(Debug)]
pub struct UsageFiles<R> {
    read: R,
    filter: UsageFilter,
    /// A file ends with the row group that brings it to this many bytes.
    max_bytes: usize,
    is_done: bool,
}

impl<R, F> UsageFiles<R>
where
    R: FnMut(UsageFilter) -> F,
    F: Future<Output = Result<Page<UsageRecord>, StoreError>>,
{
    /// `read` reads one page of a filter.
    pub fn new(filter: UsageFilter, max_bytes: usize, read: R) -> Self {
        let filter = UsageFilter { order: SortOrder::Oldest, limit: PAGE_SIZE, ..filter };
        Self { read, filter, max_bytes, is_done: false }
    }

    /// The next file; `None` behind the last one. A file is never without records.
    pub async fn next_file(&mut self) -> Result<Option<UsageFile>, StoreError> {
        let (mut file, mut bytes, mut records) = (ParquetFile::new(ExportView::Operator), Vec::new(), 0);
        while !self.is_done && bytes.len() < self.max_bytes {
            let page = (self.read)(self.filter.clone()).await?;
            self.is_done = page.next.is_none();
            self.filter.after = page.next;
            records += page.items.len() as u64;
            if file.add(page.items) {
                bytes.extend(file.write());
            }
        }
        if records == 0 {
            return Ok(None);
        }
        bytes.extend(file.finish());
        Ok(Some(UsageFile { records, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use tollgate_core::{RequestId, Timestamp};
    use tollgate_store::UsageCursor;

    use super::*;
    use crate::{usage_format::sample, usage_parquet::ROW_GROUP};

    fn id(number: usize) -> RequestId {
        RequestId::from_parts(Timestamp(i64::try_from(number).unwrap() * 1_000), [7; 10])
    }

    /// The files of so many records, each as its ids.
    async fn files(records: usize, max_bytes: usize) -> Vec<Vec<String>> {
        let read = move |filter: UsageFilter| {
            let from = filter.after.map_or(0, |UsageCursor(after)| usize::try_from(after.time().0 / 1_000).unwrap() + 1);
            let until = (from + filter.limit as usize).min(records);
            let items = (from..until).map(|number| UsageRecord { id: id(number), ..sample() }).collect();
            let next = (until < records).then(|| UsageCursor(id(until - 1)));
            std::future::ready(Ok(Page { items, next, searched_until: None }))
        };
        let (mut files, mut written) = (UsageFiles::new(UsageFilter::default(), max_bytes, read), Vec::new());
        while let Some(file) = files.next_file().await.unwrap() {
            let rows = SerializedFileReader::new(Bytes::from(file.bytes)).unwrap();
            let ids = |row: parquet::record::Row| row.get_column_iter().next().unwrap().1.to_string();
            let ids: Vec<String> = rows.get_row_iter(None).unwrap().map(|row| ids(row.unwrap())).collect();
            assert_eq!(ids.len() as u64, file.records);
            written.push(ids);
        }
        written
    }

    #[tokio::test]
    async fn every_record_is_in_one_file() {
        for (records, max_bytes, expected) in [(0, 1, 0), (5, 1, 1), (2 * ROW_GROUP + 2_500, 1, 3), (ROW_GROUP + 700, 1 << 30, 1)] {
            let written = files(records, max_bytes).await;
            assert_eq!(written.len(), expected, "{records}");
            let ids: Vec<String> = written.concat();
            let all: Vec<String> = (0..records).map(|number| format!("\"{}\"", id(number))).collect();
            assert!(ids == all, "{records}");
        }
    }

    #[tokio::test]
    async fn error_reading_a_page_is_returned_instead_of_an_end() {
        let read = |_: UsageFilter| std::future::ready(Err(StoreError::Cancelled));
        assert!(matches!(UsageFiles::new(UsageFilter::default(), 1, read).next_file().await, Err(StoreError::Cancelled)));
    }
}
