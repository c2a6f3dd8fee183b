//! Faults of the database that a periodic task meets: each is logged once, however often the task meets it.

use tollgate_store::StoreError;

/// The fault of a task that was logged last.
#[derive(Debug, Default)]
pub(crate) struct LastFault(String);

impl LastFault {
    /// Takes the result of one run. Returns the fault if it is to be logged: if it differs from the last one, and is not that the
    /// database is unreachable, which `database_watch` reports. A success forgets the last fault.
    pub(crate) fn observe<T>(&mut self, result: &Result<T, StoreError>) -> Option<&str> {
        match result {
            Ok(_) => self.0.clear(),
            Err(fault) if fault.is_unreachable() => {}
            Err(fault) => {
                let fault = fault.to_string();
                if fault != self.0 {
                    self.0 = fault;
                    return Some(&self.0);
                }
            }
        }
        None
    }
}
