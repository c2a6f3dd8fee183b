//! Request summaries. There is no caller route for this protocol yet, so every body is refused.

use crate::{Malformed, MalformedKind, RequestSummary, Target};

/// Refuses every body: a caller route needs a real summary first.
pub(super) fn summarise(_target: &Target, _body: &[u8]) -> Result<RequestSummary, Malformed> {
    let message = "The protocol 'anthropic' is not offered to callers.".to_owned();
    Err(Malformed { kind: MalformedKind::InvalidValue, message, violations: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Framing, Method};

    #[test]
    fn every_body_is_refused() {
        let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
        let refusal = summarise(&target, b"{}").expect_err("not offered");
        assert!(refusal.message.contains("not offered to callers"));
    }
}
