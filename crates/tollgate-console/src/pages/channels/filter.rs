//! The filter of the list of channels, which is in its address.

use url::form_urlencoded::Serializer;

use super::state::{ChannelState, provider_name};
use crate::pages::{form::FormData, locale::Locale};

/// States that can be chosen, with their severities.
const STATES: [(&str, &[u8]); 5] = [("usable", &[2]), ("partly", &[1]), ("unusable", &[0]), ("no_account", &[3]), ("off", &[4])];
/// Severities that need attention.
const PROBLEMS: &[u8] = &[0, 1];

/// Longest value that a saved view keeps.
const MAX_CHARS: usize = 200;

#[derive(Debug, Default)]
pub(super) struct ChannelFilter {
    pub(super) search: String,
    pub(super) has_problems_only: bool,
    state: String,
    provider: String,
    group: String,
    model: String,
    tag: String,
}

/// A field of the filter with its options: value, label, and whether it is chosen. The first option selects everything.
#[derive(Debug)]
pub(super) struct ChannelChoice {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) options: Vec<(String, String, bool)>,
}

impl ChannelFilter {
    pub(super) fn of(query: &FormData) -> Self {
        let text = |name: &str| query.value(name).trim().to_owned();
        Self {
            search: text("q"),
            has_problems_only: query.value("problems") == "1",
            state: text("state"),
            provider: text("provider"),
            group: text("group"),
            model: text("model"),
            tag: text("tag"),
        }
    }

    /// The query of the list, with its order.
    pub(super) fn address(query: &FormData) -> String {
        let known = ["q", "state", "provider", "group", "model", "tag", "sort", "problems"];
        let pairs = known.into_iter().filter_map(|name| Some((name, query.filled(name)?)));
        Serializer::new(String::new()).extend_pairs(pairs.filter(|(_, value)| value.chars().count() <= MAX_CHARS)).finish()
    }

    pub(super) fn is_set(&self) -> bool {
        let texts = [&self.search, &self.state, &self.provider, &self.group, &self.model, &self.tag];
        self.has_problems_only || texts.iter().any(|text| !text.is_empty())
    }

    /// Whether the list shows a channel that these groups offer.
    pub(super) fn selects(&self, state: &ChannelState, groups: &[&str]) -> bool {
        let severities = STATES.iter().find(|(word, _)| *word == self.state).map(|(_, severities)| *severities);
        let is_asked = |text: &str| !text.is_empty();
        is_found(state, &self.search)
            && (!self.has_problems_only || PROBLEMS.contains(&state.severity()))
            && severities.is_none_or(|severities| severities.contains(&state.severity()))
            && (!is_asked(&self.provider) || state.channel.provider == self.provider)
            && (!is_asked(&self.group) || groups.contains(&self.group.as_str()))
            && (!is_asked(&self.model) || state.channel.serves.iter().any(|served| served.model == self.model))
            && (!is_asked(&self.tag) || state.channel.tags.contains(&self.tag))
    }

    /// The fields, with the values that occur in some channel.
    pub(super) fn choices(&self, t: Locale, states: &[ChannelState], groups: &[String]) -> Vec<ChannelChoice> {
        let field = |name, label, chosen: &str, found: Vec<(String, String)>| {
            let any = (String::new(), label, chosen.is_empty());
            let options = found.into_iter().map(|(value, label)| (value.clone(), label, value == chosen));
            ChannelChoice { name, label, options: std::iter::once((any.0, any.1.to_owned(), any.2)).chain(options).collect() }
        };
        let mut providers: Vec<&str> = states.iter().map(|state| state.channel.provider.as_str()).collect();
        providers.sort_unstable();
        providers.dedup();
        let mut models: Vec<&String> = states.iter().flat_map(|state| &state.channel.serves).map(|served| &served.model).collect();
        models.sort_unstable();
        models.dedup();
        let mut tags: Vec<&String> = states.iter().flat_map(|state| &state.channel.tags).collect();
        tags.sort_unstable();
        tags.dedup();
        let same = |names: Vec<String>| names.into_iter().map(|name| (name.clone(), name)).collect::<Vec<_>>();
        let mut choices = vec![
            field(
                "state",
                t.say("channels.state"),
                &self.state,
                STATES.map(|(word, _)| (word.to_owned(), state_label(t, word).to_owned())).into(),
            ),
            field(
                "provider",
                t.say("facet.vendor"),
                &self.provider,
                providers.into_iter().map(|word| (word.to_owned(), provider_name(t, word).to_owned())).collect(),
            ),
            field("group", t.say("log.group"), &self.group, same(groups.to_vec())),
            field("model", t.say("log.model"), &self.model, same(models.into_iter().cloned().collect())),
        ];
        // Most gateways have no tags.
        if !tags.is_empty() {
            choices.push(field("tag", t.say("channels.tag"), &self.tag, same(tags.into_iter().cloned().collect())));
        }
        choices
    }
}

