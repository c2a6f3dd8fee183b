//! Collects what becomes of the fields a target cannot take: refused, dropped, adjusted (translation reference,
//! section 1.5).

use std::collections::{BTreeSet, HashSet};

use super::{Operation, Request, UnsupportedField};
use crate::{FieldPath, Malformed, TranslateError, TranslateOptions};

/// Most fields that one refusal names.
const MAX_REPORTED_FIELDS: usize = 100;

/// The running account of one translation.
#[derive(Debug)]
pub(crate) struct CompatibilityReport<'a> {
    options: &'a TranslateOptions<'a>,
    refused: Vec<UnsupportedField>,
    named: HashSet<FieldPath>,
    dropped: BTreeSet<String>,
    malformed: Option<Malformed>,
}

impl<'a> CompatibilityReport<'a> {
    /// Starts with what reading the request already found.
    pub(crate) fn new(request: &Request, options: &'a TranslateOptions<'a>) -> Self {
        let mut report = Self {
            options,
            refused: Vec::new(),
            named: HashSet::new(),
            dropped: request.dropped.iter().cloned().collect(),
            malformed: None,
        };
        // A parameter cannot change how many tokens are counted; a part can.
        let counts = request.operation == Operation::Count;
        for refused in request.refused.iter().filter(|refused| !(counts && refused.droppable)) {
            report.judge(refused.clone());
        }
        report
    }

    /// A parameter the target cannot take.
    pub(crate) fn refuse(&mut self, field: &str) {
        self.judge(UnsupportedField { field: field.to_owned(), reason: None, droppable: true });
    }

    /// A parameter the target cannot take, with a short reason.
    pub(crate) fn refuse_because(&mut self, field: &str, reason: impl Into<String>) {
        self.judge(UnsupportedField { field: field.to_owned(), reason: Some(reason.into()), droppable: true });
    }

    /// A message or part the target cannot take; policy cannot drop it.
    pub(crate) fn refuse_part(&mut self, field: &str, reason: Option<&str>) {
        self.judge(UnsupportedField { field: field.to_owned(), reason: reason.map(str::to_owned), droppable: false });
    }

    /// A field left out by policy.
    pub(crate) fn drop_field(&mut self, field: &str) {
        self.dropped.insert(field.to_owned());
    }

    /// A field whose value was changed; `value` is what was used, in the caller's terms.
    pub(crate) fn adjust(&mut self, field: &str, value: &str) {
        self.dropped.insert(format!("{field}={value}"));
    }

    /// A fault of the body that only translation finds; the first one counts.
    pub(crate) fn fault(&mut self, fault: Malformed) {
        self.malformed.get_or_insert(fault);
    }

    fn judge(&mut self, refused: UnsupportedField) {
        if refused.droppable && self.options.lenient {
            self.dropped.insert(refused.field);
        } else if self.refused.len() < MAX_REPORTED_FIELDS && self.named.insert(refused.field.clone()) {
            self.refused.push(refused);
        }
    }

    /// The dropped entries, sorted.
    ///
    /// # Errors
    /// Everything that was refused, at once.
    pub(crate) fn finish(self) -> Result<Vec<String>, TranslateError> {
        if let Some(fault) = self.malformed {
            return Err(fault.into());
        }
        let Some(first) = self.refused.first() else { return Ok(self.dropped.into_iter().collect()) };
        let reason = first.reason.clone().filter(|_| self.refused.iter().all(|refused| refused.reason == first.reason));
        let fields: Vec<FieldPath> = self.refused.iter().map(|refused| refused.field.clone()).collect();
        Err(TranslateError::Unsupported { fields, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report<'a>(options: &'a TranslateOptions<'a>) -> CompatibilityReport<'a> {
        CompatibilityReport { options, refused: Vec::new(), named: HashSet::new(), dropped: BTreeSet::new(), malformed: None }
    }

    #[test]
    fn a_shared_reason_is_given_and_different_ones_are_not() {
        let options = TranslateOptions::default();
        let mut one = report(&options);
        one.refuse_because("n", "at most 1");
        let expected = TranslateError::Unsupported { fields: vec!["n".into()], reason: Some("at most 1".into()) };
        assert_eq!(one.finish(), Err(expected));
        let mut two = report(&options);
        two.refuse_because("n", "at most 1");
        two.refuse("stop");
        let expected = TranslateError::Unsupported { fields: vec!["n".into(), "stop".into()], reason: None };
        assert_eq!(two.finish(), Err(expected));
    }

    #[test]
    fn leniency_drops_parameters_but_never_parts() {
        let options = TranslateOptions { lenient: true, ..TranslateOptions::default() };
        let mut all = report(&options);
        all.refuse("n");
        all.adjust("reasoning_effort", "low");
        all.refuse_part("messages[0]", None);
        assert_eq!(all.finish(), Err(TranslateError::Unsupported { fields: vec!["messages[0]".into()], reason: None }));
    }
}
