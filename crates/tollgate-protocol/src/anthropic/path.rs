//! Upstream paths, relative to the channel's base URL, which ends with the version (`/v1`).

use crate::{Framing, Method};

/// The path depends on the method alone; the model is in the body.
pub(super) fn upstream_path(method: Method, _upstream_model: &str, _framing: Framing) -> String {
    match method {
        Method::CountTokens => "/messages/count_tokens",
        // The protocol has no embeddings; routing excludes them.
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
    fn path_depends_on_the_method_alone() {
        assert_eq!(upstream_path(Method::Generate, "m", Framing::Sse), "/messages");
        assert_eq!(upstream_path(Method::CountTokens, "m", Framing::Sse), "/messages/count_tokens");
    }
}
