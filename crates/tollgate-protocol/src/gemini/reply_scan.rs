//! Summarises a Gemini reply, a complete body or a stream chunk, while it is relayed.

use super::{finish, usage::GeminiUsageCounts};
use crate::{
    FinishReason, ReplySummary,
    edits::Ranges,
    reply_summary::{ACCOUNT_LIMITED, CandidateProgress},
    scan::{Name, Scanner, SyntaxError, ValueKind},
};

/// Facts of one complete body or stream chunk.
#[derive(Debug, Default)]
pub(super) struct GeminiReplyScan {
    pub summary: ReplySummary,
    /// Counts merged from this text and the chunks before it.
    pub counts: GeminiUsageCounts,
    pub progress: CandidateProgress,
    /// Number of candidates; `None` if there is no list.
    pub candidates: Option<usize>,
    /// The list has an element that is not an object.
    pub unusable: bool,
    /// A candidate has neither content nor a finish reason.
    pub bare_candidate: bool,
    pub blocked: bool,
    /// The first candidate contains a call.
    pub call: bool,
    /// Ranges of all `modelVersion` values that are strings.
    pub models: Ranges,
    pub error: bool,
    pub total_tokens: Option<u64>,
    /// `cachedContentTokenCount` of a count.
    pub cached_tokens: u64,
    /// `embedding` or `embeddings` is not empty.
    pub vectors: bool,
}

impl GeminiReplyScan {
    pub(super) fn read(text: &[u8], counts: GeminiUsageCounts) -> Result<Self, SyntaxError> {
        let mut answer = Self { counts, ..Self::default() };
        Scanner::answer_object(text, |scanner, name| answer.member(scanner, name))?;
        Ok(answer)
    }

    fn member<'a>(&mut self, scanner: &mut Scanner<'a>, name: &Name<'a>) -> Result<(), SyntaxError> {
        match name.word() {
            "candidates" => {
                self.candidates = scanner.elements(|scanner, _| self.candidate(scanner))?;
            }
            "promptFeedback" => {
                scanner.members(|scanner, name| {
                    if name.word() == "blockReason" {
                        self.blocked = scanner.optional_string()?.is_some_and(|reason| !reason.is_empty());
                        self.summary.content |= self.blocked;
                    }
                    Ok(())
                })?;
            }
            "usageMetadata" | "usage_metadata" => self.summary.usage = self.counts.merge(scanner)?.or(self.summary.usage),
            "modelVersion" if scanner.peek() == ValueKind::Text => self.models.push(scanner.skip()?),
            "error" => self.error = matches!(scanner.peek(), ValueKind::Object | ValueKind::Text),
            "totalTokens" => self.total_tokens = scanner.token_count()?.ok().flatten(),
            "cachedContentTokenCount" => self.cached_tokens = scanner.token_count()?.ok().flatten().unwrap_or(0),
            "embedding" => {
                scanner.members(|scanner, name| {
                    if name.word() == "values" {
                        self.vectors = scanner.elements(|_, _| Ok(()))?.is_some_and(|length| length > 0);
                    }
                    Ok(())
                })?;
            }
            "embeddings" => self.vectors = scanner.elements(|_, _| Ok(()))?.is_some_and(|length| length > 0),
            _ => {}
        }
        Ok(())
    }

    fn candidate(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        let mut index = 0;
        let mut reason = None;
        let mut content = false;
        let mut call = false;
        let mut searches = None;
        let others_content = std::mem::take(&mut self.summary.content);
        let object = scanner.members(|scanner, name| {
            match name.word() {
                "index" => index = scanner.token_count()?.ok().flatten().unwrap_or(0),
                "finishReason" | "finish_reason" => reason = scanner.optional_string()?.filter(|word| !word.is_empty()),
                "content" => {
                    let object = scanner.members(|scanner, name| {
                        if name.word() == "parts" {
                            scanner.elements(|scanner, _| {
                                call |= part(scanner, &mut self.summary)?;
                                Ok(())
                            })?;
                        }
                        Ok(())
                    })?;
                    content |= object.is_some();
                }
                "groundingMetadata" | "grounding_metadata" => searches = grounding(scanner)?,
                _ => {}
            }
            Ok(())
        })?;
        self.unusable |= object.is_none();
        self.bare_candidate |= !content && reason.is_none();
        if object.is_some() {
            self.progress.record(index, self.summary.content, reason.is_some());
        }
        self.summary.content |= others_content;
        self.summary.account_refused |= reason.is_some_and(|word| word.decode() == ACCOUNT_LIMITED);
        self.summary.searches = add_searches(self.summary.searches, searches, reason.is_some());
        if index == 0 {
            self.call |= call;
            self.summary.finish = reason.map(|word| finish::read(&word.decode())).or(self.summary.finish);
        }
        Ok(())
    }
}

/// Adds the searches of a candidate to those of the others, because each candidate searches separately. A candidate that ends without
/// sources has not searched.
pub(super) fn add_searches(others: Option<u32>, own: Option<u32>, has_ended: bool) -> Option<u32> {
    match (others, own.or(has_ended.then_some(0))) {
        (Some(others), Some(own)) => Some(others.saturating_add(own)),
        (others, own) => others.or(own),
    }
}

/// Searches of a candidate: its queries, or one for sources without a query (maps).
pub(super) fn grounding(scanner: &mut Scanner<'_>) -> Result<Option<u32>, SyntaxError> {
    let (mut queries, mut sources) = (0, 0);
    scanner.members(|scanner, name| {
        let count = match name.word() {
            "webSearchQueries" | "web_search_queries" => &mut queries,
            "groundingChunks" | "grounding_chunks" => &mut sources,
            _ => return Ok(()),
        };
        *count = scanner.elements(|_, _| Ok(()))?.unwrap_or(0);
        Ok(())
    })?;
    let searches = if queries == 0 { sources.min(1) } else { queries };
    Ok(Some(u32::try_from(searches).unwrap_or(u32::MAX)))
}

/// Scans one part; true if it is a call.
fn part(scanner: &mut Scanner<'_>, summary: &mut ReplySummary) -> Result<bool, SyntaxError> {
    let mut call = false;
    scanner.members(|scanner, name| {
        match name.word() {
            "text" => summary.add_text(scanner)?,
            "functionCall" => {
                call = true;
                summary.content = true;
                scanner.members(|scanner, name| {
                    if name.word() == "args" {
                        summary.text_bytes += scanner.skip()?.len() as u64;
                    }
                    Ok(())
                })?;
            }
            "inlineData" | "fileData" => {
                summary.media = summary.media.saturating_add(1);
                summary.content = true;
            }
            "executableCode" | "codeExecutionResult" => {
                summary.content = true;
                scanner.members(|scanner, name| match name.word() {
                    "code" | "output" => summary.add_text(scanner),
                    _ => Ok(()),
                })?;
            }
            "functionResponse" | "toolCall" | "toolResponse" => summary.content = true,
            _ => {}
        }
        Ok(())
    })?;
    Ok(call)
}

/// `STOP` after a call becomes [`FinishReason::Tool`].
pub(super) fn with_call(finish: Option<FinishReason>, call: bool) -> Option<FinishReason> {
    if call && finish == Some(FinishReason::Stop) { Some(FinishReason::Tool) } else { finish }
}
