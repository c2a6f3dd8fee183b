//! Known values of filters, which their fields suggest while they are typed.

use std::collections::HashMap;

use serde::Deserialize;

use super::{
    operations,
    request::{ApiPage, PageRequest, get},
};
use crate::{api_error::ApiError, square};

/// Maximum number of suggested values. A field with more possible values has no suggestions.
const MAX: usize = 200;
/// The same as the limit of a list.
const LIMIT: &str = "200";

/// What the values name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Models,
    Keys,
    Groups,
    Members,
    Channels,
    Accounts,
}

impl Names {
    pub(super) const OF_MEMBERS: [Self; 3] = [Self::Models, Self::Keys, Self::Groups];
    pub(super) const OF_OPERATORS: [Self; 6] =
        [Self::Models, Self::Keys, Self::Groups, Self::Members, Self::Channels, Self::Accounts];

    /// Those of a field of a filter.
    fn of_field(field: &str) -> Option<Self> {
        Some(match field {
            "model" => Self::Models,
            "key" => Self::Keys,
            "group" => Self::Groups,
            "member" => Self::Members,
            "channel" | "tried_channel" => Self::Channels,
            "account" | "tried_account" => Self::Accounts,
            _ => return None,
        })
    }

    /// The id of their list in the page.
    const fn id(self) -> &'static str {
        match self {
            Self::Models => "known-models",
            Self::Keys => "known-keys",
            Self::Groups => "known-groups",
            Self::Members => "known-members",
            Self::Channels => "known-channels",
            Self::Accounts => "known-accounts",
        }
    }
}

/// Value, and its label if that differs.
type Suggested = (String, String);

#[derive(Debug, Default)]
pub(super) struct Suggestions(Vec<(Names, Vec<Suggested>)>);

impl Suggestions {
    /// The names that the reader may see. If names cannot be read, the page is shown without suggestions.
    pub(super) async fn of(request: &PageRequest, wanted: &[Names]) -> Self {
        let rows = async |names, list| {
            if wanted.contains(&names) { of_rows(request, list).await.unwrap_or_default() } else { Vec::new() }
        };
        let (lists, keys, members) = tokio::join!(
            of_catalog(request),
            rows(Names::Keys, operations::LIST_KEYS),
            rows(Names::Members, operations::LIST_MEMBERS)
        );
        let mut lists = lists.unwrap_or_default();
        lists.extend([(Names::Keys, keys), (Names::Members, members)]);
        lists.retain(|(names, _)| wanted.contains(names));
        Self::within_bounds(lists)
    }

    fn within_bounds(mut lists: Vec<(Names, Vec<Suggested>)>) -> Self {
        lists.retain(|(_, values)| (1..=MAX).contains(&values.len()));
        Self(lists)
    }

    /// Id and values of each list.
    pub(super) fn lists(&self) -> impl Iterator<Item = (&'static str, &Vec<Suggested>)> {
        self.0.iter().map(|(names, values)| (names.id(), values))
    }

    /// The id of the list for a field.
    pub(super) fn list_of(&self, field: &str) -> Option<&'static str> {
        let names = Names::of_field(field)?;
        self.0.iter().any(|(known, _)| *known == names).then(|| names.id())
    }
}

/// The first names; one more than the maximum means that there are too many.
fn first(names: impl IntoIterator<Item = String>) -> Vec<Suggested> {
    names.into_iter().take(MAX + 1).map(|name| (name, String::new())).collect()
}

async fn of_catalog(request: &PageRequest) -> Result<Vec<(Names, Vec<Suggested>)>, ApiError> {
    if !request.is_operator() {
        let seen = square::names_for(&request.state, (&request.meta, &request.headers)).await?;
        return Ok(vec![(Names::Models, first(seen.models)), (Names::Groups, first(seen.groups))]);
    }
    let catalog = request.state.gateway.catalog().await?;
    let accounts = catalog
        .channels
        .values()
        .flat_map(|channel| channel.accounts.iter().map(move |account| format!("{}/{}", channel.spec.name, account.spec.name)));
    Ok(vec![
        (Names::Models, first(catalog.mappings_by_model.keys().cloned())),
        (Names::Groups, first(catalog.groups.values().map(|group| group.name.clone()))),
        (Names::Channels, first(catalog.channels.values().map(|channel| channel.spec.name.clone()))),
        (Names::Accounts, first(accounts)),
    ])
}

/// A key or a member.
#[derive(Debug, Deserialize)]
struct NamedRow {
    id: String,
    name: String,
    /// Of a key.
    #[serde(default)]
    member: String,
}

/// The rows of a list; none if they are too many. Operators share them for some seconds, because several pages read them.
async fn of_rows(request: &PageRequest, list: &'static str) -> Result<Vec<Suggested>, ApiError> {
    let found: ApiPage<NamedRow> = request.read_kept(list, get(&[("limit", LIMIT)])).await?;
    Ok(if found.next.is_some() { Vec::new() } else { values(found.items) })
}

/// Names, with ids for rows whose name is not unique.
fn values(rows: Vec<NamedRow>) -> Vec<Suggested> {
    let mut times: HashMap<String, usize> = HashMap::new();
    for row in &rows {
        *times.entry(row.name.clone()).or_default() += 1;
    }
    let value = |row: NamedRow| {
        if times[&row.name] == 1 { (row.name, String::new()) } else { (row.id, format!("{} · {}", row.name, row.member)) }
    };
    rows.into_iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use askama::Template;

    use super::*;

    fn plain(names: impl IntoIterator<Item = &'static str>) -> Vec<Suggested> {
        names.into_iter().map(|name| (name.to_owned(), String::new())).collect()
    }

    #[derive(Debug, Template)]
    #[template(path = "parts/suggestions.html")]
    struct SuggestionsPart {
        suggestions: Suggestions,
    }

    #[test]
    fn names_of_several_keys_are_suggested_as_ids() {
        let row = |id: &str, name: &str| NamedRow { id: id.to_owned(), name: name.to_owned(), member: "ann".to_owned() };
        let values = values(vec![row("key_1", "ci"), row("key_2", "app"), row("key_3", "ci")]);
        let labelled = |id: &str| (id.to_owned(), "ci · ann".to_owned());
        assert_eq!(values, [labelled("key_1"), ("app".to_owned(), String::new()), labelled("key_3")]);
    }

    #[test]
    fn fields_have_a_list_unless_it_is_empty_or_too_long() {
        let suggestions = Suggestions::within_bounds(vec![
            (Names::Models, plain(["a", "\"><b>"])),
            (Names::Channels, plain(["main"; MAX])),
            (Names::Groups, plain(["g"; MAX + 1])),
            (Names::Keys, Vec::new()),
        ]);
        let of = ["model", "channel", "tried_channel", "group", "key", "member", "status"].map(|field| suggestions.list_of(field));
        assert_eq!(of, [Some("known-models"), Some("known-channels"), Some("known-channels"), None, None, None, None]);
        let html = SuggestionsPart { suggestions }.render().unwrap();
        let list = "<datalist id=\"known-models\"><option value=\"a\"><option value=\"&#34;&#62;&#60;b&#62;\"></datalist>";
        assert!(html.contains(list), "{html}");
    }
}
