//! Lists in the order of one of their columns, where the admin API has only one order. The list is read as a whole, up to a bound, and the
//! cursors of its pages are positions.

use super::{
    page_cursors::{AFTER, BACK},
    request::{ApiPage, PageRequest},
};
use crate::api_error::ApiError;

/// The parameter of the address.
const SORT: &str = "sort";
/// Maximum number of rows that are read to be sorted.
pub(super) const MAX_ROWS: usize = 20_000;
/// Rows that are read at once, as a limit of the admin API.
pub(super) const READ: &str = "1000";

/// The order of a list, as its address has it.
#[derive(Debug)]
pub(super) struct ListOrder {
    /// Empty: that of the admin API.
    chosen: &'static str,
    /// The other parameters of the list, each followed by an ampersand.
    kept: String,
}

impl ListOrder {
    pub(super) fn of(request: &PageRequest, words: &[&'static str]) -> Self {
        let asked = request.query.value(SORT);
        let mut kept = request.other_query(&[SORT, AFTER, BACK], &[]);
        if !kept.is_empty() {
            kept.push('&');
        }
        Self { chosen: words.iter().find(|word| **word == asked).copied().unwrap_or_default(), kept }
    }

    /// `None`: that of the admin API.
    pub(super) fn chosen(&self) -> Option<&'static str> {
        Some(self.chosen).filter(|word| !word.is_empty())
    }

    /// Returns to the order of the admin API, because there are too many rows for the chosen one. Whether it did: an order was chosen.
    pub(super) fn give_up(&mut self) -> bool {
        !std::mem::take(&mut self.chosen).is_empty()
    }

    pub(super) fn is(&self, word: &str) -> bool {
        self.chosen == word
    }

    /// The relative address of the first page in another order.
    pub(super) fn link(&self, word: &str) -> String {
        format!("?{}{SORT}={word}", self.kept)
    }

    /// Value, label, and whether it is chosen.
    pub(super) fn choices(&self, labels: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str, bool)> {
        labels.iter().map(|(word, label)| (*word, *label, self.is(word))).collect()
    }
}

/// All rows of a list; `None` if there are too many. `page` reads those after a cursor.
pub(super) async fn whole<T, F>(page: impl Fn(Option<String>) -> F) -> Result<Option<Vec<T>>, ApiError>
where
    F: Future<Output = Result<ApiPage<T>, ApiError>>,
{
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let found = page(after).await?;
        rows.extend(found.items);
        after = found.next;
        if after.is_none() {
            return Ok(Some(rows));
        }
        if rows.len() >= MAX_ROWS {
            return Ok(None);
        }
    }
}

/// A page of rows that were read as a whole.
pub(super) fn page_of<T>(rows: Vec<T>, after: Option<&str>, size: usize) -> ApiPage<T> {
    let begin: usize = after.and_then(|after| after.parse().ok()).unwrap_or(0);
    let end = begin.saturating_add(size);
    let next = (rows.len() > end).then(|| end.to_string());
    ApiPage { items: rows.into_iter().skip(begin).take(size).collect(), next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_that_was_given_up_is_not_shown_as_chosen() {
        let mut order = ListOrder { chosen: "keys", kept: String::new() };
        assert!(order.give_up() && order.chosen().is_none() && !order.is("keys"));
        let choices = order.choices(&[("", "Oldest first"), ("keys", "Keys")]);
        assert_eq!(choices, [("", "Oldest first", true), ("keys", "Keys", false)]);
        assert!(!order.give_up(), "no other one is chosen");
    }

    #[test]
    fn cursors_of_sorted_rows_are_positions() {
        let page = |after| {
            let page = page_of((0..5).collect::<Vec<u8>>(), after, 2);
            (page.items, page.next)
        };
        assert_eq!(page(None), (vec![0, 1], Some("2".to_owned())));
        assert_eq!(page(Some("2")), (vec![2, 3], Some("4".to_owned())));
        assert_eq!(page(Some("4")), (vec![4], None));
        assert_eq!(page(Some("99")), (vec![], None));
        assert_eq!(page(Some("grp_1")), (vec![0, 1], Some("2".to_owned())), "the cursor of another order");
    }

    #[tokio::test]
    async fn rows_are_read_page_by_page_up_to_the_bound() {
        let read = |last: u32| {
            whole(move |after: Option<String>| async move {
                let begin: u32 = after.map_or(0, |after| after.parse().unwrap());
                let next = (begin < last).then(|| (begin + 1).to_string());
                Ok::<_, ApiError>(ApiPage { items: vec![begin; 1_000], next })
            })
        };
        let rows = read(2).await.unwrap().unwrap();
        assert_eq!((rows.len(), rows[0], rows[2_999]), (3_000, 0, 2));
        assert!(read(1_000).await.unwrap().is_none());
    }
}
