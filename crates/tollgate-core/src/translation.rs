//! Inputs of the translation to a channel's protocol: the operator's options and the profile of the upstream model. Requests,
//! explanations and the model square all take them from here, so that they agree about each field.

use bytes::Bytes;
use tollgate_protocol::{
    FieldPath, Method, Profile, Protocol, RemoteMedia, RequestEdits, RequestSummary, TranslateError, TranslateOptions,
    edit_parameters, effective_profile, encode_request,
    neutral::{Operation, Request},
};

use crate::{Channel, Group, Model, ModelMapping, OnUnsupported, TranslationPolicy, TranslationSwitches, offer::ModelPurpose};

/// Whether the group or the model asks to drop parameters that cannot be translated.
pub fn is_lenient(group: &Group, model: &Model) -> bool {
    group.translation == TranslationPolicy::Lenient || model.spec.on_unsupported == OnUnsupported::Drop
}

pub fn translate_options<'a>(channel: &Channel, lenient: bool, media: RemoteMedia<'a>) -> TranslateOptions<'a> {
    let TranslationSwitches { hoist, server_tools, pass_user, .. } = channel.spec.translation;
    TranslateOptions { lenient, hoist, server_tools, pass_user, media }
}

/// The profile of the upstream model of a mapping: as stated in the catalog, else by its name, else by its protocol.
pub fn upstream_profile(channel: &Channel, mapping: &ModelMapping) -> Profile {
    effective_profile(channel.spec.provider.as_str(), channel.spec.protocol, &mapping.upstream, &mapping.profile)
}

/// The edits of a request that is passed on to an upstream of the caller's protocol. `max_output` is an output limit of the gateway.
pub fn passthrough_edits<'a>(
    channel: &Channel,
    mapping: &'a ModelMapping,
    summary: &RequestSummary,
    max_output: Option<u64>,
    drop_signatures: bool,
) -> RequestEdits<'a> {
    RequestEdits {
        upstream_model: (mapping.upstream != summary.model).then_some(mapping.upstream.as_str()),
        force_usage: summary.stream && summary.method == Method::Chat && !summary.include_usage,
        max_output,
        output_limit_field: mapping.profile.max_tokens_field.as_deref(),
        keep_google_signatures: summary.splices.markers
            && !drop_signatures
            && (mapping.profile.signature_required == Some(true) || is_googles(&channel.spec.base_url)),
        drop_signatures,
    }
}

/// The body with the channel's edits of parameters, which are added to `dropped`. Token counts and embeddings are not edited: they lack
/// most parameters, and an upstream would refuse a forced one.
pub fn with_channel_edits(channel: &Channel, protocol: Protocol, method: Method, body: Bytes, dropped: &mut Vec<String>) -> Bytes {
    let edits = &channel.spec.parameter_edits;
    if edits.is_empty() || !method.takes_output_limit() {
        return body;
    }
    let (body, changed) = edit_parameters(protocol, &body, edits);
    dropped.extend(changed);
    body
}

/// Whether a base URL is Google's: the chat endpoint of the Gemini API or of Vertex AI.
fn is_googles(base_url: &str) -> bool {
    let authority = base_url.split_once("://").map_or(base_url, |(_, rest)| rest).split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).split(':').next().unwrap_or_default();
    host.to_ascii_lowercase().strip_suffix("googleapis.com").is_some_and(|front| front.is_empty() || front.ends_with('.'))
}

/// Fields of a request that a channel of another protocol cannot express. Remote media counts as available.
pub fn inexpressible_fields(channel: &Channel, mapping: &ModelMapping, request: &Request, lenient: bool) -> Vec<FieldPath> {
    let options = translate_options(channel, lenient, RemoteMedia::Deferred);
    let purpose = if matches!(request.operation, Operation::Embed(_)) { ModelPurpose::Embedding } else { ModelPurpose::Generation };
    match encode_request(channel.protocol_of(purpose), request, &mapping.upstream, &upstream_profile(channel, mapping), &options) {
        Err(TranslateError::Unsupported { fields, .. }) => fields,
        Ok(_) | Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_googles;

    #[test]
    fn google_hosts_are_distinguished_from_look_alikes() {
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
