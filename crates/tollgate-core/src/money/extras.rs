//! Prices of options that change the cost of a request besides its tokens: service tiers, and tools that the provider runs.

use tollgate_protocol::{RequestExtras, ServiceTier};

use super::{Multiplier, Price, PriceTier};

/// An option of a request that a price list has no price for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnpricedExtra {
    ServiceTier,
    WebSearch,
    ServerTools,
    OutputMedia,
    Surcharge,
}

impl UnpricedExtra {
    /// Text for callers, as the object of "a price for".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServiceTier => "the service tier of this request",
            Self::WebSearch => "web search by the provider",
            Self::ServerTools => "tools that the provider runs",
            Self::OutputMedia => "images or audio in the answer",
            Self::Surcharge => "an option of this request that is charged apart",
        }
    }
}

/// Options of a request that change its unit prices. Searches have no effect on them: they are billed as separate lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PricedOptions {
    /// The service tier and its factor, which is in the unit prices.
    pub tier: Option<(ServiceTier, Multiplier)>,
    pub server_tools: bool,
    pub output_media: bool,
}

/// Whether a request with these extras may cost another price than one without: whether [`Price::with_extras`] has an effect.
pub(crate) fn has_price_effect(extras: RequestExtras) -> bool {
    let RequestExtras { tier, web_search, own_search: _, server_tools, output_media, other_routes: _, surcharge, unseen: _ } =
        extras;
    tier != ServiceTier::Standard || web_search || server_tools || output_media || surcharge
}

impl Price {
    /// The list for requests with each combination of options that it has prices for, beginning with no options.
    pub fn with_options(&self) -> impl Iterator<Item = (PricedOptions, Self)> {
        let tiers = [(ServiceTier::Priority, self.priority), (ServiceTier::Flex, self.flex)];
        let tiers = tiers.into_iter().filter_map(|(tier, factor)| Some(Some((tier, factor?))));
        let flags = |is_priced: bool| [false, true].into_iter().filter(move |flag| is_priced || !flag);
        let (tools, media) = (self.has(|price| price.server_tools), self.has(|price| price.output_media));
        std::iter::once(None).chain(tiers).flat_map(move |tier| {
            let options = flags(tools).flat_map(move |server_tools| {
                flags(media).map(move |output_media| PricedOptions { tier, server_tools, output_media })
            });
            options.map(|options| {
                let tier = options.tier.map_or(ServiceTier::Standard, |(tier, _)| tier);
                let PricedOptions { server_tools, output_media, .. } = options;
                (options, self.with_extras(RequestExtras { tier, server_tools, output_media, ..RequestExtras::default() }).0)
            })
        })
    }

    /// Whether the list or one of its tiers has a figure.
    fn has(&self, figure: fn(&Self) -> Option<i64>) -> bool {
        figure(self).is_some() || self.tiers.iter().any(|tier| figure(&tier.price).is_some())
    }

    /// The list for a request with these extras. Extras without a price keep the usual price and are returned.
    pub(crate) fn with_extras(&self, extras: RequestExtras) -> (Self, Vec<UnpricedExtra>) {
        let mut unpriced = Vec::new();
        let factor = match extras.tier {
            ServiceTier::Flex => self.flex,
            ServiceTier::Priority => self.priority,
            ServiceTier::Standard | ServiceTier::Other => None,
        };
        let dearer = matches!(extras.tier, ServiceTier::Priority | ServiceTier::Other);
        if dearer && factor.is_none() && !self.is_free() {
            unpriced.push(UnpricedExtra::ServiceTier);
        }
        // Searches are charged by their number, which the answer states.
        if extras.web_search && self.web_search.is_none() && !self.is_free() {
            unpriced.push(UnpricedExtra::WebSearch);
        }
        let mut list = self.clone();
        if extras.output_media {
            if self.output_media.is_none() && !self.is_free() {
                unpriced.push(UnpricedExtra::OutputMedia);
            }
            list.charge_output_media();
        }
        if extras.surcharge && !self.is_free() {
            unpriced.push(UnpricedExtra::Surcharge);
        }
        if extras.server_tools {
            if self.server_tools.is_none() && !self.is_free() {
                unpriced.push(UnpricedExtra::ServerTools);
            }
            list.add_server_tools();
        }
        (if let Some(factor) = factor { list.times(factor) } else { list }, unpriced)
    }

    /// Adds the price of the provider's tools to the price of the request, in every tier.
    fn add_server_tools(&mut self) {
        let (per_request, each) = (self.per_request, self.server_tools);
        for tier in &mut self.tiers {
            if let Some(each) = tier.price.server_tools.or(each) {
                tier.price.per_request = Some(tier.price.per_request.or(per_request).unwrap_or(0).saturating_add(each));
            }
        }
        if let Some(each) = each {
            self.per_request = Some(per_request.unwrap_or(0).saturating_add(each));
        }
    }

    /// Charges all output at the price of output with media, in every tier. Thinking keeps its price.
    fn charge_output_media(&mut self) {
        let (output, thinking, each) = (self.output, self.thinking.or(self.output), self.output_media);
        for tier in &mut self.tiers {
            if let Some(each) = tier.price.output_media.or(each) {
                tier.price.thinking = tier.price.thinking.or(self.thinking).or(tier.price.output).or(output);
                tier.price.output = Some(each);
            }
        }
        if let Some(each) = each {
            (self.output, self.thinking) = (Some(each), thinking);
        }
    }

