//! Lists as CSV files: all rows of a filter, in its order. The list is read page by page while the file is sent.

use std::{future::Future, io, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};

use super::{
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest},
};
use crate::{api_error::ApiError, usage_format::escape_formula};

const MEDIA_TYPE: &str = "text/csv; charset=utf-8";

/// A row of a file.
pub(crate) type CsvLine = Vec<String>;

/// A list of the admin API as a file.
pub(crate) trait CsvList: Send + Sync + 'static {
    const FILE: &'static str;
    const HEAD: &'static [&'static str];

    /// A page of lines.
    fn page(&self, request: &PageRequest, after: Option<&str>) -> impl Future<Output = Result<ApiPage<CsvLine>, ApiError>> + Send;
}

/// Answers with a list as a file.
pub(crate) async fn answer<L: CsvList>(request: Arc<PageRequest>, list: L) -> Result<PageReply, PageFailure> {
    // A fault of the filter is shown as a page. A later fault aborts the transfer, so that the client does not mistake a part for
    // the whole file.
    let first = list.page(&request, None).await?;
    let head = Bytes::from(written(Some(L::HEAD), &first.items));
    let rest = stream::try_unfold((request, list, first.next), |(request, list, after)| async move {
        let Some(after) = after else { return Ok(None) };
        let page = list.page(&request, Some(&after)).await.map_err(|error| io::Error::other(error.message().to_owned()))?;
        Ok::<_, io::Error>(Some((Bytes::from(written(None, &page.items)), (request, list, page.next))))
    });
    let parts = stream::once(async { Ok(head) }).chain(rest);
    Ok(PageReply::streamed_file(L::FILE, MEDIA_TYPE, Body::from_stream(parts)))
}

/// A list that was read completely, as a file.
pub(crate) fn whole(name: &str, head: &'static [&'static str], lines: &[CsvLine]) -> PageReply {
    PageReply::streamed_file(name, MEDIA_TYPE, Body::from(written(Some(head), lines)))
}

fn written(head: Option<&[&str]>, lines: &[CsvLine]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory does not fail.
    if let Some(head) = head {
        let _ = writer.write_record(head);
    }
    for line in lines {
        let _ = writer.write_record(line);
    }
    writer.into_inner().unwrap_or_default()
}

/// Text that people chose, such as a name: no spreadsheet takes it for a formula.
pub(crate) fn text(text: &str) -> String {
    escape_formula(text).into_owned()
}

/// Texts of a list, with spaces between them.
pub(crate) fn texts(texts: &[String]) -> String {
    text(&texts.join(" "))
}

/// A value of the gateway, such as a time or an amount; empty without one.
pub(crate) fn optional(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

/// A number; empty without one.
pub(crate) fn number(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_in_names_are_escaped_and_commas_are_quoted() {
        let lines = [vec![text("=1+2"), text("a, \"b\""), optional(None)], vec![text("@x"), text("-y"), number(Some(3))]];
        let file = String::from_utf8(written(Some(&["one", "two", "three"]), &lines)).unwrap();
        assert_eq!(file, "one,two,three\n'=1+2,\"a, \"\"b\"\"\",\n'@x,'-y,3\n");
        assert!(texts(&["+a".to_owned(), "b".to_owned()]).starts_with("'+a b"));
        assert!(written(None, &[]).is_empty());
    }
}
