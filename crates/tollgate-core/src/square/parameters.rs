//! The optional parameters of a model in a group, over each protocol of callers. No list is maintained by hand: support follows from the
//! model's own rule and from translating a small request with the parameter for each channel of another protocol.

use std::{collections::HashMap, fmt::Write as _, sync::Arc};

use tollgate_protocol::{
    Profile, Protocol, RemoteMedia, TranslateError, TranslateOptions, encode_request, minimal_embedding_request, minimal_request,
    neutral::Request,
};

use crate::{
    Catalog, Channel, OnUnsupported, VisibleModel,
    offer::{ModelPurpose, refused},
    translation::{is_lenient, translate_options, upstream_profile},
};

/// The optional parameters of a protocol by how they are handled. Each is in one list, in order of name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ParameterSupport {
    pub supported: Vec<&'static str>,
    /// Accepted and dropped; `x-tollgate-dropped` names them.
    pub dropped: Vec<&'static str>,
    /// Refused (E17).
    pub unsupported: Vec<&'static str>,
    /// Those of `supported` that some channels refuse, and those of `dropped` that some channels pass on.
    pub partly: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Supported,
    Dropped,
    Refused,
}

/// Computes [`ParameterSupport`] for many models. The result of a translation is cached: it holds for all upstream models with the same
/// profile.
#[derive(Debug, Default)]
pub struct ParameterTables {
    requests: HashMap<(Protocol, bool), Arc<[SampleRequest]>>,
    verdicts: HashMap<String, Arc<[Verdict]>>,
}

