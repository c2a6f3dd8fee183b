//! Forms made of parts: controls of every kind with their label, hint and fault, sections, and the confirmation of actions that
//! cannot be undone.

use std::fmt;

use askama::Template;
use serde_json::Value;

use super::{
    budgets::{self, AmountTable},
    form::{FormData, FormState, REVISION},
    locale::Locale,
    page_cursors::{CursorPairs, PageCursors},
    reply::PageFailure,
};
use crate::api_error::ApiError;

/// A form control for one value, or for several values of the same name.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/control.html")]
pub(crate) struct Control {
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) kind: ControlKind,
    pub(crate) value: String,
    pub(crate) hint: Option<String>,
    pub(crate) fault: Option<String>,
    /// The HTML attribute `autocomplete`.
    pub(crate) autocomplete: &'static str,
    pub(crate) max: usize,
    pub(crate) is_required: bool,
    /// Spans the whole width of its section.
    pub(crate) is_wide: bool,
    pub(crate) has_focus: bool,
    /// The typed text may be a secret, so the browser does not keep it when a form is lost.
    pub(crate) is_secret: bool,
    /// The order of the choices matters: the label of the button that moves one up, with `{name}`.
    pub(crate) moves: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub(crate) enum ControlKind {
    /// One line, of this type of input.
    Text(&'static str),
    /// A number with or without decimals, typed as text.
    Number,
    /// Lines.
    Area(usize),
    Choice(Vec<Choice>),
    /// Several of a few values.
    Checks(Vec<Choice>),
    /// One flag, on if it is sent.
    Check(bool),
    /// Suggestions for one line.
    Suggest(Vec<String>),
    /// Amounts in rows and columns.
    Amounts(AmountTable),
}

#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) value: String,
    pub(crate) label: String,
    /// The description below the label of a check.
    pub(crate) about: Option<String>,
    pub(crate) is_chosen: bool,
}

/// Longest one-line text.
const MAX_TEXT: usize = 254;
/// Longest secret, in characters.
const MAX_SECRET: usize = 1_000;
/// Longest text of lines, in characters.
const MAX_AREA: usize = 10_000;

impl FormState {
    fn control(&self, name: impl Into<String>, label: impl Into<String>, kind: ControlKind) -> Control {
        let name = name.into();
        Control {
            value: self.value(&name).to_owned(),
            fault: self.fault(&name).map(str::to_owned),
            name,
            label: label.into(),
            kind,
            hint: None,
            autocomplete: "off",
            max: MAX_TEXT,
            is_required: false,
            is_wide: false,
            has_focus: false,
            is_secret: false,
            moves: None,
        }
    }

    /// An optional line of text.
    pub(crate) fn text(&self, name: impl Into<String>, label: impl Into<String>) -> Control {
        self.control(name, label, ControlKind::Text("text"))
    }

    /// A line of text with another input type, such as `date`.
    pub(crate) fn typed(&self, name: impl Into<String>, label: impl Into<String>, kind: &'static str) -> Control {
        self.control(name, label, ControlKind::Text(kind))
    }

    /// A secret, which is never sent back.
    pub(crate) fn secret(&self, name: impl Into<String>, label: impl Into<String>) -> Control {
        Control {
            value: String::new(),
            autocomplete: "new-password",
            max: MAX_SECRET,
            ..self.control(name, label, ControlKind::Text("password"))
        }
    }

    /// The password of the account that is signed in or signs in.
    pub(crate) fn current_password(&self, name: impl Into<String>, label: impl Into<String>) -> Control {
        self.secret(name, label).autocomplete("current-password").required()
    }

    pub(crate) fn number(&self, name: impl Into<String>, label: impl Into<String>) -> Control {
        Control { max: 30, ..self.control(name, label, ControlKind::Number) }
    }

    pub(crate) fn area(&self, name: impl Into<String>, label: impl Into<String>, rows: usize) -> Control {
        Control { max: MAX_AREA, is_wide: true, ..self.control(name, label, ControlKind::Area(rows)) }
    }

    pub(crate) fn check(&self, name: impl Into<String>, label: impl Into<String>) -> Control {
        let name = name.into();
        let is_on = self.value(&name) == "true";
        self.control(name, label, ControlKind::Check(is_on))
    }

