//! The check of an ID token: its signature with a key of the provider, by ring, and its claims (OpenID Connect Core, 3.1.3.7).

use std::{collections::HashSet, fmt};

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind, Validation,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    decode, decode_header,
    errors::ErrorKind,
    jwk::{Jwk, JwkSet, KeyOperations, PublicKeyUse},
    signature::{Error as SignatureError, Verifier},
};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::{Map, Value};
use tollgate_core::Timestamp;

/// Clocks of provider and gateway may differ by so many seconds.
pub(super) const LEEWAY_S: i64 = 60;
/// Largest token, in bytes.
const MAX_TOKEN: usize = 64 << 10;

/// The values that a token must have.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    pub(super) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenFault {
    /// No key of the provider has the token's key id.
    UnknownKey,
    Signature(String),
    Claim(&'static str),
}

impl fmt::Display for TokenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey => f.write_str("it is signed with an unknown key"),
            Self::Signature(reason) => f.write_str(reason),
            Self::Claim(name) => write!(f, "its claim '{name}' is not the expected one"),
        }
    }
}

/// The claims of a valid token.
pub(super) fn verify(token: &str, keys: &JwkSet, expected: &Expected<'_>) -> Result<Map<String, Value>, TokenFault> {
    if token.len() > MAX_TOKEN {
        return Err(TokenFault::Signature("it is too long".to_owned()));
    }
    let unreadable = |error: jsonwebtoken::errors::Error| TokenFault::Signature(error.to_string());
    let header = decode_header(token).map_err(unreadable)?;
    if ALLOWED.iter().all(|(allowed, _)| *allowed != header.alg) {
        return Err(TokenFault::Signature("its algorithm is not allowed".to_owned()));
    }
    if header.crit.is_some() {
        return Err(TokenFault::Signature("it has extensions that must be understood".to_owned()));
    }
    let key = key_for(keys, header.kid.as_deref(), header.alg).ok_or(TokenFault::UnknownKey)?;
    // A validation accepts the algorithm it was made for only: that of the header, which must fit the kind of the key.
    let mut validation = Validation::new(header.alg);
    // Times are compared with the gateway's clock below.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.required_spec_claims = HashSet::new();
    validation.set_issuer(&[expected.issuer]);
    validation.set_audience(&[expected.client_id]);
    let decoded = decode::<Map<String, Value>>(token, &DecodingKey::from_jwk(key).map_err(unreadable)?, &validation);
    let claims = decoded.map_err(unreadable)?.claims;
    check_claims(&claims, expected)?;
    Ok(claims)
}

/// Whether a key can check the signature of a token.
pub(super) fn can_verify(key: &Jwk) -> bool {
    let fits =
        |(algorithm, _): &(Algorithm, Verification)| DecodingKey::from_jwk(key).is_ok_and(|key| key.family() == algorithm.family());
    key.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature) && ALLOWED.iter().any(fits)
}

/// The key with this id; without an id, the only one of the right kind.
fn key_for<'a>(keys: &'a JwkSet, id: Option<&str>, algorithm: Algorithm) -> Option<&'a Jwk> {
    let signs = |key: &&Jwk| {
        let common = &key.common;
        common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|operations| operations.contains(&KeyOperations::Verify))
            && DecodingKey::from_jwk(key).is_ok_and(|key| key.family() == algorithm.family())
    };
    let mut found = keys.keys.iter().filter(signs).filter(|key| id.is_none() || key.common.key_id.as_deref() == id);
    let first = found.next()?;
    if id.is_none() && found.next().is_some() { None } else { Some(first) }
}

fn check_claims(claims: &Map<String, Value>, expected: &Expected<'_>) -> Result<(), TokenFault> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let time = |name: &str| claims.get(name).and_then(Value::as_f64);
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact")]
    let (now, leeway) = (expected.now.seconds() as f64, LEEWAY_S as f64);
    if text("iss") != Some(expected.issuer) {
        return Err(TokenFault::Claim("iss"));
    }
    let audiences = match claims.get("aud") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    };
    if !audiences.contains(&expected.client_id) {
        return Err(TokenFault::Claim("aud"));
    }
    if (audiences.len() > 1 || claims.contains_key("azp")) && text("azp") != Some(expected.client_id) {
        return Err(TokenFault::Claim("azp"));
    }
    if text("sub").is_none_or(|subject| subject.is_empty() || subject.len() > 255) {
        return Err(TokenFault::Claim("sub"));
    }
    if text("nonce") != Some(expected.nonce) {
        return Err(TokenFault::Claim("nonce"));
    }
    if time("exp").is_none_or(|end| end + leeway <= now) {
        return Err(TokenFault::Claim("exp"));
    }
    if time("iat").is_none_or(|made| made - leeway > now) {
        return Err(TokenFault::Claim("iat"));
    }
    Ok(())
}

/// Lets the library verify signatures with ring, as TLS does. Signing and symmetric algorithms are not provided.
pub(super) fn install_verifiers() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
        verifier_factory,
        key_utils: KeyUtils::new_unimplemented(),
    };
    // An error says that it is installed already.
    let _ = PROVIDER.install_default();
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the library declares it so")]
fn verifier_factory(algorithm: &Algorithm, key: &DecodingKey) -> jsonwebtoken::errors::Result<Box<dyn JwtVerifier>> {
    match ALLOWED.iter().find(|(allowed, _)| allowed == algorithm) {
        Some((algorithm, how)) if key.family() == algorithm.family() => {
            Ok(Box::new(RingVerifier { algorithm: *algorithm, how: *how, key: key.clone() }))
        }
        Some(_) | None => Err(ErrorKind::UnsupportedAlgorithm.into()),
    }
}

