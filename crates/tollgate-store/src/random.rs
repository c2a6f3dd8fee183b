//! The source of randomness for nonces, ids, the pepper and new keys. It is an argument, so that tests can make it
//! deterministic.

use std::{fmt, sync::Arc};

/// A source of random bytes. Cheap to clone.
#[derive(Clone)]
pub struct RandomSource(Arc<FillFn>);

type FillFn = dyn Fn(&mut [u8]) + Send + Sync;

impl RandomSource {
    /// The operating system's generator.
    ///
    /// # Panics
    /// [`fill`](Self::fill) and [`bytes`](Self::bytes) panic if the system has no randomness.
    pub fn system() -> Self {
        Self(Arc::new(|bytes| getrandom::fill(bytes).expect("the operating system provides random bytes")))
    }

    /// A source from a function, for tests.
    pub fn from_fn(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    pub fn fill(&self, bytes: &mut [u8]) {
        (self.0)(bytes);
    }

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
