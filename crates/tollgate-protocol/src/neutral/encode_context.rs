//! Context of encoding one request for an upstream: the request, the model's profile, and the report of unsupported fields.
//! Also the parameter and media rules that all upstream protocols share.

use serde_json::Number;

use super::{
    EmbedRequest, EncodedRequest, Format, Grammar, Located, Media, MediaSource, Part, PartKind, Request, Role, Schema, Tool,
    ToolChoice, ToolChoiceMode, TranslateError, TranslateOptions, Turn,
    compatibility::CompatibilityReport,
    effort::{SettingSource, ThinkingSetting, as_effort, lowest, nearest, thinking_setting},
    media::downloaded,
    names::{Ids, Names},
    signature::ThoughtMember,
};
use crate::{
    Malformed, Profile, Protocol, Thinking,
    json_writer::{Json, JsonObject},
    tree::{Tree, compact},
};

/// Efforts assumed for models whose profile states a thinking budget, where the protocol has efforts only.
const USUAL_EFFORTS: [&str; 3] = ["low", "medium", "high"];

/// Why a tool choice that demands a call is refused for a model that cannot be forced.
pub(crate) const NOT_FORCED: &str = "the model cannot be forced to call a tool";

#[derive(Debug)]
pub(crate) struct EncodeContext<'a> {
    pub(crate) request: &'a Request,
    pub(crate) profile: &'a Profile,
    pub(crate) options: &'a TranslateOptions<'a>,
    pub(crate) model: &'a str,
    pub(crate) report: CompatibilityReport<'a>,
    pub(crate) names: Names,
    /// Call ids for upstreams other than Gemini.
    pub(crate) ids: Ids,
    pub(crate) to: Protocol,
}

/// Parameters that the upstream model supports.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamMedia {
    /// Bytes: MIME type, base64.
    Bytes(String, String),
    /// A URL that the upstream fetches: MIME type (may be empty), URL.
    Url(String, String),
}

impl<'a> EncodeContext<'a> {
    /// Reports the error flag of a tool result as dropped, for an upstream without one. Results of Gemini callers state the error in
    /// their text.
    pub(crate) fn drop_error_flag(&mut self, part: &Part) {
        if self.request.origin == Protocol::Anthropic && matches!(part.kind, PartKind::Result { is_error: true, .. }) {
            self.report.drop_field(&format!("{}.is_error", part.path));
        }
    }

    pub(crate) fn new(
        to: Protocol,
        request: &'a Request,
        model: &'a str,
        profile: &'a Profile,
        options: &'a TranslateOptions<'a>,
    ) -> Self {
        let mut report = CompatibilityReport::new(request, options);
        report_foreign_state(request, to, profile, &mut report);
        Self { request, profile, options, model, report, names: Names::of(request, to), ids: Ids::of(request), to }
    }

