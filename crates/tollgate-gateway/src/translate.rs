//! Stage 6 of 9. In: the caller's body and an attempt of the plan; out: the body for its upstream, and the way back
//! for its answer. Same protocol: the caller's bytes, but for the model's name.

use bytes::Bytes;
use tollgate_core::PlannedAttempt;
use tollgate_protocol::{
    BadReply, Framing, Method, Outline, PassedReply, Protocol, ReplyEdits, RequestEdits, StreamRelay, Target, codec,
};

/// One request's body, to be written for one upstream after another.
pub(crate) struct Bodies<'a> {
    from: Protocol,
    target: &'a Target,
    outline: &'a Outline,
    body: Bytes,
}

/// What goes to one upstream, and how its answer comes back.
pub(crate) struct Prepared {
    /// What is asked of it, in its own terms.
    pub method: Method,
    /// Path and query behind the channel's base URL.
    pub path: String,
    /// Whether its answer streams, and how it is cut.
    pub stream: Option<Framing>,
    /// The body.
    pub body: Bytes,
    /// For the answer.
    pub way_back: WayBack,
}

/// How an answer becomes the caller's.
pub(crate) struct WayBack {
    upstream: Protocol,
    edits: ReplyEdits,
}

impl<'a> Bodies<'a> {
    pub(crate) fn new(from: Protocol, target: &'a Target, outline: &'a Outline, body: Bytes) -> Self {
        Self { from, target, outline, body }
    }

    /// The model as the caller named it.
    pub(crate) fn model(&self) -> &str {
        &self.outline.model
    }

    /// The body for an attempt.
    pub(crate) fn prepare(&self, planned: &PlannedAttempt) -> Prepared {
        debug_assert_eq!(planned.protocol, self.from, "routing plans only what can be prepared");
        let outline = self.outline;
        let serves = planned.serves();
        let codec = codec(planned.protocol);
        let renamed = serves.upstream != outline.model;
        let hide_usage = outline.stream && outline.method == Method::Chat && !outline.include_usage;
        let edits = RequestEdits {
            upstream_model: renamed.then_some(serves.upstream.as_str()),
            force_usage: hide_usage,
            max_output: None,
            output_limit_field: serves.profile.max_tokens_field.as_deref(),
        };
        Prepared {
            method: outline.method,
            path: codec.upstream_path(outline.method, &serves.upstream, self.target.framing),
            stream: outline.stream.then_some(self.target.framing),
            body: codec.forward_request(&self.body, outline, &edits),
            way_back: WayBack {
                upstream: planned.protocol,
                edits: ReplyEdits { caller_model: renamed.then(|| outline.model.clone()), hide_usage },
            },
        }
    }
}

impl WayBack {
    /// Reads a complete 2xx body.
    pub(crate) fn read_reply(&self, method: Method, body: &Bytes) -> Result<PassedReply, BadReply> {
        codec(self.upstream).read_reply(method, body, &self.edits)
    }

    /// A relay for a streamed answer.
    pub(crate) fn relay(&self, framing: Framing) -> Box<dyn StreamRelay> {
        codec(self.upstream).relay(framing, &self.edits)
    }
}
