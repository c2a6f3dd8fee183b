//! Decodes opaque state that returns with a history: Gemini signatures appended to tool ids, sealed thoughts of a Responses upstream, and
//! `thoughtSignature` values that carry the thoughts of other upstreams through a Gemini caller (`docs/translation.md`).

use base64::{
    Engine,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use super::{Part, PartKind, Signature, encode_context::EncodeContext, media::standard_base64};
use crate::{
    Profile, Protocol,
    markers::bare_id,
    opaque_state::{ANTHROPIC_REDACTED, ANTHROPIC_SIGNATURE, CALL_SIGNATURE, ID_MARK, RESPONSES_SEAL, id_suffix},
};

/// Value that Gemini accepts in place of a signature (Gemini API docs, "Thought signatures").
pub(crate) const PLACEHOLDER: &str = "skip_thought_signature_validator";

/// Decodes output of [`standard_base64`].
const VALUE_DECODER: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent).with_decode_allow_trailing_bits(true),
);

/// Decodes the suffix of tool ids.
const SUFFIX_DECODER: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent).with_decode_allow_trailing_bits(true),
);

/// Splits a tool id sent back by a caller into the original id and the signature appended to it.
pub(crate) fn split_id(id: &str) -> (&str, Option<Signature>) {
    let bare = bare_id(id);
    if bare.len() == id.len() {
        return (id, None);
    }
    let suffix = id.rsplit(ID_MARK).next().unwrap_or_default();
    let value = SUFFIX_DECODER.decode(suffix).ok().filter(|bytes| !bytes.is_empty()).and_then(|_| standard_base64(suffix));
    (bare, value.map(|value| Signature { owner: Protocol::Gemini, value }))
}

/// The value of a signature that Gemini issued.
pub(crate) fn google(signature: Option<&Signature>) -> Option<&str> {
    signature.filter(|signature| signature.owner == Protocol::Gemini).map(|signature| signature.value.as_str())
}

/// Google's signatures of a model turn, for an upstream whose model is Gemini.
pub(crate) struct GoogleSignatures {
    /// True if signatures are accepted only by the account that issued them; they are left out then.
    bound: bool,
    /// The next call gets the placeholder.
    placeholder: bool,
}

impl GoogleSignatures {
    /// If the model requires signatures and no call of the turn has one, its first call gets the placeholder.
    pub(crate) fn of(profile: &Profile, parts: &[Part]) -> Self {
        let bound = profile.signatures_bound == Some(true);
        let signed = !bound && parts.iter().any(|part| part.is_call() && google(part.signature.as_ref()).is_some());
        Self { bound, placeholder: profile.signature_required == Some(true) && !signed }
    }

    /// The signature to send with the next part. Called for all parts in order. A signature that is left out is reported.
    pub(crate) fn next(&mut self, part: &Part, out: &mut EncodeContext<'_>) -> Option<String> {
        let given = google(part.signature.as_ref());
        if self.bound && given.is_some_and(|value| value != PLACEHOLDER) {
            let member = if out.request.is_native() { "thoughtSignature" } else { "extra_content.google.thought_signature" };
            out.report.drop_field(&format!("{}.{member}", part.path));
        }
        let placeholder = self.placeholder && part.is_call();
        match given.filter(|_| !self.bound) {
            Some(signature) => Some(signature.to_owned()),
            None if placeholder => {
                self.placeholder = false;
                Some(PLACEHOLDER.to_owned())
            }
            None => None,
        }
    }
}

/// A call id with Gemini's signature appended, unless the signature is too long for an id.
pub(crate) fn signed_id(id: &str, signature: Option<&Signature>) -> String {
    let suffix = google(signature).and_then(id_suffix).unwrap_or_default();
    format!("{id}{suffix}")
}

/// Longest id of a call with a signature for callers of Messages, in bytes. Claude Code saves large results in files that are named after
/// the id, and file names have at most 255 bytes.
const SIGNED_ID_LIMIT: usize = 128;

