//! Text that must not be displayed.

use std::fmt;

use zeroize::Zeroizing;

/// A credential. It has no `Display` or `Serialize`, `Debug` hides it, and its memory is cleared on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a credential.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The credential itself, for sending it upstream.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The last four characters, by which people distinguish credentials. `None` below 16 bytes, of which they would reveal too much.
    pub fn end(&self) -> Option<&str> {
        const MIN_BYTES: usize = 16;
        const SHOWN: usize = 4;
        self.0.len().checked_sub(SHOWN).filter(|_| self.0.len() >= MIN_BYTES).and_then(|at| self.0.get(at..))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_credential_is_shown() {
        let end = |text: &str| Secret::new(text.to_owned()).end().map(str::to_owned);
        assert_eq!(end("sk-0123456789abcdef").as_deref(), Some("cdef"));
        assert_eq!(end("0123456789abcdef").as_deref(), Some("cdef"));
        for short in ["", "abc", "0123456789abcde"] {
            assert_eq!(end(short), None, "{short}");
        }
        assert_eq!(end("0123456789abcdef\u{1f600}x"), None, "no part of a character");
    }
}
