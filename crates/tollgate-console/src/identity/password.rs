//! Passwords: their rules, and argon2id with the parameters that OWASP recommends, computed for few at a time.

use std::{fmt, sync::Arc, time::Duration};

use argon2::{
    Algorithm, Argon2, Params, PasswordHash, PasswordHasher as _, PasswordVerifier as _, Version, password_hash::SaltString,
};
use tokio::{sync::Semaphore, time::timeout};
use tollgate_core::Secret;
use tollgate_store::RandomSource;

use crate::api_error::ApiError;

pub(crate) const MIN_CHARS: usize = 10;
pub(crate) const MAX_CHARS: usize = 128;

/// 19 MiB of memory, two passes, one lane.
const PARAMS: (u32, u32, u32) = (19_456, 2, 1);
/// Hashes computed at the same time.
const MAX_AT_ONCE: usize = 2;
/// Longest wait for a permit.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// A hash with the same parameters that no password matches. It is verified for names without a password, so that they take as long
/// as others.
const DUMMY: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// The most common passwords of at least ten characters.
pub(crate) const COMMON: [&str; 60] = [
    "0123456789",
    "1029384756",
    "1111111111",
    "1122334455",
    "1223334444",
    "1234512345",
    "12345678910",
    "123456789a",
    "123456789q",
    "1234567890",
    "12345678900",
    "123456789012",
    "1234567891",
    "123123123123",
    "147258369a",
    "159357159357",
    "1a2b3c4d5e",
    "1q2w3e4r5t",
    "1q2w3e4r5t6y",
    "1qaz2wsx3edc",
    "987654321a",
    "9876543210",
    "abc1234567",
    "abcd123456",
    "abcdefghij",
    "administrator",
    "admin12345",
    "adminadmin",
    "asdfasdfasdf",
    "asdfghjkl1",
    "asdfghjkl;",
    "changeme123",
    "changemenow",
    "football123",
    "helloworld",
    "iloveyou12",
    "iloveyou123",
    "letmein123",
    "liverpool1",
    "manchester",
    "michael123",
    "passw0rd123",
    "password01",
    "password11",
    "password12",
    "password123",
    "password1234",
    "password12345",
    "password!1",
    "passwordpassword",
    "princess123",
    "q1w2e3r4t5",
    "qazwsxedcrfv",
    "qwerty1234",
    "qwerty12345",
    "qwertyqwerty",
    "qwertyuiop",
    "qwertyuiop123",
    "trustno1trustno1",
    "welcome123",
];

/// Why a new password is refused. Its text is the end of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PasswordFault {
    Length(usize),
    Common,
    IsName,
}

impl PasswordFault {
    /// As [`ApiError::reason`] names it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Length(_) => "password_length",
            Self::Common => "password_common",
            Self::IsName => "password_is_name",
        }
    }
}

impl fmt::Display for PasswordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => {
                write!(f, "a password has {MIN_CHARS} to {MAX_CHARS} characters, this one has {length}")
            }
            Self::Common => f.write_str("it is one of the passwords that are tried first; choose another one"),
            Self::IsName => f.write_str("it is the name to sign in with; choose another one"),
        }
    }
}

/// Checks a new password. `names` are those the member signs in with.
pub(crate) fn check(password: &str, names: &[&str]) -> Result<(), PasswordFault> {
    let length = password.chars().count();
    if !(MIN_CHARS..=MAX_CHARS).contains(&length) {
        return Err(PasswordFault::Length(length));
    }
    let lower = password.to_lowercase();
    let first = lower.chars().next();
    if COMMON.contains(&lower.as_str()) || lower.chars().all(|c| Some(c) == first) {
        return Err(PasswordFault::Common);
    }
    if names.iter().any(|name| name.to_lowercase() == lower) {
        return Err(PasswordFault::IsName);
    }
    Ok(())
}

