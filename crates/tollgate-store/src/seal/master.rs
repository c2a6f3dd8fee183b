//! The master key file: lines of `tgm1:<base64 of 32 bytes>`. The first key seals; all of them open, so that keys can be
//! rotated.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use subtle::ConstantTimeEq as _;
use tollgate_core::Secret;
use zeroize::Zeroizing;

use super::{
    fingerprint,
    secret_bytes::{SecretBytes, generate_key},
};
use crate::{RandomSource, StoreError, data_folder::publish_new};

const PREFIX: &str = "tgm1:";

/// The source of the master keys; the first key seals.
#[derive(Clone, Debug, Default)]
pub enum MasterKeySource {
    /// `<data>/master.key`, created at the first start.
    #[default]
    DataFolder,
    File(PathBuf),
    Text(Secret),
}

/// The master keys; the first one seals.
pub(crate) struct MasterKeys {
    keys: Vec<SecretBytes>,
    pub(crate) location: String,
}

impl std::fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MasterKeys({} from {})", self.keys.len(), self.location)
    }
}

impl MasterKeys {
    /// Reads the keys; `None` if the data folder has none yet.
    pub(crate) fn load(source: &MasterKeySource, data: &Path) -> Result<Option<Self>, StoreError> {
        let (path, must_exist) = match source {
            MasterKeySource::Text(text) => return Self::parse(text.expose(), "TOLLGATE_MASTER_KEY".to_owned()).map(Some),
            MasterKeySource::File(path) => (path.clone(), true),
            MasterKeySource::DataFolder => (data.join("master.key"), false),
        };
        match fs::read_to_string(&path).map(Zeroizing::new) {
            Ok(text) => Self::parse(&text, path.display().to_string()).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => Ok(None),
            Err(source) if must_exist => Err(StoreError::MasterKeyUnreadable { path, source }),
            Err(source) => Err(StoreError::File { action: "read the master key", path, source }),
        }
    }

    /// Creates a key and writes it to the data folder, readable by its owner only.
    pub(crate) fn create(data: &Path, random: &RandomSource) -> Result<Self, StoreError> {
        let path = data.join("master.key");
        let created = Self { keys: vec![generate_key(random)], location: path.display().to_string() };
        write_secret(&path, created.to_text().as_bytes()).map_err(|source| StoreError::File {
            action: "write the master key",
            path: path.clone(),
            source,
        })?;
        Ok(created)
    }

    /// Parses keys; nothing is stored.
    pub(crate) fn parse(text: &str, location: String) -> Result<Self, StoreError> {
        let malformed = |detail: String| StoreError::MasterKeyMalformed { location: location.clone(), detail };
        let mut keys = Vec::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let Some(digits) = line.trim().strip_prefix(PREFIX) else {
                return Err(malformed(format!("line {number} does not begin with {PREFIX}")));
            };
            let bytes = STANDARD.decode(digits).map(Zeroizing::new);
            let key = bytes.ok().and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
            keys.push(Zeroizing::new(key.ok_or_else(|| malformed(format!("line {number} does not hold 32 bytes")))?));
        }
        if keys.is_empty() {
            return Err(malformed("it holds no key".to_owned()));
        }
        Ok(Self { keys, location })
    }

    /// The lines of a key file.
    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        let lines = self.keys.iter().map(|key| format!("{PREFIX}{}\n", Zeroizing::new(STANDARD.encode(key.as_slice())).as_str()));
        Zeroizing::new(lines.collect())
    }

    /// Whether it contains all keys of `keys`.
    pub(crate) fn opens_all_of(&self, keys: &Self) -> bool {
        keys.keys.iter().all(|key| self.keys.iter().any(|own| own.as_slice().ct_eq(key.as_slice()).into()))
    }

    /// The fingerprint of each key, as text.
    pub(crate) fn fingerprints(&self) -> Vec<String> {
        self.keys.iter().map(|key| hex::encode(fingerprint(key))).collect()
    }

    /// The key with this fingerprint.
    pub(crate) fn by_fingerprint(&self, wanted: &str) -> Option<&SecretBytes> {
        self.keys.iter().find(|key| hex::encode(fingerprint(key)) == wanted)
    }

    /// The keys with one more generated key at the end.
    pub(crate) fn with_new(&self, random: &RandomSource) -> Self {
        let keys = self.keys.iter().cloned().chain([generate_key(random)]).collect();
        Self { keys, location: self.location.clone() }
    }

    /// Only the keys with these fingerprints, in the present order.
    pub(crate) fn only(&self, wanted: &[&str]) -> Self {
        let keys = wanted.iter().filter_map(|wanted| self.by_fingerprint(wanted).cloned()).collect();
        Self { keys, location: self.location.clone() }
    }

    pub(crate) fn sealing(&self) -> &SecretBytes {
        &self.keys[0]
    }

    pub(crate) fn opening(&self) -> impl Iterator<Item = &SecretBytes> {
        self.keys.iter()
    }
}

