//! State that all outgoing connections share: the lists of addresses, and TLS. Trusted roots: those of the operating system, the bundled
//! Mozilla roots (a scratch image has no others), and a channel's own CA file. A channel with a client certificate identifies itself
//! with it.

use std::sync::{Arc, OnceLock};

use rustls::{
    AlertDescription, CertificateError, ClientConfig, ConfigBuilder, RootCertStore,
    client::WantsClientCert,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::{io::AsyncReadExt as _, net::TcpStream};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tollgate_core::AddressLists;
use tollgate_store::{certificate_chain, private_key};

use super::{
    destination::{ClientAuth, UpstreamTarget},
    guard::AddressRules,
};
use crate::upstream::call::{ConnectFault, TlsFault};

/// Largest CA file read.
const CA_FILE_BYTES: u64 = 1 << 20;

/// State shared by all destinations and cores: the permitted addresses from the settings, and the roots, which are loaded on the
/// first TLS connection.
#[derive(Debug, Default)]
pub struct Trust {
    addresses: AddressRules,
    roots: OnceLock<RootCertStore>,
    plain: OnceLock<Arc<ClientConfig>>,
}

impl Trust {
    /// Trust with the usual roots that connects only to addresses permitted by these lists.
    #[must_use]
    pub fn within(lists: AddressLists) -> Self {
        Self { addresses: AddressRules::new(lists), ..Self::default() }
    }

    /// Puts other lists into force. Kept connections that they do not permit are not used again.
    pub fn replace_addresses(&self, lists: AddressLists) {
        self.addresses.replace(lists);
    }

    pub(crate) const fn addresses(&self) -> &AddressRules {
        &self.addresses
    }

    /// The TLS configuration for a destination.
    pub(crate) async fn config(&self, destination: &UpstreamTarget) -> Result<Arc<ClientConfig>, ConnectFault> {
        if destination.ca_file.is_none() && destination.client_auth.is_none() {
            return Ok(Arc::clone(self.plain.get_or_init(|| Arc::new(config_with(self.roots().clone())))));
        }
        let mut roots = self.roots().clone();
        if let Some(path) = &destination.ca_file {
            let pem = read_bounded(path).await.map_err(|_| ConnectFault::CaFile)?;
            let mut own = 0;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                roots.add(certificate.map_err(|_| ConnectFault::CaFile)?).map_err(|_| ConnectFault::CaFile)?;
                own += 1;
            }
            if own == 0 {
                return Err(ConnectFault::CaFile);
            }
        }
        match &destination.client_auth {
            Some(client) => identified(roots, client).map(Arc::new),
            None => Ok(Arc::new(config_with(roots))),
        }
    }

    /// A TLS configuration for peers outside any channel, HTTP/1.1 only.
    #[must_use]
    pub fn over_http1(&self) -> ClientConfig {
        let mut config = config_with(self.roots().clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config
    }

    /// A TLS configuration for peers that speak another protocol than HTTP.
    pub(crate) fn without_alpn(&self) -> ClientConfig {
        let mut config = config_with(self.roots().clone());
        config.alpn_protocols = Vec::new();
        config
    }

    fn roots(&self) -> &RootCertStore {
        self.roots.get_or_init(|| {
            let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
            let (added, ignored) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            tracing::debug!(added, ignored, "read the operating system's certificate roots");
            roots
        })
    }
}

async fn read_bounded(path: &str) -> std::io::Result<Vec<u8>> {
    let mut pem = Vec::new();
    tokio::fs::File::open(path).await?.take(CA_FILE_BYTES).read_to_end(&mut pem).await?;
    Ok(pem)
}

fn config_with(roots: RootCertStore) -> ClientConfig {
    over_http(trusting(roots).with_no_client_auth())
}

/// A configuration with a client certificate.
fn identified(roots: RootCertStore, client: &ClientAuth) -> Result<ClientConfig, ConnectFault> {
    let chain = certificate_chain(&client.chain).map_err(|_| ConnectFault::ClientCertificate)?;
    let key = private_key(client.key.expose()).map_err(|_| ConnectFault::ClientCertificate)?;
    let config = trusting(roots).with_client_auth_cert(chain, key).map_err(|_| ConnectFault::ClientCertificate)?;
    Ok(over_http(config))
}

fn trusting(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions")
        .with_root_certificates(roots)
}

fn over_http(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// Performs the handshake; the certificate must match the destination's name or address.
pub(crate) async fn handshake(
    config: Arc<ClientConfig>,
    destination: &UpstreamTarget,
    socket: TcpStream,
) -> Result<TlsStream<TcpStream>, ConnectFault> {
    let name = destination.host.clone().try_into().map_err(|_| ConnectFault::BadUrl)?;
    TlsConnector::from(config).connect(name, socket).await.map_err(|error| ConnectFault::Tls(fault_of(&error)))
}

/// The fault in the alert of a server that rejects the client certificate or misses one. With TLS 1.3 the alert arrives after the
/// handshake, in place of an answer.
pub(crate) fn refused_client(error: &std::io::Error) -> Option<TlsFault> {
    let Some(rustls::Error::AlertReceived(alert)) = error.get_ref()?.downcast_ref::<rustls::Error>() else { return None };
    let is_about_certificate = matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    );
    is_about_certificate.then_some(TlsFault::ClientRefused)
}

fn fault_of(error: &std::io::Error) -> TlsFault {
    if let Some(fault) = refused_client(error) {
        return fault;
    }
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else { return TlsFault::Lost };
    let rustls::Error::InvalidCertificate(why) = error else {
        return if matches!(error, rustls::Error::InvalidMessage(_)) { TlsFault::NoTls } else { TlsFault::Refused };
    };
    if matches!(why, CertificateError::Expired | CertificateError::ExpiredContext { .. }) {
        TlsFault::Expired
    } else if matches!(why, CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) {
        TlsFault::NotValidYet
    } else if matches!(why, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }) {
        TlsFault::OtherName
    } else if *why == CertificateError::UnknownIssuer {
        TlsFault::UnknownIssuer
    } else {
        TlsFault::Certificate
    }
}