/// A parameter, and a small request with it; `None` if no sample value of it can be decoded.
type SampleRequest = (&'static str, Option<Request>);

impl ParameterTables {
    /// The parameters of an offer over a protocol of callers. A request is sent to a channel that can express it: a parameter is
    /// supported if such a channel passes it on, and dropped if one of them leaves it out.
    pub fn support(&mut self, catalog: &Catalog, offered: &VisibleModel, from: Protocol) -> ParameterSupport {
        let (model, group) = (&offered.model, &offered.group);
        let embeds = offered.embeds();
        let purpose = if embeds { ModelPurpose::Embedding } else { ModelPurpose::Generation };
        let samples = self.samples(from, embeds);
        let lenient = is_lenient(group, model);
        let mappings = || {
            let positions = catalog.mappings_for(group.id, &model.spec.name);
            let rows = positions.filter_map(|it| {
                let channel = catalog.channel_at(it.channel)?;
                Some((channel, channel.spec.serves.get(it.mapping as usize)?))
            });
            rows.filter(|(channel, _)| channel.serves_purpose(purpose))
        };
        let any_on = mappings().any(|(channel, _)| channel.spec.on);
        let channels: Vec<Arc<[Verdict]>> = mappings()
            .filter(|(channel, _)| channel.spec.on || !any_on)
            .map(|(channel, mapping)| {
                if channel.speaks(from, purpose) {
                    samples.iter().map(|_| Verdict::Supported).collect()
                } else {
                    self.translated((from, embeds), channel, &upstream_profile(channel, mapping), lenient)
                }
            })
            .collect();
        let mut support = ParameterSupport::default();
        for (at, (name, _)) in samples.iter().enumerate() {
            let by_rule = !refused(&model.spec.parameters, from, &[(*name).to_owned()]).is_empty();
            let verdict = match model.spec.on_unsupported {
                OnUnsupported::Refuse if by_rule => Verdict::Refused,
                OnUnsupported::Drop if by_rule => Verdict::Dropped,
                OnUnsupported::Refuse | OnUnsupported::Drop => {
                    let verdicts = || channels.iter().map(|verdicts| verdicts[at]);
                    let verdict = together(verdicts());
                    if is_of_some(verdict, verdicts()) {
                        support.partly.push(name);
                    }
                    verdict
                }
            };
            match verdict {
                Verdict::Supported => support.supported.push(name),
                Verdict::Dropped => support.dropped.push(name),
                Verdict::Refused => support.unsupported.push(name),
            }
        }
        support
    }

    fn samples(&mut self, from: Protocol, embeds: bool) -> Arc<[SampleRequest]> {
        let requests = || {
            let spec = from.spec();
            if embeds {
                spec.embedding_parameters.iter().map(|name| (*name, minimal_embedding_request(from, name))).collect()
            } else {
                spec.parameters.iter().map(|name| (*name, minimal_request(from, name))).collect()
            }
        };
        Arc::clone(self.requests.entry((from, embeds)).or_insert_with(requests))
    }

    /// Whether the translation to a channel's protocol supports each parameter.
    fn translated(
        &mut self,
        (from, embeds): (Protocol, bool),
        channel: &Channel,
        profile: &Profile,
        lenient: bool,
    ) -> Arc<[Verdict]> {
        let to = channel.protocol_of(if embeds { ModelPurpose::Embedding } else { ModelPurpose::Generation });
        let options = translate_options(channel, lenient, RemoteMedia::Deferred);
        let TranslateOptions { hoist, server_tools, pass_user, .. } = options;
        let mut case = format!("{from:?} {embeds} {to:?} {lenient} {hoist} {server_tools} {pass_user} ");
        write!(case, "{profile:?}").expect("writing to a String cannot fail");
        if let Some(known) = self.verdicts.get(&case) {
            return Arc::clone(known);
        }
        let samples = self.samples(from, embeds);
        let verdicts: Arc<[Verdict]> = samples.iter().map(|sample| verdict(sample, to, profile, &options)).collect();
        self.verdicts.insert(case, Arc::clone(&verdicts));
        verdicts
    }
}

/// Combines the verdicts of channels. Channels that refuse a parameter do not count: requests with it are sent to others.
fn together(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    verdicts.fold(Verdict::Refused, |all, one| match (all, one) {
        (Verdict::Dropped, _) | (_, Verdict::Dropped) => Verdict::Dropped,
        (Verdict::Supported, _) | (_, Verdict::Supported) => Verdict::Supported,
        (Verdict::Refused, Verdict::Refused) => Verdict::Refused,
    })
}

/// True if some channels have another verdict than the combined one.
fn is_of_some(together: Verdict, mut verdicts: impl Iterator<Item = Verdict>) -> bool {
    match together {
        Verdict::Supported => verdicts.any(|one| one == Verdict::Refused),
        Verdict::Dropped => verdicts.any(|one| one == Verdict::Supported),
        Verdict::Refused => false,
    }
}

fn verdict((name, request): &SampleRequest, to: Protocol, profile: &Profile, options: &TranslateOptions<'_>) -> Verdict {
    let Some(request) = request else { return Verdict::Refused };
    let is_it = |entry: &String| entry.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    match encode_request(to, request, "m", profile, options) {
        // An adjusted value is reported as `name=value` and counts as mapped.
        Ok(encoded) if encoded.dropped.iter().any(is_it) => Verdict::Dropped,
        Ok(_) => Verdict::Supported,
        Err(TranslateError::Unsupported { .. } | TranslateError::Malformed(_) | TranslateError::NoCounter) => Verdict::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ChannelSpec, Group, Model, ModelSpec, ParameterRule, TranslationPolicy,
        offer::{Audience, visible_offers},
        samples::{catalog, channel, group, model},
    };

    /// The support of the model `m`, over chat completions.
    fn support(channels: Vec<Channel>, group: Group, row: Model) -> ParameterSupport {
        let catalog = catalog(channels, vec![group], vec![row]);
        let groups: Vec<_> = catalog.groups.values().cloned().collect();
        let offers = visible_offers(&catalog, Audience::of_groups(&groups));
        ParameterTables::default().support(&catalog, &offers[0], Protocol::OpenAi)
    }

    fn speaking(name: &str, protocol: Protocol) -> Channel {
        let channel = channel(name, &["m"]);
        Channel { spec: ChannelSpec { protocol, ..channel.spec }, ..channel }
    }

    #[test]
    fn channel_of_the_callers_protocol_supports_all_but_the_excluded_parameters() {
        let all = support(vec![channel("c", &["m"])], group("default", &["c"]), model("m"));
        assert_eq!(all.supported, Protocol::OpenAi.spec().parameters);
        assert!(all.dropped.is_empty() && all.unsupported.is_empty());
        let rule = ParameterRule::Except(vec!["seed".to_owned(), "generationConfig.topP".to_owned()]);
        let spec = ModelSpec { parameters: rule, ..model("m").spec };
        let refusing = Model { spec: spec.clone(), ..model("m") };
        let some = support(vec![channel("c", &["m"])], group("default", &["c"]), refusing);
        assert_eq!(some.unsupported, ["seed", "top_p"]);
        let dropping = Model { spec: ModelSpec { on_unsupported: OnUnsupported::Drop, ..spec }, ..model("m") };
        let some = support(vec![channel("c", &["m"])], group("default", &["c"]), dropping);
        assert_eq!((some.dropped, some.unsupported), (vec!["seed", "top_p"], vec![]));
    }

    #[test]
    fn channel_of_another_protocol_supports_what_translation_can_express() {
        let translated = support(vec![speaking("c", Protocol::Anthropic)], group("default", &["c"]), model("m"));
        for unsupported in ["logit_bias", "n", "seed", "presence_penalty", "logprobs", "audio"] {
            assert!(translated.unsupported.contains(&unsupported), "{unsupported} in {translated:?}");
        }
        for dropped in ["metadata", "prediction", "user"] {
            assert!(translated.dropped.contains(&dropped), "{dropped} in {translated:?}");
        }
        for supported in ["max_tokens", "stop", "tools", "tool_choice"] {
            assert!(translated.supported.contains(&supported), "{supported} in {translated:?}");
        }
        let lenient = Group { translation: TranslationPolicy::Lenient, ..group("default", &["c"]) };
        let translated = support(vec![speaking("c", Protocol::Anthropic)], lenient, model("m"));
        assert!(translated.unsupported.is_empty() && translated.dropped.contains(&"seed"), "{translated:?}");
    }

    #[test]
    fn parameter_is_supported_where_one_channel_takes_it() {
        let channels = vec![channel("a", &["m"]), speaking("b", Protocol::Anthropic)];
        let both = support(channels, group("default", &["a", "b"]), model("m"));
        assert!(both.supported.contains(&"seed") && both.unsupported.is_empty(), "{both:?}");
        assert!(both.dropped.contains(&"metadata"), "one of them leaves it out");
        for partly in ["seed", "metadata"] {
            assert!(both.partly.contains(&partly), "{partly} in {both:?}");
        }
        assert!(!both.partly.contains(&"tools"), "{both:?}");
        let off = channel("a", &["m"]);
        let channels = vec![Channel { spec: ChannelSpec { on: false, ..off.spec }, ..off }, speaking("b", Protocol::Anthropic)];
        let one = support(channels, group("default", &["a", "b"]), model("m"));
        assert!(one.unsupported.contains(&"seed") && one.partly.is_empty(), "{one:?}");
    }

    #[test]
    fn embedding_models_have_their_own_parameters() {
        let row = Model { spec: ModelSpec { embeddings: true, ..model("m").spec }, ..model("m") };
        let native = support(vec![channel("c", &["m"])], group("default", &["c"]), row.clone());
        assert_eq!(native.supported, ["dimensions", "encoding_format", "user"]);
        let translated = support(vec![speaking("c", Protocol::Gemini)], group("default", &["c"]), row);
        assert!(translated.supported.contains(&"dimensions"), "{translated:?}");
    }
}