    /// One of these values: value and label.
    pub(crate) fn choice<V: Into<String>, L: Into<String>>(
        &self,
        name: impl Into<String>,
        label: impl Into<String>,
        choices: impl IntoIterator<Item = (V, L)>,
    ) -> Control {
        let name = name.into();
        let chosen = self.value(&name).to_owned();
        let choices = choices.into_iter().map(|(value, label)| {
            let value = value.into();
            Choice { is_chosen: value == chosen, value, label: label.into(), about: None }
        });
        let kind = ControlKind::Choice(choices.collect());
        self.control(name, label, kind)
    }

    /// Some of these values: value and label.
    pub(crate) fn checks<V: Into<String>, L: Into<String>>(
        &self,
        name: &str,
        label: impl Into<String>,
        choices: impl IntoIterator<Item = (V, L)>,
    ) -> Control {
        let choices = choices.into_iter().map(|(value, label)| {
            let value = value.into();
            Choice { is_chosen: self.all(name).any(|sent| sent == value), value, label: label.into(), about: None }
        });
        self.chosen(name, label, choices.collect())
    }

    /// Some of these values; some are already chosen.
    pub(crate) fn chosen(&self, name: &str, label: impl Into<String>, choices: Vec<Choice>) -> Control {
        Control { is_wide: true, ..self.control(name, label, ControlKind::Checks(choices)) }
    }

    /// A line of text with suggestions.
    pub(crate) fn suggest(&self, name: impl Into<String>, label: impl Into<String>, known: Vec<String>) -> Control {
        self.control(name, label, ControlKind::Suggest(known))
    }
}

impl Control {
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    pub(crate) fn autocomplete(self, autocomplete: &'static str) -> Self {
        Self { autocomplete, ..self }
    }

    /// Longest text, in characters.
    pub(crate) fn max(self, max: usize) -> Self {
        Self { max, ..self }
    }

    pub(crate) fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    pub(crate) fn focus(self) -> Self {
        Self { has_focus: true, ..self }
    }

    /// Choices that the reader can put in order.
    pub(crate) fn ordered(self, moves: &'static str) -> Self {
        Self { moves: Some(moves), ..self }
    }

    /// May hold secrets, such as the headers of a channel.
    pub(crate) fn holds_secrets(self) -> Self {
        Self { is_secret: true, ..self }
    }

    pub(crate) fn has_fault(&self) -> bool {
        self.fault.is_some() || matches!(&self.kind, ControlKind::Amounts(table) if table.has_fault())
    }

    const fn has_note(&self) -> bool {
        self.fault.is_some() || self.hint.is_some()
    }

    /// Attributes of controls of every kind, each with a leading space.
    fn flags(&self) -> String {
        let flags = [
            (self.is_required, " required"),
            (self.has_focus, " autofocus"),
            (self.has_fault(), " aria-invalid=\"true\""),
            (self.is_secret, " data-secret"),
        ];
        flags.into_iter().filter_map(|(is_set, text)| is_set.then_some(text)).collect()
    }
}

/// Controls that belong together.
#[derive(Debug)]
pub(crate) struct ControlSection {
    /// Empty: none.
    pub(crate) title: &'static str,
    pub(crate) about: Option<String>,
    pub(crate) controls: Vec<Control>,
    /// Collapsed until the reader opens it. It starts open if one of its controls has a fault.
    pub(crate) is_folded: bool,
}

impl ControlSection {
    pub(crate) fn new(title: &'static str, controls: Vec<Control>) -> Self {
        Self { title, about: None, controls, is_folded: false }
    }

    pub(crate) fn about(self, about: impl Into<String>) -> Self {
        Self { about: Some(about.into()), ..self }
    }

    pub(crate) fn folded(self) -> Self {
        Self { is_folded: true, ..self }
    }

    pub(crate) fn has_fault(&self) -> bool {
        self.controls.iter().any(Control::has_fault)
    }
}

/// A form that writes.
#[derive(Debug)]
pub(crate) struct FormView {
    pub(crate) action: String,
    pub(crate) hidden: Vec<(String, String)>,
    pub(crate) sections: Vec<ControlSection>,
    pub(crate) submit: &'static str,
    /// Link of the cancel button.
    pub(crate) cancel: Option<String>,
    /// Another button: where it sends the form, and its label.
    pub(crate) second: Option<(String, &'static str)>,
    /// The form's action cannot be undone.
    pub(crate) is_dangerous: bool,
}

impl FormView {
    pub(crate) fn new(action: String, sections: Vec<ControlSection>, submit: &'static str) -> Self {
        Self { action, hidden: Vec::new(), sections, submit, cancel: None, second: None, is_dangerous: false }
    }

