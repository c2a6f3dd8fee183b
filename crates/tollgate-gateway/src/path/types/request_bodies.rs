//! A request's body in the form each upstream needs, and how its answer is converted back.
//!
//! When the upstream speaks the caller's protocol, the caller's bytes are passed on with at most a few splices, such as the
//! upstream's name of the model. Otherwise the request is decoded once, and encoded once for each channel that routing
//! considers. Encoding also shows routing the fields that a channel cannot express.

mod copies;
mod media;

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use tollgate_core::{
    Catalog, Channel, ChannelId, ModelMapping, Offer, PlannedAttempt, RequestId, Timestamp, count_input, is_lenient,
    passthrough_edits, translate_options, upstream_profile, with_channel_edits,
};
use tollgate_protocol::{
    CheckedReply, FieldPath, Framing, InvalidReply, Malformed, Method, Protocol, RemoteMedia, ReplyEdits, RequestSummary,
    StreamRelay, Target, TranslateError, UpstreamProblem, codec, decode_request, encode_count, encode_request,
    neutral::{EncodedRequest, Located, ReplyContext, Request},
    pending_media, relay_whole, translate_problem, translate_reply, translating_relay,
};

use self::{copies::BodyCopies, media::PrefetchedMedia};
use crate::{
    path::types::{
        failure::Failure,
        offered::{OfferedRequest, OutputLimit},
    },
    request::Head,
    state::shares::InFlightRequest,
};

/// One request's body, encoded for each upstream as needed.
pub(crate) struct RequestBodies<'a> {
    from: Protocol,
    target: &'a Target,
    summary: &'a RequestSummary,
    body: &'a Bytes,
    request_id: RequestId,
    arrived: Timestamp,
    /// Whether parameters that cannot be translated are dropped instead of refused.
    lenient: bool,
    /// Whether thought signatures are appended to tool call ids.
    id_signatures: bool,
    /// Fields dropped so far, and the output limit that is written into the body.
    dropped: Vec<FieldPath>,
    output_limit: Option<OutputLimit>,
    /// The model's output limit, which is sent where the protocol requires one and the caller gave none.
    max_output: Option<u64>,
    /// True if only one account serves the model, so that it issued every signature in the history.
    has_sole_account: bool,
    /// Whether the sealed thoughts of Responses are left out, because an account refused them.
    without_seals: AtomicBool,
    /// Boxed, because most requests are never decoded.
    decoded: OnceLock<Box<Result<Request, TranslateError>>>,
    encoded: Mutex<Vec<EncodedBody>>,
    media: PrefetchedMedia,
    copies: BodyCopies,
}

/// The request as encoded for one channel's model.
#[derive(Clone)]
struct EncodedBody {
    channel: ChannelId,
    upstream_model: String,
    outcome: Arc<Result<EncodedRequest, TranslateError>>,
    /// Remote media are not fetched yet. The body only shows whether the request can be expressed, and must not be sent.
    unfetched: bool,
}

/// A request to one upstream, and how its answer is converted.
pub(crate) struct UpstreamRequest {
    /// The operation in the upstream's protocol.
    pub method: Method,
    /// Path and query, appended to the channel's base URL.
    pub path: String,
    /// Framing of a streamed answer; `None` for a complete one.
    pub stream: Option<Framing>,
    pub body: Bytes,
    pub dropped: Vec<String>,
    pub conversion: ResponseConversion,
}

/// The body for one upstream.
pub(crate) enum BodyFor {
    Upstream(UpstreamRequest),
    /// The upstream cannot count tokens: the gateway's own count, in the caller's protocol.
    OwnCount {
        body: Bytes,
        dropped: Vec<String>,
    },
    /// The upstream's protocol cannot express the request.
    Impossible,
    /// There is no memory for a copy of the request.
    NoMemory,
}

