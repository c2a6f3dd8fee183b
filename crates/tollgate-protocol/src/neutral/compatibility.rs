//! Collects the fields of a request that an upstream cannot express: refused, dropped or adjusted (`docs/translation.md`).

use std::collections::{BTreeSet, HashSet};

use super::{Operation, Request, UnsupportedField};
use crate::{FieldPath, Malformed, TranslateError, TranslateOptions};

/// Maximum number of fields named in one refusal.
const MAX_REPORTED_FIELDS: usize = 100;

/// Refused, dropped and adjusted fields of one translation.
#[derive(Debug)]
pub(crate) struct CompatibilityReport<'a> {
    options: &'a TranslateOptions<'a>,
    refused: Vec<UnsupportedField>,
    refused_paths: HashSet<FieldPath>,
    dropped: BTreeSet<String>,
    malformed: Option<Malformed>,
}

impl<'a> CompatibilityReport<'a> {
    /// Starts with the fields that decoding the request already refused or dropped.
    pub(crate) fn new(request: &Request, options: &'a TranslateOptions<'a>) -> Self {
        let mut report = Self {
            options,
            refused: Vec::new(),
            refused_paths: HashSet::new(),
            dropped: request.dropped.iter().cloned().collect(),
            malformed: None,
        };
        // Most parameters do not change a token count. Parts do, and so does content stored at the provider.
        let counts = request.operation == Operation::Count;
        for refused in request.refused.iter().filter(|refused| !counts || refused.is_input) {
            report.record(refused.clone());
        }
        if let Some(cached) = request.params.google.cached_content.as_ref().filter(|_| counts) {
            report.refuse(&cached.path);
        }
        report
    }

    pub(crate) fn refuse(&mut self, field: &str) {
        self.record(UnsupportedField { field: field.to_owned(), reason: None, droppable: true, is_input: false });
    }

    pub(crate) fn refuse_because(&mut self, field: &str, reason: impl Into<String>) {
        let reason = Some(reason.into());
        self.record(UnsupportedField { field: field.to_owned(), reason, droppable: true, is_input: false });
    }

    /// Refuses a message or part. It is refused under lenient translation too.
    pub(crate) fn refuse_part(&mut self, field: &str, reason: Option<&str>) {
        let reason = reason.map(str::to_owned);
        self.record(UnsupportedField { field: field.to_owned(), reason, droppable: false, is_input: true });
    }

    pub(crate) fn drop_field(&mut self, field: &str) {
        self.dropped.insert(field.to_owned());
    }

    /// Records a field whose value was changed; `value` is the value used, in the caller's terms. A later one replaces it.
    pub(crate) fn adjust(&mut self, field: &str, value: &str) {
        self.dropped.retain(|entry| entry.split_once('=').is_none_or(|(path, _)| path != field));
        self.dropped.insert(format!("{field}={value}"));
    }

    /// Records an error in the body that only translation can detect. The first one is reported.
    pub(crate) fn malformed(&mut self, fault: Malformed) {
        self.malformed.get_or_insert(fault);
    }

    fn record(&mut self, refused: UnsupportedField) {
        if refused.droppable && self.options.lenient {
            self.dropped.insert(refused.field);
        } else if self.refused.len() < MAX_REPORTED_FIELDS && self.refused_paths.insert(refused.field.clone()) {
            self.refused.push(refused);
        }
    }

    /// The entries for `x-tollgate-dropped`, sorted.
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
        CompatibilityReport {
            options,
            refused: Vec::new(),
            refused_paths: HashSet::new(),
            dropped: BTreeSet::new(),
            malformed: None,
        }
    }

    #[test]
    fn reason_is_given_only_when_all_fields_share_it() {
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
    fn field_that_is_adjusted_twice_is_named_once() {
        let options = TranslateOptions::default();
        let mut twice = report(&options);
        twice.adjust("thinkingBudget", "32000");
        twice.adjust("thinkingBudget", "16000");
        assert_eq!(twice.finish(), Ok(vec!["thinkingBudget=16000".to_owned()]));
    }

    #[test]
    fn lenient_translation_drops_parameters_but_not_parts() {
        let options = TranslateOptions { lenient: true, ..TranslateOptions::default() };
        let mut all = report(&options);
        all.refuse("n");
        all.adjust("reasoning_effort", "low");
        all.refuse_part("messages[0]", None);
        assert_eq!(all.finish(), Err(TranslateError::Unsupported { fields: vec!["messages[0]".into()], reason: None }));
    }
}
