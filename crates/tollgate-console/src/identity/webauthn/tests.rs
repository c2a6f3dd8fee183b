//! Responses of a software authenticator, with each check violated once, and responses of other implementations.

use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};

use super::*;

const CHALLENGE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const HANDLE: &[u8] = b"mbr_1";

fn console() -> RelyingParty {
    RelyingParty { id: "console.example.com".to_owned(), origin: "https://console.example.com".to_owned() }
}

/// The parts of an answer by an authenticator and a browser. Each test changes one of them.
#[derive(Clone)]
struct AnswerParts {
    client_data: Value,
    relying_party: String,
    flags: u8,
    count: u32,
    credential: Vec<u8>,
    /// Replaces the public key.
    key: Option<Vec<u8>>,
    /// Bytes after the authenticator data.
    tail: Vec<u8>,
}

fn parts(kind: &str, flags: u8) -> AnswerParts {
    let client_data =
        json!({"type": kind, "challenge": CHALLENGE, "origin": "https://console.example.com", "crossOrigin": false, "extra": 1});
    AnswerParts {
        client_data,
        relying_party: "console.example.com".to_owned(),
        flags,
        count: 7,
        credential: vec![9; 20],
        key: None,
        tail: Vec::new(),
    }
}

struct Authenticator(EcdsaKeyPair);

impl Authenticator {
    fn new() -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_ASN1_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap())
    }

    fn public_key(&self) -> Vec<u8> {
        let point = self.0.public_key().as_ref();
        key(&[
            (1, KeyEntry::Int(2)),
            (3, KeyEntry::Int(-7)),
            (-1, KeyEntry::Int(1)),
            (-2, KeyEntry::Bytes(&point[1..33])),
            (-3, KeyEntry::Bytes(&point[33..])),
        ])
    }

    fn data(&self, parts: &AnswerParts) -> Vec<u8> {
        let mut data = Sha256::digest(&parts.relying_party).to_vec();
        data.push(parts.flags);
        data.extend(parts.count.to_be_bytes());
        if parts.flags & 0x40 != 0 {
            data.extend([0; 16]);
            data.extend(u16::try_from(parts.credential.len()).unwrap().to_be_bytes());
            data.extend(&parts.credential);
            data.extend(parts.key.clone().unwrap_or_else(|| self.public_key()));
        }
        data.extend(&parts.tail);
        data
    }

    fn register(&self, parts: &AnswerParts) -> Result<NewCredential, Fault> {
        let object = attestation(&self.data(parts));
        verify_registration(expected(&console()), parts.client_data.to_string().as_bytes(), &object)
    }

    fn assert(&self, parts: &AnswerParts, handle: &[u8]) -> Result<Asserted, Fault> {
        let (client_data, data) = (parts.client_data.to_string(), self.data(parts));
        let signed = [data.as_slice(), Sha256::digest(&client_data).as_slice()].concat();
        let signature = self.0.sign(&SystemRandom::new(), &signed).unwrap();
        let public_key = self.public_key();
        let known = KnownCredential { public_key: &public_key, is_backup_eligible: true, user_handle: HANDLE };
        let client_data = client_data.as_bytes();
        let answer = Assertion { client_data, authenticator_data: &data, signature: signature.as_ref(), user_handle: handle };
        verify_assertion(expected(&console()), known, answer)
    }
}

enum KeyEntry<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

/// A `COSE_Key`.
fn key(entries: &[(i64, KeyEntry<'_>)]) -> Vec<u8> {
    let mut cbor = minicbor::Encoder::new(Vec::new());
    cbor.map(entries.len() as u64).unwrap();
    for (label, entry) in entries {
        cbor.i64(*label).unwrap();
        match entry {
            KeyEntry::Int(number) => cbor.i64(*number).unwrap(),
            KeyEntry::Bytes(bytes) => cbor.bytes(bytes).unwrap(),
        };
    }
    cbor.into_writer()
}

fn attestation(data: &[u8]) -> Vec<u8> {
    let mut cbor = minicbor::Encoder::new(Vec::new());
    cbor.map(3).unwrap().str("fmt").unwrap().str("none").unwrap().str("attStmt").unwrap().map(0).unwrap();
    cbor.str("authData").unwrap().bytes(data).unwrap();
    cbor.into_writer()
}

fn expected(relying_party: &RelyingParty) -> ExpectedAnswer<'_> {
    ExpectedAnswer { relying_party, challenge: CHALLENGE }
}

/// The responses in the file were created with other implementations of cryptography and CBOR.
#[test]
fn vectors_of_other_implementations_are_accepted_and_modified_ones_refused() {
    let file: Value = serde_json::from_str(include_str!("vectors.json")).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), ALGORITHMS.len());
    for vector in vectors {
        let (name, relying_party) = (vector["name"].as_str().unwrap(), console());
        let bytes = |field: &str| decode(vector[field].as_str().unwrap()).unwrap();
        let expected = |field: &str| ExpectedAnswer { relying_party: &relying_party, challenge: vector[field].as_str().unwrap() };
        let created = verify_registration(expected("create_challenge"), &bytes("create_client_data"), &bytes("attestation_object"));
        let made = created.unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(made.id, bytes("credential"), "{name}");
        let (client_data, data, signature) = (bytes("get_client_data"), bytes("authenticator_data"), bytes("signature"));
        let known =
            KnownCredential { public_key: &made.public_key, is_backup_eligible: made.is_backup_eligible, user_handle: HANDLE };
        let answer = Assertion { client_data: &client_data, authenticator_data: &data, signature: &signature, user_handle: HANDLE };
        let asserted = verify_assertion(expected("get_challenge"), known, answer).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert!(asserted.sign_count > made.sign_count || made.sign_count == 0, "{name}");
        assert_eq!(asserted.is_backed_up, made.is_backed_up, "{name}");
        for at in [0, signature.len() / 2, signature.len() - 1] {
            let mut changed = signature.clone();
            changed[at] ^= 1;
            let answer = Assertion { signature: &changed, ..answer };
            assert_eq!(verify_assertion(expected("get_challenge"), known, answer), Err(Fault::Signature), "{name} {at}");
        }
        let other = Assertion { client_data: &[client_data.as_slice(), b" "].concat(), ..answer };
        assert_eq!(
            verify_assertion(expected("get_challenge"), known, other),
            Err(Fault::Signature),
            "{name}: of other client data"
        );
    }
}

