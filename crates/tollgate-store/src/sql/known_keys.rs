//! A process's view of the keys in the database: the source of its master key, the keys it has read, and the rotations it has answered.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{MasterKeySource, OpenOptions};

#[derive(Debug)]
pub(crate) struct KnownKeys {
    pub(super) master: MasterKeySource,
    pub(super) data: PathBuf,
    state: Mutex<KnownState>,
}

#[derive(Debug, Default)]
struct KnownState {
    /// The table `data_keys` as it was last opened.
    sealed_keys: Vec<(String, Vec<u8>)>,
    /// The last answered request, and the master keys it was answered with.
    answered: Option<(i64, String)>,
}

impl KnownKeys {
    pub(super) fn new(options: &OpenOptions) -> Self {
        Self { master: options.master.clone(), data: options.data.clone(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, KnownState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_new(&self, sealed_keys: &[(String, Vec<u8>)]) -> bool {
        self.state().sealed_keys != sealed_keys
    }

    pub(super) fn note(&self, sealed_keys: &[(String, Vec<u8>)]) {
        self.state().sealed_keys = sealed_keys.to_vec();
    }

    pub(super) fn is_answered(&self, request: i64, master_keys: &str) -> bool {
        self.state().answered.as_ref().is_some_and(|(answered, keys)| *answered == request && keys == master_keys)
    }

    /// Whether the master keys differ from those of the last answer.
    pub(super) fn lines_changed(&self, master_keys: &str) -> bool {
        self.state().answered.as_ref().is_some_and(|(_, keys)| keys != master_keys)
    }

    pub(super) fn answered(&self, request: i64, master_keys: String) {
        self.state().answered = Some((request, master_keys));
    }
}
