//! What becomes of every field when a request changes protocol: the published loss matrix. The rows are data for the
//! documentation; a test runs each row's example through the translators and holds them to the stated verdict.

mod from_anthropic;
mod from_gemini;
mod from_openai;

#[cfg(test)]
mod tests;

use crate::Protocol;

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossVerdict {
    /// It has a counterpart and keeps its meaning and value.
    Mapped,
    /// It has a counterpart of another form; the note says which.
    Changed,
    /// The request is refused, naming the field (unless the operator lets it be dropped).
    Refused,
    /// It is left out or adjusted, and reported in `x-tollgate-dropped`.
    Dropped,
    /// It asks for what happens anyway, or cannot matter: accepted and left out without a word.
    Harmless,
}

impl LossVerdict {
    /// The word used in the documentation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Changed => "mapped with change",
            Self::Refused => "refused",
            Self::Dropped => "dropped",
            Self::Harmless => "accepted, no effect",
        }
    }
}

/// One row of the matrix: a field of the caller's protocol on its way to an upstream of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRow {
    /// The caller's protocol and the upstream's.
    pub direction: (Protocol, Protocol),
    /// The field as a caller writes it, with the value where the verdict depends on it.
    pub field: &'static str,
    /// What becomes of it, with an upstream model that takes everything its protocol has.
    pub verdict: LossVerdict,
    /// Where it goes, or why it cannot.
    pub note: &'static str,
    /// An example: members of a request body.
    pub example: &'static str,
    /// The path that a refusal or report names, list positions left empty.
    pub path: &'static str,
}

/// A row without its direction: field, verdict, path (empty: the field itself), example, note.
type Row = (&'static str, LossVerdict, &'static str, &'static str, &'static str);

/// All rows, one direction after the other.
#[must_use]
pub fn loss_matrix() -> Vec<LossRow> {
    use Protocol::{Anthropic, Gemini, OpenAi};
    let tables: [((Protocol, Protocol), &[Row]); 6] = [
        ((OpenAi, Gemini), from_openai::TO_GEMINI),
        ((OpenAi, Anthropic), from_openai::TO_ANTHROPIC),
        ((Gemini, OpenAi), from_gemini::TO_OPENAI),
        ((Gemini, Anthropic), from_gemini::TO_ANTHROPIC),
        ((Anthropic, OpenAi), from_anthropic::TO_OPENAI),
        ((Anthropic, Gemini), from_anthropic::TO_GEMINI),
    ];
    let rows = tables.into_iter().flat_map(|(direction, rows)| rows.iter().map(move |row| (direction, row)));
    rows.map(|(direction, &(field, verdict, path, example, note))| LossRow {
        direction,
        field,
        verdict,
        note,
        example,
        path: if path.is_empty() { field } else { path },
    })
    .collect()
}
