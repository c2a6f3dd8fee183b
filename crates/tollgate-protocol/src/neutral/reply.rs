//! Protocol-neutral answers and stream events.

use std::sync::Arc;

use super::{Media, Part, PartKind, RequestEcho, Signature};
use crate::{FinishReason, Framing, Usage};

/// A complete answer to a generation request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Candidates, in order of index.
    pub candidates: Vec<Candidate>,
    pub blocked: Option<BlockedPrompt>,
    pub usage: Option<Usage>,
}

/// The answer to an embeddings request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// One compact JSON array of numbers per input, as the upstream sent them, in order of the inputs.
    pub items: Vec<String>,
    pub prompt_tokens: Option<u64>,
}

/// A prompt that the provider refused to answer (Gemini API reference, `promptFeedback`).
#[derive(Clone, Debug, PartialEq)]
pub struct BlockedPrompt {
    /// Gemini block reason, such as `SAFETY`.
    pub reason: String,
    pub message: Option<String>,
}

impl BlockedPrompt {
    /// The explanation for callers of protocols without block reasons.
    pub(crate) fn sentence(&self) -> String {
        let generic = || format!("The prompt was blocked by the upstream safety filter ({}).", self.reason);
        self.message.clone().unwrap_or_else(generic)
    }
}

/// Refusal text of an answer that was filtered before any content.
pub(crate) fn filtered_sentence(message: Option<&str>, native: Option<&str>) -> String {
    message.map_or_else(
        || format!("The response was blocked by the upstream safety filter ({}).", native.unwrap_or("SAFETY")),
        ToOwned::to_owned,
    )
}

/// One of the answers to a request: a choice of chat completions, a candidate of Gemini; the other protocols have only one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidate {
    pub index: u32,
    pub parts: Vec<Part>,
    pub finish: Option<FinishReason>,
    /// The upstream's own finish reason.
    pub native: Option<String>,
    pub message: Option<String>,
    /// Refusal text (chat completions).
    pub refusal: Option<String>,
    pub logprobs: Option<Vec<TokenLogprob>>,
    /// Citations, with byte offsets into the joined text.
    pub citations: Vec<Citation>,
}

/// A token of the answer with its log probability, and the most likely alternatives (OpenAI API reference, `logprobs`).
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub token: String,
    pub logprob: serde_json::Number,
    pub top: Vec<(String, serde_json::Number)>,
}

impl TokenLogprob {
    /// Bytes of memory that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        let top = self.top.iter().map(|(token, _)| size_of::<(String, serde_json::Number)>() + token.len());
        size_of::<Self>() + self.token.len() + top.sum::<usize>()
    }
}

/// A web source of a span of the answer's text, in bytes of the candidate's joined text.
#[derive(Clone, Debug, PartialEq)]
pub struct Citation {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
    pub url: String,
    pub title: String,
}

impl Citation {
    /// Bytes of memory that it takes.
    pub(crate) const fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.url.len() + self.title.len()
    }
}

/// One event of an answer. `candidate` is the candidate's index, `call` the number of a call, counted over the whole answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The text is empty for a signature alone.
    Text {
        candidate: u32,
        text: String,
        signature: Option<Signature>,
    },
    /// Thinking text, or opaque data in `redacted`. In a stream, an empty text with a signature closes the block of the preceding
    /// pieces; without preceding pieces it is a block of its own.
    Think {
        candidate: u32,
        text: String,
        redacted: Option<String>,
        signature: Option<Signature>,
    },
    /// The id is empty where the upstream gave none. The arguments of a custom (free-text) tool are plain text.
    CallOpen {
        candidate: u32,
        call: u32,
        id: String,
        name: String,
        custom: bool,
        signature: Option<Signature>,
    },
    /// A piece of a call's arguments.
    CallArgs {
        candidate: u32,
        call: u32,
        fragment: String,
    },
    CallDone {
        candidate: u32,
        call: u32,
    },
    Media {
        candidate: u32,
        media: Media,
    },
    /// Refusal text (chat completions).
    Refusal {
        candidate: u32,
        text: String,
    },
    /// Log probabilities of text that follows.
    Logprobs {
        candidate: u32,
        tokens: Vec<TokenLogprob>,
    },
    /// Citations of preceding text.
    Citations {
        candidate: u32,
        citations: Vec<Citation>,
    },
    /// `native` is the upstream's own finish reason, `message` its explanation.
    Finish {
        candidate: u32,
        finish: FinishReason,
        native: Option<String>,
        message: Option<String>,
    },
    BlockedPrompt(BlockedPrompt),
    /// Cumulative token usage; a later event replaces an earlier one.
    Usage(Usage),
    /// Web searches that the provider made so far, of all candidates: counted, not forwarded. The largest number counts.
    Searches(u32),
    /// Content of an unknown kind: counted, not forwarded.
    Unknown {
        candidate: u32,
    },
    /// End of the answer: the stream's end marker, or the end of a complete body.
    End,
}

impl Event {
    /// True for content of an answer. Signatures, citations and log probabilities alone are not content.
    pub(crate) fn is_content(&self) -> bool {
        if let Self::Text { text, .. } | Self::Think { text, .. } | Self::Refusal { text, .. } = self {
            return !text.is_empty();
        }
        matches!(self, Self::CallOpen { .. } | Self::Media { .. } | Self::BlockedPrompt(_))
    }
}

