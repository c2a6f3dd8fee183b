//! Authenticator data (section 6.1): a hash of the relying party's id, flags, the signature counter, and for a new passkey its id and public
//! key (section 6.5.1).

use minicbor::Decoder;

use super::Fault;

const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const BACKUP_ELIGIBLE: u8 = 1 << 3;
const BACKED_UP: u8 = 1 << 4;
const HAS_CREDENTIAL: u8 = 1 << 6;
const HAS_EXTENSIONS: u8 = 1 << 7;

#[derive(Debug)]
pub(super) struct AuthenticatorData<'a> {
    /// SHA-256 of the relying party's id.
    pub(super) relying_party_hash: &'a [u8],
    flags: u8,
    pub(super) sign_count: u32,
    pub(super) credential: Option<AttestedCredential<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AttestedCredential<'a> {
    pub(super) id: &'a [u8],
    /// `COSE_Key`.
    pub(super) public_key: &'a [u8],
}

impl<'a> AuthenticatorData<'a> {
    /// Reads all bytes. Leftover bytes are an error, because they would be signed but never interpreted.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Fault> {
        Self::read(bytes).ok_or(Fault::AuthenticatorData)
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (relying_party_hash, rest) = bytes.split_at_checked(32)?;
        let (flags, rest) = rest.split_first()?;
        let (count, mut rest) = rest.split_first_chunk::<4>()?;
        let credential = if flags & HAS_CREDENTIAL == 0 {
            None
        } else {
            // The first 16 bytes name the model of the authenticator.
            let (length, after) = rest.get(16..)?.split_first_chunk::<2>()?;
            let (id, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            let (public_key, after) = cbor_item(after)?;
            rest = after;
            Some(AttestedCredential { id, public_key })
        };
        if flags & HAS_EXTENSIONS != 0 {
            rest = cbor_item(rest)?.1;
        }
        let sign_count = u32::from_be_bytes(*count);
        rest.is_empty().then_some(Self { relying_party_hash, flags: *flags, sign_count, credential })
    }

    pub(super) const fn is_user_present(&self) -> bool {
        self.flags & USER_PRESENT != 0
    }

    pub(super) const fn is_user_verified(&self) -> bool {
        self.flags & USER_VERIFIED != 0
    }

    pub(super) const fn is_backup_eligible(&self) -> bool {
        self.flags & BACKUP_ELIGIBLE != 0
    }

    pub(super) const fn is_backed_up(&self) -> bool {
        self.flags & BACKED_UP != 0
    }
}

/// The bytes of a CBOR map, and the bytes after it.
fn cbor_item(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut cbor = Decoder::new(bytes);
    if cbor.datatype().ok()? != minicbor::data::Type::Map {
        return None;
    }
    cbor.skip().ok()?;
    bytes.split_at_checked(cbor.position())
}