#[test]
fn new_passkey_has_id_key_counter_and_flags() {
    let authenticator = Authenticator::new();
    let made = authenticator.register(&parts("webauthn.create", 0x5d)).unwrap();
    assert_eq!((made.id, made.public_key, made.sign_count), (vec![9; 20], authenticator.public_key(), 7));
    assert!(made.is_backup_eligible && made.is_backed_up);
    let extended = AnswerParts { tail: vec![0xa1, 0x61, b'x', 0xf5], ..parts("webauthn.create", 0xc5) };
    let made = authenticator.register(&extended).unwrap();
    assert!(!made.is_backup_eligible && !made.is_backed_up, "with extensions");
}

#[test]
fn registration_with_any_invalid_part_is_refused() {
    let authenticator = Authenticator::new();
    let good = parts("webauthn.create", 0x45);
    assert!(authenticator.register(&good).is_ok());
    let point = authenticator.public_key();
    let es384 = key(&[
        (1, KeyEntry::Int(2)),
        (3, KeyEntry::Int(-35)),
        (-1, KeyEntry::Int(2)),
        (-2, KeyEntry::Bytes(&[1; 48])),
        (-3, KeyEntry::Bytes(&[1; 48])),
    ]);
    let short = key(&[
        (1, KeyEntry::Int(2)),
        (3, KeyEntry::Int(-7)),
        (-1, KeyEntry::Int(1)),
        (-2, KeyEntry::Bytes(&[1; 31])),
        (-3, KeyEntry::Bytes(&[1; 32])),
    ]);
    let twice = key(&[
        (1, KeyEntry::Int(1)),
        (3, KeyEntry::Int(-8)),
        (3, KeyEntry::Int(-8)),
        (-1, KeyEntry::Int(6)),
        (-2, KeyEntry::Bytes(&[1; 32])),
    ]);
    let small_rsa = key(&[
        (1, KeyEntry::Int(3)),
        (3, KeyEntry::Int(-257)),
        (-1, KeyEntry::Bytes(&[0xff; 128])),
        (-2, KeyEntry::Bytes(&[1, 0, 1])),
    ]);
    let with_key = |key: &[u8]| AnswerParts { key: Some(key.to_vec()), ..good.clone() };
    for (changed, fault) in [
        (AnswerParts { flags: 0x05, ..good.clone() }, Fault::NoCredential),
        (AnswerParts { credential: Vec::new(), ..good.clone() }, Fault::CredentialId),
        (AnswerParts { credential: vec![1; MAX_CREDENTIAL_ID + 1], ..good.clone() }, Fault::CredentialId),
        (with_key(&es384), Fault::Algorithm),
        (with_key(&short), Fault::PublicKey),
        (with_key(&twice), Fault::PublicKey),
        (with_key(&small_rsa), Fault::PublicKey),
        (with_key(&[0xa0]), Fault::PublicKey),
        (with_key(&[0xbf, 0xff]), Fault::AuthenticatorData),
        (with_key(&point[..40]), Fault::AuthenticatorData),
    ] {
        assert_eq!(authenticator.register(&changed), Err(fault));
    }
    check_shared_faults(&good, |changed| authenticator.register(changed).map(drop));
}

