//! Credentials of a form, one a line: each becomes an account.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use tollgate_store::fields::AccountInput;

use crate::{
    api::check,
    pages::{
        control::Control,
        form::{FormData, FormState},
        format,
        locale::Locale,
    },
};

/// Longest form with credentials, in bytes, and longest text of them, in characters.
pub(in crate::pages) const MAX_BYTES: usize = 256 << 10;
const MAX_TEXT: usize = 100_000;
/// Credentials of one form; the admin API takes as many accounts at once.
const MOST: usize = 100;
const FIELD: &str = "credential";

/// A field for them. It keeps what was typed when the form is refused; pages are not stored by browsers (`no-store`).
pub(super) fn control(t: Locale, form: &FormState) -> Control {
    form.area(FIELD, t.say("channels.credential"), 2).hint(t.say("channels.credentials_hint")).max(MAX_TEXT).holds_secrets()
}

/// The credentials of a form. Lines without one are left out.
pub(super) fn of(form: &FormData) -> Vec<&str> {
    lines(form).map(|(_, credential)| credential).collect()
}

fn lines(form: &FormData) -> impl Iterator<Item = (usize, &str)> {
    let numbered = form.value(FIELD).lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, credential)| !credential.is_empty())
}

/// The first fault, with its line, which the admin API does not know.
fn fault(t: Locale, form: &FormData) -> Option<String> {
    let number = |number: usize| format::integer(u64::try_from(number).unwrap_or(u64::MAX));
    let count = lines(form).count();
    if count > MOST {
        return Some(t.say_with("channels.too_many_credentials", &[("most", &number(MOST)), ("count", &number(count))]));
    }
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (line, credential) in lines(form) {
        let sent = Map::from_iter([(FIELD.to_owned(), Value::from(credential))]);
        if check::write(&sent, &mut AccountInput::default()).is_err() {
            return Some(t.say_with("channels.credential_line", &[("line", &number(line))]));
        }
        if let Some(first) = known.insert(credential, line) {
            return Some(t.say_with("channels.credential_twice", &[("line", &number(line)), ("first", &number(first))]));
        }
    }
    None
}

/// The form with the fault of its credentials.
pub(in crate::pages) fn refused(t: Locale, form: &FormData) -> Option<FormState> {
    fault(t, form).map(|text| FormState::worded(form, FIELD, text))
}

/// Names for this many accounts: the given name, or for several the name followed by the first free numbers.
pub(super) fn names(given: &str, count: usize, taken: &HashSet<String>) -> Vec<String> {
    // The admin API refuses an empty name.
    if count < 2 || given.is_empty() {
        return vec![given.to_owned(); count.max(1)];
    }
    (1_u32..).map(|number| format!("{given}-{number}")).filter(|name| !taken.contains(name)).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> FormData {
        FormData::of(&[(FIELD, text)])
    }

    #[test]
    fn every_line_is_a_credential() {
        assert_eq!(of(&form(" sk-1\r\n\r\nsk two \n")), ["sk-1", "sk two"]);
        assert!(of(&form(" \n")).is_empty());
        assert!(refused(Locale::EN, &form("sk-1\nsk-2")).is_none());
    }

    #[test]
    fn faults_name_the_line() {
        let said = |text: &str| fault(Locale::EN, &form(text)).unwrap();
        assert!(said("sk-1\n\nsk–2").starts_with("Line 3:"), "{}", said("sk-1\n\nsk–2"));
        assert!(said("a\nb\na").starts_with("Line 3") && said("a\nb\na").contains("line 1"), "{}", said("a\nb\na"));
        let many: Vec<String> = (0..101).map(|number| format!("sk-{number}")).collect();
        assert!(said(&many.join("\n")).contains("101"));
        let state = refused(Locale::EN, &form("é")).unwrap();
        assert!(state.fault(FIELD).is_some() && state.value(FIELD) == "é");
    }

    #[test]
    fn several_accounts_get_the_first_free_numbers() {
        let taken = HashSet::from(["main-2".to_owned()]);
        assert_eq!(names("main", 3, &taken), ["main-1", "main-3", "main-4"]);
        assert_eq!((names("main", 1, &taken), names("main", 0, &taken)), (vec!["main".to_owned()], vec!["main".to_owned()]));
        assert_eq!(names("", 2, &taken), ["", ""]);
    }
}
