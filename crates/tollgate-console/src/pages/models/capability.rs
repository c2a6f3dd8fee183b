//! Capabilities of models, derived from the model square: from the parameters that are passed on, and from prices.

use std::collections::HashMap;

use super::document::{ModelOffer, SquareDocument};
use crate::pages::locale::Locale;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    Tools,
    Json,
    Thinking,
    Caching,
}

impl Capability {
    pub(crate) const ALL: [Self; 4] = [Self::Tools, Self::Json, Self::Thinking, Self::Caching];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Json => "json",
            Self::Thinking => "thinking",
            Self::Caching => "caching",
        }
    }

    pub(crate) fn label(self, t: Locale) -> &'static str {
        match self {
            Self::Tools => t.say("capability.tools"),
            Self::Json => t.say("capability.json"),
            Self::Thinking => t.say("capability.thinking"),
            Self::Caching => t.say("capability.caching"),
        }
    }

    /// Parameters of any protocol that request it.
    const fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Tools => &["tools"],
            Self::Json => &["response_format", "generationConfig.responseSchema", "output_config.format"],
            Self::Thinking => &["reasoning_effort", "generationConfig.thinkingConfig", "thinking"],
            Self::Caching => &[],
        }
    }
}

/// The capabilities of offers, by their parameter sets.
#[derive(Debug, Default)]
pub(crate) struct Capabilities(HashMap<String, Vec<Capability>>);

impl Capabilities {
    pub(crate) fn of(document: &SquareDocument) -> Self {
        let of = |supported: &[String]| {
            let asks =
                |capability: &Capability| capability.parameters().iter().any(|name| supported.iter().any(|known| known == name));
            Capability::ALL.into_iter().filter(asks).collect()
        };
        Self(document.parameter_sets.iter().map(|set| (set.id.clone(), of(&set.supported))).collect())
    }

    pub(crate) fn has(&self, offer: &ModelOffer, capability: Capability) -> bool {
        let is_asked_for = || {
            let mut sets = offer.protocols.iter().filter_map(|offered| self.0.get(&offered.parameters));
            sets.any(|known| known.contains(&capability))
        };
        match capability {
            Capability::Caching => offer.price["cache_read"].is_string(),
            Capability::Tools | Capability::Json | Capability::Thinking => is_asked_for(),
        }
    }

    /// Those of an offer, in order.
    pub(crate) fn all(&self, offer: &ModelOffer) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(|capability| self.has(offer, *capability))
    }
}
