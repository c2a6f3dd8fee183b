//! Decodes and encodes embeddings and token counts.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    InvalidReply, embedding_values as text,
    json_text::write_separator,
    lenient::{LenientCount, is_truthy},
    neutral::{AnswerKind, Embeddings, ReplyContext},
};

#[derive(Deserialize)]
struct EmbedContentResponse<'a> {
    #[serde(borrow)]
    embedding: Option<Embedding<'a>>,
    embeddings: Option<Vec<Embedding<'a>>>,
    #[serde(rename = "usageMetadata", alias = "usage_metadata")]
    usage: Option<UsageMetadata>,
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Embedding<'a> {
    #[serde(borrow)]
    values: &'a RawValue,
}

#[derive(Deserialize)]
struct UsageMetadata {
    #[serde(default, rename = "promptTokenCount", alias = "prompt_token_count")]
    prompt: LenientCount,
}

/// Decodes the reply of `:embedContent` or `:batchEmbedContents`.
pub(super) fn decode(body: &[u8]) -> Result<Embeddings, InvalidReply> {
    let answer: EmbedContentResponse<'_> =
        serde_json::from_slice(body).map_err(|_| InvalidReply::Unreadable("not an embedding"))?;
    if is_truthy(answer.error) {
        return Err(InvalidReply::Problem(Box::new(crate::Codec::decode_problem(&super::Gemini, 200, body))));
    }
    let all = answer.embedding.into_iter().chain(answer.embeddings.into_iter().flatten());
    let items: Option<Vec<String>> = all.map(|embedding| text::read(embedding.values)).collect();
    let items = items.ok_or(InvalidReply::Unreadable("an invalid vector"))?;
    if items.is_empty() {
        return Err(InvalidReply::Unreadable("no vectors"));
    }
    Ok(Embeddings { items, prompt_tokens: answer.usage.and_then(|usage| usage.prompt.given()) })
}

/// Encodes one vector, or a list if the caller requested a batch.
pub(super) fn encode(vectors: &Embeddings, context: &ReplyContext) -> Bytes {
    let list = !matches!(context.kind, AnswerKind::Embeddings { list: false, .. });
    let mut out = BytesMut::new();
    out.put_slice(if list { b"{\"embeddings\":[" } else { b"{\"embedding\":" });
    for (at, vector) in vectors.items.iter().take(if list { usize::MAX } else { 1 }).enumerate() {
        write_separator(&mut out, at);
        out.put_slice(b"{\"values\":");
        out.put_slice(vector.as_bytes());
        out.put_u8(b'}');
    }
    if list {
        out.put_u8(b']');
    }
    if let Some(tokens) = vectors.prompt_tokens {
        out.put_slice(format!(",\"usageMetadata\":{{\"promptTokenCount\":{tokens}}}").as_bytes());
    }
    out.put_u8(b'}');
    out.freeze()
}

pub(super) fn decode_count(body: &[u8]) -> Result<u64, InvalidReply> {
    #[derive(Deserialize)]
    struct Counted {
        #[serde(default, rename = "totalTokens", alias = "total_tokens")]
        total: LenientCount,
    }
    let counted: Counted = serde_json::from_slice(body).map_err(|_| InvalidReply::Unreadable("not a token count"))?;
    counted.total.given().ok_or(InvalidReply::Unreadable("not a token count"))
}

pub(super) fn encode_count(tokens: u64) -> Bytes {
    Bytes::from(format!("{{\"totalTokens\":{}}}", i32::try_from(tokens).unwrap_or(i32::MAX)))
}
