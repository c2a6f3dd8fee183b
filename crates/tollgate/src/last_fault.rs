//! Faults of the database in a periodic task. A fault that persists is logged once.

use tollgate_store::StoreError;

/// The fault of a task that was logged last.
#[derive(Debug, Default)]
pub(crate) struct LastFault(String);

impl LastFault {
    /// Takes the result of a run, and returns the fault to log: one that differs from the last one. An unreachable database is not
    /// returned, because `database_watch` reports it. A success resets the last fault.
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
