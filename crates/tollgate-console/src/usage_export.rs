//! An export: all records of a filter, oldest first, as CSV, as JSON lines or as a Parquet file. While the records of a page are written,
//! the next page is read, and no more than that one. A Parquet file also keeps the records of a row group.

use std::future::Future;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tollgate_core::UsageRecord;
use tollgate_store::{Page, SortOrder, StoreError, UsageFilter};

use crate::{usage_columns::ExportView, usage_format, usage_parquet::ParquetFile};

/// Records in a page of an export.
const PAGE_SIZE: u32 = 1_000;

/// The file format of an export of usage records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// With the names of the columns in the first line.
    Csv,
    JsonLines,
    Parquet,
}

type PageResult = Result<Page<UsageRecord>, StoreError>;

/// An export in progress.
struct Export<R> {
    read: R,
    filter: UsageFilter,
    view: ExportView,
    encoder: Encoder,
    /// The page that is being read.
    reading: Option<AbortOnDropHandle<PageResult>>,
}

enum Encoder {
    Csv { has_header: bool },
    JsonLines,
    Parquet(Box<ParquetFile>),
}

/// All records that the filter selects. `read` reads one page of a filter.
pub fn export_usage<R, F>(
    filter: UsageFilter,
    format: ExportFormat,
    view: ExportView,
    read: R,
) -> impl Stream<Item = Result<Bytes, StoreError>> + Send
where
    R: Fn(UsageFilter) -> F + Send,
    F: Future<Output = PageResult> + Send + 'static,
{
    let filter = UsageFilter { order: SortOrder::Oldest, limit: PAGE_SIZE, ..filter };
    let reading = Some(start(read(filter.clone())));
    let encoder = match format {
        ExportFormat::Csv => Encoder::Csv { has_header: true },
        ExportFormat::JsonLines => Encoder::JsonLines,
        ExportFormat::Parquet => Encoder::Parquet(Box::new(ParquetFile::new(view))),
    };
    stream::try_unfold(Export { read, filter, view, encoder, reading }, Export::next)
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
    /// The next bytes: those of a page, or of the pages of a row group.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        while let Some(reading) = self.reading.take() {
            let page = match reading.await {
                Ok(page) => page?,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime is ending.
                Err(_) => return Err(StoreError::Cancelled),
            };
            let is_last = page.next.is_none();
            if !is_last {
                self.filter.after = page.next;
                self.reading = Some(start((self.read)(self.filter.clone())));
            }
            let bytes;
            (self.encoder, bytes) = self.encoder.encode(page.items, self.view, is_last).await?;
            if !bytes.is_empty() {
                return Ok(Some((Bytes::from(bytes), self)));
            }
        }
        Ok(None)
    }
}

impl Encoder {
    /// Adds the records of a page, and returns the output that is complete so far.
    async fn encode(self, records: Vec<UsageRecord>, view: ExportView, is_last: bool) -> Result<(Self, Vec<u8>), StoreError> {
        let mut out = Vec::new();
        match self {
            Self::Csv { has_header } => {
                if has_header {
                    out.extend_from_slice(usage_format::csv_header(view).as_bytes());
                }
                usage_format::write_csv_lines(&mut out, view, &records);
                Ok((Self::Csv { has_header: false }, out))
            }
            Self::JsonLines => {
                for record in &records {
                    usage_format::write_json_line(&mut out, record);
                }
                Ok((Self::JsonLines, out))
            }
            Self::Parquet(mut file) => {
                if !file.add(records) && !is_last {
                    return Ok((Self::Parquet(file), out));
                }
                // Encoding a row group takes a tenth of a second.
                let write = move || {
                    let bytes = if is_last { std::mem::replace(&mut *file, ParquetFile::new(view)).finish() } else { file.write() };
                    (Self::Parquet(file), bytes)
                };
                TaskTracker::new().spawn_blocking(write).await.map_err(|error| {
                    if error.is_panic() {
                        std::panic::resume_unwind(error.into_panic());
                    }
                    StoreError::Cancelled
                })
            }
        }
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

    async fn exported(format: ExportFormat) -> Vec<String> {
        let blocks: Vec<Bytes> =
            export_usage(UsageFilter::default(), format, ExportView::Operator, pages().1).try_collect().await.unwrap();
        assert_eq!(blocks.len(), 3);
        String::from_utf8(blocks.concat()).unwrap().lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn every_page_is_exported_in_order() {
        let json = exported(ExportFormat::JsonLines).await;
        let expected = (0..6).map(|number| format!("{{\"id\":\"{}\"", id(number)));
        assert!(json.len() == 6 && json.iter().zip(expected).all(|(line, begin)| line.starts_with(&begin)), "{json:?}");
        let csv = exported(ExportFormat::Csv).await;
        assert_eq!(format!("{}\n", csv[0]), usage_format::csv_header(ExportView::Operator));
        let expected = (0..6).map(|number| format!("{},", id(number)));
        assert!(csv.len() == 7 && csv[1..].iter().zip(expected).all(|(line, begin)| line.starts_with(&begin)), "{csv:?}");
    }

    #[tokio::test]
    async fn no_more_than_the_next_page_is_read_ahead() {
        let (reads, read) = pages();
        let mut lines = std::pin::pin!(export_usage(UsageFilter::default(), ExportFormat::JsonLines, ExportView::Operator, read));
        for expected in [2, 3, 3] {
            lines.try_next().await.unwrap().unwrap();
            assert_eq!(reads.load(Ordering::Relaxed), expected);
        }
        assert_eq!(lines.try_next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn failed_page_ends_an_export_with_its_error() {
        let read = |_: UsageFilter| std::future::ready(Err(StoreError::Cancelled));
        let mut lines = std::pin::pin!(export_usage(UsageFilter::default(), ExportFormat::Csv, ExportView::Operator, read));
        assert!(matches!(lines.try_next().await, Err(StoreError::Cancelled)));
    }
}
