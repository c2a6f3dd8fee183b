//! The groups that a member may use: controls with the groups that exist.

use std::iter;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    api_error::ApiError,
    pages::{
        control::{Choice, Control},
        form::{FormData, FormState},
        locale::Locale,
        operations,
        request::{ApiPage, PageRequest, get},
    },
};

#[derive(Debug, Deserialize)]
struct GroupObject {
    name: String,
    visibility: String,
}

/// The names of all groups.
#[derive(Debug)]
pub(super) struct MemberGroups {
    all: Vec<String>,
    private: Vec<String>,
}

impl MemberGroups {
    pub(super) async fn read(request: &PageRequest) -> Result<Self, ApiError> {
        let groups = request.read::<ApiPage<GroupObject>>(operations::LIST_GROUPS, get(&[("limit", "1000")])).await?.items;
        Ok(Self::of(groups))
    }

    fn of(groups: Vec<GroupObject>) -> Self {
        let private = groups.iter().filter(|group| group.visibility == "private").map(|group| group.name.clone()).collect();
        Self { all: groups.into_iter().map(|group| group.name).collect(), private }
    }

    /// The private groups, and those of the form's values that are no longer private or no longer exist.
    pub(super) fn private_control(&self, t: Locale, state: &FormState) -> Control {
        let further = state.all("groups").filter(|name| !name.is_empty() && !self.private.iter().any(|known| known == name));
        let names = self.private.iter().map(String::as_str).chain(further);
        let choice = |name: &str| Choice {
            value: name.to_owned(),
            label: name.to_owned(),
            about: None,
            is_chosen: state.all("groups").any(|chosen| chosen == name),
        };
        let choices: Vec<Choice> = names.map(choice).collect();
        let hint = if choices.is_empty() { t.say("members.groups_none") } else { t.say("members.groups_hint") };
        state.chosen("groups", t.say("members.groups"), choices).hint(hint)
    }

    /// The group of keys that list none.
    pub(super) fn default_control(&self, t: Locale, state: &FormState) -> Control {
        let chosen = state.value("default_group");
        let further = iter::once(chosen).filter(|name| !name.is_empty() && !self.all.iter().any(|known| known == name));
        let names = self.all.iter().map(String::as_str).chain(further);
        let unset = ("", t.say("members.default_group_unset"));
        let choices = iter::once(unset).chain(names.map(|name| (name, name)));
        state.choice("default_group", t.say("members.default_group"), choices).hint(t.say("members.default_group_hint"))
    }
}

/// The groups that are chosen in a form, as the admin API takes them.
pub(super) fn chosen(form: &FormData) -> Value {
    form.all("groups").map(str::trim).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::control::ControlKind;

    fn groups() -> MemberGroups {
        let group = |name: &str, visibility: &str| GroupObject { name: name.to_owned(), visibility: visibility.to_owned() };
        MemberGroups::of(vec![group("default", "public"), group("lab", "private"), group("night", "private")])
    }

    fn choices(control: Control) -> Vec<(String, bool)> {
        let (ControlKind::Checks(choices) | ControlKind::Choice(choices)) = control.kind else { panic!("no choices") };
        choices.into_iter().map(|choice| (choice.value, choice.is_chosen)).collect()
    }

    #[test]
    fn private_groups_are_offered_and_stored_names_are_kept() {
        let state = FormState::of(FormData::of(&[("groups", "lab"), ("groups", "default"), ("groups", "removed")]));
        let offered = choices(groups().private_control(Locale::EN, &state));
        let expected = [("lab", true), ("night", false), ("default", true), ("removed", true)];
        assert_eq!(offered, expected.map(|(name, is_chosen)| (name.to_owned(), is_chosen)));
        let none = MemberGroups::of(Vec::new()).private_control(Locale::EN, &FormState::of(FormData::of(&[])));
        assert_eq!(none.hint.as_deref(), Some(Locale::EN.say("members.groups_none")));
    }

    #[test]
    fn default_group_is_any_group_or_unset() {
        let offered = |stored: &str| {
            choices(groups().default_control(Locale::EN, &FormState::of(FormData::of(&[("default_group", stored)]))))
        };
        let chosen = |stored: &str| {
            offered(stored).into_iter().filter(|(_, is_chosen)| *is_chosen).map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(offered("").len(), 4);
        assert_eq!(
            (chosen(""), chosen("night"), chosen("removed")),
            (vec![String::new()], vec!["night".to_owned()], vec!["removed".to_owned()])
        );
    }
}
