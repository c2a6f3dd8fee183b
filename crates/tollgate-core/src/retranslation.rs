//! Translates a recorded request again for the upstream that it was sent to, and its answer into that upstream's protocol. Uses the
//! current catalog, which may differ from the one that the request was served by.

mod answer;
mod parameters;

use bytes::Bytes;
use tollgate_protocol::{
    FieldPath, Framing, Method, Protocol, RemoteMedia, RequestSummary, Target, TranslateError, codec, decode_request,
    encode_request,
    neutral::{AnswerKind, Located},
    remove_fields,
};

pub use self::parameters::{ParameterOutcome, TranslatedParameter};
use crate::{
    AttemptRecord, Catalog, Channel, ModelMapping, UsageRecord, is_lenient, passthrough_edits, translate_options, upstream_profile,
    with_channel_edits,
};

/// A request as it was sent to its upstream.
#[derive(Clone, Debug)]
pub struct Retranslation {
    pub from: Protocol,
    pub to: Protocol,
    /// Path and query below the base URL of the channel.
    pub path: String,
    pub body: Bytes,
    /// How each optional parameter was translated.
    pub parameters: Vec<TranslatedParameter>,
    reply: ReplyFacts,
}

/// Facts about a request that encoding its answer needs.
#[derive(Clone, Debug)]
struct ReplyFacts {
    request_id: String,
    seconds: i64,
    upstream_model: String,
    is_renamed: bool,
    method: Method,
    streams: bool,
    kind: AnswerKind,
    /// Pairs of the caller's name of a tool and that of the upstream.
    tools: Vec<(String, String)>,
    custom_tools: Vec<String>,
}

/// Why a recorded request cannot be translated again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetranslationFault {
    /// No upstream was called.
    NoAttempt,
    /// The channel no longer exists.
    ChannelGone,
    /// The body is not a valid request, for example because it was shortened. The fields are those at fault.
    Malformed(Vec<FieldPath>),
    /// With the current catalog, the upstream cannot express these fields.
    Unsupported(Vec<FieldPath>),
    /// The upstream's protocol has no token counts; the gateway counted itself.
    NoCounter,
}

impl From<TranslateError> for RetranslationFault {
    fn from(error: TranslateError) -> Self {
        match error {
            TranslateError::Malformed(fault) => Self::Malformed(fault.violations.into_iter().map(|it| it.field).collect()),
            TranslateError::Unsupported { fields, .. } => Self::Unsupported(fields),
            TranslateError::NoCounter => Self::NoCounter,
        }
    }
}

/// The body of a request as it was sent, and how it was changed.
struct Written {
    method: Method,
    body: Bytes,
    dropped: Vec<String>,
    kind: AnswerKind,
    tools: Vec<(String, String)>,
    custom_tools: Vec<String>,
}

/// Inputs of the translation.
struct Context<'a> {
    catalog: &'a Catalog,
    record: &'a UsageRecord,
    channel: &'a Channel,
    mapping: &'a ModelMapping,
    to: Protocol,
    target: Target,
}

/// Writes the body of a recorded request again for the upstream of the attempt that answered, or of the last one.
///
/// # Errors
/// [`RetranslationFault`].
pub fn retranslate(catalog: &Catalog, record: &UsageRecord, body: &Bytes) -> Result<Retranslation, RetranslationFault> {
    let attempt = record.subject().and_then(|at| record.attempts.get(at)).ok_or(RetranslationFault::NoAttempt)?;
    let channel = channel_of(catalog, attempt).ok_or(RetranslationFault::ChannelGone)?;
    let model = record.model.as_deref().unwrap_or_default();
    let mapping = mapping_of(channel, attempt, model);
    let from = record.protocol_in;
    let model_in_path = (from == Protocol::Gemini).then(|| model.to_owned());
    let target = Target { method: record.method, model: model_in_path, framing: Framing::Sse };
    let summarised = codec(from).summarise(&target, body);
    let summary = summarised.map_err(|fault| RetranslationFault::from(TranslateError::from(fault)))?;
    let context = Context { catalog, record, channel, mapping: &mapping, to: attempt.protocol, target };
    // Fields that were left out because of the model or the caller's money are left out again.
    let is_of_body = |entry: &&String| summary.fields.contains(entry) || summary.offered_searches.contains(entry);
    let removed: Vec<FieldPath> = record.dropped.iter().filter(is_of_body).cloned().collect();
    let reduced = remove_fields(body, &removed);
    let mut written = if context.to == from { passed_on(&context, &reduced)? } else { translated(&context, &reduced)? };
    let edited = with_channel_edits(channel, context.to, written.method, written.body.clone(), &mut written.dropped);
    let dropped: Vec<String> =
        record.dropped.iter().chain(written.dropped.iter().filter(|entry| !record.dropped.contains(entry))).cloned().collect();
    Ok(Retranslation {
        from,
        to: context.to,
        path: codec(context.to).upstream_path(written.method, &mapping.upstream, Framing::Sse),
        parameters: parameters::outcomes((from, context.to), &summary.fields, &dropped, &edited),
        body: edited,
        reply: ReplyFacts {
            request_id: record.id.digits(),
            seconds: record.at.seconds(),
            is_renamed: mapping.upstream != model,
            upstream_model: mapping.upstream.clone(),
            method: written.method,
            streams: record.stream,
            kind: written.kind,
            tools: written.tools,
            custom_tools: written.custom_tools,
        },
    })
}

