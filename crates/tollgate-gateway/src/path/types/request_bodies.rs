//! Stage 6 of 9. In: the caller's body and the candidates; out: the body for each upstream, and the way back for its
//! answer. Same protocol: the caller's bytes, but for the model's name. Another protocol: the request is decoded once,
//! and written once for each channel that routing looks at, which is how routing learns what a channel cannot
//! express; that is done only for channels a plan comes to.

mod media;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use tollgate_core::{
    Caller, Channel, ChannelId, ModelMapping, Offer, OnUnsupported, PlannedAttempt, Provider, Timestamp, TranslationPolicy,
    TranslationSwitches, count_input,
};
use tollgate_protocol::{
    CheckedReply, FieldPath, Framing, InvalidReply, Malformed, Method, Profile, Protocol, RemoteMedia, ReplyEdits, RequestEdits,
    RequestSummary, StreamRelay, Target, TranslateError, TranslateOptions, UpstreamProblem, codec, decode_request,
    effective_profile, encode_request,
    neutral::{EncodedRequest, Located, ReplyContext, Request},
    pending_media, translate_problem, translate_reply, translating_relay,
};

use self::media::PrefetchedMedia;
use crate::{
    path::judge::Failure,
    request::{BodyMemory, Head},
    upstream::client::AddressPolicy,
};

/// One request's body, to be written for one upstream after another.
pub(crate) struct Bodies<'a> {
    from: Protocol,
    target: &'a Target,
    summary: &'a RequestSummary,
    body: Bytes,
    request_id: String,
    arrived: Timestamp,
    /// Whether parameters that would be refused go, as the group or the model says.
    lenient: bool,
    /// Whether signatures travel behind the ids of calls.
    id_signatures: bool,
    /// Fields that were taken out already, and the output limit that is written in.
    dropped: Vec<FieldPath>,
    output: Option<OutputLimit>,
    /// Boxed, because most requests are never read whole.
    decoded: OnceLock<Box<Result<Request, TranslateError>>>,
    written: Mutex<Vec<Written>>,
    /// What was fetched of remote media.
    media: PrefetchedMedia,
}

/// An output limit that a request is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    /// Tokens of each answer.
    pub tokens: u64,
    /// The field it is written to, in the caller's spelling.
    pub field: FieldPath,
}

/// The request as written for one channel's model.
#[derive(Clone)]
struct Written {
    channel: ChannelId,
    upstream_model: String,
    outcome: Arc<Result<EncodedRequest, TranslateError>>,
    /// Remote media is still to be fetched: it shows what can be expressed, and must not be sent.
    unfetched: bool,
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
    /// Entries of `x-tollgate-dropped`.
    pub dropped: Vec<String>,
    /// For the answer.
    pub way_back: ResponseConversion,
}

/// How a request meets an upstream.
pub(crate) enum Preparation {
    /// It goes there.
    Ready(Box<Prepared>),
    /// The upstream cannot count tokens: this is our own count, as the caller's protocol writes it.
    OwnCount {
        /// The count.
        body: Bytes,
        /// Entries of `x-tollgate-dropped`.
        dropped: Vec<String>,
    },
    /// It cannot go there: something of it cannot be expressed.
    Impossible,
}

/// How an answer becomes the caller's.
pub(crate) enum ResponseConversion {
    /// The upstream speaks the caller's protocol.
    Same { protocol: Protocol, edits: ReplyEdits },
    /// It does not.
    Translated { upstream: Protocol, caller: Protocol, context: Box<ReplyContext> },
}