/// A call's Gemini signature as the signature of a thinking block before the call, if it would make the call's id too long.
pub(crate) fn call_signature_block(id: &str, signature: Option<&Signature>) -> Option<String> {
    let value = google(signature)?;
    (signed_id(id, signature).len() > SIGNED_ID_LIMIT).then(|| format!("{CALL_SIGNATURE}{value}"))
}

/// The signature in a block written by [`call_signature_block`].
pub(crate) fn of_call_signature_block(value: &str) -> Option<Signature> {
    let value = value.strip_prefix(CALL_SIGNATURE)?.to_owned();
    Some(Signature { owner: Protocol::Gemini, value })
}

/// Separates the id from the content in the value of a seal.
const ID_END: char = ':';
/// Longest id that is kept with a seal, in bytes.
const SEAL_ID_LIMIT: usize = 1024;

/// A reasoning item as a Responses upstream sealed it. Its id is sent back with it: OpenAI binds the content to the id and refuses
/// another one, and some services refuse items without an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedItem<'a> {
    pub(crate) id: Option<&'a str>,
    /// `encrypted_content`.
    pub(crate) content: &'a str,
}

impl<'a> SealedItem<'a> {
    /// Id and content as the value of one signature. An id that could not be parsed back is left out.
    pub(crate) fn signature(self) -> Signature {
        let id = self.id.filter(|id| id.len() <= SEAL_ID_LIMIT && !id.contains([ID_END, ','])).unwrap_or_default();
        Signature { owner: Protocol::Responses, value: format!("{id}{ID_END}{}", self.content) }
    }

    /// The item of a signature that a Responses upstream issued.
    pub(crate) fn of(signature: Option<&'a Signature>) -> Option<Self> {
        let Signature { owner: Protocol::Responses, value } = signature? else { return None };
        let (id, content) = value.split_once(ID_END).unwrap_or(("", value));
        (!content.is_empty()).then_some(Self { id: Some(id).filter(|id| !id.is_empty()), content })
    }
}

/// The member of a chat upstream's message that contained a thought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThoughtMember {
    /// DeepSeek, Kimi, GLM, Qwen: a history has it in the same member, and DeepSeek requires it beside calls.
    ReasoningContent,
    /// Groq, Cerebras, `OpenRouter`, vLLM: some of them refuse a history with `reasoning_content`.
    Reasoning,
}

impl ThoughtMember {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ReasoningContent => "reasoning_content",
            Self::Reasoning => "reasoning",
        }
    }

    /// The member of this name; `None` for every other text.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::ReasoningContent, Self::Reasoning].into_iter().find(|member| member.as_str() == name)
    }

    /// The signature of a thought from this member.
    pub(crate) fn signature(self) -> Signature {
        Signature { owner: Protocol::OpenAi, value: self.as_str().to_owned() }
    }

    /// The member that contained a chat upstream's thought; `None` for thoughts of other upstreams.
    pub(crate) fn of(signature: Option<&Signature>) -> Option<Self> {
        let Signature { owner: Protocol::OpenAi, value } = signature? else { return None };
        Some(if value == Self::Reasoning.as_str() { Self::Reasoning } else { Self::ReasoningContent })
    }

    /// Placeholder for a signature, where a caller's protocol requires one.
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Self::ReasoningContent => "tg1.openai",
            Self::Reasoning => "tg1.openai.reasoning",
        }
    }

    /// The member that a placeholder stands for.
    pub(crate) fn of_mark(mark: &str) -> Option<Self> {
        [Self::ReasoningContent, Self::Reasoning].into_iter().find(|member| member.mark() == mark)
    }
}

/// A signature of a thought with the mark of the upstream that it belongs to.
pub(crate) fn signature_item(signature: &Signature) -> String {
    let mark = if signature.owner == Protocol::Responses { RESPONSES_SEAL } else { ANTHROPIC_SIGNATURE };
    format!("{mark}{}", signature.value)
}

