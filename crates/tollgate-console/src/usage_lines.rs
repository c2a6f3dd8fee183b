//! The lines of an export: all records of a filter, oldest first, as CSV or JSON. While the lines of a page are written, the next page
//! is read, and no more than that one.

use std::future::Future;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tollgate_core::UsageRecord;
use tollgate_store::{Page, SortOrder, StoreError, UsageFilter};

use crate::usage_format;

/// Records in a page of an export.
const PAGE_SIZE: u32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// With the names of the columns in the first line.
    Csv,
    Json,
}

type PageResult = Result<Page<UsageRecord>, StoreError>;

/// An export in progress.
struct Export<R> {
    read: R,
    filter: UsageFilter,
    format: LineFormat,
    /// The page that is being read.
    reading: Option<AbortOnDropHandle<PageResult>>,
    has_header: bool,
}

/// The lines of all records that the filter selects, about a thousand at once. `read` reads one page of a filter.
pub fn usage_lines<R, F>(filter: UsageFilter, format: LineFormat, read: R) -> impl Stream<Item = Result<Bytes, StoreError>> + Send
where
    R: Fn(UsageFilter) -> F + Send,
    F: Future<Output = PageResult> + Send + 'static,
{
    let filter = UsageFilter { order: SortOrder::Oldest, limit: PAGE_SIZE, ..filter };
    let reading = Some(start(read(filter.clone())));
    let export = Export { read, filter, format, reading, has_header: format == LineFormat::Csv };
    stream::try_unfold(export, Export::next)
}

/// Reads a page until the export is dropped.
fn start(page: impl Future<Output = PageResult> + Send + 'static) -> AbortOnDropHandle<PageResult> {
    AbortOnDropHandle::new(TaskTracker::new().spawn(page))
}

impl<R, F> Export<R>
where
    R: Fn(UsageFilter) -> F + Send,
    F: Future<Output = PageResult> + Send + 'static,
{
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        let Some(reading) = self.reading.take() else { return Ok(None) };
        let page = match reading.await {
            Ok(page) => page?,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is ending.
            Err(_) => return Err(StoreError::Cancelled),
        };
        if page.next.is_some() {
            self.filter.after = page.next;
            self.reading = Some(start((self.read)(self.filter.clone())));
        }
        let mut lines = Vec::new();
        if std::mem::take(&mut self.has_header) {
            lines.extend_from_slice(usage_format::CSV_HEADER.as_bytes());
        }
        match self.format {
            LineFormat::Csv => usage_format::write_csv_lines(&mut lines, &page.items),
            LineFormat::Json => page.items.iter().for_each(|record| usage_format::write_json_line(&mut lines, record)),
        }
        Ok(Some((Bytes::from(lines), self)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use futures_util::TryStreamExt as _;
    use tollgate_core::{RequestId, Timestamp};
    use tollgate_store::UsageCursor;

    use super::*;
    use crate::usage_format::sample;

    fn id(number: u8) -> RequestId {
        RequestId::from_parts(Timestamp(1_000_000), [number; 10])
    }

    /// Pages of two records up to the sixth, and how many of them were read.
    fn pages() -> (Arc<AtomicUsize>, impl Fn(UsageFilter) -> std::future::Ready<PageResult>) {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        let read = move |filter: UsageFilter| {
            assert_eq!((filter.order, filter.limit), (SortOrder::Oldest, PAGE_SIZE));
            counted.fetch_add(1, Ordering::Relaxed);
            let from = (0..6).find(|number| filter.after.is_none_or(|UsageCursor(after)| id(*number) > after)).unwrap();
            let items = [from, from + 1].map(|number| UsageRecord { id: id(number), ..sample() }).to_vec();
            let next = (from < 4).then(|| UsageCursor(id(from + 1)));
            std::future::ready(Ok(Page { items, next, searched_until: None }))
        };
        (reads, read)
    }

    async fn exported(format: LineFormat) -> Vec<String> {
        let blocks: Vec<Bytes> = usage_lines(UsageFilter::default(), format, pages().1).try_collect().await.unwrap();
        assert_eq!(blocks.len(), 3);
        String::from_utf8(blocks.concat()).unwrap().lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn every_page_is_exported_in_order() {
        let json = exported(LineFormat::Json).await;
        let expected = (0..6).map(|number| format!("{{\"id\":\"{}\"", id(number)));
        assert!(json.len() == 6 && json.iter().zip(expected).all(|(line, begin)| line.starts_with(&begin)), "{json:?}");
        let csv = exported(LineFormat::Csv).await;
        assert_eq!(format!("{}\n", csv[0]), usage_format::CSV_HEADER);
        let expected = (0..6).map(|number| format!("{},", id(number)));
        assert!(csv.len() == 7 && csv[1..].iter().zip(expected).all(|(line, begin)| line.starts_with(&begin)), "{csv:?}");
    }

    #[tokio::test]
    async fn no_more_than_the_next_page_is_read_ahead() {
        let (reads, read) = pages();
        let mut lines = std::pin::pin!(usage_lines(UsageFilter::default(), LineFormat::Json, read));
        for expected in [2, 3, 3] {
            lines.try_next().await.unwrap().unwrap();
            assert_eq!(reads.load(Ordering::Relaxed), expected);
        }
        assert_eq!(lines.try_next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn failed_page_ends_an_export_with_its_error() {
        let read = |_: UsageFilter| std::future::ready(Err(StoreError::Cancelled));
        let mut lines = std::pin::pin!(usage_lines(UsageFilter::default(), LineFormat::Csv, read));
        assert!(matches!(lines.try_next().await, Err(StoreError::Cancelled)));
    }
}
