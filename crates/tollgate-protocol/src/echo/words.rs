//! Words as tokens: counting words, truncating after a word, and splitting a text into chunks.

/// Maximum number of chunks of a text; longer texts have several words per chunk.
const MAX_CHUNKS: u64 = 10_000;
/// Maximum length of a chunk in bytes, far below the size limit of an event even after JSON escaping.
const MAX_CHUNK_BYTES: usize = 64 * 1024;

pub(super) fn count(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

/// Splits a text into chunks of whole words, preserving whitespace.
#[derive(Clone, Debug)]
pub(super) struct WordChunks {
    text: String,
    at: usize,
    count: u64,
    /// Words per chunk.
    step: u64,
}

impl WordChunks {
    /// Chunks of the text up to `max_words`; true when the text was truncated.
    pub(super) fn new(mut text: String, max_words: Option<u64>) -> (Self, bool) {
        let all = count(&text);
        let count = max_words.map_or(all, |max| all.min(max));
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

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn whole(&self) -> &str {
        &self.text
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.text.len()
    }

    /// The next chunk: words with the whitespace before them; the last chunk includes trailing whitespace.
    pub(super) fn next_chunk(&mut self) -> Option<&str> {
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

fn word_end(text: &str, from: usize) -> usize {
    let rest = &text[from..];
    let Some(begin) = rest.find(|letter: char| !letter.is_whitespace()) else { return text.len() };
    let word = &rest[begin..];
    from + begin + word.find(char::is_whitespace).unwrap_or(word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(text: &str, max_words: Option<u64>) -> (Vec<String>, bool) {
        let (mut words, cut) = WordChunks::new(text.to_owned(), max_words);
        let mut all = Vec::new();
        while let Some(chunk) = words.next_chunk() {
            all.push(chunk.to_owned());
        }
        (all, cut)
    }

    #[test]
    fn chunks_are_words_with_preceding_whitespace() {
        assert_eq!(chunks(" a  b\u{a0}c\n", None), (vec![" a".to_owned(), "  b".to_owned(), "\u{a0}c\n".to_owned()], false));
        assert_eq!(chunks("", None), (Vec::new(), false));
        assert_eq!(chunks(" \n ", None), (vec![" \n ".to_owned()], false));
    }

    #[test]
    fn limit_truncates_after_a_word() {
        assert_eq!(chunks("a b c", Some(2)), (vec!["a".to_owned(), " b".to_owned()], true));
        assert!(!chunks("a b c ", Some(3)).1);
        assert_eq!(chunks("a b", Some(0)), (Vec::new(), true));
    }

    #[test]
    fn number_and_size_of_chunks_are_bounded() {
        let many = "ab ".repeat(200_000);
        let (all, _) = chunks(&many, None);
        assert_eq!((all.len(), all.concat() == many), (10_000, true));
        let one = "\u{e9}".repeat(100_000);
        let (all, _) = chunks(&one, None);
        assert_eq!((all.len(), all.concat() == one), (4, true));
    }
}