/// A thought carried by a `thoughtSignature` value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CarriedBlock {
    /// The signature of a `thinking` block, or the seal of a reasoning item.
    Signature(Signature),
    /// The data of a `redacted_thinking` block.
    Redacted(String),
}

/// The thoughts carried by a `thoughtSignature` value; `None` for a real signature or the placeholder.
fn carried_blocks(value: &str) -> Option<Vec<CarriedBlock>> {
    let bytes = VALUE_DECODER.decode(standard_base64(value)?).ok()?;
    let text = std::str::from_utf8(&bytes).ok().filter(|text| text.starts_with("tg1."))?;
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(",tg1.").unwrap_or(rest.len());
        let item = &rest[..end];
        let signed = |owner, value: &str| CarriedBlock::Signature(Signature { owner, value: value.to_owned() });
        if let Some(value) = item.strip_prefix(ANTHROPIC_SIGNATURE) {
            found.push(signed(Protocol::Anthropic, value));
        } else if let Some(value) = item.strip_prefix(RESPONSES_SEAL) {
            found.push(signed(Protocol::Responses, value));
        } else if let Some(data) = item.strip_prefix(ANTHROPIC_REDACTED) {
            found.push(CarriedBlock::Redacted(data.to_owned()));
        }
        if end == rest.len() {
            return Some(found);
        }
        rest = &rest[end + 1..];
    }
}

/// Restores the thoughts carried by the signatures of a Gemini model turn, in their original positions.
pub(crate) fn unwrap_carried(parts: Vec<Part>) -> Vec<Part> {
    let mut out = Vec::with_capacity(parts.len());
    let mut open: Vec<Part> = Vec::new(); // Thought texts of the current block.
    for mut part in parts {
        let carried = part.signature.as_ref().and_then(|signature| carried_blocks(&signature.value));
        let is_thought = matches!(part.kind, PartKind::Think { .. });
        let Some(carried) = carried else {
            if is_thought && part.signature.is_none() {
                open.push(part);
            } else {
                out.append(&mut open);
                out.push(part);
            }
            continue;
        };
        part.signature = None;
        if is_thought {
            close_block(carried, part, &mut open, &mut out);
        } else {
            out.append(&mut open);
            out.extend(carried.into_iter().map(|item| block(item, String::new(), &part.path)));
            out.push(part);
        }
    }
    out.append(&mut open);
    out
}

/// Ends a block at a thought part: the last signature gets the collected text, other blocks stay separate.
fn close_block(carried: Vec<CarriedBlock>, part: Part, open: &mut Vec<Part>, out: &mut Vec<Part>) {
    let own = carried.iter().rposition(|item| matches!(item, CarriedBlock::Signature(_)));
    if own.is_none() {
        out.append(open);
    }
    let mut text: String = open.drain(..).map(|thought| thought_text(&thought).to_owned()).collect();
    text.push_str(thought_text(&part));
    for (index, item) in carried.into_iter().enumerate() {
        let words = if Some(index) == own { std::mem::take(&mut text) } else { String::new() };
        out.push(block(item, words, &part.path));
    }
    if own.is_none() && !text.is_empty() {
        out.push(part);
    }
}

fn thought_text(part: &Part) -> &str {
    if let PartKind::Think { text, .. } = &part.kind { text } else { "" }
}

