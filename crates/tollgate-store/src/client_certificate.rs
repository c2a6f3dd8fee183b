//! Client certificates of channels: PEM texts of a certificate chain and of its private key, with which the gateway identifies itself to
//! an upstream. Errors are the ends of sentences about the field.

use rustls::{
    InconsistentKeys,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{Error as PemError, PemObject as _},
    },
    sign::CertifiedKey,
};
use tollgate_core::certificate_expiry;

use crate::FieldProblem;

/// Longest chain and longest key, in characters.
pub const MAX_PEM: usize = 65_536;

/// The certificates of a chain, the client's own first.
///
/// # Errors If the text has no certificate, or one that cannot be read.
pub fn certificate_chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut chain = Vec::new();
    for found in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = found.ok().filter(|certificate| certificate_expiry(certificate).is_some());
        chain.push(certificate.ok_or_else(|| format!("certificate {} of it cannot be read", chain.len() + 1))?);
    }
    if chain.is_empty() {
        let fault = "has no certificate in PEM form, which begins with -----BEGIN CERTIFICATE-----";
        return Err(fault.to_owned());
    }
    Ok(chain)
}

/// The private key of a certificate.
///
/// # Errors If the text has no private key, an encrypted one, or one that cannot be read.
pub fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, String> {
    if pem.contains("ENCRYPTED") {
        let fault = "is encrypted; give it without a passphrase, as `openssl pkey -in client.key` writes it";
        return Err(fault.to_owned());
    }
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| {
        let fault = if matches!(error, PemError::NoItemsFound) {
            "has no private key in PEM form, which begins with -----BEGIN PRIVATE KEY-----"
        } else {
            "cannot be read: the PEM text is damaged"
        };
        fault.to_owned()
    })
}

/// Whether a chain and a key can be used together.
pub(crate) fn check_pair(chain: &str, key: &str) -> Result<(), FieldProblem> {
    let problem = |field, message: String| FieldProblem { field, message };
    let chain = certificate_chain(chain).map_err(|fault| problem("client_certificate", fault))?;
    let key = private_key(key).map_err(|fault| problem("client_key", fault))?;
    match CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider()) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(problem("client_key", "does not belong to the certificate".to_owned()))
        }
        Err(rustls::Error::InvalidCertificate(_)) => {
            Err(problem("client_certificate", "certificate 1 of it cannot be read".to_owned()))
        }
        Err(_) => Err(problem("client_key", "is of a kind that is not supported: RSA, ECDSA (P-256, P-384) or Ed25519".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> String {
        std::fs::read_to_string(format!("{}/../tollgate-gateway/fixtures/tls/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    fn fault(chain: &str, key: &str) -> (&'static str, String) {
        let problem = check_pair(chain, key).unwrap_err();
        (problem.field, problem.message)
    }

    #[test]
    fn certificate_and_key_must_belong_together() {
        let (chain, key) = (fixture("client.pem"), fixture("client.key"));
        assert_eq!(check_pair(&chain, &key), Ok(()));
        let longer = format!("a comment\r\n{}{}", chain.replace('\n', "\r\n"), fixture("client-ca.pem"));
        assert_eq!((check_pair(&longer, &key), certificate_chain(&longer).unwrap().len()), (Ok(()), 2));
        let other = fault(&chain, &fixture("other.key"));
        assert_eq!(other, ("client_key", "does not belong to the certificate".to_owned()));
    }

    #[test]
    fn unreadable_certificates_and_keys_are_reported_separately() {
        let (chain, key) = (fixture("client.pem"), fixture("client.key"));
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (chain, part) in
            [("", "no certificate"), (key.as_str(), "no certificate"), (damaged, "certificate 1 of it cannot be read")]
        {
            let (field, message) = fault(chain, &key);
            assert!(field == "client_certificate" && message.contains(part), "{message}");
        }
        let (field, message) = fault(&format!("{chain}{damaged}"), &key);
        assert!(field == "client_certificate" && message.contains("certificate 2"), "{message}");
        let cut = key.replace("-----END PRIVATE KEY-----", "");
        for (key, part) in [
            ("", "no private key"),
            (chain.as_str(), "no private key"),
            (&fixture("client-encrypted.key"), "is encrypted"),
            (&cut, "read"),
        ] {
            let (field, message) = fault(&chain, key);
            assert!(field == "client_key" && message.contains(part), "{message}");
        }
    }
}
