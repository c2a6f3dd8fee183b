//! The light scan of a caller's body: there are no callers of this protocol yet.

use crate::{Malformed, MalformedKind, RequestSummary, Target};

/// Refuses every body. No route leads here; should one, its callers are told instead of being served half.
pub(super) fn summarise(_target: &Target, _body: &[u8]) -> Result<RequestSummary, Malformed> {
    let message = "The protocol 'anthropic' is not offered to callers.".to_owned();
    Err(Malformed { kind: MalformedKind::InvalidValue, message, violations: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Framing, Method};

    #[test]
    fn callers_are_told_that_the_protocol_is_not_offered() {
        let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
        let refusal = summarise(&target, b"{}").expect_err("not offered");
        assert!(refusal.message.contains("not offered to callers"));
    }
}