fn block(item: CarriedBlock, text: String, path: &str) -> Part {
    let (redacted, signature) = match item {
        CarriedBlock::Signature(signature) => (None, Some(signature)),
        CarriedBlock::Redacted(data) => (Some(data), None),
    };
    Part { kind: PartKind::Think { text, redacted }, signature, path: path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thought(text: &str, signature: Option<&str>) -> Part {
        let signature = signature.map(|value| Signature { owner: Protocol::Gemini, value: carried(value) });
        Part { kind: PartKind::Think { text: text.into(), redacted: None }, signature, path: String::new() }
    }

    fn carried(plain: &str) -> String {
        base64::engine::general_purpose::STANDARD.encode(plain)
    }

    fn described(parts: Vec<Part>) -> Vec<String> {
        let describe = |part: Part| {
            let PartKind::Think { text, redacted } = &part.kind else { return part.as_text().unwrap_or("?").to_owned() };
            let signature = part.signature.as_ref().map_or("", |signature| signature.value.as_str());
            let owner = if SealedItem::of(part.signature.as_ref()).is_some() { "sealed " } else { "" };
            format!("{text}|{owner}{signature}|{}", redacted.as_deref().unwrap_or_default())
        };
        unwrap_carried(parts).into_iter().map(describe).collect()
    }

    #[test]
    fn id_suffix_is_split_and_decoded() {
        assert_eq!(split_id("c1__sig1_-_8"), ("c1", Some(Signature { owner: Protocol::Gemini, value: "+/8=".into() })));
        assert_eq!(split_id("c1__sig1_a"), ("c1", None));
        assert_eq!(split_id("c1"), ("c1", None));
    }

    #[test]
    fn ids_are_split_as_in_passthrough() {
        for id in ["a__sig1_QUJD__sig1_REVG", "__sig1_abc", "c1__sig1_!", "c1__sig1_", "c1__sig1_QUJD", "c1__sig1_a", "c1"] {
            assert_eq!(split_id(id).0, bare_id(id), "{id}");
        }
        let (bare, signature) = split_id("a__sig1_QUJD__sig1_REVG");
        assert_eq!((bare, signature.map(|signature| signature.value).as_deref()), ("a", Some("REVG")));
    }

    #[test]
    fn block_gets_the_text_since_the_previous_block() {
        let parts = vec![thought("he", None), thought("llo", None), thought("", Some("tg1.e.RED,tg1.a.SIG")), thought("x", None)];
        assert_eq!(described(parts), ["||RED", "hello|SIG|", "x||"]);
    }

    #[test]
    fn blocks_carried_by_text_precede_it() {
        let mut text = thought("", Some("tg1.a.A,b,tg1.a.B"));
        text.kind = PartKind::Text("answer".into());
        assert_eq!(described(vec![text]), ["|A,b|", "|B|", "answer"]);
    }

    #[test]
    fn sealed_items_return_with_their_ids() {
        for (id, kept) in [(Some("rs_1"), Some("rs_1")), (None, None), (Some(""), None), (Some("a:b"), None), (Some("a,b"), None)] {
            let signature = SealedItem { id, content: "gAAAA:_-=" }.signature();
            assert_eq!(SealedItem::of(Some(&signature)), Some(SealedItem { id: kept, content: "gAAAA:_-=" }), "{id:?}");
        }
        let bare = Signature { owner: Protocol::Responses, value: "gAAAA".to_owned() };
        assert_eq!(SealedItem::of(Some(&bare)), Some(SealedItem { id: None, content: "gAAAA" }));
        let empty = Signature { owner: Protocol::Responses, value: "rs_1:".to_owned() };
        let foreign = Signature { owner: Protocol::Gemini, value: "rs_1:gAAAA".to_owned() };
        assert_eq!((SealedItem::of(Some(&empty)), SealedItem::of(Some(&foreign)), SealedItem::of(None)), (None, None, None));
    }

    #[test]
    fn several_sealed_items_keep_their_order() {
        let mut call = thought("", Some("tg1.r.rs_2:B,tg1.r.:C"));
        call.kind = PartKind::Text("answer".into());
        let parts = vec![thought("t", None), thought("", Some("tg1.r.rs_1:A")), call];
        assert_eq!(described(parts), ["t|sealed rs_1:A|", "|sealed rs_2:B|", "|sealed :C|", "answer"]);
    }

    #[test]
    fn real_signatures_and_placeholders_are_unchanged() {
        let mut parts = vec![thought("t", None)];
        for value in ["QUJD", PLACEHOLDER, "skip/thought/signature/validator"] {
            parts[0].signature = Some(Signature { owner: Protocol::Gemini, value: value.into() });
            assert_eq!(unwrap_carried(parts.clone()), parts);
        }
    }
}
