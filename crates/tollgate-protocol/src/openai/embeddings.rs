//! Decodes and encodes replies of `/v1/embeddings`.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    InvalidReply, embedding_values as text,
    json_text::{write_separator, write_string},
    lenient::{LenientCount, is_truthy},
    neutral::{AnswerKind, Embeddings, ReplyContext},
};

#[derive(Deserialize)]
struct EmbeddingsResponse<'a> {
    #[serde(borrow)]
    data: Option<Vec<Embedding<'a>>>,
    usage: Option<Usage>,
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Embedding<'a> {
    #[serde(default)]
    index: LenientCount,
    #[serde(borrow)]
    embedding: &'a RawValue,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: LenientCount,
}

/// Decodes a reply; vectors are sorted by `index`.
pub(super) fn decode(body: &[u8]) -> Result<Embeddings, InvalidReply> {
    let answer: EmbeddingsResponse<'_> = serde_json::from_slice(body).map_err(|_| InvalidReply::Unreadable("not an embedding"))?;
    if is_truthy(answer.error) {
        return Err(InvalidReply::Problem(Box::new(crate::Codec::decode_problem(&super::OpenAi, 200, body))));
    }
    let mut data: Vec<(u64, Embedding<'_>)> = (0..)
        .zip(answer.data.unwrap_or_default())
        .map(|(position, embedding)| (embedding.index.given().unwrap_or(position), embedding))
        .collect();
    data.sort_by_key(|(index, _)| *index);
    let items: Option<Vec<String>> = data.iter().map(|(_, embedding)| text::read(embedding.embedding)).collect();
    let items = items.ok_or(InvalidReply::Unreadable("an invalid vector"))?;
    if items.is_empty() {
        return Err(InvalidReply::Unreadable("no vectors"));
    }
    Ok(Embeddings { items, prompt_tokens: answer.usage.and_then(|usage| usage.prompt_tokens.given()) })
}

pub(super) fn encode(vectors: &Embeddings, context: &ReplyContext) -> Bytes {
    let base64 = matches!(context.kind, AnswerKind::Embeddings { base64: true, .. });
    let mut out = BytesMut::new();
    out.put_slice(b"{\"object\":\"list\",\"data\":[");
    for (at, vector) in vectors.items.iter().enumerate() {
        write_separator(&mut out, at);
        out.put_slice(format!("{{\"object\":\"embedding\",\"index\":{at},\"embedding\":").as_bytes());
        if base64 {
            write_string(&mut out, &text::base64(vector));
        } else {
            out.put_slice(vector.as_bytes());
        }
        out.put_u8(b'}');
    }
    out.put_slice(b"],\"model\":");
    write_string(&mut out, &context.model);
    // The SDKs' models require a usage, which Google's embeddings do not report. As in the record, zero means that none was reported.
    let tokens = vectors.prompt_tokens.filter(|tokens| *tokens > 0).unwrap_or(context.counted_input);
    out.put_slice(format!(",\"usage\":{{\"prompt_tokens\":{tokens},\"total_tokens\":{tokens}}}}}").as_bytes());
    out.freeze()
}