    pub(crate) fn hidden(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.hidden.push((name.into(), value.to_string()));
        self
    }

    /// Adds the row's revision as a hidden field; that of the sent form if there is one.
    pub(crate) fn at_revision(self, state: &FormState, stored: u64) -> Self {
        self.hidden(REVISION, state.revision(stored))
    }

    pub(crate) fn cancel(self, to: String) -> Self {
        Self { cancel: Some(to), ..self }
    }

    pub(crate) fn dangerous(self) -> Self {
        Self { is_dangerous: true, ..self }
    }

    pub(crate) fn second(self, action: String, label: &'static str) -> Self {
        Self { second: Some((action, label)), ..self }
    }
}

/// An action that cannot be undone. The name must be typed to confirm it.
#[derive(Debug)]
pub(crate) struct Danger {
    pub(crate) title: &'static str,
    pub(crate) about: String,
    pub(crate) action: String,
    pub(crate) control: Control,
    pub(crate) submit: &'static str,
}

/// The field that the name is typed into.
pub(crate) const TYPED_NAME: &str = "typed_name";

impl Danger {
    pub(crate) fn new(
        t: Locale,
        state: &FormState,
        action: String,
        (title, about, submit): (&'static str, String, &'static str),
    ) -> Self {
        Self::in_field(TYPED_NAME, t, state, action, (title, about, submit))
    }

    /// The same with another field, on a page that has several such actions.
    pub(crate) fn in_field(
        field: &'static str,
        t: Locale,
        state: &FormState,
        action: String,
        (title, about, submit): (&'static str, String, &'static str),
    ) -> Self {
        Self { title, about, action, control: state.text(field, t.say("form.type_name")).required(), submit }
    }
}

/// Whether the name was typed.
pub(crate) fn check_typed_name(form: &FormData, name: &str) -> Result<(), ApiError> {
    check_typed_in(TYPED_NAME, form, name)
}

/// The same for another field.
pub(crate) fn check_typed_in(field: &'static str, form: &FormData, name: &str) -> Result<(), ApiError> {
    if form.value(field).trim() == name {
        return Ok(());
    }
    Err(ApiError::value(field, "expected the name").because("typed_name"))
}

/// Placement of a fault: its parameter or code, the field of the form beside which it is shown, and the reason whose text
/// [`super::problem`] has; if empty, the admin API's text is shown.
pub(crate) type FaultPlace = (&'static str, &'static str, &'static str);

/// A form that was refused, with the fault beside the field that it is about.
pub(crate) fn refused(t: Locale, form: &FormData, error: ApiError, places: &[FaultPlace]) -> Result<FormState, PageFailure> {
    FormState::refused_each(error, |error| refused_one(t, form, error, places))
}

fn refused_one(t: Locale, form: &FormData, error: ApiError, places: &[FaultPlace]) -> Result<FormState, PageFailure> {
    let error = budgets::placed(form, error);
    let param = error.param().unwrap_or_default().to_owned();
    let base = param.split(['.', '[']).next().unwrap_or_default();
    let place = |wanted: &str| places.iter().find(|(known, ..)| *known == wanted);
    let found = place(&param).or_else(|| place(base)).or_else(|| place(error.code()));
    let Some((_, field, reason)) = found else {
        let known = error.param().filter(|param| form.has(param));
        return FormState::refused_at(t, form, &error, known);
    };
    let error = if error.reason().is_none() && !reason.is_empty() { error.because(reason) } else { error };
    FormState::refused_at(t, form, &error.about(field), Some(field))
}

/// Names or patterns, separated by commas or lines.
pub(crate) fn names<'a>(form: &'a FormData, field: &str) -> Vec<&'a str> {
    form.value(field).split([',', '，', '\n', '\r']).map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// A whole number; empty is 0.
pub(crate) fn whole_number(form: &FormData, field: &str) -> Result<u64, ApiError> {
    let digits: String = form.value(field).chars().filter(|c| !c.is_whitespace() && *c != ',').collect();
    if digits.is_empty() {
        return Ok(0);
    }
    digits.parse().map_err(|_| ApiError::value(field, "expected a whole number").because("whole_number"))
}

/// A limit, 0 for an empty field. A typed 0 is refused: the admin API reads it as unlimited, while people mean that nothing is allowed.
pub(crate) fn limit(form: &FormData, field: &str) -> Result<u64, ApiError> {
    let number = whole_number(form, field)?;
    if number == 0 && form.filled(field).is_some() {
        return Err(ApiError::value(field, "expected a number above 0").because("limit"));
    }
    Ok(number)
}

/// A limit for a body. Text that is not a limit is sent unchanged, so that the admin API reports it together with the other faults.
pub(crate) fn limit_or_text(form: &FormData, field: &str) -> Value {
    limit(form, field).map_or_else(|_| form.value(field).trim().into(), Value::from)
}

/// A decimal as typed: without a sign of the currency and without separators of thousands.
pub(crate) fn decimal(text: &str) -> String {
    text.trim().trim_start_matches('$').chars().filter(|c| *c != ',' && !c.is_whitespace()).collect()
}

/// A limit as a form holds it: empty where it is unlimited.
pub(crate) fn limit_text(limit: u64) -> String {
    if limit == 0 { String::new() } else { limit.to_string() }
}

/// A link at the top of related pages.
#[derive(Debug)]
pub(crate) struct Tab {
    pub(crate) label: &'static str,
    pub(crate) link: String,
    pub(crate) is_current: bool,
}

/// The footer of a list: count and links to other pages.
#[derive(Debug)]
pub(crate) struct Pager {
    pub(crate) count: String,
    /// Only if the previous page is not the first one.
    pub(crate) first: Option<String>,
    pub(crate) previous: Option<String>,
    pub(crate) next: Option<String>,
}

impl Pager {
    /// `at` makes the address of a page.
    pub(crate) fn of(cursors: &PageCursors, count: String, next: Option<&str>, at: impl Fn(&CursorPairs) -> String) -> Self {
        let previous = cursors.previous_page();
        let is_later = cursors.after().is_some() && previous.as_ref().is_none_or(|page| !page.is_empty());
        Self {
            count,
            first: is_later.then(|| at(&CursorPairs::new())),
            previous: previous.map(|page| at(&page)),
            next: next.map(|next| at(&cursors.next_page(next))),
        }
    }