/// Computes hashes of passwords on threads for blocking work. A flood of sign-ins waits, instead of taking all cores and memory.
#[derive(Debug)]
pub(crate) struct PasswordHasher {
    permits: Arc<Semaphore>,
}

impl Default for PasswordHasher {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_AT_ONCE)) }
    }
}

impl PasswordHasher {
    /// The hash of a password in PHC form.
    pub(crate) async fn hash(&self, password: &str, random: &RandomSource) -> Result<Secret, ApiError> {
        let (password, salt) = (Secret::new(password.to_owned()), random.bytes::<16>());
        let hashed = self.compute(move || {
            let salt = SaltString::encode_b64(&salt).ok()?;
            argon2().hash_password(password.expose().as_bytes(), &salt).ok().map(|hash| hash.to_string())
        });
        hashed.await?.map(Secret::new).ok_or_else(ApiError::internal)
    }

    /// Whether a password has this hash. Takes as long without a hash.
    pub(crate) async fn verify(&self, password: &str, hash: Option<&Secret>) -> Result<bool, ApiError> {
        let password = Secret::new(password.to_owned());
        let hash = hash.cloned().unwrap_or_else(|| Secret::new(DUMMY.to_owned()));
        self.compute(move || {
            let parsed = PasswordHash::new(hash.expose());
            parsed.is_ok_and(|hash| argon2().verify_password(password.expose().as_bytes(), &hash).is_ok())
        })
        .await
    }

    async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
        let Ok(Ok(permit)) = timeout(MAX_WAIT, Arc::clone(&self.permits).acquire_owned()).await else {
            return Err(ApiError::overloaded("Too many people are signing in at the moment."));
        };
        let work = move || {
            // Held by the work itself, which continues when the client disconnects.
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::internal())
    }
}

fn argon2() -> Argon2<'static> {
    let (memory, passes, lanes) = PARAMS;
    let params = Params::new(memory, passes, lanes, None).expect("the parameters are within the bounds of argon2");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_long_and_common_passwords_are_refused() {
        for good in ["correct horse battery", "päßwörtchen", "0123456789x"] {
            assert_eq!(check(good, &["ann"]), Ok(()), "{good}");
        }
        for bad in ["", "ninechars", &"x".repeat(129), "Password123", "aaaaaaaaaaaa", "QWERTYUIOP"] {
            assert!(check(bad, &["ann"]).is_err(), "{bad}");
        }
        assert!(check("Ann@Example.com", &["ann", "ann@example.com"]).is_err());
        assert!(check(&"ä".repeat(127), &[]).is_err() && check(&format!("b{}", "ä".repeat(127)), &[]).is_ok(), "of characters");
    }

    #[test]
    fn every_common_password_is_lower_case_and_has_the_minimum_length() {
        for password in COMMON {
            assert!(password.len() >= 10 && password.to_lowercase() == password, "{password}");
        }
    }

    #[tokio::test]
    async fn hashing_for_a_disconnected_client_holds_its_permit_until_done() {
        let hasher = PasswordHasher::default();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let left = timeout(Duration::from_millis(50), hasher.compute(move || released.recv())).await;
        assert!(left.is_err() && hasher.permits.available_permits() == MAX_AT_ONCE - 1);
        release.send(()).unwrap();
        while hasher.permits.available_permits() < MAX_AT_ONCE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn hash_verifies_its_password_only() {
        let hasher = PasswordHasher::default();
        let random = RandomSource::system();
        let hash = hasher.hash("correct horse", &random).await.unwrap();
        assert!(hash.expose().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.expose());
        assert_ne!(hash, hasher.hash("correct horse", &random).await.unwrap(), "salted");
        assert_eq!(hasher.verify("correct horse", Some(&hash)).await, Ok(true));
        assert_eq!(hasher.verify("Correct horse", Some(&hash)).await, Ok(false));
        assert_eq!(hasher.verify("correct horse", None).await, Ok(false));
        assert!(PasswordHash::new(DUMMY).is_ok(), "so that the work is done");
    }
}
