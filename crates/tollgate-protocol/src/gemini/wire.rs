//! Serde types of a Gemini reply; stream events have the same type. Both spellings of a member are accepted; unknown members are
//! ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lenient::{LenientCount, LenientText};

#[derive(Deserialize)]
pub(super) struct GenerateContentResponse<'a> {
    #[serde(borrow)]
    pub candidates: Option<Vec<ResponseCandidate<'a>>>,
    #[serde(rename = "promptFeedback", alias = "prompt_feedback")]
    pub feedback: Option<Feedback>,
    #[serde(rename = "usageMetadata", alias = "usage_metadata")]
    pub usage: Option<&'a RawValue>,
    pub error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Feedback {
    #[serde(rename = "blockReason", alias = "block_reason")]
    pub reason: Option<LenientText>,
    #[serde(rename = "blockReasonMessage", alias = "block_reason_message")]
    pub message: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct ResponseCandidate<'a> {
    #[serde(default)]
    pub index: LenientCount,
    #[serde(borrow)]
    pub content: Option<ResponseContent<'a>>,
    #[serde(rename = "finishReason", alias = "finish_reason")]
    pub finish: Option<LenientText>,
    #[serde(rename = "finishMessage", alias = "finish_message")]
    pub message: Option<LenientText>,
    #[serde(rename = "logprobsResult", alias = "logprobs_result")]
    pub logprobs: Option<&'a RawValue>,
    #[serde(rename = "groundingMetadata", alias = "grounding_metadata")]
    pub grounding: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ResponseContent<'a> {
    #[serde(borrow)]
    pub parts: Option<Vec<ResponsePart<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct ResponsePart<'a> {
    pub text: Option<LenientText>,
    pub thought: Option<bool>,
    #[serde(rename = "thoughtSignature", alias = "thought_signature")]
    pub signature: Option<LenientText>,
    #[serde(borrow, rename = "functionCall", alias = "function_call")]
    pub call: Option<FunctionCall<'a>>,
    #[serde(rename = "inlineData", alias = "inline_data")]
    pub inline: Option<Blob>,
    #[serde(rename = "fileData", alias = "file_data")]
    pub file: Option<FileData>,
    #[serde(rename = "executableCode", alias = "executable_code")]
    pub code: Option<Code>,
    #[serde(rename = "codeExecutionResult", alias = "code_execution_result")]
    pub code_result: Option<CodeResult>,
}

impl ResponsePart<'_> {
    /// Whether the part is a text or a thought, which may be empty beside a signature.
    pub(super) fn is_text(&self) -> bool {
        let has_other = self.call.is_some()
            || self.inline.is_some()
            || self.file.is_some()
            || self.code.is_some()
            || self.code_result.is_some();
        let has_signature = self.signature.as_ref().is_some_and(|signature| !signature.0.is_empty());
        !has_other && (self.thought == Some(true) || self.text.is_some() || has_signature)
    }
}

#[derive(Deserialize)]
pub(super) struct FunctionCall<'a> {
    pub id: Option<LenientText>,
    pub name: Option<LenientText>,
    #[serde(borrow)]
    pub args: Option<&'a RawValue>,
    #[serde(rename = "partialArgs", alias = "partial_args")]
    pub partial: Option<Vec<PartialArg>>,
    #[serde(rename = "willContinue", alias = "will_continue")]
    pub will_continue: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct PartialArg {
    #[serde(rename = "jsonPath", alias = "json_path")]
    pub path: Option<LenientText>,
    #[serde(rename = "stringValue", alias = "string_value")]
    pub string: Option<LenientText>,
    #[serde(rename = "numberValue", alias = "number_value")]
    pub number: Option<serde_json::Number>,
    #[serde(rename = "boolValue", alias = "bool_value")]
    pub bool: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct Blob {
    #[serde(rename = "mimeType", alias = "mime_type")]
    pub mime: Option<LenientText>,
    pub data: LenientText,
}

#[derive(Deserialize)]
pub(super) struct FileData {
    #[serde(rename = "mimeType", alias = "mime_type")]
    pub mime: Option<LenientText>,
    #[serde(rename = "fileUri", alias = "file_uri")]
    pub uri: LenientText,
}

#[derive(Deserialize)]
pub(super) struct Code {
    pub language: Option<LenientText>,
    pub code: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct CodeResult {
    pub output: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct LogprobsResult {
    #[serde(rename = "chosenCandidates", alias = "chosen_candidates")]
    pub chosen: Option<Vec<Logprob>>,
    #[serde(rename = "topCandidates", alias = "top_candidates")]
    pub top: Option<Vec<TopCandidates>>,
}

#[derive(Deserialize)]
pub(super) struct TopCandidates {
    pub candidates: Option<Vec<Logprob>>,
}

#[derive(Deserialize)]
pub(super) struct Logprob {
    pub token: Option<LenientText>,
    /// Omitted if 0.
    #[serde(rename = "logProbability", alias = "log_probability")]
    pub logprob: Option<serde_json::Number>,
}

#[derive(Deserialize)]
pub(super) struct Grounding {
    #[serde(rename = "groundingChunks", alias = "grounding_chunks")]
    pub chunks: Option<Vec<GroundingChunk>>,
    #[serde(rename = "groundingSupports", alias = "grounding_supports")]
    pub supports: Option<Vec<GroundingSupport>>,
}

#[derive(Deserialize)]
pub(super) struct GroundingChunk {
    pub web: Option<Source>,
    #[serde(rename = "retrievedContext", alias = "retrieved_context")]
    pub retrieved: Option<Source>,
    pub maps: Option<Source>,
}

#[derive(Deserialize)]
pub(super) struct Source {
    pub uri: Option<LenientText>,
    pub title: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct GroundingSupport {
    pub segment: Option<Segment>,
    #[serde(rename = "groundingChunkIndices", alias = "grounding_chunk_indices")]
    pub chunks: Option<Vec<LenientCount>>,
}

#[derive(Deserialize)]
pub(super) struct Segment {
    #[serde(default, rename = "partIndex", alias = "part_index")]
    pub part: LenientCount,
    #[serde(default, rename = "startIndex", alias = "start_index")]
    pub start: LenientCount,
    #[serde(default, rename = "endIndex", alias = "end_index")]
    pub end: LenientCount,
}
