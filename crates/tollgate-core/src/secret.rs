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
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
