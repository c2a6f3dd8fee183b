//! Upstream paths, relative to a channel's base URL, which ends with the API version.

use crate::{Framing, Method};

/// The model is in the body, so the path depends on the method alone.
pub(super) fn upstream_path(method: Method, _upstream_model: &str, _framing: Framing) -> String {
    match method {
        Method::Embeddings | Method::EmbedContent | Method::BatchEmbedContents => "/embeddings",
        // The protocol has no token counter; the gateway estimates counts.
        Method::Chat | Method::Generate | Method::StreamGenerate | Method::CountTokens => "/chat/completions",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_depends_on_the_method_only() {
        assert_eq!(upstream_path(Method::Chat, "m", Framing::Sse), "/chat/completions");
        assert_eq!(upstream_path(Method::StreamGenerate, "m", Framing::JsonArray), "/chat/completions");
        assert_eq!(upstream_path(Method::Embeddings, "m", Framing::Sse), "/embeddings");
    }
}
