//! How members sign in to the console: passwords, one-time codes, passkeys, sessions and their cookies, and the limiter of failed attempts.

pub(crate) mod cookies;
pub(crate) mod csrf;
pub(crate) mod limiter;
pub(crate) mod links;
pub(crate) mod origin;
pub(crate) mod password;
mod registrations;
pub(crate) mod signed;
pub(crate) mod totp;
pub(crate) mod webauthn;

use std::sync::Mutex;

use tollgate_core::Timestamp;
use tollgate_store::{IdleTimes, LoginMember, RandomSource, Session};
use url::Url;

use limiter::SignInLimiter;
use password::PasswordHasher;
use registrations::RegistrationLimiter;

use crate::oidc::{OidcProvider, OidcSettings};

/// Settings of sign-in and links that are read at the start.
#[derive(Clone, Debug)]
pub struct IdentitySettings {
    /// OpenID provider at which members sign in.
    pub oidc: Option<OidcSettings>,
    /// Address of the console as browsers see it, such as `https://gateway.example.com`.
    pub url: Url,
}

impl IdentitySettings {
    /// Whether browsers reach the console over TLS, so that cookies can be restricted to it.
    pub(crate) fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The path that all paths of the console begin with, behind a proxy that serves other things too; empty without one. It has no
    /// slash at its end.
    pub fn base(&self) -> &str {
        self.url.path().trim_end_matches('/')
    }

    /// The address of a page of the console; `path` begins without a slash.
    pub(crate) fn page(&self, path: &str, token: &str) -> String {
        format!("{}/{path}?token={token}", self.url.as_str().trim_end_matches('/'))
    }
}

/// State of signing in.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) settings: IdentitySettings,
    pub(crate) passwords: PasswordHasher,
    pub(crate) oidc: Option<OidcProvider>,
    limiter: Mutex<SignInLimiter>,
    registrations: Mutex<RegistrationLimiter>,
    pub(crate) random: RandomSource,
}

impl Identity {
    pub(crate) fn new(settings: IdentitySettings) -> Self {
        let oidc = settings.oidc.clone().map(OidcProvider::new);
        Self {
            settings,
            passwords: PasswordHasher::default(),
            oidc,
            limiter: Mutex::default(),
            registrations: Mutex::default(),
            random: RandomSource::system(),
        }
    }

    pub(crate) fn limiter(&self) -> std::sync::MutexGuard<'_, SignInLimiter> {
        self.limiter.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn registrations(&self) -> std::sync::MutexGuard<'_, RegistrationLimiter> {
        self.registrations.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A valid session with its member.
#[derive(Clone, Debug)]
pub(crate) struct SignedIn {
    pub(crate) session: Session,
    pub(crate) member: LoginMember,
    /// The value that writes must send in the header `x-csrf-token`.
    pub(crate) csrf_token: String,
}

/// Longest time without noting the use of a session.
const TOUCH_INTERVAL_MS: i64 = 60_000;

impl SignedIn {
    /// Whether the last use is old enough to be recorded again. A tenth of the idle limit is enough, so that a session ends at most
    /// that much too early.
    pub(crate) fn needs_touch(&self, now: Timestamp, idle: IdleTimes) -> bool {
        now.ms_since(self.session.seen_at) >= TOUCH_INTERVAL_MS.min(idle.of(&self.session.spec) / 10)
    }
}
