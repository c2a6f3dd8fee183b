//! Paths behind a channel's base URL (wire reference, section 1).

use crate::{Framing, Method};

/// `/models/{model}:{verb}`. Streams are always asked for as events: what the caller wants is made of them.
pub(super) fn upstream_path(method: Method, upstream_model: &str, _framing: Framing) -> String {
    let verb = match method {
        Method::Generate | Method::Chat => "generateContent",
        Method::StreamGenerate => "streamGenerateContent",
        Method::CountTokens => "countTokens",
        Method::EmbedContent => "embedContent",
        Method::BatchEmbedContents | Method::Embeddings => "batchEmbedContents",
    };
    let collection =
        if upstream_model.starts_with("models/") || upstream_model.starts_with("tunedModels/") { "" } else { "models/" };
    let query = if method == Method::StreamGenerate { "?alt=sse" } else { "" };
    format!("/{collection}{}:{verb}{query}", escaped(upstream_model))
}

/// Percent-encodes what may not stand in a path; `/` stays, as the SDKs send it.
fn escaped(model: &str) -> String {
    let mut path = String::with_capacity(model.len());
    for byte in model.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push('%');
            path.push_str(&hex::encode_upper([byte]));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_its_path() {
        for (method, model, expected) in [
            (Method::Generate, "m", "/models/m:generateContent"),
            (Method::StreamGenerate, "m", "/models/m:streamGenerateContent?alt=sse"),
            (Method::CountTokens, "a/b", "/models/a/b:countTokens"),
            (Method::EmbedContent, "tunedModels/t", "/tunedModels/t:embedContent"),
            (Method::BatchEmbedContents, "models/m", "/models/m:batchEmbedContents"),
            (Method::Generate, "m?x=1#% \u{e9}", "/models/m%3Fx=1%23%25%20%C3%A9:generateContent"),
        ] {
            for framing in [Framing::Sse, Framing::JsonArray] {
                assert_eq!(upstream_path(method, model, framing), expected);
            }
        }
    }
}