/// How an answer is converted to the caller's protocol.
pub(crate) enum ResponseConversion {
    Same { protocol: Protocol, edits: ReplyEdits },
    Translated { upstream: Protocol, caller: Protocol, context: Box<ReplyContext> },
}

impl<'a> RequestBodies<'a> {
    pub(crate) fn new(
        head: &Head,
        target: &'a Target,
        offered: &'a OfferedRequest,
        output_limit: Option<&OutputLimit>,
        memory: Option<Arc<InFlightRequest>>,
    ) -> Self {
        let OfferedRequest { catalog, caller, offer, body, summary, .. } = offered;
        let mut dropped = offer.drop_fields.clone();
        dropped.extend(output_limit.map(|limit| format!("{}={}", limit.field, limit.tokens)));
        Self {
            from: head.from,
            target,
            summary,
            body,
            request_id: head.request_id,
            arrived: head.arrived,
            lenient: is_lenient(&offer.group, &offer.model),
            id_signatures: caller.key.signatures_in_ids.unwrap_or(offer.group.signatures_in_ids),
            dropped,
            output_limit: output_limit.cloned(),
            max_output: offer.model.spec.max_output,
            has_sole_account: has_sole_account(catalog, offer),
            without_seals: AtomicBool::new(false),
            decoded: OnceLock::new(),
            encoded: Mutex::default(),
            media: PrefetchedMedia::new(memory.clone()),
            copies: BodyCopies::new(memory),
        }
    }

    pub(crate) fn model(&self) -> &str {
        &self.summary.model
    }

    /// Whether the caller's answer is an event stream.
    pub(crate) fn answers_in_events(&self) -> bool {
        self.summary.stream && self.target.framing == Framing::Sse
    }

    /// The fault in a body that can be passed on but not decoded, or the fault that the translation for every channel has found.
    pub(crate) fn malformed(&self) -> Option<Malformed> {
        if let Some(Err(TranslateError::Malformed(fault))) = self.decoded.get().map(|decoded| &**decoded) {
            return Some(fault.clone());
        }
        let encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut faults = encoded.iter().map(|one| match &*one.outcome {
            Err(TranslateError::Malformed(fault)) => Some(fault),
            Ok(_) | Err(_) => None,
        });
        let first = faults.next()??;
        faults.all(|other| other == Some(first)).then(|| first.clone())
    }

    /// True if media could not be fetched because of a limit of this gateway rather than a fault of the request.
    pub(crate) fn is_without_media(&self) -> bool {
        self.media.is_at_own_limit()
    }

    /// Why fields cannot be translated, if the reason is the same for all channels.
    pub(crate) fn reason(&self) -> Option<String> {
        let encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reasons = encoded.iter().map(|one| match &*one.outcome {
            Err(TranslateError::Unsupported { reason, .. }) => reason.clone(),
            Ok(_) | Err(_) => None,
        });
        let first = reasons.next()?;
        reasons.all(|other| other == first).then_some(first)?
    }

    /// True if the history has thoughts that were sealed by a Responses upstream and would be sent to this attempt's upstream.
    pub(crate) fn has_seals(&self, planned: &PlannedAttempt) -> bool {
        if planned.protocol == self.from {
            return signature_member(planned.protocol, self.body).is_some();
        }
        let parts = self.decoded().into_iter().flat_map(|request| &request.turns).flat_map(|turn| &turn.parts);
        parts.filter_map(|part| part.signature.as_ref()).any(|signature| signature.owner == Protocol::Responses)
    }

