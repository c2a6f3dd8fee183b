//! Channels that cannot be connected to because of the lists of addresses in the settings.

use tollgate_core::Catalog;
use tollgate_gateway::upstream::client::unlisted;

use crate::{config::Config, gateway_settings};

/// A warning for each enabled channel whose base URL or proxy contains an IP address that the settings do not permit. Host names are not
/// resolved here, only when connecting.
pub(crate) fn warnings(catalog: &Catalog, config: &Config) -> Vec<String> {
    let lists = gateway_settings::addresses(config);
    let warning = |channel: &tollgate_core::Channel| {
        let why = unlisted(channel, &lists)?;
        Some(format!("channel '{}': {why}; {}", channel.spec.name, why.remedy()))
    };
    catalog.channels.values().filter(|channel| channel.spec.on).filter_map(|channel| warning(channel)).collect()
}