    /// Every figure of the list times a factor, rounded half up.
    #[must_use]
    pub fn times(&self, factor: Multiplier) -> Self {
        let times = |price: Option<i64>| price.map(|price| factor.times(price));
        let tiers = self.tiers.iter().map(|tier| PriceTier { above: tier.above, price: tier.price.times(factor) });
        Self {
            input: times(self.input),
            output: times(self.output),
            cache_read: times(self.cache_read),
            cache_write: times(self.cache_write),
            cache_write_1h: times(self.cache_write_1h),
            thinking: times(self.thinking),
            image: times(self.image),
            audio: times(self.audio),
            per_request: times(self.per_request),
            web_search: times(self.web_search),
            server_tools: times(self.server_tools),
            output_media: times(self.output_media),
            priority: self.priority,
            flex: self.flex,
            tiers: tiers.collect(),
        }
    }

    /// True if all prices are zero.
    pub fn is_free(&self) -> bool {
        let figures = [
            self.input,
            self.output,
            self.cache_read,
            self.cache_write,
            self.cache_write_1h,
            self.thinking,
            self.image,
            self.audio,
            self.per_request,
            self.web_search,
            self.server_tools,
            self.output_media,
        ];
        figures.into_iter().flatten().all(|figure| figure == 0) && self.tiers.iter().all(|tier| tier.price.is_free())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::price;

    #[test]
    fn priority_multiplies_every_figure_and_flex_may_be_cheaper() {
        let tier = PriceTier { above: 10, price: price("4", "8") };
        let list = Price {
            per_request: Some(100),
            priority: Some(Multiplier(2_500_000)),
            flex: Some(Multiplier(500_000)),
            tiers: vec![tier],
            ..price("1", "2")
        };
        let asked = |tier| list.with_extras(RequestExtras { tier, ..RequestExtras::default() });
        let (priority, unpriced) = asked(ServiceTier::Priority);
        assert_eq!((priority.input, priority.output, priority.per_request), (Some(2_500_000_000), Some(5_000_000_000), Some(250)));
        assert_eq!((priority.tiers[0].price.input, unpriced.len()), (Some(10_000_000_000), 0));
        assert_eq!(asked(ServiceTier::Flex).0.output, Some(1_000_000_000));
        assert_eq!(asked(ServiceTier::Other), (list.clone(), vec![UnpricedExtra::ServiceTier]));
        assert_eq!(asked(ServiceTier::Standard), (list.clone(), vec![]));
    }

    #[test]
    fn provider_tools_are_charged_per_request_and_searches_per_search() {
        let both = RequestExtras { web_search: true, server_tools: true, ..RequestExtras::default() };
        let tier = PriceTier { above: 10, price: Price { server_tools: Some(300), ..price("4", "8") } };
        let list =
            Price { web_search: Some(10), server_tools: Some(200), per_request: Some(5), tiers: vec![tier], ..price("1", "2") };
        let (charged, unpriced) = list.with_extras(both);
        assert_eq!((charged.per_request, charged.tiers[0].price.per_request), (Some(205), Some(305)));
        assert_eq!(unpriced, vec![]);
        let (charged, unpriced) = Price { server_tools: None, tiers: vec![], ..list }.with_extras(both);
        assert_eq!((charged.per_request, unpriced), (Some(5), vec![UnpricedExtra::ServerTools]));
        assert_eq!(charged.rates(0).web_search, 10);
    }

    #[test]
    fn output_media_price_applies_in_every_tier() {
        let media = RequestExtras { output_media: true, ..RequestExtras::default() };
        let tiers = vec![
            PriceTier { above: 10, price: price("4", "8") },
            PriceTier { above: 20, price: Price { output_media: Some(70), ..Price::default() } },
        ];
        let list = Price { output_media: Some(60_000_000_000), tiers, ..price("1", "2") };
        let (charged, unpriced) = list.with_extras(media);
        let rates = [5, 15, 25].map(|prompt| charged.rates(prompt)).map(|rates| (rates.output, rates.thinking));
        assert_eq!(rates, [(60_000_000_000, 2_000_000_000), (60_000_000_000, 8_000_000_000), (70, 2_000_000_000)]);
        assert_eq!(unpriced, vec![]);
        assert_eq!(list.with_extras(RequestExtras::default()).0, list);
        assert_eq!(price("1", "2").with_extras(media), (price("1", "2"), vec![UnpricedExtra::OutputMedia]));
        assert_eq!(Price::free().with_extras(media).1, vec![]);
        let surcharge = RequestExtras { surcharge: true, ..RequestExtras::default() };
        assert_eq!(list.with_extras(surcharge), (list.clone(), vec![UnpricedExtra::Surcharge]));
    }

    #[test]
    fn web_search_needs_a_price_where_a_request_asks_for_it() {
        let search = RequestExtras { web_search: true, ..RequestExtras::default() };
        let list = Price { web_search: Some(10_000_000), per_request: Some(5), ..price("1", "2") };
        assert_eq!(list.with_extras(search), (list.clone(), vec![]));
        assert_eq!(price("1", "2").with_extras(search), (price("1", "2"), vec![UnpricedExtra::WebSearch]));
        assert_eq!(Price::free().with_extras(search).1, vec![], "a free model stays free");
    }
}