#[test]
fn assertion_with_any_invalid_part_is_refused() {
    let authenticator = Authenticator::new();
    let good = parts("webauthn.get", 0x1d);
    let asserted = authenticator.assert(&good, HANDLE).unwrap();
    assert_eq!(asserted, Asserted { sign_count: 7, is_backed_up: true });
    assert_eq!(authenticator.assert(&good, b"mbr_2"), Err(Fault::UserHandle));
    assert_eq!(authenticator.assert(&good, b""), Err(Fault::UserHandle));
    let other = AnswerParts { flags: 0x05, ..good.clone() };
    assert_eq!(authenticator.assert(&other, HANDLE), Err(Fault::BackupFlags), "it could be copied before");
    check_shared_faults(&good, |changed| authenticator.assert(changed, HANDLE).map(drop));
}

/// Faults that both kinds of answers must be refused for.
fn check_shared_faults(good: &AnswerParts, verify: impl Fn(&AnswerParts) -> Result<(), Fault>) {
    let with = |field: &str, value: Value| {
        let mut changed = good.clone();
        changed.client_data[field] = value;
        changed
    };
    let flags = |flags: u8| AnswerParts { flags, ..good.clone() };
    let other_kind = if good.client_data["type"] == "webauthn.get" { "webauthn.create" } else { "webauthn.get" };
    for (changed, fault) in [
        (with("type", other_kind.into()), Fault::Type),
        (with("challenge", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9".into()), Fault::Challenge),
        (with("challenge", "".into()), Fault::Challenge),
        (with("challenge", format!("{CHALLENGE}=").into()), Fault::Challenge),
        (with("origin", "https://console.example.com:8443".into()), Fault::Origin),
        (with("origin", "http://console.example.com".into()), Fault::Origin),
        (with("origin", "https://evil.console.example.com".into()), Fault::Origin),
        (with("crossOrigin", true.into()), Fault::Origin),
        (with("topOrigin", "https://evil.example.com".into()), Fault::Origin),
        (with("origin", Value::Null), Fault::ClientData),
        (AnswerParts { client_data: json!([]), ..good.clone() }, Fault::ClientData),
        (AnswerParts { relying_party: "example.com".to_owned(), ..good.clone() }, Fault::RelyingParty),
        (flags(good.flags & !0x01), Fault::UserNotPresent),
        (flags(good.flags & !0x04), Fault::UserNotVerified),
        (flags(good.flags & !0x08 | 0x10), Fault::BackupFlags),
        (AnswerParts { tail: vec![0], ..good.clone() }, Fault::AuthenticatorData),
        (flags(good.flags | 0x80), Fault::AuthenticatorData),
        (AnswerParts { flags: good.flags | 0x80, tail: vec![0x01], ..good.clone() }, Fault::AuthenticatorData),
    ] {
        assert_eq!(verify(&changed), Err(fault), "{} {:#x}", changed.client_data, changed.flags);
    }
}

#[test]
fn malformed_bytes_are_refused() {
    let authenticator = Authenticator::new();
    let good = parts("webauthn.create", 0x45);
    let client_data = good.client_data.to_string();
    let object = attestation(&authenticator.data(&good));
    let relying_party = console();
    let verify = |bytes: &[u8]| verify_registration(expected(&relying_party), client_data.as_bytes(), bytes);
    for length in 0..object.len() {
        assert!(verify(&object[..length]).is_err(), "cut to {length}");
    }
    assert_eq!(verify(&[object.as_slice(), &[0]].concat()), Err(Fault::Attestation));
    assert_eq!(verify(&[&b"\xa1\x61x"[..], &[0x9f; 4_000]].concat()), Err(Fault::Attestation), "nested lists");
    assert_eq!(verify(b"\xa1\x61x\x01"), Err(Fault::Attestation), "without authenticator data");
    assert_eq!(verify(b"\xa1\x68authData\x01"), Err(Fault::Attestation), "which are not bytes");
    for text in ["a=", "a b", "+/", "ab"] {
        assert_eq!(decode(text), None, "{text}");
    }
    assert_eq!(decode(&encode(b"bytes")).as_deref(), Some(&b"bytes"[..]));
}

#[test]
fn relying_party_is_derived_from_the_configured_url() {
    for (url, expected) in [
        ("https://gateway.example.com", Some(("gateway.example.com", "https://gateway.example.com"))),
        ("https://gateway.example.com:8443/console/", Some(("gateway.example.com", "https://gateway.example.com:8443"))),
        ("http://localhost:8080", Some(("localhost", "http://localhost:8080"))),
        ("http://127.0.0.1:8080", Some(("localhost", "http://localhost:8080"))),
        ("https://[::1]:8080", Some(("localhost", "https://localhost:8080"))),
        ("http://gateway.example.com", None),
        ("https://192.0.2.1", None),
        ("http://192.0.2.1:8080", None),
    ] {
        let found = RelyingParty::of(&Url::parse(url).unwrap());
        assert_eq!(found.as_ref().map(|party| (party.id.as_str(), party.origin.as_str())), expected, "{url}");
    }
}