/// A line for a new key.
#[must_use]
pub fn new_master_key(random: &RandomSource) -> Secret {
    let keys = MasterKeys { keys: vec![generate_key(random)], location: String::new() };
    Secret::new(keys.to_text().trim_end().to_owned())
}

impl MasterKeySource {
    /// The key file; `None` if the key comes from the environment.
    pub(crate) fn path(&self, data: &Path) -> Option<PathBuf> {
        match self {
            Self::DataFolder => Some(data.join("master.key")),
            Self::File(path) => Some(path.clone()),
            Self::Text(_) => None,
        }
    }
}

/// Replaces a file of secrets atomically, with mode 0600.
pub(crate) fn replace_secret(path: &Path, text: &[u8]) -> io::Result<()> {
    // Follow a symbolic link, so that the file it leads to is replaced and not the link.
    let path = fs::canonicalize(path)?;
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let written = write_draft(&draft, text).and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written?;
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

fn write_draft(draft: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(draft).and_then(|mut file| file.write_all(text).and_then(|()| file.sync_all()))
}

/// Creates a file of mode 0600 atomically; never replaces an existing one.
pub(crate) fn write_secret(path: &Path, text: &[u8]) -> io::Result<()> {
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    match write_draft(&draft, text) {
        Ok(()) => publish_new(&draft, path),
        Err(error) => {
            let _ = fs::remove_file(&draft);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_key_is_private_and_round_trips() {
        let dir = tempfile::TempDir::new().unwrap();
        assert!(MasterKeys::load(&MasterKeySource::DataFolder, dir.path()).unwrap().is_none());
        let created = MasterKeys::create(dir.path(), &RandomSource::system()).unwrap();
        let read = MasterKeys::load(&MasterKeySource::DataFolder, dir.path()).unwrap().unwrap();
        assert_eq!(created.sealing(), read.sealing());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(dir.path().join("master.key")).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(MasterKeys::create(dir.path(), &RandomSource::system()).is_err(), "an existing key is not replaced");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn missing_key_file_is_an_operator_error() {
        let dir = tempfile::TempDir::new().unwrap();
        let refused = MasterKeys::load(&MasterKeySource::File(dir.path().join("nothing")), dir.path()).unwrap_err();
        assert_eq!(refused.class(), crate::ErrorClass::Operator);
        assert!(refused.to_string().contains("nothing") && refused.to_string().contains("database.master_key"), "{refused}");
    }

    #[test]
    fn first_of_several_master_keys_seals() {
        let line = |byte: u8| format!("{PREFIX}{}", STANDARD.encode([byte; 32]));
        let keys = MasterKeys::parse(&format!("{}\n\n{}\n", line(1), line(2)), "here".to_owned()).unwrap();
        assert_eq!(keys.sealing().as_slice(), [1; 32]);
        assert_eq!(keys.opening().count(), 2);
    }

    #[test]
    fn malformed_key_is_rejected_without_showing_it() {
        for text in ["", "\n", "secret-text", "tgm1:", "tgm1:c2hvcnQ=", "tgm1:!!!"] {
            let error = MasterKeys::parse(text, "here".to_owned()).unwrap_err();
            assert_eq!(error.class(), crate::ErrorClass::Operator);
            assert!(!error.to_string().contains("secret-text"), "{error}");
        }
    }
}