impl<'a> Bodies<'a> {
    /// `body` and `summary` are without the fields that the offer takes out of the caller's.
    pub(crate) fn new(
        head: &Head,
        target: &'a Target,
        summary: &'a RequestSummary,
        body: Bytes,
        caller: &Caller,
        offer: &'a Offer,
        room: Option<BodyMemory>,
    ) -> Self {
        let group = &offer.group;
        Self {
            from: head.from,
            target,
            summary,
            body,
            request_id: head.request_id.digits(),
            arrived: head.arrived,
            lenient: is_lenient(offer),
            id_signatures: caller.key.signatures_in_ids.unwrap_or(group.signatures_in_ids),
            dropped: offer.drop_fields.clone(),
            output: None,
            decoded: OnceLock::new(),
            written: Mutex::default(),
            media: PrefetchedMedia::new(room),
        }
    }

    /// The same with an output limit written into every body.
    pub(crate) fn limited(mut self, limit: Option<OutputLimit>) -> Self {
        self.dropped.extend(limit.iter().map(|limit| format!("{}={}", limit.field, limit.tokens)));
        self.output = limit;
        self
    }

    /// The body, for other terms.
    pub(crate) fn into_body(self) -> Bytes {
        self.body
    }

    /// The model as the caller named it.
    pub(crate) fn model(&self) -> &str {
        &self.summary.model
    }

    /// Whether the caller's answer is an event stream.
    pub(crate) fn answers_in_events(&self) -> bool {
        self.summary.stream && self.target.framing == Framing::Sse
    }

    /// The fault of a body that can be passed on but not be read in full.
    pub(crate) fn malformed(&self) -> Option<&Malformed> {
        match self.decoded.get().map(|decoded| &**decoded) {
            Some(Err(TranslateError::Malformed(fault))) => Some(fault),
            Some(_) | None => None,
        }
    }

