//! Randomness as an argument: nonces, ids, pepper and new keys come from here, so a test can fix them.

use std::{fmt, sync::Arc};

/// A source of random bytes, handed to [`crate::open`] and to whatever draws keys.
#[derive(Clone)]
pub struct RandomSource(Arc<FillFn>);

type FillFn = dyn Fn(&mut [u8]) + Send + Sync;

impl RandomSource {
    /// The operating system's generator.
    ///
    /// # Panics
    /// Where bytes are drawn, when the system has none to give.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(|bytes| getrandom::fill(bytes).expect("the operating system gives random bytes, or nothing here is safe")))
    }

    /// A source given by the caller, for tests.
    #[must_use]
    pub fn from_fn(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    /// Fills a slice.
    pub fn fill(&self, bytes: &mut [u8]) {
        (self.0)(bytes);
    }

    /// `N` random bytes.
    #[must_use]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

impl fmt::Debug for RandomSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RandomSource")
    }
}