fn channel_of<'a>(catalog: &'a Catalog, attempt: &AttemptRecord) -> Option<&'a Channel> {
    let by_account = catalog.account(attempt.account).map(|(channel, _)| channel);
    by_account.or_else(|| catalog.channel_by_name(&attempt.channel_name)).map(|channel| &**channel)
}

/// The channel's mapping of the model, with the upstream's name that the request was sent with.
fn mapping_of(channel: &Channel, attempt: &AttemptRecord, model: &str) -> ModelMapping {
    let upstream = attempt.upstream_model.to_string();
    let served = channel.spec.serves.iter().find(|mapping| mapping.model == model);
    served.map_or_else(
        || ModelMapping { model: model.to_owned(), upstream: upstream.clone(), ..ModelMapping::default() },
        |served| ModelMapping { upstream: upstream.clone(), ..served.clone() },
    )
}

/// The request for an upstream of the caller's protocol.
fn passed_on(context: &Context<'_>, body: &Bytes) -> Result<Written, RetranslationFault> {
    let codec = codec(context.to);
    let summary: RequestSummary =
        codec.summarise(&context.target, body).map_err(|fault| RetranslationFault::from(TranslateError::from(fault)))?;
    let is_signature = |entry: &String| {
        ["thoughtSignature", "thought_signature", "encrypted_content"].iter().any(|member| entry.ends_with(member))
    };
    let drops_signatures = context.record.dropped.iter().any(is_signature);
    let limit = output_limit(context.record).map(|(_, tokens)| tokens);
    let edits = passthrough_edits(context.channel, context.mapping, &summary, limit, drops_signatures);
    let (body, dropped) = codec.forward(body, &summary, &edits);
    Ok(Written { method: summary.method, body, dropped, kind: AnswerKind::Generated, tools: Vec::new(), custom_tools: Vec::new() })
}

/// The request for an upstream of another protocol.
fn translated(context: &Context<'_>, body: &Bytes) -> Result<Written, RetranslationFault> {
    let Context { catalog, record, channel, mapping, to, ref target } = *context;
    let mut request = decode_request(record.protocol_in, target, body)?;
    if let Some((field, tokens)) = output_limit(record) {
        request.params.max_tokens = Some(Located::new(tokens, field));
    }
    let model = catalog.model(&mapping.model);
    let group = record.group_name.as_deref().and_then(|group| catalog.group_by_name(group));
    let lenient = group.zip(model.as_ref()).is_some_and(|(group, model)| is_lenient(group, model));
    let mut profile = upstream_profile(channel, mapping);
    let model_limit = model.and_then(|model| model.spec.max_output);
    profile.default_max_tokens = mapping.profile.default_max_tokens.or(model_limit).or(profile.default_max_tokens);
    let channels = group.into_iter().flat_map(|group| catalog.mappings_for(group.id, &mapping.model));
    let accounts = channels.filter_map(|served| catalog.channel_at(served.channel)).map(|channel| channel.accounts.len());
    if accounts.sum::<usize>() == 1 {
        profile.signatures_bound = None;
    }
    let media = if channel.spec.translation.fetch_media { RemoteMedia::Deferred } else { RemoteMedia::Refused };
    let encoded = encode_request(to, &request, &mapping.upstream, &profile, &translate_options(channel, lenient, media))?;
    Ok(Written {
        method: encoded.method,
        body: encoded.body,
        dropped: encoded.dropped,
        kind: encoded.kind,
        tools: encoded.name_map.into_iter().map(|(upstream, own)| (own, upstream)).collect(),
        custom_tools: encoded.custom_tools,
    })
}

/// The output limit that the gateway wrote into the request, with its field.
fn output_limit(record: &UsageRecord) -> Option<(FieldPath, u64)> {
    const FIELDS: [&str; 4] = ["max_tokens", "max_completion_tokens", "max_output_tokens", "generationConfig.maxOutputTokens"];
    record.dropped.iter().find_map(|entry| {
        let (field, tokens) = entry.split_once('=')?;
        Some((field.to_owned(), tokens.parse().ok()?)).filter(|_| FIELDS.contains(&field))
    })
}

#[cfg(test)]
mod tests;