    /// Whether the list has another page.
    pub(crate) fn has_others(&self) -> bool {
        self.previous.is_some() || self.first.is_some() || self.next.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_shown_beside_the_field_of_its_parameter() {
        let form = FormData::parse(b"hedge=much&name=a");
        let places: &[FaultPlace] = &[("hedge", "hedge", "amount"), ("name", "name", "")];
        let state = refused(Locale::EN, &form, ApiError::value("hedge.cost_cap", "expected an amount"), places).unwrap();
        assert!(state.number("hedge", "x").has_fault() && state.banner().is_none());
        let state = refused(Locale::EN, &form, ApiError::conflict("nothing_left", "No account is left."), places).unwrap();
        assert!(state.number("hedge", "x").fault.is_none() && state.banner().is_some());
        assert_eq!(state.text("name", "x").value, "a");
    }

    #[test]
    fn typed_lists_and_numbers_are_parsed_leniently() {
        let form = FormData::parse("models=a,+b%0D%0Ac%EF%BC%8C&rpm=1,000&tpm=&bad=many&none=0".as_bytes());
        assert_eq!(names(&form, "models"), ["a", "b", "c"]);
        assert_eq!((whole_number(&form, "rpm").unwrap(), whole_number(&form, "tpm").unwrap()), (1_000, 0));
        assert_eq!(whole_number(&form, "bad").unwrap_err().param(), Some("bad"));
        assert_eq!((limit_or_text(&form, "rpm"), limit_or_text(&form, "bad")), (1_000.into(), "many".into()));
        assert_eq!((whole_number(&form, "none").unwrap(), limit_or_text(&form, "none")), (0, "0".into()));
        assert_eq!((limit(&form, "rpm").unwrap(), limit(&form, "tpm").unwrap()), (1_000, 0));
        assert_eq!(limit(&form, "none").unwrap_err().param(), Some("none"));
        assert_eq!(decimal(" $1,234.50 "), "1234.50");
        assert!(check_typed_name(&FormData::of(&[(TYPED_NAME, " a ")]), "a").is_ok());
        assert!(check_typed_name(&form, "a").is_err());
    }

    #[test]
    fn submitted_choices_are_preselected() {
        let state = FormState::of(FormData::parse(b"channel=a&channel=c&on=true"));
        let ControlKind::Checks(choices) = state.checks("channel", "x", [("a", "A"), ("b", "B"), ("c", "C")]).kind else {
            panic!()
        };
        assert_eq!(choices.iter().map(|choice| choice.is_chosen).collect::<Vec<_>>(), [true, false, true]);
        assert!(matches!(state.check("on", "x").kind, ControlKind::Check(true)));
    }
}
