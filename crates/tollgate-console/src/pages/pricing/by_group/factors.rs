//! The form of the page: the factors of the groups that are shown, or those of one model in each of them.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tollgate_core::{Glob, Multiplier, SaleMultipliers};
use tollgate_store::fields::FieldValue as _;

use super::{COLUMNS, GroupObject, address, groups, page};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{self, Control, ControlSection, FaultPlace, FormView, decimal},
        form::{FormData, FormState},
        locale::Locale,
        operations,
        page_cursors::PageCursors,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of},
    },
};

/// The subject of the form's factors.
#[derive(Clone, Copy, Debug)]
enum Subject<'a> {
    Groups,
    /// One model in each group.
    Model(&'a str),
}

impl<'a> Subject<'a> {
    fn of(request: &'a PageRequest) -> Self {
        request.query.filled("model").map_or(Self::Groups, Self::Model)
    }

    /// The factor that a group has for the model; empty if it has none for exactly this model.
    fn written(self, group: &GroupObject) -> &str {
        match self {
            Self::Groups => &group.sale_multiplier,
            Self::Model(model) => group.model_multipliers.get(model).map_or("", String::as_str),
        }
    }

    /// A typed factor; `None` removes the model's own factor.
    fn read(self, form: &FormData, field: &str) -> Result<Option<Multiplier>, ApiError> {
        match (self, form.filled(field)) {
            (Self::Model(_), None) => Ok(None),
            (Self::Model(_) | Self::Groups, typed) => {
                let factor = read_factor(&decimal(typed.unwrap_or_default()));
                factor.map(Some).ok_or_else(|| ApiError::value(field, "expected a factor").because("factor"))
            }
        }
    }

    /// The change of a group that gives it this factor.
    fn body(self, group: &GroupObject, factor: Option<Multiplier>) -> Map<String, Value> {
        let (field, value) = match self {
            Self::Groups => ("sale_multiplier", factor.unwrap_or_default().show()),
            Self::Model(model) => {
                let mut own = group.model_multipliers.clone();
                match factor {
                    Some(factor) => own.insert(model.to_owned(), factor.to_decimal()),
                    None => own.remove(model),
                };
                ("model_multipliers", json!(own))
            }
        };
        Map::from_iter([(field.to_owned(), value)])
    }

    fn hint(self, t: Locale, group: &GroupObject) -> Option<String> {
        match self {
            Self::Groups => None,
            Self::Model(model) => Some(without_own(t, group, model)),
        }
    }
}

/// The price of a model in a group without a factor for exactly this model.
fn without_own(t: Locale, group: &GroupObject, model: &str) -> String {
    let others = group.model_multipliers.iter().filter(|(pattern, _)| *pattern != model);
    let others = others.filter_map(|(pattern, factor)| Some((Glob(pattern.clone()), read_factor(factor)?)));
    let multipliers = SaleMultipliers::new(read_factor(&group.sale_multiplier).unwrap_or_default(), others);
    match multipliers.own(model) {
        Some((pattern, factor)) => t.say_with("pricing.empty_pattern", &[("factor", &factor.to_decimal()), ("pattern", pattern)]),
        None => t.say_with("pricing.empty_group", &[("factor", &multipliers.of_group().to_decimal())]),
    }
}

fn read_factor(text: &str) -> Option<Multiplier> {
    Multiplier::read(&text.into()).ok()
}

/// A field for the factor of each group that can be changed here.
pub(super) fn form(request: &PageRequest, groups: &[GroupObject], state: &FormState) -> Option<FormView> {
    let (t, subject) = (request.t(), Subject::of(request));
    let groups: Vec<&GroupObject> = groups.iter().filter(|group| group.owner != "file").collect();
    if groups.is_empty() {
        return None;
    }
    let held = |index: usize, group: &GroupObject| {
        let field = format!("factor_{index}");
        // The index may belong to another group by now. Keep a typed factor only if its group is the same.
        let is_kept = state.value(&format!("group_{index}")) == group.name && state.has(&field);
        let control = state.number(field, group.name.clone());
        let control = match subject.hint(t, group) {
            Some(hint) => control.hint(hint),
            None => control.required(),
        };
        if is_kept { control } else { Control { value: subject.written(group).to_owned(), ..control } }
    };
    let mut controls: Vec<Control> = groups.iter().enumerate().map(|(index, group)| held(index, group)).collect();
    if state.fault("confirm").is_some() || state.has("confirm") {
        controls.push(state.check("confirm", t.say("groups.confirm")).wide());
    }
    let section = match subject {
        Subject::Groups => ControlSection::new(t.say("pricing.factors"), controls).about(t.say("pricing.factors_about")),
        Subject::Model(model) => ControlSection::new(t.say("pricing.model_factors"), controls)
            .about(t.say_with("pricing.model_factors_about", &[("model", model)])),
    };
    let action = request.at("/pricing/groups", &PageCursors::of(&request.query).here());
    let mut form = FormView::new(action, vec![section], t.say("form.save"));
    if matches!(subject, Subject::Model(_)) {
        form = form.cancel(address(request, &[("model", "")]));
    }
    for (index, group) in groups.iter().enumerate() {
        // A group that was written before another one was refused has a new revision, which the form takes over.
        let (typed, written) = (state.value(&format!("factor_{index}")).trim(), subject.written(group));
        let is_written = read_factor(&decimal(typed)).map_or(typed == written, |typed| Some(typed) == read_factor(written));
        let sent = state.value(&format!("revision_{index}"));
        let revision = if sent.is_empty() || is_written { group.revision.to_string() } else { sent.to_owned() };
        form = form.hidden(format!("group_{index}"), &group.name).hidden(format!("revision_{index}"), revision);
    }
    Some(form)
}