    /// The leading system texts, and later ones where the channel hoists them.
    pub(crate) fn system(&self) -> Vec<&'a Part> {
        let later = self.request.turns.iter().filter(|turn| self.options.hoist && turn.role == Role::System);
        self.request.system.iter().chain(later.flat_map(|turn| &turn.parts)).collect()
    }

    pub(crate) fn turns(&self) -> impl Iterator<Item = &'a Turn> + use<'a> {
        let hoist = self.options.hoist;
        self.request.turns.iter().filter(move |turn| !(hoist && turn.role == Role::System))
    }

    /// Applies the profile to sampling, stop sequences, penalties, candidates and log probabilities. Unsupported values are
    /// refused.
    pub(crate) fn supported_params(&mut self) -> SupportedParams<'a> {
        let request = self.request;
        let (params, profile) = (&request.params, self.profile);
        let mut supported = SupportedParams::default();
        let sampling = profile.sampling.unwrap_or(true);
        for (given, target) in [(&params.temperature, &mut supported.temperature), (&params.top_p, &mut supported.top_p)] {
            let Some(Located { value, path }) = given else { continue };
            if sampling {
                *target = Some(value);
            } else if value.as_f64() != Some(1.0) {
                self.report.refuse(path);
            }
        }
        if let (Some(Located { value, path }), Some(max)) = (&params.temperature, profile.temperature_max)
            && sampling
            && value.as_f64().is_some_and(|value| value > max.0)
        {
            self.report.refuse_because(path, format!("at most {}", max.0));
            supported.temperature = None;
        }
        if profile.temperature_with_top_p == Some(false) {
            self.one_sampler(&mut supported);
        }
        let top_k = profile.top_k.unwrap_or(matches!(self.to, Protocol::Gemini | Protocol::Anthropic));
        supported.top_k = self.supported(params.top_k.as_ref(), sampling && top_k);
        let penalties = profile.penalties.unwrap_or(true);
        supported.presence = self.supported(params.presence.as_ref(), penalties);
        supported.frequency = self.supported(params.frequency.as_ref(), penalties);
        let logprobs = profile.logprobs.unwrap_or(true);
        supported.logprobs = self.supported(params.logprobs.as_ref(), logprobs).is_some();
        let alternatives = params.top_logprobs.as_ref().filter(|given| logprobs || given.value > 0);
        supported.top_logprobs = self.supported(alternatives, logprobs).copied();
        if let Some(Located { value, path }) = &params.n {
            let max = profile.n_max.unwrap_or(u32::MAX);
            if *value > max {
                self.report.refuse_because(path, format!("at most {max}"));
            } else {
                supported.n = Some(*value);
            }
        }
        supported.stop = self.stops();
        supported
    }

    /// For a model that takes `temperature` or `top_p`, but not both: the one at its default is left out, else `top_p` is refused.
    fn one_sampler(&mut self, supported: &mut SupportedParams<'_>) {
        let (Some(temperature), Some(top_p)) = (supported.temperature, supported.top_p) else { return };
        if temperature.as_f64() == Some(1.0) && top_p.as_f64() != Some(1.0) {
            supported.temperature = None;
            return;
        }
        supported.top_p = None;
        if let Some(given) = self.request.params.top_p.as_ref().filter(|given| given.value.as_f64() != Some(1.0)) {
            self.report.refuse_because(&given.path, "this model takes it only without a temperature");
        }
    }

    /// The value, if the upstream supports the parameter; refused by name otherwise.
    pub(crate) fn supported<'g, T>(&mut self, given: Option<&'g Located<T>>, is_supported: bool) -> Option<&'g T> {
        let given = given?;
        if is_supported {
            return Some(&given.value);
        }
        self.report.refuse(&given.path);
        None
    }

    fn stops(&mut self) -> Option<&'a [String]> {
        let Located { value, path } = self.request.params.stop.as_ref()?;
        match self.profile.stop_max {
            Some(0) => self.report.refuse(path),
            Some(max) if value.len() > max as usize => {
                self.report.refuse_because(path, format!("at most {max} stop sequences"));
            }
            _ => return Some(value),
        }
        None
    }

    /// Drops a thought that the upstream cannot represent, and reports it to OpenAI and Gemini callers. Anthropic callers expect foreign
    /// thinking blocks to be ignored. For Responses callers, [`report_foreign_state`] reports all but the thoughts of a chat upstream,
    /// which are reported here. A thought without text is reported only to chat callers, who send it on purpose with a call.
    pub(crate) fn drop_thought(&mut self, part: &Part) {
        let PartKind::Think { text, .. } = &part.kind else { return };
        let is_sent = !text.is_empty() || self.request.origin == Protocol::OpenAi && part.signature.is_some();
        let is_expected = match self.request.origin {
            Protocol::Anthropic => true,
            Protocol::Responses => ThoughtMember::of(part.signature.as_ref()).is_none(),
            Protocol::OpenAi | Protocol::Gemini => false,
        };
        if !is_expected && is_sent {
            self.report.drop_field(&part.path);
        }
    }

    /// Whether the model is Gemini behind a chat endpoint, which gives and takes Google's signatures.
    pub(crate) fn is_gemini_behind_chat(&self) -> bool {
        is_gemini_behind_chat(self.to, self.profile)
    }

    /// True when every tool named by the tool choice is declared; otherwise the request is malformed.
    pub(crate) fn tool_choice_is_valid(&mut self) -> bool {
        let request = self.request;
        let Some(choice) = request.choice.as_ref().filter(|choice| choice.mode != ToolChoiceMode::None) else { return true };
        // The names of server tools are not known here.
        let declared = |name: &String| request.tools.iter().any(|tool| tool.name == *name);
        if !request.server_tools.is_empty() || choice.names.iter().all(declared) {
            return true;
        }
        let malformed = Malformed::invalid(request.origin, &choice.path, "names a tool that is not among the tools given");
        self.report.malformed(malformed);
        false
    }

    /// Writes `tools`, `tool_choice` and `parallel_tool_calls` for OpenAI's protocols. Server tools are refused.
    pub(crate) fn write_tools(
        &mut self,
        body: &mut JsonObject,
        declaration: impl Fn(&Self, &Tool) -> Json,
        tool_choice: impl FnOnce(&mut Self, &ToolChoice) -> Option<Json>,
    ) {
        let request = self.request;
        for tool in &request.server_tools {
            self.report.refuse(&tool.path);
        }
        if !request.tools.is_empty() {
            body.put("tools", Json::List(request.tools.iter().map(|tool| declaration(&*self, tool)).collect()));
        }
        if let Some(choice) = &request.choice {
            body.put_some("tool_choice", tool_choice(self, choice));
        }
        if request.params.parallel.is_some() && !request.tools.is_empty() {
            body.put("parallel_tool_calls", Json::Bool(false));
        }
    }

    /// True for plain JSON mode without the word "json" in any message, which upstreams of OpenAI's protocols refuse.
    pub(crate) fn needs_the_word_json(&self) -> bool {
        let request = self.request;
        let plain_json = request.params.format.as_ref().is_some_and(|format| format.value == Format::Json);
        let parts = || request.system.iter().chain(request.turns.iter().flat_map(|turn| &turn.parts));
        let mentioned = || parts().filter_map(Part::as_text).any(|text| text.to_ascii_lowercase().contains("json"));
        plain_json && request.origin != Protocol::OpenAi && !mentioned()
    }

    /// Refuses a request for embeddings, for an upstream protocol without them.
    pub(crate) fn refuse_embeddings(&mut self, embed: &EmbedRequest) {
        let field = if self.request.origin == Protocol::OpenAi {
            "input"
        } else if embed.list {
            "requests"
        } else {
            "content"
        };
        self.report.refuse_part(field, Some("the upstream protocol has no embeddings"));
    }

    /// Reports a depth of thinking for a model that does not think. Coding agents send one with every model name that they do not
    /// know, so that for callers of Messages and Responses it is dropped.
    pub(crate) fn refuse_thinking(&mut self, source: SettingSource<'_>) {
        if matches!(self.request.origin, Protocol::Anthropic | Protocol::Responses) {
            self.report.drop_field(source.path().trim_end_matches(".budget_tokens"));
        } else {
            self.report.refuse(source.path());
        }
    }

    /// The depth of thinking in words, for protocols that have no budgets.
    pub(crate) fn effort_word(&mut self) -> Option<String> {
        let setting = thinking_setting(self.request);
        let offered: Vec<String> = match &self.profile.thinking {
            Some(Thinking::Effort(words) | Thinking::Level(words) | Thinking::Adaptive(words)) => words.clone(),
            Some(Thinking::Budget(_)) => USUAL_EFFORTS.map(str::to_owned).to_vec(),
            Some(Thinking::None) | None => {
                if let ThinkingSetting::Effort(_, source) | ThinkingSetting::Budget(_, source) = setting {
                    self.refuse_thinking(source);
                }
                return None;
            }
        };
        if let ThinkingSetting::Off(source) = setting {
            if offered.iter().any(|word| word == "none") {
                return Some("none".to_owned());
            }
            let word = lowest(&offered)?;
            self.report.adjust(source.path(), &source.in_terms(word));
            return Some(word.to_owned());
        }
        let (wanted, source) = as_effort(&setting)?;
        let (word, changed) = nearest(wanted, &offered)?;
        if changed {
            self.report.adjust(source.path(), &source.in_terms(word));
        }
        Some(word.to_owned())
    }

    /// Media in a form that the upstream accepts. If there is none, the field is refused by name.
    pub(crate) fn encodable_media(&mut self, media: &Media) -> Option<UpstreamMedia> {
        let fetches_url = accepts_url(self.to, self.request, self.profile, media);
        let reason = match &media.source {
            MediaSource::Inline(data) => return Some(UpstreamMedia::Bytes(media.mime.clone(), data.clone())),
            MediaSource::Remote(address) if fetches_url => return Some(UpstreamMedia::Url(media.mime.clone(), address.clone())),
            MediaSource::Uri(address) if self.to == Protocol::Gemini => {
                return Some(UpstreamMedia::Url(media.mime.clone(), address.clone()));
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

    /// Refuses media that the upstream protocol cannot represent.
    pub(crate) fn refuse_media(&mut self, media: &Media) {
        self.report.refuse_part(&media.path, None);
    }

    /// The schema of a response format with the format's description added, because other protocols have the description in the
    /// schema. Refused if the schema already has one or cannot hold one.
    pub(crate) fn described_schema(&mut self, schema: &Schema, description: Option<&Located<String>>) -> Schema {
        let mut schema = schema.clone();
        if let Some(description) = description {
            match &mut schema {
                Schema::Json(serde_json::Value::Object(root)) if !root.contains_key("description") => {
                    root.insert("description".to_owned(), description.value.as_str().into());
                }
                Schema::Json(_) | Schema::Google(_) => self.report.refuse(&description.path),
            }
        }
        schema
    }

    /// The description of a tool for an upstream without grammars. It includes the grammar, which is not enforced.
    pub(crate) fn tool_description(&mut self, tool: &Tool) -> Option<String> {
        let Some(Grammar { syntax, definition, path }) = &tool.grammar else { return tool.description.clone() };
        self.report.drop_field(path);
        let note = format!("The input follows this {syntax} grammar:\n{definition}");
        Some(tool.description.as_ref().map_or_else(|| note.clone(), |own| format!("{own}\n\n{note}")))
    }

    /// Completes `encoded` with the dropped fields and renamed tools.
    pub(crate) fn finish(self, encoded: EncodedRequest) -> Result<EncodedRequest, TranslateError> {
        let dropped = self.report.finish()?;
        Ok(EncodedRequest { dropped, name_map: self.names.into_renamed(), ..encoded })
    }
}

/// Reports members that only OpenAI's protocols have, and opaque state that only the upstream that issued it can read. Only Responses
/// callers send such state as separate items, so its loss must be reported here.
fn report_foreign_state(request: &Request, to: Protocol, profile: &Profile, report: &mut CompatibilityReport<'_>) {
    if to != Protocol::Responses {
        for label in &request.params.labels {
            report.drop_field(&label.path);
        }
    }
    if request.origin != Protocol::Responses {
        return;
    }
    for part in request.turns.iter().flat_map(|turn| &turn.parts) {
        let owner = part.signature.as_ref().map(|signature| signature.owner);
        let is_foreign = match &part.kind {
            PartKind::Think { redacted: Some(_), .. } => to != Protocol::Anthropic,
            // A thought without a text holds the signature of the call behind it.
            PartKind::Think { text, .. } if text.is_empty() && owner == Some(Protocol::Gemini) => {
                to != Protocol::Gemini && !is_gemini_behind_chat(to, profile)
            }
            PartKind::Think { .. } => owner != Some(to),
            PartKind::Text(text) => text.is_empty() && owner != Some(to),
            PartKind::Media(_)
            | PartKind::Call { .. }
            | PartKind::Result { .. }
            | PartKind::Code { .. }
            | PartKind::CodeOutput { .. }
            | PartKind::Opaque { .. } => false,
        };
        if is_foreign {
            report.drop_field(&part.path);
        }
    }
}

fn is_gemini_behind_chat(to: Protocol, profile: &Profile) -> bool {
    to == Protocol::OpenAi && profile.signature_required == Some(true)
}

/// True when the upstream fetches this remote URL itself.
pub(crate) fn accepts_url(to: Protocol, request: &Request, profile: &Profile, media: &Media) -> bool {
    let MediaSource::Remote(_) = media.source else { return false };
    // A Gemini `fileData` without a type may be anything; OpenAI and Anthropic callers state the kind of media.
    if media.mime.is_empty() && request.origin == Protocol::Gemini && to != Protocol::Gemini {
        return false;
    }
    match to {
        Protocol::Gemini => profile.fetches_urls == Some(true) || request.origin == Protocol::Gemini,
        Protocol::OpenAi => is_image(&media.mime),
        Protocol::Responses | Protocol::Anthropic => is_image(&media.mime) || media.mime == "application/pdf",
    }
}

/// True for images. An unknown type counts as an image: it comes from an image field whose URL has no known extension.
pub(crate) fn is_image(mime: &str) -> bool {
    mime.is_empty() || mime.starts_with("image/")
}

/// Code as fenced text, for protocols without code parts. The fence is longer than any fence in the code.
pub(crate) fn fenced(language: &str, code: &str) -> String {
    let mut fence = String::from("```");
    while code.contains(&fence) {
        fence.push('`');
    }
    let language = if language == "language_unspecified" { "" } else { language };
    let code = code.strip_suffix('\n').unwrap_or(code);
    format!("\n{fence}{language}\n{code}\n{fence}\n")
}

/// Parameter schema of a custom tool: one string, `input`.
pub(crate) fn free_text() -> Schema {
    Schema::Json(serde_json::json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}))
}

/// Arguments as a JSON object. Text that is not a JSON object is kept verbatim under `_raw`, neither repaired nor dropped.
pub(crate) fn arguments(args: &str, custom: bool) -> Json {
    if custom {
        return Json::object([("input", Json::text(args))]);
    }
    if args.trim().is_empty() {
        return Json::Object(Vec::new());
    }
    match Tree::parse(args.as_bytes()) {
        Ok(tree) if tree.members().is_some() => Json::Raw(compact(tree.text)),
        _ => Json::object([("_raw", Json::text(args))]),
    }
}