/// The permitted signature algorithms: asymmetric ones only. `none` is excluded, and so are those with a shared secret, for which the
/// provider's public key could be used.
static ALLOWED: [(Algorithm, Verification); 9] = [
    (Algorithm::RS256, Verification::Rsa(&RSA_PKCS1_2048_8192_SHA256)),
    (Algorithm::RS384, Verification::Rsa(&RSA_PKCS1_2048_8192_SHA384)),
    (Algorithm::RS512, Verification::Rsa(&RSA_PKCS1_2048_8192_SHA512)),
    (Algorithm::PS256, Verification::Rsa(&RSA_PSS_2048_8192_SHA256)),
    (Algorithm::PS384, Verification::Rsa(&RSA_PSS_2048_8192_SHA384)),
    (Algorithm::PS512, Verification::Rsa(&RSA_PSS_2048_8192_SHA512)),
    (Algorithm::ES256, Verification::Other(&ECDSA_P256_SHA256_FIXED)),
    (Algorithm::ES384, Verification::Other(&ECDSA_P384_SHA384_FIXED)),
    (Algorithm::EdDSA, Verification::Other(&ED25519)),
];

#[derive(Clone, Copy)]
enum Verification {
    Rsa(&'static RsaParameters),
    Other(&'static dyn VerificationAlgorithm),
}

struct RingVerifier {
    algorithm: Algorithm,
    how: Verification,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let verified = match (&self.how, self.key.kind()) {
            (Verification::Rsa(how), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(how, message, signature)
            }
            (Verification::Other(how), DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(*how, point).verify(message, signature)
            }
            (Verification::Rsa(_), DecodingKeyKind::SecretOrDer(_))
            | (Verification::Other(_), DecodingKeyKind::RsaModulusExponent { .. }) => return Err(SignatureError::new()),
        };
        verified.map_err(|_| SignatureError::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use ring::{
        rand::SystemRandom,
        signature::{Ed25519KeyPair, KeyPair as _},
    };
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    struct Provider(Ed25519KeyPair);

    impl Provider {
        fn new() -> Self {
            install_verifiers();
            let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
            Self(Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap())
        }

        fn keys(&self) -> JwkSet {
            let x = URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref());
            serde_json::from_value(json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "use": "sig", "x": x}]})).unwrap()
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let message = format!("{}.{}", part(header), part(claims));
            let signature = URL_SAFE_NO_PAD.encode(self.0.sign(message.as_bytes()).as_ref());
            format!("{message}.{signature}")
        }
    }

    fn claims() -> Value {
        json!({
            "iss": "https://id.example.com", "aud": "tollgate", "sub": "ann", "nonce": "n",
            "exp": NOW.seconds() + 300, "iat": NOW.seconds(),
        })
    }

    fn check(provider: &Provider, token: &str) -> Result<Map<String, Value>, TokenFault> {
        let expected = Expected { issuer: "https://id.example.com", client_id: "tollgate", nonce: "n", now: NOW };
        verify(token, &provider.keys(), &expected)
    }

    #[test]
    fn only_tokens_signed_with_a_key_of_the_provider_are_valid() {
        let provider = Provider::new();
        let header = json!({"alg": "EdDSA", "kid": "one"});
        let token = provider.sign(&header, &claims());
        assert_eq!(check(&provider, &token).unwrap()["sub"], "ann");
        let forged = Provider::new().sign(&header, &claims());
        assert!(matches!(check(&provider, &forged), Err(TokenFault::Signature(_))));
        let (message, _) = token.rsplit_once('.').unwrap();
        assert!(check(&provider, &format!("{message}.")).is_err(), "without a signature");
        let unknown = provider.sign(&json!({"alg": "EdDSA", "kid": "two"}), &claims());
        assert_eq!(check(&provider, &unknown), Err(TokenFault::UnknownKey));
        for alg in ["none", "HS256", "RS256"] {
            let other = provider.sign(&json!({"alg": alg, "kid": "one"}), &claims());
            assert!(check(&provider, &other).is_err(), "{alg}");
        }
        assert!(check(&provider, "").is_err() && check(&provider, "a.b.c").is_err());
    }

    #[test]
    fn each_claim_must_be_the_expected_one() {
        let provider = Provider::new();
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else {
                claims[name] = value;
            }
            check(&provider, &provider.sign(&json!({"alg": "EdDSA"}), &claims))
        };
        for (name, value) in [
            ("iss", json!("https://evil.example.com")),
            ("iss", Value::Null),
            ("aud", json!("another")),
            ("aud", json!(["another"])),
            ("aud", Value::Null),
            ("aud", json!(["tollgate", "another"])),
            ("azp", json!("another")),
            ("sub", json!("")),
            ("sub", Value::Null),
            ("nonce", json!("m")),
            ("nonce", Value::Null),
            ("exp", json!(NOW.seconds() - 61)),
            ("exp", json!("soon")),
            ("exp", Value::Null),
            ("iat", json!(NOW.seconds() + 61)),
            ("iat", Value::Null),
        ] {
            assert!(with(name, value.clone()).is_err(), "{name} = {value}");
        }
        assert!(with("aud", json!(["tollgate"])).is_ok() && with("azp", json!("tollgate")).is_ok());
        assert!(with("exp", json!(NOW.seconds() - 30)).is_ok(), "clocks differ");
    }
}
