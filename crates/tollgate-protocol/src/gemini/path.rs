//! Upstream paths, relative to a channel's base URL (Gemini API reference, "REST Resource: models").

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{Framing, Method};

/// Characters escaped in a model name: all except RFC 3986 `pchar` and `/`, which the SDKs send unescaped.
const MODEL: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'/');

/// Characters escaped in a name with dot segments. With slashes and dots among them, no segment remains.
const DOTTED_MODEL: &AsciiSet = &MODEL.add(b'/').add(b'.');

/// `/models/{model}:{verb}`. Streams are always requested as server-sent events; the caller's framing is applied to the reply.
pub(super) fn upstream_path(method: Method, upstream_model: &str, _framing: Framing) -> String {
    let verb = match method {
        // Routing excludes compaction.
        Method::Generate | Method::Chat | Method::Compact => "generateContent",
        Method::StreamGenerate => "streamGenerateContent",
        Method::CountTokens => "countTokens",
        Method::EmbedContent => "embedContent",
        Method::BatchEmbedContents | Method::Embeddings => "batchEmbedContents",
    };
    let collection =
        if upstream_model.starts_with("models/") || upstream_model.starts_with("tunedModels/") { "" } else { "models/" };
    let query = if method == Method::StreamGenerate { "?alt=sse" } else { "" };
    // Dot segments would leave the collection; some servers take a leading slash for another host.
    let is_plain = upstream_model.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
    let model = utf8_percent_encode(upstream_model, if is_plain { MODEL } else { DOTTED_MODEL });
    format!("/{collection}{model}:{verb}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_path_is_built_and_escaped_for_every_method() {
        for (method, model, expected) in [
            (Method::Generate, "m", "/models/m:generateContent"),
            (Method::StreamGenerate, "m", "/models/m:streamGenerateContent?alt=sse"),
            (Method::CountTokens, "a/b", "/models/a/b:countTokens"),
            (Method::EmbedContent, "tunedModels/t", "/tunedModels/t:embedContent"),
            (Method::BatchEmbedContents, "models/m", "/models/m:batchEmbedContents"),
            (Method::Generate, "../../../x", "/models/%2E%2E%2F%2E%2E%2F%2E%2E%2Fx:generateContent"),
            (Method::Generate, "models/../x", "/models%2F%2E%2E%2Fx:generateContent"),
            (Method::Generate, "//x", "/models/%2F%2Fx:generateContent"),
            (Method::Generate, "gemini-2.5-pro", "/models/gemini-2.5-pro:generateContent"),
            (Method::Generate, "m?x=1#% \u{e9}", "/models/m%3Fx=1%23%25%20%C3%A9:generateContent"),
        ] {
            for framing in [Framing::Sse, Framing::JsonArray] {
                assert_eq!(upstream_path(method, model, framing), expected);
            }
        }
    }
}