    /// Why the fields could not be translated, where all channels say the same.
    pub(crate) fn reason(&self) -> Option<String> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reasons = written.iter().map(|one| match &*one.outcome {
            Err(TranslateError::Unsupported { reason, .. }) => reason.clone(),
            Ok(_) | Err(_) => None,
        });
        let first = reasons.next()?;
        reasons.all(|other| other == first).then_some(first)?
    }

    /// The request for an attempt of the plan.
    pub(crate) fn prepare(&self, planned: &PlannedAttempt) -> Preparation {
        if planned.protocol == self.from {
            return Preparation::Ready(Box::new(self.pass(planned)));
        }
        let written = self.write(&planned.channel, planned.mapping());
        match &*written.outcome {
            Ok(encoded) if !written.unfetched => Preparation::Ready(Box::new(self.translated(planned, encoded))),
            Err(TranslateError::NoCounter) => Preparation::OwnCount { body: self.own_count(), dropped: self.dropped.clone() },
            Ok(_) | Err(_) => Preparation::Impossible,
        }
    }

    /// Our own count of the request's tokens, as the caller's protocol writes it.
    fn own_count(&self) -> Bytes {
        Bytes::from(format!("{{\"totalTokens\":{}}}", count_input(self.summary).tokens))
    }

    /// Our own count, where an upstream that was asked to count turns out to have no counter: it does not know the
    /// path or the method.
    pub(crate) fn count_instead(&self, failure: &Failure) -> Option<Bytes> {
        let Failure::Problem(answer) = failure else { return None };
        let counts = self.summary.method == Method::CountTokens && matches!(answer.problem.status, 404 | 405 | 501);
        counts.then(|| self.own_count())
    }

    fn pass(&self, planned: &PlannedAttempt) -> Prepared {
        let summary = self.summary;
        let serves = planned.mapping();
        let codec = codec(planned.protocol);
        let renamed = serves.upstream != summary.model;
        let hide_usage = summary.stream && summary.method == Method::Chat && !summary.include_usage;
        let edits = RequestEdits {
            upstream_model: renamed.then_some(serves.upstream.as_str()),
            force_usage: hide_usage,
            max_output: self.output.as_ref().map(|limit| limit.tokens),
            output_limit_field: serves.profile.max_tokens_field.as_deref(),
            keep_google_signatures: serves.profile.signature_required == Some(true) || is_googles(&planned.channel.base_url),
        };
        let back = ReplyEdits { caller_model: renamed.then(|| summary.model.clone()), hide_usage };
        Prepared {
            method: summary.method,
            path: codec.upstream_path(summary.method, &serves.upstream, self.target.framing),
            stream: summary.stream.then_some(self.target.framing),
            body: codec.forward_request(&self.body, summary, &edits),
            dropped: self.dropped.clone(),
            way_back: ResponseConversion::Same { protocol: planned.protocol, edits: back },
        }
    }

    fn translated(&self, planned: &PlannedAttempt, encoded: &EncodedRequest) -> Prepared {
        let now = self.arrived.seconds();
        let context = ReplyContext {
            id_signatures: self.id_signatures,
            ..encoded.reply_context(&self.request_id, now, &self.summary.model, self.target.framing)
        };
        let mut dropped = self.dropped.clone();
        dropped.extend(encoded.dropped.iter().filter(|entry| !self.dropped.contains(entry)).cloned());
        Prepared {
            method: encoded.method,
            // Upstreams always stream events, whatever framing the caller asked for.
            path: codec(planned.protocol).upstream_path(encoded.method, &planned.mapping().upstream, Framing::Sse),
            stream: encoded.stream.then_some(Framing::Sse),
            body: encoded.body.clone(),
            dropped,
            way_back: ResponseConversion::Translated { upstream: planned.protocol, caller: self.from, context: Box::new(context) },
        }
    }

    /// The request as a channel needs it; written once.
    fn write(&self, channel: &Channel, serves: &ModelMapping) -> Written {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = written.iter().find(|one| one.channel == channel.id && one.upstream_model == serves.upstream) {
            return known.clone();
        }
        let (outcome, unfetched) = self.encode(channel, serves);
        let one = Written { channel: channel.id, upstream_model: serves.upstream.clone(), outcome: Arc::new(outcome), unfetched };
        written.push(one.clone());
        one
    }

    fn decode(&self) -> Result<Request, TranslateError> {
        let mut request = decode_request(self.from, self.target, &self.body)?;
        if let Some(limit) = &self.output {
            request.params.max_tokens = Some(Located::new(limit.tokens, limit.field.clone()));
        }
        Ok(request)
    }

    /// The request for a channel, and whether remote media is still to be fetched for it.
    fn encode(&self, channel: &Channel, serves: &ModelMapping) -> (Result<EncodedRequest, TranslateError>, bool) {
        let request = match self.decoded() {
            Ok(request) => request,
            Err(fault) => return (Err(fault.clone()), false),
        };
        let profile = profile_of(channel, serves);
        let fetched = self.media.of(AddressPolicy::of(channel));
        let fetch_media = channel.translation.fetch_media;
        let wanted = if fetch_media { pending_media(channel.protocol, request, &profile) } else { Vec::new() };
        let unfetched = !wanted.iter().all(|address| fetched.contains_key(*address));
        let media = if !fetch_media {
            RemoteMedia::Refused
        } else if unfetched {
            RemoteMedia::Deferred
        } else {
            RemoteMedia::Fetched(&fetched)
        };
        let options = options_of(channel, self.lenient, media);
        (encode_request(channel.protocol, request, &serves.upstream, &profile, &options), unfetched)
    }

    /// The request as read whole; read once.
    fn decoded(&self) -> Result<&Request, &TranslateError> {
        (**self.decoded.get_or_init(|| Box::new(self.decode()))).as_ref()
    }

    /// Fields of the request that a channel of another protocol cannot express.
    pub(crate) fn untranslatable(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        match &*self.write(channel, serves).outcome {
            Ok(_) | Err(TranslateError::NoCounter) => Vec::new(),
            Err(TranslateError::Unsupported { fields, .. }) => fields.clone(),
            Err(TranslateError::Malformed(fault)) => fault.violations.iter().map(|violation| violation.field.clone()).collect(),
        }
    }
}

