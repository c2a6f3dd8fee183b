//! The frame of a drawer: a summary of a row beside its list, or the form of a new row. The address of the list names it, so that it can be
//! shared.

use super::mark::Mark;

/// The parameter of a list's address that names the row beside it.
pub(crate) const OPEN: &str = "open";
/// The parameter's value for the form of a new row. Ids have a prefix, so no id equals it.
pub(crate) const NEW: &str = "new";

#[derive(Clone, Debug)]
pub(crate) struct DrawerFrame {
    /// What the address calls the row.
    pub(crate) id: String,
    pub(crate) title: String,
    /// `None`: it is a form.
    pub(crate) mark: Option<Mark>,
    /// The address of the row's own page, or of the form's page.
    pub(crate) page: String,
    /// The address of the list alone.
    pub(crate) back: String,
}
