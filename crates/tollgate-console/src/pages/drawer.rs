//! The frame of a drawer: a summary of a row beside its list. The address of the list names the row, so that it can be shared.

use super::mark::Mark;

/// The parameter of a list's address that names the row beside it.
pub(crate) const OPEN: &str = "open";

#[derive(Clone, Debug)]
pub(crate) struct DrawerFrame {
    /// What the address calls the row.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) mark: Mark,
    /// The address of the row's own page.
    pub(crate) page: String,
    /// The address of the list alone.
    pub(crate) back: String,
}