/// The word of the state with this severity.
pub(super) fn state_word(severity: u8) -> &'static str {
    STATES.iter().find(|(_, severities)| severities.contains(&severity)).map_or("", |(word, _)| *word)
}

fn state_label(t: Locale, word: &str) -> &'static str {
    match word {
        "usable" => t.say("channels.usable"),
        "partly" => t.say("channels.partly"),
        "unusable" => t.say("channels.unusable"),
        "no_account" => t.say("channels.no_account"),
        _ => t.say("channels.off"),
    }
}

/// Whether the name, the address, the provider, a model or a tag contains the text, or a credential ends with it.
fn is_found(state: &ChannelState, search: &str) -> bool {
    let (channel, part) = (&state.channel, search.to_lowercase());
    let texts = [&channel.name, &channel.base_url, &channel.provider];
    let models = channel.serves.iter().map(|served| &served.model);
    let mut ends = state.accounts.iter().filter_map(|account| account.credential_end.as_deref());
    let contains = |text: &String| text.to_lowercase().contains(&part);
    search.is_empty() || texts.into_iter().chain(models).chain(&channel.tags).any(contains) || ends.any(|end| search == end)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn channel(name: &str, provider: &str, status: &str) -> ChannelState {
        let channel = json!({
            "id": "chn_1", "name": name, "provider": provider, "status": status, "base_url": "https://a.example/v1", "priority": 0,
            "weight": 1, "owner": "database", "revision": 1, "tags": ["eu"], "serves": [{"model": "fast", "upstream": "f"}],
        });
        ChannelState { name: name.to_owned(), channel: serde_json::from_value(channel).unwrap(), accounts: Vec::new(), load: None }
    }

    #[test]
    fn channel_is_selected_when_every_filter_field_matches() {
        let (on, off) = (channel("a", "openai", "on"), channel("b", "gemini", "off"));
        let selects =
            |query: &str, state: &ChannelState| ChannelFilter::of(&FormData::parse(query.as_bytes())).selects(state, &["default"]);
        for query in
            ["", "q=A.EXAMPLE", "provider=openai&state=no_account", "group=default&model=fast", "state=unknown", "tag=eu", "q=eu"]
        {
            assert!(selects(query, &on), "{query}");
        }
        for query in [
            "q=other",
            "provider=gemini",
            "state=usable",
            "group=other",
            "model=slow",
            "problems=1",
            "tag=us",
            "provider=openai&state=off",
        ] {
            assert!(!selects(query, &on), "{query}");
        }
        assert!(selects("state=off", &off));
    }

    #[test]
    fn filter_fields_offer_the_values_of_existing_channels() {
        let states = [channel("a", "openai", "on"), channel("b", "gemini", "off")];
        let filter = ChannelFilter::of(&FormData::parse(b"provider=gemini"));
        let choices = filter.choices(Locale::EN, &states, &["default".to_owned()]);
        let providers = choices.iter().find(|choice| choice.name == "provider").unwrap();
        let shown: Vec<(&str, bool)> = providers.options.iter().map(|(value, _, chosen)| (value.as_str(), *chosen)).collect();
        assert_eq!(shown, [("", false), ("gemini", true), ("openai", false)]);
        assert_eq!(choices.last().map(|choice| (choice.name, choice.options.len())), Some(("tag", 2)));
        assert!(filter.is_set() && !ChannelFilter::default().is_set());
        let typed = FormData::parse(b"x=1&sort=cost&provider=gemini&q=&problems=1&tag=a%26b");
        assert_eq!(ChannelFilter::address(&typed), "provider=gemini&tag=a%26b&sort=cost&problems=1");
    }
}