    /// Writes bodies without sealed thoughts from now on.
    pub(crate) fn leave_out_seals(&self) {
        self.without_seals.store(true, Ordering::Relaxed);
        // Bodies written before contain them.
        self.encoded.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn leaves_out_seals(&self, upstream: Protocol) -> bool {
        upstream == Protocol::Responses && self.without_seals.load(Ordering::Relaxed)
    }

    pub(crate) fn body_for(&self, planned: &PlannedAttempt) -> BodyFor {
        if planned.protocol == self.from {
            let request = self.passthrough(planned);
            return if self.copies.is_exhausted() { BodyFor::NoMemory } else { BodyFor::Upstream(request) };
        }
        let known = self.encoded_for(&planned.channel, planned.mapping());
        match &*known.outcome {
            _ if self.copies.is_exhausted() => BodyFor::NoMemory,
            Ok(encoded) if !known.unfetched => {
                let request = self.translated(planned, encoded);
                if self.copies.is_exhausted() { BodyFor::NoMemory } else { BodyFor::Upstream(request) }
            }
            Err(TranslateError::NoCounter) => BodyFor::OwnCount { body: self.own_count(), dropped: self.dropped.clone() },
            Ok(_) | Err(_) => BodyFor::Impossible,
        }
    }

    /// The gateway's own count of the request's tokens, in the caller's protocol.
    fn own_count(&self) -> Bytes {
        encode_count(self.from, count_input(self.summary).tokens)
    }

    /// The gateway's own count, when the upstream supports neither the path nor the method of token counts.
    pub(crate) fn count_instead(&self, failure: &Failure) -> Option<Bytes> {
        let Failure::Problem(answer) = failure else { return None };
        let lacks_counter = match answer.problem.status {
            404 => !names_missing_object(&answer.problem),
            405 | 501 => true,
            _ => false,
        };
        (lacks_counter && self.summary.method == Method::CountTokens).then(|| self.own_count())
    }

    fn passthrough(&self, planned: &PlannedAttempt) -> UpstreamRequest {
        let summary = self.summary;
        let mapping = planned.mapping();
        let codec = codec(planned.protocol);
        let renamed = mapping.upstream != summary.model;
        let drop_signatures =
            mapping.profile.signatures_bound == Some(true) && !self.has_sole_account || self.leaves_out_seals(planned.protocol);
        let max_output = self.output_limit.as_ref().map(|limit| limit.tokens);
        let edits = passthrough_edits(&planned.channel, mapping, summary, max_output, drop_signatures);
        let mut dropped = self.dropped.clone();
        // The codec of Responses names each thought that it leaves out.
        if drop_signatures && planned.protocol != Protocol::Responses {
            dropped.extend(signature_member(planned.protocol, self.body).map(ToOwned::to_owned));
        }
        let reply_edits = ReplyEdits { caller_model: renamed.then(|| summary.model.clone()), hide_usage: edits.force_usage };
        let (body, left_out) = codec.forward(self.body, summary, &edits);
        dropped.extend(left_out);
        let body = with_channel_edits(&planned.channel, planned.protocol, summary.method, body, &mut dropped);
        if body.as_ptr() != self.body.as_ptr() {
            self.copies.reserve_edited(body.len());
        }
        UpstreamRequest {
            method: summary.method,
            path: codec.upstream_path(summary.method, &mapping.upstream, self.target.framing),
            stream: summary.stream.then_some(self.target.framing),
            body,
            dropped,
            conversion: ResponseConversion::Same { protocol: planned.protocol, edits: reply_edits },
        }
    }

    fn translated(&self, planned: &PlannedAttempt, encoded: &EncodedRequest) -> UpstreamRequest {
        let now = self.arrived.seconds();
        let context = ReplyContext {
            id_signatures: self.id_signatures,
            counted_input: count_input(self.summary).tokens,
            ..encoded.reply_context(&self.request_id.digits(), now, &self.summary.model, self.target.framing)
        };
        let mut dropped = self.dropped.clone();
        dropped.extend(encoded.dropped.iter().filter(|entry| !self.dropped.contains(entry)).cloned());
        let body = with_channel_edits(&planned.channel, planned.protocol, encoded.method, encoded.body.clone(), &mut dropped);
        if body.as_ptr() != encoded.body.as_ptr() {
            self.copies.reserve_edited(body.len());
        }
        UpstreamRequest {
            method: encoded.method,
            // Upstreams always stream events, independent of the caller's framing.
            path: codec(planned.protocol).upstream_path(encoded.method, &planned.mapping().upstream, Framing::Sse),
            stream: encoded.stream.then_some(Framing::Sse),
            body,
            dropped,
            conversion: ResponseConversion::Translated {
                upstream: planned.protocol,
                caller: self.from,
                context: Box::new(context),
            },
        }
    }

    /// The request as encoded for a channel's model. Encoded once.
    fn encoded_for(&self, channel: &Channel, mapping: &ModelMapping) -> EncodedBody {
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = encoded.iter().find(|one| one.channel == channel.id && one.upstream_model == mapping.upstream) {
            return known.clone();
        }
        let (outcome, unfetched) = self.encode(channel, mapping);
        let one =
            EncodedBody { channel: channel.id, upstream_model: mapping.upstream.clone(), outcome: Arc::new(outcome), unfetched };
        encoded.push(one.clone());
        one
    }

    fn decode(&self) -> Result<Request, TranslateError> {
        if !self.copies.reserve(self.body.len()) {
            return Err(no_memory());
        }
        let mut request = decode_request(self.from, self.target, self.body)?;
        if let Some(limit) = &self.output_limit {
            request.params.max_tokens = Some(Located::new(limit.tokens, limit.field.clone()));
        }
        Ok(request)
    }

    /// Encodes the request for a channel's model. The flag is true if remote media must still be fetched for it.
    fn encode(&self, channel: &Channel, mapping: &ModelMapping) -> (Result<EncodedRequest, TranslateError>, bool) {
        let request = match self.decoded() {
            Ok(request) => request,
            Err(fault) => return (Err(fault.clone()), false),
        };
        let mut profile = upstream_profile(channel, mapping);
        profile.default_max_tokens = mapping.profile.default_max_tokens.or(self.max_output).or(profile.default_max_tokens);
        if self.has_sole_account {
            profile.signatures_bound = None;
        }
        let upstream = channel.upstream_protocol(self.summary.method);
        if self.leaves_out_seals(upstream) {
            profile.signatures_bound = Some(true);
        }
        let fetched = self.media.so_far();
        let fetch_media = channel.spec.translation.fetch_media;
        let wanted = if fetch_media { pending_media(upstream, request, &profile) } else { Vec::new() };
        let unfetched = !wanted.iter().all(|address| fetched.contains_key(*address));
        let media = if !fetch_media {
            RemoteMedia::Refused
        } else if unfetched {
            RemoteMedia::Deferred
        } else {
            RemoteMedia::Fetched(&fetched)
        };
        if !self.copies.reserve(self.body.len()) {
            return (Err(no_memory()), false);
        }
        let options = translate_options(channel, self.lenient, media);
        let encoded = encode_request(upstream, request, &mapping.upstream, &profile, &options);
        // Fetched media, for example, makes the body longer.
        let more = encoded.as_ref().map_or(0, |encoded| encoded.body.len().saturating_sub(self.body.len()));
        if self.copies.reserve(more) { (encoded, unfetched) } else { (Err(no_memory()), false) }
    }

    /// The decoded request. Decoded once.
    fn decoded(&self) -> Result<&Request, &TranslateError> {
        (**self.decoded.get_or_init(|| Box::new(self.decode()))).as_ref()
    }

    /// Fields of the request that a channel of another protocol cannot express.
    pub(crate) fn untranslatable(&self, channel: &Channel, mapping: &ModelMapping) -> Vec<FieldPath> {
        match &*self.encoded_for(channel, mapping).outcome {
            Ok(_) | Err(TranslateError::NoCounter) => Vec::new(),
            Err(TranslateError::Unsupported { fields, .. }) => fields.clone(),
            Err(TranslateError::Malformed(fault)) => fault.violations.iter().map(|violation| violation.field.clone()).collect(),
        }
    }
}

/// Placeholder for a copy that found no memory: it names no field, so that no channel is excluded for it, and no upstream gets it.
fn no_memory() -> TranslateError {
    TranslateError::Unsupported { fields: Vec::new(), reason: None }
}

impl ResponseConversion {
    pub(crate) fn read_reply(&self, method: Method, body: &Bytes) -> Result<CheckedReply, InvalidReply> {
        match self {
            Self::Same { protocol, edits } => codec(*protocol).read_reply(method, body, edits),
            Self::Translated { upstream, caller, context } => translate_reply(*upstream, *caller, body, context),
        }
    }

