//! Positions in a list of several pages. The address of a page has the cursor that it begins after, and those of the pages before it, up to
//! a bound: the admin API reads lists forwards only.

use super::form::FormData;

/// The cursor after which a page begins; `None` for the first page.
pub(crate) const AFTER: &str = "after";
/// The cursors of the pages between the first one and this one, in their order.
pub(crate) const BACK: &str = "back";
/// Cursors of earlier pages in an address.
const MAX_BACK: usize = 20;
/// Stands for the cursors of pages that are further back.
const FURTHER: &str = "-";

/// The parameters of a page.
pub(crate) type CursorPairs = Vec<(&'static str, String)>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageCursors {
    after: Option<String>,
    back: Vec<String>,
}

impl PageCursors {
    pub(crate) fn of(query: &FormData) -> Self {
        let back = query.all(BACK).take(MAX_BACK).map(str::to_owned).collect();
        Self { after: query.filled(AFTER).map(str::to_owned), back }
    }

    /// The cursor as the admin API takes it.
    pub(crate) fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// This page.
    pub(crate) fn here(&self) -> CursorPairs {
        pairs(&self.back, self.after.clone())
    }

    /// The page that begins after a cursor.
    pub(crate) fn next_page(&self, next: &str) -> CursorPairs {
        let mut back = self.back.clone();
        back.extend(self.after.clone());
        if back.len() > MAX_BACK {
            let dropped = back.len() + 1 - MAX_BACK;
            back.splice(..dropped, [FURTHER.to_owned()]);
        }
        pairs(&back, Some(next.to_owned()))
    }

    /// The previous page; without parameters if that is the first. `None` on the first page, and if the cursor of the previous
    /// page is no longer known.
    pub(crate) fn previous_page(&self) -> Option<CursorPairs> {
        self.after.as_ref()?;
        match self.back.split_last() {
            None => Some(Vec::new()),
            Some((last, _)) if last == FURTHER => None,
            Some((last, before)) => Some(pairs(before, Some(last.clone()))),
        }
    }
}

fn pairs(back: &[String], after: Option<String>) -> CursorPairs {
    let back = back.iter().map(|cursor| (BACK, cursor.clone()));
    back.chain(after.map(|after| (AFTER, after))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &CursorPairs) -> PageCursors {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        PageCursors::of(&FormData::of_pairs(pairs))
    }

    #[test]
    fn links_back_repeat_the_pages_in_reverse() {
        let mut page = PageCursors::default();
        assert_eq!((page.after(), page.previous_page()), (None, None));
        let mut way = vec![page.clone()];
        for cursor in ["c1", "c2", "c3"] {
            page = of(&page.next_page(cursor));
            assert_eq!((page.after(), of(&page.here())), (Some(cursor), page.clone()));
            way.push(page.clone());
        }
        for before in way.iter().rev().skip(1) {
            page = of(&page.previous_page().unwrap());
            assert_eq!(page, *before);
        }
    }

    #[test]
    fn way_back_is_bounded() {
        let mut page = PageCursors::default();
        for number in 1..=50 {
            page = of(&page.next_page(&format!("c{number}")));
            assert!(page.here().len() <= MAX_BACK + 1, "{page:?}");
        }
        let mut steps = 0;
        while let Some(before) = page.previous_page() {
            assert!(!before.is_empty(), "the first page is not the one before");
            (page, steps) = (of(&before), steps + 1);
        }
        assert_eq!((steps, page.after()), (MAX_BACK - 1, Some("c31")));
    }
}
