//! Rotation of the master key on a running gateway, or on several. See [`MasterKeyRotation`].

use std::{fs, io, path::PathBuf, sync::Arc};

use tollgate_core::Timestamp;

use crate::{
    Actor, MasterKeySource, StoreError,
    seal::{MasterKeys, replace_secret},
    sql::{SealedTable, SqlStore},
};

/// A gateway that runs, or did not stop cleanly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    pub(crate) id: String,
    /// The gateway's data folder.
    pub name: String,
    /// It answered the last request.
    pub has_answered: bool,
    /// It holds the new key.
    pub has_key: bool,
}

/// The next step of a rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationStage {
    /// The master key's source holds a key that seals nothing yet. Every gateway must hold it before the next step.
    Distribute,
    /// The new master key seals the data key; rows are to be sealed again.
    Reseal,
    /// Everything is sealed with the new keys; the old ones are to be removed from the source.
    CleanUp,
}

/// A rotation, begun or resumed. Every step may be repeated.
#[derive(Debug)]
pub struct MasterKeyRotation {
    sql: Arc<SqlStore>,
    /// Fingerprint of the new key.
    target: String,
    /// The stage when the rotation was begun or resumed.
    pub stage: RotationStage,
    /// The key file that was extended by a new key.
    pub extended: Option<PathBuf>,
}

impl MasterKeyRotation {
    /// Resumes a rotation, or begins one: the new key is the one in the source that is neither in use nor retired; if
    /// there is none, one is generated and appended to the key file.
    pub(crate) async fn resume(sql: Arc<SqlStore>) -> Result<Self, StoreError> {
        let (state, keys) = (sql.key_state().await?, sql.master_keys()?);
        let rotation = |target: String, stage, extended| Self { sql: Arc::clone(&sql), target, stage, extended };
        if state.is_underway {
            return Ok(rotation(state.sealing, RotationStage::Reseal, None));
        }
        let listed = keys.fingerprints();
        if let Some(new) = listed.iter().find(|key| **key != state.sealing && !state.retired.contains(*key)) {
            return Ok(rotation(new.clone(), RotationStage::Distribute, None));
        }
        if listed.len() > 1 {
            return Ok(rotation(state.sealing, RotationStage::CleanUp, None));
        }
        let (path, extended) = append_key(&sql, &keys)?;
        let target = extended.fingerprints().pop().unwrap_or_default();
        Ok(rotation(target, RotationStage::Distribute, Some(path)))
    }

    /// Fingerprint of the new key.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Asks every gateway for its keys; pass the result to [`holders`](Self::holders).
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn ask(&self) -> Result<i64, StoreError> {
        self.sql.request_keys().await
    }

    /// The gateways, with their answers to a request.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn holders(&self, request: i64) -> Result<Vec<KeyHolder>, StoreError> {
        self.sql.key_holders(request, &self.target).await
    }

    /// Removes gateways that no longer run from the list of key holders.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn delete_holders(&self, holders: &[KeyHolder]) -> Result<(), StoreError> {
        self.sql.delete_key_holders(holders).await
    }

    /// Seals everything with new keys. Call when every gateway holds the new master key. Returns how many rows were sealed.
    ///
    /// # Errors
    /// When the database cannot be written; repeat it then.
    pub async fn reseal(&self, actor: &Actor, now: Timestamp) -> Result<u64, StoreError> {
        self.sql.replace_data_key(&self.target).await?;
        let mut sealed = 0;
        for table in SealedTable::ALL {
            let mut after = String::new();
            while let Some((last, count)) = self.sql.reseal_rows(table, &after).await? {
                (after, sealed) = (last, sealed + count);
            }
        }
        self.sql.finish_rotation(&self.target, &self.sql.master_keys()?.fingerprints(), actor, now).await?;
        Ok(sealed)
    }

    /// Removes the old keys from the key file and keeps them in `<file>.retired`, which old backups need. `None` if the source is not a
    /// file that this process may write.
    ///
    /// # Errors
    /// When the old keys cannot be kept.
    pub fn clean_up(&self) -> Result<Option<PathBuf>, StoreError> {
        let keys = self.sql.master_keys()?;
        let Some(path) = self.sql.master_source().path(self.sql.data_folder()) else { return Ok(None) };
        let listed = keys.fingerprints();
        let old: Vec<&str> = listed.iter().map(String::as_str).filter(|key| *key != self.target).collect();
        if old.is_empty() {
            return Ok(None);
        }
        let mut name = path.clone().into_os_string();
        name.push(".retired");
        let retired = PathBuf::from(name);
        let kept = append_retired(&retired, &keys.only(&old));
        match kept.and_then(|()| replace_secret(&path, keys.only(&[&self.target]).to_text().as_bytes())) {
            Ok(()) => Ok(Some(retired)),
            Err(error) if is_read_only(&error) => Ok(None),
            Err(source) => Err(StoreError::File { action: "write the master key", path, source }),
        }
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn append_retired(path: &std::path::Path, keys: &MasterKeys) -> io::Result<()> {
    use std::io::Write as _;
    let mut options = fs::OpenOptions::new();
    options.append(true).create(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(keys.to_text().as_bytes())?;
    file.sync_all()
}

/// Appends a new key to the key file; the old one stays first and seals until the rotation is done.
fn append_key(sql: &SqlStore, keys: &MasterKeys) -> Result<(PathBuf, MasterKeys), StoreError> {
    let source = sql.master_source();
    let refused = |detail: String| StoreError::RotationRefused { detail };
    let by_hand = "append a line made by `tollgate master-key new` to it on every node, then run this again";
    let Some(path) = source.path(sql.data_folder()) else {
        return Err(refused(format!(
            "it comes from the environment (TOLLGATE_MASTER_KEY): {by_hand}; nodes read it at their start, so restart them one by one"
        )));
    };
    let extended = keys.with_new(sql.random());
    match replace_secret(&path, extended.to_text().as_bytes()) {
        Ok(()) => Ok((path, extended)),
        Err(error) if is_read_only(&error) => Err(refused(format!("{} cannot be written: {by_hand}", path.display()))),
        Err(source) => Err(StoreError::File { action: "write the master key", path, source }),
    }
}

impl SqlStore {
    fn master_source(&self) -> &MasterKeySource {
        self.source_of_master_key().0
    }

    fn data_folder(&self) -> &std::path::Path {
        self.source_of_master_key().1
    }
}