/// A group of a form whose factor changes.
#[derive(Debug, PartialEq, Eq)]
struct Changed {
    index: usize,
    group: String,
    body: Map<String, Value>,
    revision: String,
}

/// The groups that a form changes. Nothing is changed if one of the factors is invalid.
fn changed(form: &FormData, groups: &[GroupObject], subject: Subject<'_>) -> Result<Vec<Changed>, ApiError> {
    let mut found = Vec::new();
    for index in 0..COLUMNS {
        let Some(name) = form.filled(&format!("group_{index}")) else { continue };
        let typed = subject.read(form, &format!("factor_{index}"))?;
        // A group that was removed meanwhile is left out.
        let Some(group) = groups.iter().find(|group| group.name == name) else { continue };
        if read_factor(subject.written(group)) != typed {
            let revision = form.value(&format!("revision_{index}")).to_owned();
            found.push(Changed { index, group: name.to_owned(), body: subject.body(group, typed), revision });
        }
    }
    Ok(found)
}

pub(in crate::pages::pricing) async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let groups_before = groups(&request).await?;
    let written = match changed(&request.form, &groups_before, Subject::of(&request)) {
        Ok(changes) => write(&request, changes).await,
        Err(error) => Err(error),
    };
    match written {
        Ok(()) => Ok(PageReply::redirect(&address(&request, &[("model", "")])).toast(Toast::Saved)),
        Err(error) => {
            const PLACES: &[FaultPlace] = &[("nothing_left", "confirm", "nothing_left")];
            let state = control::refused(request.t(), &request.form, error, PLACES)?;
            page(&request, &groups(&request).await?, &state).await
        }
    }
}

/// Changes one group after the other, up to the first refusal.
async fn write(request: &PageRequest, changes: Vec<Changed>) -> Result<(), ApiError> {
    let query = if request.form.value("confirm") == "true" { "confirm=true".to_owned() } else { String::new() };
    for Changed { index, group, body, revision } in changes {
        let call = ApiCall { body, query: query.clone(), path: path_of(&[("name", &group)]) };
        let answer = request.call_with(operations::CHANGE_GROUP, call, &[("if-match", &revision)]).await;
        let field = format!("factor_{index}");
        answer.map_err(|error| match error.param() {
            Some("sale_multiplier") => error.about(&field).because("factor"),
            // A fault of the whole list, such as too many factors.
            Some(param) if param.starts_with("model_multipliers") => error.about(&field),
            _ => error,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, factor: &str, own: &[(&str, &str)]) -> GroupObject {
        let model_multipliers = own.iter().map(|(pattern, factor)| ((*pattern).to_owned(), (*factor).to_owned())).collect();
        let (name, owner, sale_multiplier) = (name.to_owned(), "database".to_owned(), factor.to_owned());
        GroupObject { name, owner, revision: 3, sale_multiplier, model_multipliers }
    }

    #[test]
    fn only_factors_that_differ_are_written() {
        let groups = [group("a", "1", &[]), group("b", "0.9", &[]), group("c", "2", &[])];
        let changed = |form: &[u8]| changed(&FormData::parse(form), &groups, Subject::Groups);
        let form = b"group_0=a&factor_0=1.0&revision_0=1&group_1=b&factor_1=+0.8&revision_1=7&group_2=c&factor_2=1.5";
        assert_eq!(changed(form).unwrap().iter().map(|it| it.group.as_str()).collect::<Vec<_>>(), ["b", "c"]);
        let wrong = changed(b"group_0=b&factor_0=0.8&revision_0=7&group_1=c&factor_1=cheap").unwrap_err();
        assert_eq!(wrong.param(), Some("factor_1"), "nothing is written if one is wrong");
        assert!(changed(b"group_0=b&factor_0=").is_err(), "a group has a factor");
        let body = Map::from_iter([("sale_multiplier".to_owned(), "0.8".into())]);
        let expected = Changed { index: 0, group: "b".to_owned(), body, revision: "7".to_owned() };
        assert_eq!(changed(b"group_0=b&factor_0=0.8&revision_0=7").unwrap(), [expected]);
        assert!(changed(b"group_0=gone&factor_0=0.8&revision_0=7").unwrap().is_empty());
    }

    #[test]
    fn model_factor_is_added_and_removed_beside_the_others() {
        let groups = [group("a", "1", &[("gpt-*", "1.5")]), group("b", "1", &[("gpt-*", "1.5"), ("gpt-fast", "2")])];
        let bodies = |form: &[u8]| -> Vec<Value> {
            let found = changed(&FormData::parse(form), &groups, Subject::Model("gpt-fast")).unwrap();
            found.into_iter().map(|change| change.body["model_multipliers"].clone()).collect()
        };
        assert_eq!(bodies(b"group_0=a&factor_0=&group_1=b&factor_1=2.0"), Vec::<Value>::new());
        assert_eq!(
            bodies(b"group_0=a&factor_0=0.50&group_1=b&factor_1=+"),
            [json!({"gpt-*": "1.5", "gpt-fast": "0.5"}), json!({"gpt-*": "1.5"}),]
        );
    }

    #[test]
    fn hint_names_the_factor_that_applies_otherwise() {
        let own = group("a", "0.9", &[("gpt-fast", "2"), ("gpt-*", "1.5"), ("*-fast", "3")]);
        assert_eq!(without_own(Locale::EN, &own, "gpt-fast"), "Empty: × 3 of *-fast");
        assert_eq!(without_own(Locale::EN, &own, "gpt-slow"), "Empty: × 1.5 of gpt-*");
        assert_eq!(without_own(Locale::EN, &own, "o3"), "Empty: × 0.9 of the group");
    }
}
