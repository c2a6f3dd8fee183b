//! The checks of a relying party on passkeys (W3C Web Authentication Level 3, <https://www.w3.org/TR/webauthn-3/>), without clock, store and
//! network. Section numbers are those of that document.
//!
//! Attestation is not requested, and an authenticator's statements about itself are ignored: members may add any authenticator. The
//! authenticator must verify the person each time, so that a passkey counts as two factors.

mod authenticator_data;
mod public_key;
#[cfg(test)]
mod tests;

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use minicbor::{Decoder, data::Type};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use url::{Host, Url};

use authenticator_data::AuthenticatorData;
pub(crate) use public_key::ALGORITHMS;
use public_key::PublicKey;

/// Longest id that an authenticator may give a passkey (section 4, "Credential ID").
pub(crate) const MAX_CREDENTIAL_ID: usize = 1_023;
/// How long the browser's dialog stays open, and how long a challenge is valid.
pub(crate) const TIMEOUT_MS: i64 = 300_000;

/// The site that passkeys are made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelyingParty {
    /// The host that browsers bind passkeys to.
    pub(crate) id: String,
    /// The only origin of pages that may use them.
    pub(crate) origin: String,
}

impl RelyingParty {
    /// The relying party of a console at this configured address. `None` if browsers offer no passkeys there: without TLS, or at an address
    /// without a host name (section 5.1.3, step 8). A console at a loopback address can also be opened at `localhost`, where browsers
    /// offer them.
    pub(crate) fn of(console: &Url) -> Option<Self> {
        let is_secure = console.scheme() == "https";
        let is_loopback = match console.host()? {
            Host::Domain(name) => {
                let is_local = name == "localhost" || name.ends_with(".localhost");
                let origin = console.origin().ascii_serialization();
                return (is_secure || is_local).then(|| Self { id: name.to_owned(), origin });
            }
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        };
        let mut named = console.clone();
        named.set_host(Some("localhost")).ok()?;
        is_loopback.then(|| Self { id: "localhost".to_owned(), origin: named.origin().ascii_serialization() })
    }
}

/// Why the answer of an authenticator is refused. Shown in the log only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    ClientData,
    Type,
    Challenge,
    Origin,
    AuthenticatorData,
    RelyingParty,
    UserNotPresent,
    UserNotVerified,
    BackupFlags,
    NoCredential,
    CredentialId,
    Attestation,
    Algorithm,
    PublicKey,
    UserHandle,
    Signature,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClientData => "the client data is malformed",
            Self::Type => "the client data is of another ceremony",
            Self::Challenge => "the challenge is another one",
            Self::Origin => "the page is of another origin",
            Self::AuthenticatorData => "the authenticator data is malformed",
            Self::RelyingParty => "the passkey is of another site",
            Self::UserNotPresent => "the authenticator did not notice a person",
            Self::UserNotVerified => "the authenticator did not verify the person",
            Self::BackupFlags => "the backup flags contradict each other or those of before",
            Self::NoCredential => "the authenticator made no passkey",
            Self::CredentialId => "the id of the passkey is malformed",
            Self::Attestation => "the attestation object is malformed",
            Self::Algorithm => "the algorithm of the public key was not asked for",
            Self::PublicKey => "the public key is malformed",
            Self::UserHandle => "the passkey was made for another member",
            Self::Signature => "the signature is wrong",
        })
    }
}

/// The relying party and challenge that an authenticator's answer must match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedAnswer<'a> {
    pub(crate) relying_party: &'a RelyingParty,
    /// Base64url without padding, as it was sent to the browser.
    pub(crate) challenge: &'a str,
}

/// The two kinds of answers (section 5.8.1, `type`).
#[derive(Clone, Copy, Debug)]
enum Ceremony {
    Create,
    Get,
}

/// A passkey that an authenticator made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewCredential {
    pub(crate) id: Vec<u8>,
    /// `COSE_Key` as the authenticator wrote it.
    pub(crate) public_key: Vec<u8>,
    pub(crate) sign_count: u32,
    pub(crate) is_backup_eligible: bool,
    pub(crate) is_backed_up: bool,
}

/// The stored parts of a passkey that an answer is checked with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownCredential<'a> {
    pub(crate) public_key: &'a [u8],
    pub(crate) is_backup_eligible: bool,
    /// `user.id` of the passkey's registration: the id of its member.
    pub(crate) user_handle: &'a [u8],
}

/// An answer to a sign-in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assertion<'a> {
    pub(crate) client_data: &'a [u8],
    pub(crate) authenticator_data: &'a [u8],
    pub(crate) signature: &'a [u8],
    pub(crate) user_handle: &'a [u8],
}

/// The facts of a verified answer. The caller compares the counter with the stored one when it stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asserted {
    pub(crate) sign_count: u32,
    pub(crate) is_backed_up: bool,
}

/// Members of `CollectedClientData` (section 5.8.1). Browsers may add others.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(default)]
    cross_origin: bool,
    top_origin: Option<String>,
}

