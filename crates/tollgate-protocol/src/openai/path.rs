//! Paths behind a channel's base URL.

use crate::{Framing, Method};

pub(super) fn upstream_path(_method: Method, _upstream_model: &str, _framing: Framing) -> String {
    String::new()
}
