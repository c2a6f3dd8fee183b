//! Paths behind a channel's base URL, which ends with the version (wire reference, section 1).

use crate::{Framing, Method};

/// The model stands in the body, so the path depends on the method alone.
pub(super) fn upstream_path(method: Method, _upstream_model: &str, _framing: Framing) -> String {
    match method {
        Method::CountTokens => "/messages/count_tokens",
        // Embeddings are not part of this protocol; routing never asks for them here.
        Method::Chat
        | Method::Generate
        | Method::StreamGenerate
        | Method::Embeddings
        | Method::EmbedContent
        | Method::BatchEmbedContents => "/messages",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_method_alone_decides() {
        assert_eq!(upstream_path(Method::Generate, "m", Framing::Sse), "/messages");
        assert_eq!(upstream_path(Method::CountTokens, "m", Framing::Sse), "/messages/count_tokens");
    }
}
