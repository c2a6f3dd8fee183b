//! Serde types of a Gemini reply; stream events have the same type. Both spellings of a member are accepted; unknown members are
//! ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lenient::{LenientCount, LenientText};

#[derive(Deserialize)]
pub(super) struct GenerateContentResponse<'a> {
    #[serde(default, borrow)]
    pub candidates: Option<Vec<ResponseCandidate<'a>>>,
    #[serde(default, rename = "promptFeedback", alias = "prompt_feedback")]
    pub feedback: Option<Feedback>,
    #[serde(default, borrow, rename = "usageMetadata", alias = "usage_metadata")]
    pub usage: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Feedback {
    #[serde(default, rename = "blockReason", alias = "block_reason")]
    pub reason: Option<LenientText>,
    #[serde(default, rename = "blockReasonMessage", alias = "block_reason_message")]
    pub message: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct ResponseCandidate<'a> {
    #[serde(default)]
    pub index: LenientCount,
    #[serde(default, borrow)]
    pub content: Option<ResponseContent<'a>>,
    #[serde(default, rename = "finishReason", alias = "finish_reason")]
    pub finish: Option<LenientText>,
    #[serde(default, rename = "finishMessage", alias = "finish_message")]
    pub message: Option<LenientText>,
    #[serde(default, borrow, rename = "logprobsResult", alias = "logprobs_result")]
    pub logprobs: Option<&'a RawValue>,
    #[serde(default, borrow, rename = "groundingMetadata", alias = "grounding_metadata")]
    pub grounding: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ResponseContent<'a> {
    #[serde(default, borrow)]
    pub parts: Option<Vec<ResponsePart<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct ResponsePart<'a> {
    #[serde(default)]
    pub text: Option<LenientText>,
    #[serde(default)]
    pub thought: Option<bool>,
    #[serde(default, rename = "thoughtSignature", alias = "thought_signature")]
    pub signature: Option<LenientText>,
    #[serde(default, borrow, rename = "functionCall", alias = "function_call")]
    pub call: Option<FunctionCall<'a>>,
    #[serde(default, rename = "inlineData", alias = "inline_data")]
    pub inline: Option<Blob>,
    #[serde(default, rename = "fileData", alias = "file_data")]
    pub file: Option<FileData>,
    #[serde(default, rename = "executableCode", alias = "executable_code")]
    pub code: Option<Code>,
    #[serde(default, rename = "codeExecutionResult", alias = "code_execution_result")]
    pub code_result: Option<CodeResult>,
}

#[derive(Deserialize)]
pub(super) struct FunctionCall<'a> {
    #[serde(default)]
    pub id: Option<LenientText>,
    #[serde(default)]
    pub name: Option<LenientText>,
    #[serde(default, borrow)]
    pub args: Option<&'a RawValue>,
    #[serde(default, rename = "partialArgs", alias = "partial_args")]
    pub partial: Option<Vec<PartialArg>>,
    #[serde(default, rename = "willContinue", alias = "will_continue")]
    pub will_continue: Option<bool>,
}

/// A piece of streamed call arguments.
#[derive(Deserialize)]
pub(super) struct PartialArg {
    #[serde(default, rename = "jsonPath", alias = "json_path")]
    pub path: Option<LenientText>,
    #[serde(default, rename = "stringValue", alias = "string_value")]
    pub string: Option<LenientText>,
    #[serde(default, rename = "numberValue", alias = "number_value")]
    pub number: Option<serde_json::Number>,
    #[serde(default, rename = "boolValue", alias = "bool_value")]
    pub bool: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct Blob {
    #[serde(default, rename = "mimeType", alias = "mime_type")]
    pub mime: Option<LenientText>,
    pub data: LenientText,
}

#[derive(Deserialize)]
pub(super) struct FileData {
    #[serde(default, rename = "mimeType", alias = "mime_type")]
    pub mime: Option<LenientText>,
    #[serde(rename = "fileUri", alias = "file_uri")]
    pub uri: LenientText,
}

#[derive(Deserialize)]
pub(super) struct Code {
    #[serde(default)]
    pub language: Option<LenientText>,
    #[serde(default)]
    pub code: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct CodeResult {
    #[serde(default)]
    pub output: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct LogprobsResult {
    #[serde(default, rename = "chosenCandidates", alias = "chosen_candidates")]
    pub chosen: Option<Vec<Logprob>>,
    #[serde(default, rename = "topCandidates", alias = "top_candidates")]
    pub top: Option<Vec<TopCandidates>>,
}

#[derive(Deserialize)]
pub(super) struct TopCandidates {
    #[serde(default)]
    pub candidates: Option<Vec<Logprob>>,
}

#[derive(Deserialize)]
pub(super) struct Logprob {
    #[serde(default)]
    pub token: Option<LenientText>,
    /// Omitted if 0.
    #[serde(default, rename = "logProbability", alias = "log_probability")]
    pub logprob: Option<serde_json::Number>,
}

#[derive(Deserialize)]
pub(super) struct Grounding {
    #[serde(default, rename = "groundingChunks", alias = "grounding_chunks")]
    pub chunks: Option<Vec<GroundingChunk>>,
    #[serde(default, rename = "groundingSupports", alias = "grounding_supports")]
    pub supports: Option<Vec<GroundingSupport>>,
}

#[derive(Deserialize)]
pub(super) struct GroundingChunk {
    #[serde(default)]
    pub web: Option<Source>,
    #[serde(default, rename = "retrievedContext", alias = "retrieved_context")]
    pub retrieved: Option<Source>,
    #[serde(default)]
    pub maps: Option<Source>,
}

#[derive(Deserialize)]
pub(super) struct Source {
    #[serde(default)]
    pub uri: Option<LenientText>,
    #[serde(default)]
    pub title: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct GroundingSupport {
    #[serde(default)]
    pub segment: Option<Segment>,
    #[serde(default, rename = "groundingChunkIndices", alias = "grounding_chunk_indices")]
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
