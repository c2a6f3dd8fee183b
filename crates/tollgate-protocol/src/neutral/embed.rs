//! Embedding requests.

use super::Located;

/// Texts to embed.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedRequest {
    /// The texts, at least one, in order.
    pub inputs: Vec<String>,
    /// The answer is a list (every form except Gemini's `:embedContent`).
    pub list: bool,
    /// Requested length of the vectors.
    pub dimensions: Option<Located<u32>>,
    /// Gemini `taskType`, upper case.
    pub task: Option<Located<String>>,
    /// Gemini `title`.
    pub title: Option<Located<String>>,
    /// The caller wants the vectors as base64 of little-endian floats.
    pub base64: bool,
    pub user: Option<Located<String>>,
}
