//! Words as tokens: counting them, cutting behind one, and handing a text out in pieces.

/// Most pieces a text is handed out in; longer texts get several words a piece.
const MAX_CHUNKS: u64 = 10_000;
/// Longest piece, in bytes: far below the limit of an event, whatever escaping does to it.
const MAX_CHUNK_BYTES: usize = 64 * 1024;

/// Number of words.
pub(super) fn count(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

/// A text that is handed out word by word, blanks kept.
#[derive(Clone, Debug)]
pub(super) struct WordChunks {
    text: String,
    at: usize,
    count: u64,
    /// Words to a piece.
    step: u64,
}

impl WordChunks {
    /// The text up to its `most`th word; also whether that cut anything off.
    pub(super) fn new(mut text: String, most: Option<u64>) -> (Self, bool) {
        let all = count(&text);
        let count = most.map_or(all, |most| all.min(most));
        let cut = count < all;
        if cut {
            let mut end = 0;
            for _ in 0..count {
                end = word_end(&text, end);
            }
            text.truncate(end);
        }
        (Self { text, at: 0, count, step: count.div_ceil(MAX_CHUNKS).max(1) }, cut)
    }

    /// Number of words.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Everything at once.
    pub(super) fn whole(&self) -> &str {
        &self.text
    }

    /// Whether everything was handed out.
    pub(super) fn is_empty(&self) -> bool {
        self.at == self.text.len()
    }

    /// The next piece: some words with the blanks in front of them; the last one with those behind it.
    pub(super) fn next_piece(&mut self) -> Option<&str> {
        if self.is_empty() {
            return None;
        }
        let start = self.at;
        let mut end = start;
        for _ in 0..self.step {
            end = word_end(&self.text, end);
        }
        if self.text[end..].trim_start().is_empty() {
            end = self.text.len();
        }
        if end - start > MAX_CHUNK_BYTES {
            end = self.text.floor_char_boundary(start + MAX_CHUNK_BYTES);
        }
        self.at = end;
        Some(&self.text[start..end])
    }
}

/// Behind the next word that begins at or after `from`.
fn word_end(text: &str, from: usize) -> usize {
    let rest = &text[from..];
    let Some(begin) = rest.find(|letter: char| !letter.is_whitespace()) else { return text.len() };
    let word = &rest[begin..];
    from + begin + word.find(char::is_whitespace).unwrap_or(word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str, most: Option<u64>) -> (Vec<String>, bool) {
        let (mut words, cut) = WordChunks::new(text.to_owned(), most);
        let mut all = Vec::new();
        while let Some(piece) = words.next_piece() {
            all.push(piece.to_owned());
        }
        (all, cut)
    }

    #[test]
    fn pieces_are_words_with_their_blanks() {
        assert_eq!(pieces(" a  b\u{a0}c\n", None), (vec![" a".to_owned(), "  b".to_owned(), "\u{a0}c\n".to_owned()], false));
        assert_eq!(pieces("", None), (Vec::new(), false));
        assert_eq!(pieces(" \n ", None), (vec![" \n ".to_owned()], false));
    }

    #[test]
    fn a_limit_cuts_behind_a_word() {
        assert_eq!(pieces("a b c", Some(2)), (vec!["a".to_owned(), " b".to_owned()], true));
        assert!(!pieces("a b c ", Some(3)).1);
        assert_eq!(pieces("a b", Some(0)), (Vec::new(), true));
    }

    #[test]
    fn long_texts_come_in_a_bounded_number_of_bounded_pieces() {
        let many = "ab ".repeat(200_000);
        let (all, _) = pieces(&many, None);
        assert_eq!((all.len(), all.concat() == many), (10_000, true));
        let one = "\u{e9}".repeat(100_000);
        let (all, _) = pieces(&one, None);
        assert_eq!((all.len(), all.concat() == one), (4, true));
    }
}
