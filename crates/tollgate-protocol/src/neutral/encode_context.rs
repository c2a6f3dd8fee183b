//! One translation on its way out: the request, what the upstream model takes, and the running account of what does not
//! fit. The parameter rules all protocols share are here; each protocol writes down what is left.

use serde_json::Number;

use super::{
    EncodedRequest, Located, Media, MediaSource, Part, PartKind, Request, Role, ToolChoiceMode, TranslateError, TranslateOptions,
    Turn,
    compatibility::CompatibilityReport,
    media::downloaded,
    names::{Ids, Names},
};
use crate::{Malformed, Profile, Protocol};

/// A request being written for an upstream.
#[derive(Debug)]
pub(crate) struct EncodeContext<'a> {
    /// What is asked.
    pub(crate) request: &'a Request,
    /// What the upstream model takes.
    pub(crate) profile: &'a Profile,
    /// What the operator decides.
    pub(crate) options: &'a TranslateOptions<'a>,
    /// The upstream's name of the model.
    pub(crate) model: &'a str,
    /// What becomes of the fields that do not fit.
    pub(crate) report: CompatibilityReport<'a>,
    /// Tool names.
    pub(crate) names: Names,
    /// Call ids for upstreams other than Google's.
    pub(crate) ids: Ids,
    /// The protocol written.
    pub(crate) to: Protocol,
}

/// Parameters that passed the rules.
#[derive(Debug, Default)]
pub(crate) struct SupportedParams<'a> {
    pub(crate) temperature: Option<&'a Number>,
    pub(crate) top_p: Option<&'a Number>,
    pub(crate) top_k: Option<&'a Number>,
    pub(crate) stop: Option<&'a [String]>,
    pub(crate) n: Option<u32>,
    pub(crate) presence: Option<&'a Number>,
    pub(crate) frequency: Option<&'a Number>,
    pub(crate) logprobs: bool,
    pub(crate) top_logprobs: Option<u32>,
}

/// What a piece of media is to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamMedia {
    /// Bytes: mime type, base64.
    Bytes(String, String),
    /// An address the upstream reads itself: mime type (perhaps empty), address.
    Address(String, String),
}

impl<'a> EncodeContext<'a> {
    pub(crate) fn new(
        to: Protocol,
        request: &'a Request,
        model: &'a str,
        profile: &'a Profile,
        options: &'a TranslateOptions<'a>,
    ) -> Self {
        let report = CompatibilityReport::new(request, options);
        Self { request, profile, options, model, report, names: Names::of(request, to), ids: Ids::of(request), to }
    }

