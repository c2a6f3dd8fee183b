//! The settings in force: those of the start, with the values stored in the database. Stored values come with the catalog, so that a
//! change reaches every node as a change of the catalog does, and applies without a restart.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;
use tollgate_console::{CheckedSetting, SettingRefusal};
use tollgate_core::{Catalog, Revision};
use tollgate_gateway::state::shared::Shared;
use tollgate_store::{Journal, RowFilter, RowKind, Store, StoreError, StoredSetting};

use crate::{config::Config, gateway_settings, logging};

/// More than there are settings.
const MAX_STORED: u32 = 1_000;

/// The settings of a running gateway.
#[derive(Debug)]
pub(crate) struct LiveSettings {
    /// The settings at the start, without those stored in the database.
    start: Config,
    current: watch::Sender<Arc<Config>>,
    applied: Mutex<AppliedSettings>,
    shared: Arc<Shared>,
    journal: Arc<Journal>,
}

/// The stored values in force, and the catalog they came with.
#[derive(Debug)]
struct AppliedSettings {
    revision: Revision,
    stored: BTreeMap<String, String>,
}

impl LiveSettings {
    /// `current`: the settings of the start with the stored values of this catalog, which `shared` and `journal` use.
    pub(crate) fn new(start: Config, current: Config, catalog: &Catalog, shared: Arc<Shared>, journal: Arc<Journal>) -> Self {
        journal.set_max_bytes(current.number("journal.max_bytes"));
        let applied = AppliedSettings { revision: catalog.revision, stored: catalog.stored_settings.clone() };
        Self { start, current: watch::Sender::new(Arc::new(current)), applied: Mutex::new(applied), shared, journal }
    }

    /// The settings in force.
    pub(crate) fn current(&self) -> Arc<Config> {
        Arc::clone(&self.current.borrow())
    }

    /// The journal whose bound follows the settings.
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Follows the settings in force.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Config>> {
        self.current.subscribe()
    }

    /// Checks a value that is to be stored.
    pub(crate) fn check(&self, name: &str, value: &str) -> Result<CheckedSetting, SettingRefusal> {
        self.start.check_stored(name, value)
    }

    /// Puts the stored settings of a catalog into force. An older catalog than the last one changes nothing.
    pub(crate) fn apply(&self, catalog: &Catalog) {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        if catalog.revision < applied.revision {
            return;
        }
        applied.revision = catalog.revision;
        if catalog.stored_settings == applied.stored {
            return;
        }
        applied.stored.clone_from(&catalog.stored_settings);
        let config = with_stored(&self.start, &applied.stored);
        let before = self.current();
        for (name, value) in config.values.iter().filter(|(name, value)| before.values.get(*name) != Some(*value)) {
            tracing::info!(setting = name, value = value.text, source = value.source.as_str(), "a setting has changed");
        }
        self.shared.replace_settings(gateway_settings::fitted(&config));
        self.journal.set_max_bytes(config.number("journal.max_bytes"));
        logging::set_level(&config);
        self.current.send_replace(Arc::new(config));
    }
}

/// The settings with stored values. Invalid stored values are left out and logged.
pub(crate) fn with_stored(start: &Config, stored: &BTreeMap<String, String>) -> Config {
    let (config, faults) = start.with_stored(stored);
    for fault in faults {
        tracing::warn!("a stored setting is left out: {fault}");
    }
    config
}

/// The stored values, by name.
pub(crate) async fn stored(store: &Store) -> Result<BTreeMap<String, String>, StoreError> {
    let rows = store.listing.page(&RowFilter::of(RowKind::Setting, MAX_STORED)).await?;
    rows.into_iter().map(|row| Ok((row.name.clone(), row.read::<StoredSetting>()?.value))).collect()
}
