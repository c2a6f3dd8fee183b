//! What an embedding request means.

use super::Located;

/// Texts to be turned into vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedRequest {
    /// The texts, at least one, in order.
    pub inputs: Vec<String>,
    /// Whether the caller used a form whose answer is a list (everything but native `:embedContent`).
    pub list: bool,
    /// Length of the vectors.
    pub dimensions: Option<Located<u32>>,
    /// Native `taskType`, upper case.
    pub task: Option<Located<String>>,
    /// Native `title`.
    pub title: Option<Located<String>>,
    /// `base64` where the caller wants the vectors as base64 of little-endian floats.
    pub base64: bool,
    /// Id of the person behind the caller (`user`).
    pub user: Option<Located<String>>,
}
