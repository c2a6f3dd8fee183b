//! TLS of the listener: rustls with ring, and a certificate chain and key from PEM files that are reloaded on change.

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::settings::TlsFiles;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or does not contain the expected kind of PEM.
    #[error("cannot read {} as PEM: {source}", .path.display())]
    Pem { path: PathBuf, source: pem::Error },
    /// Certificate and key do not match, or their type is not supported.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// How often the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Creates an acceptor that offers HTTP/2 and HTTP/1.1, and its certificate, which can be replaced while it serves.
pub fn tls_acceptor(files: &TlsFiles) -> Result<(TlsAcceptor, Arc<Certificate>), TlsError> {
    let certificate = Arc::new(Certificate::read(files)?);
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&certificate.provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&certificate) as _);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), certificate))
}

/// The current certificate and its files. ACME clients replace the files every few weeks; new connections then use the
/// new certificate without a restart.
#[derive(Debug)]
pub struct Certificate {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<CertifiedKey>,
}

impl Certificate {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let current = ArcSwap::from_pointee(certified_key(files, &provider)?);
        Ok(Self { files: files.clone(), provider, current })
    }

    /// Reads the files again. On error the old certificate stays in use.
    fn reload(&self) -> Result<(), TlsError> {
        self.current.store(Arc::new(certified_key(&self.files, &self.provider)?));
        Ok(())
    }

    /// Reloads the files when they change, until `end`. A pair that does not match is read again at the next check, since
    /// the two files are replaced one after the other.
    pub async fn follow(self: Arc<Self>, end: CancellationToken) {
        let mut known = self.modified_times();
        let mut failed = None;
        loop {
            tokio::select! {
                () = sleep(CHECK_INTERVAL) => {}
                () = end.cancelled() => return,
            }
            let found = self.modified_times();
            if found == known && failed.is_none() {
                continue;
            }
            known = found;
            match self.reload() {
                Ok(()) => {
                    failed = None;
                    tracing::info!(file = %self.files.certificate.display(), "new certificate loaded");
                }
                Err(error) => {
                    let text = error.to_string();
                    if failed.as_ref() != Some(&text) {
                        tracing::warn!(error = %text, "changed certificate files cannot be used; the old certificate remains in use");
                    }
                    failed = Some(text);
                }
            }
        }
    }

    fn modified_times(&self) -> [Option<SystemTime>; 2] {
        [&self.files.certificate, &self.files.key].map(|path| fs::metadata(path).and_then(|found| found.modified()).ok())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn certified_key(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let failed = |path: &PathBuf| {
        let path = path.clone();
        move |source| TlsError::Pem { path, source }
    };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(failed(&files.certificate))?;
    if chain.is_empty() {
        return Err(failed(&files.certificate)(pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(failed(&files.key))?;
    Ok(CertifiedKey::from_der(chain, key, provider)?)
}

#[cfg(test)]
mod tests {
    use tokio_util::task::TaskTracker;

    use super::*;

    #[test]
    fn missing_file_is_named() {
        let files = TlsFiles { certificate: "/nonexistent/cert.pem".into(), key: "/nonexistent/key.pem".into() };
        let error = tls_acceptor(&files).err().expect("there is no such file");
        assert!(error.to_string().contains("/nonexistent/cert.pem"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_files_are_loaded_and_broken_ones_are_not() {
        let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { certificate: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let put = |name: &str| {
            fs::copy(kept.join(format!("{name}.cert.pem")), &files.certificate).unwrap();
            fs::copy(kept.join(format!("{name}.key.pem")), &files.key).unwrap();
        };
        put("localhost");
        let certificate = Arc::new(Certificate::read(&files).unwrap());
        let shown = || certificate.current.load().cert[0].clone();
        let first = shown();
        let end = CancellationToken::new();
        let tracker = TaskTracker::new();
        tracker.spawn(Arc::clone(&certificate).follow(end.clone()));

        fs::write(&files.certificate, "nothing").unwrap();
        sleep(CHECK_INTERVAL * 3).await;
        assert_eq!(shown(), first);

        put("renewed");
        sleep(CHECK_INTERVAL * 3).await;
        assert_ne!(shown(), first);
        assert_eq!(shown(), CertificateDer::from_pem_file(kept.join("renewed.cert.pem")).unwrap());
        end.cancel();
        tracker.close();
        tracker.wait().await;
    }

    #[test]
    fn missing_certificate_and_mismatched_key_are_errors() {
        let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let (certificate, key) = (kept.join("localhost.cert.pem"), kept.join("localhost.key.pem"));
        let error = Certificate::read(&TlsFiles { certificate: key.clone(), key: key.clone() }).unwrap_err();
        assert!(error.to_string().contains("localhost.key.pem"), "{error}");
        let error = Certificate::read(&TlsFiles { certificate, key: kept.join("renewed.key.pem") }).unwrap_err();
        assert!(matches!(error, TlsError::Unusable(_)), "{error}");
    }
}
