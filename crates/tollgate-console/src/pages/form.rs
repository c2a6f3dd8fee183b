//! Submitted form data and their faults. [`super::control`] has the controls that show both.

use std::fmt;

use http::StatusCode;

use super::{locale::Locale, problem, reply::PageFailure};
use crate::api_error::ApiError;

/// Largest form, unless a page takes larger ones.
pub(crate) const MAX_BYTES: usize = 64 << 10;
/// Fields of a form or of a query.
const MAX_FIELDS: usize = 256;
/// The hidden field with the revision of the row that a form was loaded with. Changes of the row since are not overwritten.
pub(crate) const REVISION: &str = "revision";
/// Bytes of a form for each of its fields, at least.
pub(crate) const BYTES_PER_FIELD: usize = MAX_BYTES / MAX_FIELDS;

/// The pairs of a form or of a query. Secrets may be among them: they are not shown by `Debug`.
#[derive(Clone, Default)]
pub(crate) struct FormData(Vec<(String, String)>);

impl fmt::Debug for FormData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl FormData {
    /// Decodes pairs; those beyond the bound are left out.
    pub(crate) fn parse(text: &[u8]) -> Self {
        Self::parse_up_to(text, MAX_FIELDS)
    }

    /// The same with another bound.
    pub(crate) fn parse_up_to(text: &[u8], max_fields: usize) -> Self {
        Self(
            url::form_urlencoded::parse(text)
                .take(max_fields)
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// Pairs that do not come from a request, such as the initial values of a form.
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// The same with values that are owned.
    pub(crate) const fn of_pairs(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// Adds a pair, or replaces the value of an existing one.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// The first value; empty if the field was not sent.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The value without white space around it; `None` if nothing is left.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        Some(self.value(name).trim()).filter(|value| !value.is_empty())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// The state of a form to show: typed values and faults.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormState {
    values: FormData,
    faults: Vec<FormFault>,
    /// 200 for a form that was not sent yet.
    status: StatusCode,
}

#[derive(Clone, Debug)]
struct FormFault {
    /// The field that it is about; `None`: the whole form.
    field: Option<String>,
    text: String,
}

impl FormState {
    /// A form that was not sent yet, with its initial values.
    pub(crate) fn of(values: FormData) -> Self {
        Self { values, ..Self::default() }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.has(name)
    }

    /// The typed value of a field.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.values.value(name)
    }

    /// The values of a name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.values.all(name)
    }

    /// The revision that the form is for: the one that was sent with it, else that of the row.
    pub(crate) fn revision(&self, stored: u64) -> String {
        if self.has(REVISION) { self.value(REVISION).to_owned() } else { stored.to_string() }
    }

    /// The fault of a field.
    pub(crate) fn fault(&self, name: &str) -> Option<&str> {
        self.faults.iter().find(|fault| fault.field.as_deref() == Some(name)).map(|fault| fault.text.as_str())
    }

    /// A form that was sent and refused. Errors that are not about the input are passed on.
    pub(crate) fn refused(t: Locale, values: &FormData, error: &ApiError, fields: &[&str]) -> Result<Self, PageFailure> {
        let known = error.param().filter(|param| fields.contains(param));
        Self::refused_at(t, values, error, known)
    }

    /// A form with all faults of an error. `one` makes the form for a single fault.
    pub(crate) fn refused_each(error: ApiError, one: impl Fn(ApiError) -> Result<Self, PageFailure>) -> Result<Self, PageFailure> {
        let (first, others) = error.split();
        let mut state = one(first)?;
        for other in others {
            // Show at most one fault for each field, and one about the form as a whole.
            let further =
                one(other)?.faults.into_iter().filter(|fault| state.faults.iter().all(|known| known.field != fault.field));
            let further: Vec<FormFault> = further.collect();
            state.faults.extend(further);
        }
        Ok(state)
    }

    /// The same, with the fault beside this field.
    pub(crate) fn refused_at(t: Locale, values: &FormData, error: &ApiError, field: Option<&str>) -> Result<Self, PageFailure> {
        // A 404 about a field is about the object that the field names, such as a group; any other 404 is about the object of the page.
        let is_missing = error.status == StatusCode::NOT_FOUND && field.is_none();
        if is_missing || !error.is_about_input() {
            return Err(error.clone().into());
        }
        let field = field.map(str::to_owned);
        let status = if error.status == StatusCode::TOO_MANY_REQUESTS { error.status } else { StatusCode::UNPROCESSABLE_ENTITY };
        Ok(Self { values: values.clone(), faults: vec![FormFault { field, text: problem::say(t, error) }], status })
    }

    /// A form that was sent, with one fault about the form as a whole.
    pub(crate) fn about(t: Locale, values: &FormData, error: &ApiError) -> Self {
        let fault = FormFault { field: None, text: problem::say(t, error) };
        Self { values: values.clone(), faults: vec![fault], status: StatusCode::UNPROCESSABLE_ENTITY }
    }

    /// A form that was sent, with a fault of one field in these words.
    pub(crate) fn worded(values: &FormData, field: &str, text: String) -> Self {
        let fault = FormFault { field: Some(field.to_owned()), text };
        Self { values: values.clone(), faults: vec![fault], status: StatusCode::UNPROCESSABLE_ENTITY }
    }

    /// A form without the typed values, which were secret, and with a fault of one field.
    pub(crate) fn faulty(error: &ApiError, field: &str, text: String) -> Self {
        let status = if error.status == StatusCode::TOO_MANY_REQUESTS || error.status.is_server_error() {
            error.status
        } else {
            StatusCode::UNPROCESSABLE_ENTITY
        };
        Self { values: FormData::default(), faults: vec![FormFault { field: Some(field.to_owned()), text }], status }
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    /// The fault of the form as a whole.
    pub(crate) fn banner(&self) -> Option<String> {
        self.faults.iter().find(|fault| fault.field.is_none()).map(|fault| fault.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use askama::Template;

    use super::*;

    #[test]
    fn submitted_values_are_kept_except_passwords() {
        let sent = FormData::parse(b"login=%3Cb%3Eann%22&password=hunter2hunter2");
        let error = ApiError::value("login", "bad");
        let form = FormState::refused(Locale::EN, &sent, &error, &["login", "password"]).unwrap();
        let login = form.text("login", "Name").render().unwrap();
        assert!(login.contains("&#60;b&#62;ann&#34;") && !login.contains("<b>") && login.contains("aria-invalid"), "{login}");
        let password = form.secret("password", "Password").render().unwrap();
        assert!(!password.contains("hunter2") && !password.contains("aria-invalid"), "{password}");
        assert!(!format!("{sent:?}").contains("hunter2"));
        assert_eq!(form.banner(), None);
    }

    #[test]
    fn errors_without_a_field_are_shown_in_the_banner() {
        let error = ApiError::wrong_login();
        let form = FormState::refused(Locale::EN, &FormData::default(), &error, &["login"]).unwrap();
        assert!(form.banner().is_some());
        assert_eq!(form.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert!(FormState::refused(Locale::EN, &FormData::default(), &ApiError::internal(), &[]).is_err());
        assert_eq!(
            FormState::refused(Locale::EN, &FormData::default(), &ApiError::too_many_sign_ins(9), &[]).unwrap().status(),
            StatusCode::TOO_MANY_REQUESTS
        );
    }

    #[test]
    fn number_of_fields_is_bounded() {
        let many = "a=1&".repeat(10_000);
        assert_eq!(FormData::parse(many.as_bytes()).0.len(), MAX_FIELDS);
    }
}