/// Bytes as WebAuthn writes them in JSON: base64url without padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Checks a new passkey (section 7.1).
pub(crate) fn verify_registration(
    expected: ExpectedAnswer<'_>,
    client_data: &[u8],
    attestation_object: &[u8],
) -> Result<NewCredential, Fault> {
    check_client_data(expected, Ceremony::Create, client_data)?;
    // Section 7.1, step 12: the attestation object holds the authenticator data.
    let bytes = authenticator_data_of(attestation_object).ok_or(Fault::Attestation)?;
    let data = AuthenticatorData::parse(bytes)?;
    check_authenticator(expected, &data)?;
    // Step 20 and following: attestation was not asked for, so the statement is not looked at.
    let made = data.credential.ok_or(Fault::NoCredential)?;
    // Step 25: the id has at most 1,023 bytes.
    if made.id.is_empty() || made.id.len() > MAX_CREDENTIAL_ID {
        return Err(Fault::CredentialId);
    }
    // Step 19: the algorithm is one that was asked for.
    PublicKey::parse(made.public_key)?;
    Ok(NewCredential {
        id: made.id.to_vec(),
        public_key: made.public_key.to_vec(),
        sign_count: data.sign_count,
        is_backup_eligible: data.is_backup_eligible(),
        is_backed_up: data.is_backed_up(),
    })
}

/// Checks the client data of a sign-in (section 7.2, steps 8 to 14), for which no passkey is needed. [`verify_assertion`] includes this
/// check.
pub(crate) fn check_sign_in(expected: ExpectedAnswer<'_>, client_data: &[u8]) -> Result<(), Fault> {
    check_client_data(expected, Ceremony::Get, client_data)
}

/// Checks the answer to a sign-in (section 7.2) with the passkey it names.
pub(crate) fn verify_assertion(
    expected: ExpectedAnswer<'_>,
    known: KnownCredential<'_>,
    answer: Assertion<'_>,
) -> Result<Asserted, Fault> {
    // Section 7.2, step 6: no passkeys were named, so the user handle must be there and be that of the passkey's member.
    if answer.user_handle != known.user_handle {
        return Err(Fault::UserHandle);
    }
    check_client_data(expected, Ceremony::Get, answer.client_data)?;
    let data = AuthenticatorData::parse(answer.authenticator_data)?;
    check_authenticator(expected, &data)?;
    // Step 19: the backup eligibility of a passkey never changes.
    if data.is_backup_eligible() != known.is_backup_eligible {
        return Err(Fault::BackupFlags);
    }
    // Steps 20 and 21: the signature covers the authenticator data and the hash of the client data.
    let signed = [answer.authenticator_data, Sha256::digest(answer.client_data).as_slice()].concat();
    PublicKey::parse(known.public_key)?.verify(&signed, answer.signature)?;
    Ok(Asserted { sign_count: data.sign_count, is_backed_up: data.is_backed_up() })
}

/// Sections 7.1, steps 5 to 11, and 7.2, steps 8 to 14.
fn check_client_data(expected: ExpectedAnswer<'_>, ceremony: Ceremony, json: &[u8]) -> Result<(), Fault> {
    let data: ClientData = serde_json::from_slice(json).map_err(|_| Fault::ClientData)?;
    let kind = match ceremony {
        Ceremony::Create => "webauthn.create",
        Ceremony::Get => "webauthn.get",
    };
    if data.kind != kind {
        return Err(Fault::Type);
    }
    if !bool::from(data.challenge.as_bytes().ct_eq(expected.challenge.as_bytes())) {
        return Err(Fault::Challenge);
    }
    // No other page shows the console in a frame.
    if data.origin != expected.relying_party.origin || data.cross_origin || data.top_origin.is_some() {
        return Err(Fault::Origin);
    }
    Ok(())
}

/// Sections 7.1, steps 14 to 18, and 7.2, steps 15 to 18.
fn check_authenticator(expected: ExpectedAnswer<'_>, data: &AuthenticatorData<'_>) -> Result<(), Fault> {
    if data.relying_party_hash != Sha256::digest(&expected.relying_party.id).as_slice() {
        return Err(Fault::RelyingParty);
    }
    if !data.is_user_present() {
        return Err(Fault::UserNotPresent);
    }
    if !data.is_user_verified() {
        return Err(Fault::UserNotVerified);
    }
    if data.is_backed_up() && !data.is_backup_eligible() {
        return Err(Fault::BackupFlags);
    }
    Ok(())
}

/// `authData` of an attestation object (section 6.5.4): a map of `fmt`, `attStmt` and `authData`.
fn authenticator_data_of(attestation_object: &[u8]) -> Option<&[u8]> {
    let mut cbor = Decoder::new(attestation_object);
    let entries = cbor.map().ok()??;
    let mut found = None;
    for _ in 0..entries {
        if cbor.str().ok()? == "authData" && cbor.datatype().ok()? == Type::Bytes {
            if found.replace(cbor.bytes().ok()?).is_some() {
                return None;
            }
        } else {
            cbor.skip().ok()?;
        }
    }
    found.filter(|_| cbor.position() == attestation_object.len())
}
