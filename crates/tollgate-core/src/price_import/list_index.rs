//! Finds the entry of a price list for a model or for a channel's mapping.

use std::collections::HashMap;

use super::entry_name;
use crate::{ChannelSpec, ListedPrice, PriceList, Provider, SkippedPrice};

/// Providers behind the addresses of compatible servers, by the end of the host name.
const HOSTS: [(&str, &str); 17] = [
    ("api.openai.com", "openai"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("api.anthropic.com", "anthropic"),
    ("api.cerebras.ai", "cerebras"),
    ("api.cohere.ai", "cohere"),
    ("api.cohere.com", "cohere"),
    ("api.deepinfra.com", "deepinfra"),
    ("api.deepseek.com", "deepseek"),
    ("api.fireworks.ai", "fireworks_ai"),
    ("api.groq.com", "groq"),
    ("api.mistral.ai", "mistral"),
    ("api.moonshot.ai", "moonshot"),
    ("api.perplexity.ai", "perplexity"),
    ("api.together.xyz", "together_ai"),
    ("api.x.ai", "xai"),
    ("api.z.ai", "zai"),
    ("openrouter.ai", "openrouter"),
];

/// An entry of a price list: a usable price, or one that was skipped.
#[derive(Clone, Copy, Debug)]
enum Entry<'a> {
    Price(usize, &'a ListedPrice),
    Skipped(&'a SkippedPrice),
}

/// The entry for a price.
#[derive(Clone, Debug)]
pub(super) enum ListMatch<'a> {
    /// Position in the list, and the entry.
    Price(usize, &'a ListedPrice),
    Skipped(&'a SkippedPrice),
    /// Entries with different prices, none of which is preferred; their names.
    Ambiguous(String),
}

impl ListMatch<'_> {
    pub(super) const fn position(&self) -> Option<usize> {
        if let Self::Price(at, _) = self { Some(*at) } else { None }
    }
}

/// A price list by provider and model.
#[derive(Debug)]
pub(super) struct ListIndex<'a> {
    by_provider: HashMap<(Option<&'a str>, &'a str), Entry<'a>>,
    by_model: HashMap<&'a str, Vec<Entry<'a>>>,
}

impl<'a> ListIndex<'a> {
    pub(super) fn of(list: &'a PriceList) -> Self {
        let mut index = Self { by_provider: HashMap::new(), by_model: HashMap::new() };
        let prices =
            list.entries.iter().enumerate().map(|(at, price)| (price.provider.as_deref(), &price.model, Entry::Price(at, price)));
        let skipped = list.skipped.iter().map(|skipped| (skipped.provider.as_deref(), &skipped.model, Entry::Skipped(skipped)));
        for (provider, model, entry) in prices.chain(skipped) {
            // Of two entries for one model, the first counts: LiteLLM has some models both with and without their provider's name.
            index.by_provider.entry((provider, model)).or_insert(entry);
            index.by_model.entry(model).or_default().push(entry);
        }
        index
    }

    /// The entry of the provider's model, or else one without a provider for its name or the public name.
    pub(super) fn of_upstream(&self, channel: &ChannelSpec, upstream: &str, model: &str) -> Option<ListMatch<'a>> {
        let of_provider = provider_of(channel).and_then(|provider| self.by_provider.get(&(Some(provider), upstream)));
        let of_any = || [upstream, model].into_iter().find_map(|name| self.by_provider.get(&(None, name)));
        of_provider.or_else(of_any).map(Entry::found)
    }

    /// The entry for a model's sale price: the one without a provider for its public name; else the one that all its channels match; else
    /// the only one with its public name.
    pub(super) fn of_model(&self, model: &str, channels: impl Iterator<Item = ListMatch<'a>>) -> Option<ListMatch<'a>> {
        if let Some(entry) = self.by_provider.get(&(None, model)) {
            return Some(entry.found());
        }
        common(channels.collect()).or_else(|| common(self.by_model.get(model)?.iter().map(Entry::found).collect()))
    }
}

impl<'a> Entry<'a> {
    const fn found(&self) -> ListMatch<'a> {
        match self {
            Self::Price(at, price) => ListMatch::Price(*at, price),
            Self::Skipped(skipped) => ListMatch::Skipped(skipped),
        }
    }
}

/// The match that all agree with in price. Skipped entries count only if there is no other.
fn common(matches: Vec<ListMatch<'_>>) -> Option<ListMatch<'_>> {
    let (prices, others): (Vec<_>, Vec<_>) = matches.into_iter().partition(|found| found.position().is_some());
    let price = |found: &ListMatch<'_>| if let ListMatch::Price(_, listed) = found { Some(listed.price.clone()) } else { None };
    let name = |found: &ListMatch<'_>| match found {
        ListMatch::Price(_, listed) => entry_name(listed.provider.as_deref(), &listed.model),
        ListMatch::Skipped(skipped) => entry_name(skipped.provider.as_deref(), &skipped.model),
        ListMatch::Ambiguous(names) => names.clone(),
    };
    let Some(first) = prices.first() else { return others.into_iter().next() };
    if prices.iter().all(|other| price(other) == price(first)) {
        return prices.into_iter().next();
    }
    let mut names: Vec<String> = prices.iter().map(name).collect();
    names.dedup();
    names.truncate(5);
    Some(ListMatch::Ambiguous(names.join(", ")))
}

/// The name that price lists use for a channel's provider; `None` if the server is unknown.
fn provider_of(channel: &ChannelSpec) -> Option<&'static str> {
    match channel.provider {
        Provider::OpenAi => Some("openai"),
        Provider::Gemini => Some("gemini"),
        Provider::Anthropic => Some("anthropic"),
        Provider::Echo => None,
        Provider::Compatible => {
            let address = channel.base_url.split_once("://").map_or(channel.base_url.as_str(), |(_, rest)| rest);
            let host = address.split(['/', ':']).next()?;
            HOSTS.iter().find(|(known, _)| *known == host).map(|(_, provider)| *provider)
        }
    }
}