    /// The leading system texts, with the later ones where the channel wants them hoisted.
    pub(crate) fn system(&self) -> Vec<&'a Part> {
        let later = self.request.turns.iter().filter(|turn| self.options.hoist && turn.role == Role::System);
        self.request.system.iter().chain(later.flat_map(|turn| &turn.parts)).collect()
    }

    /// The turns that stay in place.
    pub(crate) fn turns(&self) -> impl Iterator<Item = &'a Turn> + use<'a> {
        let hoist = self.options.hoist;
        self.request.turns.iter().filter(move |turn| !(hoist && turn.role == Role::System))
    }

    /// Applies the shared rules to sampling, stops, penalties, candidates, log probabilities.
    pub(crate) fn allowed(&mut self) -> SupportedParams<'a> {
        let request = self.request;
        let (params, profile) = (&request.params, self.profile);
        let mut allowed = SupportedParams::default();
        let sampling = profile.sampling.unwrap_or(true);
        for (given, slot) in [(&params.temperature, &mut allowed.temperature), (&params.top_p, &mut allowed.top_p)] {
            let Some(Located { value, path }) = given else { continue };
            if sampling {
                *slot = Some(value);
            } else if value.as_f64() != Some(1.0) {
                self.report.refuse(path);
            }
        }
        if let (Some(Located { value, path }), Some(max)) = (&params.temperature, profile.temperature_max)
            && sampling
            && value.as_f64().is_some_and(|value| value > max.0)
        {
            self.report.refuse_because(path, format!("at most {}", max.0));
            allowed.temperature = None;
        }
        let top_k = profile.top_k.unwrap_or(self.to != Protocol::OpenAi);
        allowed.top_k = self.taken(params.top_k.as_ref(), sampling && top_k);
        let penalties = profile.penalties.unwrap_or(true);
        allowed.presence = self.taken(params.presence.as_ref(), penalties);
        allowed.frequency = self.taken(params.frequency.as_ref(), penalties);
        let logprobs = profile.logprobs.unwrap_or(true);
        allowed.logprobs = self.taken(params.logprobs.as_ref(), logprobs).is_some();
        let alternatives = params.top_logprobs.as_ref().filter(|given| logprobs || given.value > 0);
        allowed.top_logprobs = self.taken(alternatives, logprobs).copied();
        if let Some(Located { value, path }) = &params.n {
            let most = profile.n_max.unwrap_or(u32::MAX);
            if *value > most {
                self.report.refuse_because(path, format!("at most {most}"));
            } else {
                allowed.n = Some(*value);
            }
        }
        allowed.stop = self.stops();
        allowed
    }

    /// The value, if the upstream takes the parameter; refused by name otherwise.
    pub(crate) fn taken<'g, T>(&mut self, given: Option<&'g Located<T>>, takes: bool) -> Option<&'g T> {
        let given = given?;
        if takes {
            return Some(&given.value);
        }
        self.report.refuse(&given.path);
        None
    }

    fn stops(&mut self) -> Option<&'a [String]> {
        let Located { value, path } = self.request.params.stop.as_ref()?;
        match self.profile.stop_max {
            Some(0) => self.report.refuse(path),
            Some(most) if value.len() > most as usize => {
                self.report.refuse_because(path, format!("at most {most} stop sequences"));
            }
            _ => return Some(value),
        }
        None
    }

    /// Notes what a thought that cannot travel means to its caller: chat and native callers are told, because it is a
    /// field of theirs; Anthropic's blocks are expected to stay behind.
    pub(crate) fn drop_thought(&mut self, part: &Part) {
        let PartKind::Think { text, .. } = &part.kind else { return };
        if self.request.origin != Protocol::Anthropic && !text.is_empty() {
            self.report.drop_field(&part.path);
        }
    }

    /// Whether every tool the choice names is offered; noted as the caller's fault where not.
    pub(crate) fn choice_is_known(&mut self) -> bool {
        let request = self.request;
        let Some(choice) = request.choice.as_ref().filter(|choice| choice.mode != ToolChoiceMode::None) else { return true };
        // The names of tools that a provider runs are its own.
        let offered = |name: &String| request.tools.iter().any(|tool| tool.name == *name);
        if !request.server_tools.is_empty() || choice.names.iter().all(offered) {
            return true;
        }
        let fault = Malformed::invalid(request.origin, &choice.path, "names a tool that is not among the tools given");
        self.report.fault(fault);
        false
    }

    /// Media as the upstream gets it; refused by name where it cannot.
    pub(crate) fn carry(&mut self, media: &Media) -> Option<UpstreamMedia> {
        let addressed = accepts_url(self.to, self.request, self.profile, media);
        let reason = match &media.source {
            MediaSource::Inline(data) => return Some(UpstreamMedia::Bytes(media.mime.clone(), data.clone())),
            MediaSource::Remote(address) if addressed => return Some(UpstreamMedia::Address(media.mime.clone(), address.clone())),
            MediaSource::Uri(address) if self.to == Protocol::Gemini => {
                return Some(UpstreamMedia::Address(media.mime.clone(), address.clone()));
            }
            MediaSource::Remote(_) => match downloaded(media, self.options.media) {
                Ok(Media { mime, source: MediaSource::Inline(data), .. }) => return Some(UpstreamMedia::Bytes(mime, data)),
                Ok(_) => None,
                Err(reason) => Some(reason),
            },
            MediaSource::Uri(_) => None,
        };
        self.report.refuse_part(&media.path, reason);
        None
    }

    /// Media that the upstream has no form for.
    pub(crate) fn refuse_media(&mut self, media: &Media) {
        self.report.refuse_part(&media.path, None);
    }

    /// The facts of an encoded request that its answer needs, `body` and `method` aside.
    ///
    /// # Errors
    /// Everything that was refused.
    pub(crate) fn finish(self, encoded: EncodedRequest) -> Result<EncodedRequest, TranslateError> {
        let dropped = self.report.finish()?;
        Ok(EncodedRequest { dropped, name_map: self.names.into_renamed(), ..encoded })
    }
}

/// Whether the upstream reads this remote address itself.
pub(crate) fn accepts_url(to: Protocol, request: &Request, profile: &Profile, media: &Media) -> bool {
    let MediaSource::Remote(_) = media.source else { return false };
    // A native file may be anything: only a chat caller's or an Anthropic caller's address stands in an image's place.
    if media.mime.is_empty() && request.origin == Protocol::Gemini && to != Protocol::Gemini {
        return false;
    }
    match to {
        Protocol::Gemini => profile.fetches_urls == Some(true) || request.origin == Protocol::Gemini,
        Protocol::OpenAi => is_image(&media.mime),
        Protocol::Anthropic => is_image(&media.mime) || media.mime == "application/pdf",
    }
}

/// Whether it is an image, as far as is known: an address without a known ending in an image's place is taken for one.
pub(crate) fn is_image(mime: &str) -> bool {
    mime.is_empty() || mime.starts_with("image/")
}

/// Code as fenced text, the form code parts take where a protocol has none for them. The fence is longer than any in the
/// code.
pub(crate) fn fenced(language: &str, code: &str) -> String {
    let mut fence = String::from("```");
    while code.contains(&fence) {
        fence.push('`');
    }
    let language = if language == "language_unspecified" { "" } else { language };
    let code = code.strip_suffix('\n').unwrap_or(code);
    format!("\n{fence}{language}\n{code}\n{fence}\n")
}