/// The form of the answer that a caller expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerKind {
    #[default]
    Generated,
    Count,
    /// `count` vectors, as a list (every form except Gemini's `:embedContent`) and as base64 of little-endian floats if the caller
    /// requested that.
    Embeddings {
        list: bool,
        base64: bool,
        count: usize,
    },
}

/// Facts about a request that the translation of its answer needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplyContext {
    /// Request id of the gateway without `req_`, used in generated ids.
    pub request_id: String,
    /// Request id of the gateway as callers see it (`req_…`): Gemini `responseId`.
    pub response_id: String,
    /// Unix seconds, for `created`.
    pub now: i64,
    pub model: String,
    pub kind: AnswerKind,
    pub framing: Framing,
    pub stream: bool,
    pub include_usage: bool,
    /// Include thoughts in the answer. OpenAI callers always get them.
    pub include_thoughts: bool,
    /// Send thoughts without visible text so that they return with the history (`docs/translation.md`): to a Gemini caller as
    /// signatures on the following parts, to an Anthropic caller as thinking blocks. True with `include_thoughts`, and
    /// otherwise if the upstream sends such thoughts even though none were requested.
    pub carry_thinking: bool,
    /// Also append Gemini's signature of a call to the call id, for callers that drop unknown members.
    pub id_signatures: bool,
    /// `false`: forward only the first call of a candidate.
    pub parallel: bool,
    /// Write the call as `function_call`, the deprecated form (chat completions).
    pub legacy_calls: bool,
    pub custom_tools: Vec<String>,
    /// Pairs of upstream tool name and caller's tool name.
    pub name_map: Vec<(String, String)>,
    /// Members of the request that the answer repeats (Responses).
    pub echo: Option<Arc<RequestEcho>>,
    /// The gateway's own count of the input, for answers that must have one although the upstream reports none.
    pub counted_input: u64,
}

impl ReplyContext {
    /// Context of a plain request: not streamed, no thoughts, no renamed tools. `request_id` is given without `req_`, `now`
    /// in Unix seconds.
    pub fn new(request_id: &str, now: i64, model: &str) -> Self {
        Self {
            request_id: request_id.to_owned(),
            response_id: format!("req_{request_id}"),
            now,
            model: model.to_owned(),
            id_signatures: true,
            parallel: true,
            ..Self::default()
        }
    }
}

/// The first element that `is` accepts, or a new one at the end. The lists are short: candidates, choices, open calls.
pub(crate) fn find_or_insert<T>(list: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = list.iter().position(is).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[at]
}

impl Reply {
    /// Builds a reply from the events of a complete answer. Calls keep the position at which they were opened; candidates
    /// are sorted by index.
    pub(crate) fn assemble(events: Vec<Event>) -> Self {
        let mut reply = Self::default();
        // Position of each call: call, candidate index, part index.
        let mut calls: Vec<(u32, u32, usize)> = Vec::new();
        for event in events {
            match event {
                Event::Text { candidate, text, signature } => reply.part(candidate, PartKind::Text(text), signature),
                Event::Think { candidate, text, redacted, signature } => {
                    reply.part(candidate, PartKind::Think { text, redacted }, signature);
                }
                Event::Media { candidate, media } => reply.part(candidate, PartKind::Media(media), None),
                Event::CallOpen { candidate, call, id, name, custom, signature } => {
                    calls.push((call, candidate, reply.candidate(candidate).parts.len()));
                    reply.part(candidate, PartKind::Call { id, name, args: String::new(), custom }, signature);
                }
                Event::CallArgs { candidate, call, fragment } => {
                    if let Some((_, _, at)) = calls.iter().rfind(|(open, _, _)| *open == call)
                        && let Some(Part { kind: PartKind::Call { args, .. }, .. }) = reply.candidate(candidate).parts.get_mut(*at)
                    {
                        args.push_str(&fragment);
                    }
                }
                Event::Refusal { candidate, text } => reply.candidate(candidate).refusal.get_or_insert_default().push_str(&text),
                Event::Logprobs { candidate, tokens } => reply.candidate(candidate).logprobs.get_or_insert_default().extend(tokens),
                Event::Citations { candidate, citations } => reply.candidate(candidate).citations.extend(citations),
                Event::Finish { candidate, finish, native, message } => {
                    let candidate = reply.candidate(candidate);
                    candidate.finish = Some(finish);
                    candidate.native = native;
                    candidate.message = message;
                }
                Event::BlockedPrompt(blocked) => reply.blocked = Some(blocked),
                Event::Usage(usage) => reply.usage = Some(usage),
                Event::CallDone { .. } | Event::Unknown { .. } | Event::Searches(_) | Event::End => {}
            }
        }
        reply.candidates.sort_by_key(|candidate| candidate.index);
        reply
    }

    fn candidate(&mut self, index: u32) -> &mut Candidate {
        let new = || Candidate { index, ..Candidate::default() };
        find_or_insert(&mut self.candidates, |candidate| candidate.index == index, new)
    }

    fn part(&mut self, index: u32, kind: PartKind, signature: Option<Signature>) {
        self.candidate(index).parts.push(Part { kind, signature, path: String::new() });
    }
}

impl Candidate {
    /// The finish reason; a natural end where the upstream gave none.
    pub(crate) fn finish(&self) -> FinishReason {
        self.finish.unwrap_or(FinishReason::Stop)
    }
}
