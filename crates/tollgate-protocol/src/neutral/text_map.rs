//! Maps between byte and character positions of a text without storing it: OpenAI annotations count characters, the other
//! protocols bytes.

/// Maximum number of runs, 4 bytes each; text beyond it is not mapped.
const RUN_LIMIT: usize = 8 * 1024;

/// Lengths of the characters of a text, run-length encoded.
#[derive(Debug, Default)]
pub(crate) struct TextMap {
    /// Runs of characters of equal length.
    runs: Vec<Run>,
    full: bool,
}

/// Adjacent characters of equal length.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Upper 29 bits: number of characters. Lower 3 bits: bytes per character.
    packed: u32,
}

impl Run {
    const MAX_COUNT: u32 = (1 << 29) - 1;

    fn new(width: u32) -> Self {
        Self { packed: (1 << 3) | width }
    }

    fn width(self) -> usize {
        (self.packed & 7) as usize
    }

    fn count(self) -> usize {
        (self.packed >> 3) as usize
    }
}

impl TextMap {
    pub(crate) fn push(&mut self, text: &str) {
        for character in text.chars() {
            if self.full {
                return;
            }
            let width = u32::try_from(character.len_utf8()).expect("a character has at most 4 bytes");
            let runs = self.runs.len();
            match self.runs.last_mut() {
                Some(run) if run.packed & 7 == width && run.packed >> 3 < Run::MAX_COUNT => run.packed += 1 << 3,
                _ if runs == RUN_LIMIT => self.full = true,
                _ => self.runs.push(Run::new(width)),
            }
        }
    }

    /// Bytes of memory that the map takes.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.count() * run.width()).sum()
    }

    /// Byte position of a character position; `None` beyond the mapped text.
    pub(crate) fn byte_at(&self, character: usize) -> Option<usize> {
        let (mut characters, mut bytes) = (0, 0);
        for run in &self.runs {
            if character <= characters + run.count() {
                return Some(bytes + (character - characters) * run.width());
            }
            characters += run.count();
            bytes += run.count() * run.width();
        }
        (character == characters).then_some(bytes)
    }

    /// Character position of a byte position, rounded down to a character; `None` beyond the mapped text.
    pub(crate) fn character_at(&self, byte: usize) -> Option<usize> {
        let (mut characters, mut bytes) = (0, 0);
        for run in &self.runs {
            let length = run.count() * run.width();
            if byte <= bytes + length {
                return Some(characters + (byte - bytes) / run.width());
            }
            characters += run.count();
            bytes += length;
        }
        (byte == bytes).then_some(characters)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_agree_with_the_text(pieces in proptest::collection::vec("[aé漢😀]{0,5}", 0..6)) {
            let mut map = TextMap::default();
            for piece in &pieces {
                map.push(piece);
            }
            let text = pieces.concat();
            let mut positions: Vec<usize> = text.char_indices().map(|(byte, _)| byte).collect();
            positions.push(text.len());
            for (character, byte) in positions.iter().enumerate() {
                prop_assert_eq!(map.byte_at(character), Some(*byte));
                prop_assert_eq!(map.character_at(*byte), Some(character));
            }
            prop_assert_eq!(map.byte_at(positions.len()), None);
            prop_assert_eq!(map.character_at(text.len() + 1), None);
        }
    }

    #[test]
    fn text_beyond_the_run_limit_is_not_mapped() {
        let mut map = TextMap::default();
        map.push(&"aé".repeat(100_000));
        assert_eq!(map.runs.len(), RUN_LIMIT);
        assert_eq!(map.byte_at(2), Some(3));
        assert_eq!(map.byte_at(150_000), None);
    }
}
