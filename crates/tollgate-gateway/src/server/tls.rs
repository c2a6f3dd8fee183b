//! TLS of the listener: rustls with ring, a certificate chain and a key from PEM files that may be replaced at any time.

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
    /// A file cannot be read, or is no PEM of the kind it should be.
    #[error("cannot read {} as PEM: {source}", .path.display())]
    Pem {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: pem::Error,
    },
    /// Certificate and key do not fit together, or are of a kind that is not supported.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// How often the files are looked at for a change.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// An acceptor that speaks HTTP/2 and HTTP/1.1, and the certificate it shows, which can be replaced while it serves.
///
/// # Errors
/// When a file cannot be read, or certificate and key do not fit together.
pub fn tls_acceptor(files: &TlsFiles) -> Result<(TlsAcceptor, Arc<Certificate>), TlsError> {
    let certificate = Arc::new(Certificate::read(files)?);
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&certificate.provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&certificate) as _);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), certificate))
}

/// The certificate in force, from its files. Certificates are renewed every few weeks by programs that replace the
/// files; connections made afterwards see the new one, without a restart.
#[derive(Debug)]
pub struct Certificate {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    in_force: ArcSwap<CertifiedKey>,
}

impl Certificate {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let in_force = ArcSwap::from_pointee(certified_key(files, &provider)?);
        Ok(Self { files: files.clone(), provider, in_force })
    }

    /// Reads the files anew. What cannot be used leaves the old certificate in force.
    fn renew(&self) -> Result<(), TlsError> {
        self.in_force.store(Arc::new(certified_key(&self.files, &self.provider)?));
        Ok(())
    }

    /// Follows changes of the files until `end`. A pair that does not fit is read again at the next look: the files are
    /// replaced one after the other.
    pub async fn follow(self: Arc<Self>, end: CancellationToken) {
        let mut known = self.stamps();
        let mut failed = None;
        loop {
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = end.cancelled() => return,
            }
            let found = self.stamps();
            if found == known && failed.is_none() {
                continue;
            }
            known = found;
            match self.renew() {
                Ok(()) => {
                    failed = None;
                    tracing::info!(file = %self.files.certificate.display(), "a new certificate is in force");
                }
                Err(error) => {
                    let text = error.to_string();
                    if failed.as_ref() != Some(&text) {
                        tracing::warn!(error = %text, "the certificate's files changed and cannot be used; the old one stays in force");
                    }
                    failed = Some(text);
                }
            }
        }
    }

    fn stamps(&self) -> [Option<SystemTime>; 2] {
        [&self.files.certificate, &self.files.key].map(|path| fs::metadata(path).and_then(|found| found.modified()).ok())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.in_force.load_full())
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
    fn a_missing_file_is_named() {
        let files = TlsFiles { certificate: "/nonexistent/cert.pem".into(), key: "/nonexistent/key.pem".into() };
        let error = tls_acceptor(&files).err().expect("there is no such file");
        assert!(error.to_string().contains("/nonexistent/cert.pem"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_files_come_into_force_and_broken_ones_do_not() {
        let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { certificate: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let put = |name: &str| {
            fs::copy(kept.join(format!("{name}.cert.pem")), &files.certificate).unwrap();
            fs::copy(kept.join(format!("{name}.key.pem")), &files.key).unwrap();
        };
        put("localhost");
        let certificate = Arc::new(Certificate::read(&files).unwrap());
        let shown = || certificate.in_force.load().cert[0].clone();
        let first = shown();
        let end = CancellationToken::new();
        let tracker = TaskTracker::new();
        tracker.spawn(Arc::clone(&certificate).follow(end.clone()));

        fs::write(&files.certificate, "nothing").unwrap();
        sleep(LOOK_EVERY * 3).await;
        assert_eq!(shown(), first);

        put("renewed");
        sleep(LOOK_EVERY * 3).await;
        assert_ne!(shown(), first);
        assert_eq!(shown(), CertificateDer::from_pem_file(kept.join("renewed.cert.pem")).unwrap());
        end.cancel();
        tracker.close();
        tracker.wait().await;
    }

    #[test]
    fn a_file_without_a_certificate_and_a_key_of_another_are_named() {
        let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let (certificate, key) = (kept.join("localhost.cert.pem"), kept.join("localhost.key.pem"));
        let error = Certificate::read(&TlsFiles { certificate: key.clone(), key: key.clone() }).unwrap_err();
        assert!(error.to_string().contains("localhost.key.pem"), "{error}");
        let error = Certificate::read(&TlsFiles { certificate, key: kept.join("renewed.key.pem") }).unwrap_err();
        assert!(matches!(error, TlsError::Unusable(_)), "{error}");
    }
}