/// Fields of a request that a channel of another protocol cannot express. Remote media counts as fetched later.
pub(crate) fn inexpressible(channel: &Channel, serves: &ModelMapping, request: &Request, lenient: bool) -> Vec<FieldPath> {
    let options = options_of(channel, lenient, RemoteMedia::Deferred);
    match encode_request(channel.protocol, request, &serves.upstream, &profile_of(channel, serves), &options) {
        Err(TranslateError::Unsupported { fields, .. }) => fields,
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// Whether parameters that would be refused go, as the group or the model says.
pub(crate) fn is_lenient(offer: &Offer) -> bool {
    offer.group.translation == TranslationPolicy::Lenient || offer.model.on_unsupported == OnUnsupported::Drop
}

fn options_of<'a>(channel: &Channel, lenient: bool, media: RemoteMedia<'a>) -> TranslateOptions<'a> {
    let TranslationSwitches { hoist, server_tools, pass_user, .. } = channel.translation;
    TranslateOptions { lenient, hoist, server_tools, pass_user, media }
}

/// What is known of a channel's upstream model.
fn profile_of(channel: &Channel, serves: &ModelMapping) -> Profile {
    effective_profile(provider_word(channel.provider), channel.protocol, &serves.upstream, &serves.profile)
}

impl ResponseConversion {
    /// Reads a complete 2xx body.
    pub(crate) fn read_reply(&self, method: Method, body: &Bytes) -> Result<CheckedReply, InvalidReply> {
        match self {
            Self::Same { protocol, edits } => codec(*protocol).read_reply(method, body, edits),
            Self::Translated { upstream, caller, context } => translate_reply(*upstream, *caller, body, context),
        }
    }

    /// A relay for a streamed answer that the upstream cuts like this.
    pub(crate) fn relay(&self, framing: Framing) -> Box<dyn StreamRelay> {
        match self {
            Self::Same { protocol, edits } => codec(*protocol).relay(framing, edits),
            Self::Translated { upstream, caller, context } => translating_relay(*upstream, *caller, context),
        }
    }

    /// The answer the caller gets instead of an error that his protocol does not have: a blocked prompt.
    pub(crate) fn instead_of(&self, problem: &UpstreamProblem) -> Option<CheckedReply> {
        match self {
            Self::Same { .. } => None,
            Self::Translated { upstream, caller, context } => translate_problem(*upstream, *caller, problem, context),
        }
    }
}

/// Whether a base URL is Google's: the chat endpoint of the Gemini API or of Vertex AI.
fn is_googles(base_url: &str) -> bool {
    let authority = base_url.split_once("://").map_or(base_url, |(_, rest)| rest).split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).split(':').next().unwrap_or_default();
    host.to_ascii_lowercase().strip_suffix("googleapis.com").is_some_and(|front| front.is_empty() || front.ends_with('.'))
}

/// The word profiles know a provider by.
const fn provider_word(provider: Provider) -> &'static str {
    match provider {
        Provider::OpenAi => "openai",
        Provider::Gemini => "gemini",
        Provider::Anthropic => "anthropic",
        Provider::Compatible => "compatible",
        Provider::Echo => "echo",
    }
}

#[cfg(test)]
mod tests {
    use super::is_googles;

    #[test]
    fn googles_own_endpoints_are_told_from_look_alikes() {
        for own in [
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "https://EU-aiplatform.googleapis.com:443/v1/projects/p/locations/eu/endpoints/openapi",
        ] {
            assert!(is_googles(own), "{own}");
        }
        for foreign in [
            "https://api.openai.com/v1",
            "https://notgoogleapis.com/v1",
            "https://example.com/generativelanguage.googleapis.com",
            "https://googleapis.com.example.com/v1",
            "",
        ] {
            assert!(!is_googles(foreign), "{foreign}");
        }
    }
}
