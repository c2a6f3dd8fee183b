//! Several faults in one error: of the fields of a body, and of rows that are changed together.

use super::ApiError;

/// Further faults of a body that are kept.
const MAX_OTHERS: usize = 30;
/// Rows named in the message; `rows` lists all of them.
const MAX_NAMED_ROWS: usize = 10;

impl ApiError {
    /// The first of the errors of a body, with the others.
    pub(crate) fn first_of(errors: Vec<Self>) -> Result<(), Self> {
        let mut errors = errors.into_iter();
        let Some(first) = errors.next() else { return Ok(()) };
        Err(Self { others: errors.take(MAX_OTHERS).collect(), ..first })
    }

    /// The error with further faults of the same body, at most one for each field.
    pub(crate) fn with_others(mut self, faults: Vec<Self>) -> Self {
        for fault in faults {
            let is_known = self.is_like(&fault) || self.others.iter().any(|other| other.is_like(&fault));
            if !is_known && self.others.len() < MAX_OTHERS {
                self.others.push(fault);
            }
        }
        self
    }

    /// The error and the others, as separate errors.
    pub(crate) fn each(&self) -> Vec<Self> {
        let (first, others) = self.clone().split();
        std::iter::once(first).chain(others).collect()
    }

    /// Whether the error is about what was sent, rather than about the sender or the gateway.
    pub(crate) fn is_about_input(&self) -> bool {
        self.status.is_client_error() && self.status != http::StatusCode::FORBIDDEN && self.code != "session_ended"
    }

    /// Whether both are about the same field, or are the same error about no field.
    fn is_like(&self, other: &Self) -> bool {
        self.param == other.param && (self.param.is_some() || self.code == other.code)
    }

    /// The error without the others, and these.
    pub(crate) fn split(self) -> (Self, Vec<Self>) {
        let others = self.others.clone();
        (Self { others: Vec::new(), ..self }, others)
    }

    /// 400 with the fault of each row, if a change of `of` rows has faults. If all rows have the same fault, the request is at fault,
    /// and that fault alone is returned.
    pub(crate) fn check_rows(faults: Vec<(String, Self)>, of: usize) -> Result<(), Self> {
        let Some((_, first)) = faults.first() else { return Ok(()) };
        if faults.len() == of && faults.iter().all(|(_, fault)| fault == first) {
            return Err(first.clone());
        }
        let named: Vec<String> =
            faults.iter().take(MAX_NAMED_ROWS).map(|(name, fault)| format!("{name}: {}", fault.message)).collect();
        let more = faults.len().saturating_sub(MAX_NAMED_ROWS);
        let more = if more > 0 { format!(" And {more} more.") } else { String::new() };
        let message = format!("Nothing was changed. {}{more}", named.join(" "));
        Err(Self { rows: faults, ..Self::invalid("rows_refused", "channels", message) })
    }
}
