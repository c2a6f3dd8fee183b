//! Inputs of the translation to a channel's protocol: the operator's options and the profile of the upstream model. Requests,
//! explanations and the model square all take them from here, so that they agree about each field.

use tollgate_protocol::{
    FieldPath, Profile, RemoteMedia, TranslateError, TranslateOptions, effective_profile, encode_request,
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

/// Fields of a request that a channel of another protocol cannot express. Remote media counts as available.
pub fn inexpressible_fields(channel: &Channel, mapping: &ModelMapping, request: &Request, lenient: bool) -> Vec<FieldPath> {
    let options = translate_options(channel, lenient, RemoteMedia::Deferred);
    let purpose = if matches!(request.operation, Operation::Embed(_)) { ModelPurpose::Embedding } else { ModelPurpose::Generation };
    match encode_request(channel.protocol_of(purpose), request, &mapping.upstream, &upstream_profile(channel, mapping), &options) {
        Err(TranslateError::Unsupported { fields, .. }) => fields,
        Ok(_) | Err(_) => Vec::new(),
    }
}