    /// Whether a large complete answer may be passed on in pieces. A translated answer must be read whole, because the members
    /// have another order in the caller's protocol. Token counts and compactions are read whole, too.
    pub(crate) const fn passes_pieces(&self, method: Method) -> bool {
        matches!(self, Self::Same { .. }) && !matches!(method, Method::CountTokens | Method::Compact)
    }

    /// A relay for a complete answer that starts with `beginning`, of at most `max_bytes`. `None` if it has to be read whole.
    pub(crate) fn relay_whole(
        &self,
        (method, max_bytes): (Method, usize),
        beginning: &Bytes,
        out: &mut Vec<Bytes>,
    ) -> Option<Box<dyn StreamRelay>> {
        match self {
            Self::Same { protocol, edits } => relay_whole(codec(*protocol), (method, max_bytes), edits, beginning, out),
            Self::Translated { .. } => None,
        }
    }

    /// A relay for an answer that the upstream streams in this framing.
    pub(crate) fn relay(&self, framing: Framing) -> Box<dyn StreamRelay> {
        match self {
            Self::Same { protocol, edits } => codec(*protocol).relay(framing, edits),
            Self::Translated { upstream, caller, context } => translating_relay(*upstream, *caller, context),
        }
    }

    /// The answer for an error that the caller's protocol expresses as an answer, such as a blocked prompt.
    pub(crate) fn instead_of(&self, problem: &UpstreamProblem) -> Option<CheckedReply> {
        match self {
            Self::Same { .. } => None,
            Self::Translated { upstream, caller, context } => translate_problem(*upstream, *caller, problem, context),
        }
    }
}

/// True if only one account serves the model to the group.
fn has_sole_account(catalog: &Catalog, offer: &Offer) -> bool {
    let channels = offer.candidates.iter().filter_map(|served| catalog.channel_at(served.channel));
    channels.map(|channel| channel.accounts.len()).sum::<usize>() == 1
}

/// The member of a history that holds Gemini's signatures or the sealed thoughts of Responses, if the body has one.
fn signature_member(protocol: Protocol, body: &[u8]) -> Option<&'static str> {
    let has = |name: &str| memchr::memmem::find(body, name.as_bytes()).is_some();
    match protocol {
        Protocol::Gemini if has("thoughtSignature") || has("thought_signature") => Some("contents[].parts[].thoughtSignature"),
        Protocol::OpenAi if has("thought_signature") => Some("messages[].extra_content.google.thought_signature"),
        Protocol::Responses if has("\"encrypted_content\"") => Some("input[].encrypted_content"),
        Protocol::OpenAi | Protocol::Gemini | Protocol::Anthropic | Protocol::Responses => None,
    }
}

/// Whether a 404 is about a model, or another object that the request names, and not about the path.
fn names_missing_object(problem: &UpstreamProblem) -> bool {
    let message = problem.message.to_ascii_lowercase();
    let named = problem.kind.as_deref() == Some("not_found_error")
        || problem.code.as_deref().is_some_and(|code| code.contains("model"))
        || message.contains("model");
    // Google's message for a model without token counts also names the model.
    let has_no_counter = message.contains("not supported for counttokens");
    named && !has_no_counter && !problem.from_intermediary
}
