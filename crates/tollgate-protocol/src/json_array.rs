//! Splits a JSON array that arrives in chunks into its elements (Gemini `:streamGenerateContent` without `alt=sse`).
//!
//! Only brackets and strings are tracked; elements are validated by the consumer. An element within one chunk is passed on
//! without a copy.

use bytes::Bytes;

use crate::{StreamError, sse::EVENT_LIMIT};

const NOT_AN_ARRAY: StreamError = StreamError::Malformed("not a JSON array of objects");
const TOO_LARGE: StreamError = StreamError::Malformed("an element larger than the limit");

/// Splits a streamed array into elements, which must be objects.
#[derive(Debug)]
pub(crate) struct ArraySplitter {
    limit: usize,
    state: State,
    /// Open brackets inside the current element.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The part of the current element from earlier chunks.
    carry: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before `[`.
    Before,
    /// After `[`: an element or `]`.
    First,
    /// Inside an element.
    Element,
    /// After an element: `,` or `]`.
    Between,
    /// After `,`: an element.
    Next,
    /// After `]`.
    Ended,
}

impl ArraySplitter {
    /// A splitter with the default limit of one element.
    pub(crate) fn new() -> Self {
        Self::with_limit(EVENT_LIMIT)
    }

    /// A splitter that refuses elements above `limit` bytes.
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self { limit, state: State::Before, depth: 0, in_string: false, escaped: false, carry: Vec::new() }
    }

    /// Bytes of memory kept between two pushes.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.carry.capacity()
    }

    /// Whether an element has begun and not ended.
    pub(crate) fn in_element(&self) -> bool {
        self.state == State::Element
    }

    /// Whether the closing bracket was seen.
    #[cfg(test)]
    fn ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Reads a chunk and calls `on` for every element that is now complete, without the comma.
    pub(crate) fn push<E: From<StreamError>>(
        &mut self,
        chunk: &Bytes,
        mut on: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut start = 0;
        let mut at = 0;
        while at < chunk.len() {
            if self.state == State::Element {
                let Some(end) = self.element_end(chunk, at) else { break };
                if self.carry.len() + end - start > self.limit {
                    return Err(TOO_LARGE.into());
                }
                self.state = State::Between;
                if self.carry.is_empty() {
                    on(&chunk[start..end])?;
                } else {
                    let mut element = std::mem::take(&mut self.carry);
                    element.extend_from_slice(&chunk[start..end]);
                    on(&element)?;
                }
                at = end;
                continue;
            }
            let byte = chunk[at];
            self.state = match (self.state, byte) {
                (state, b' ' | b'\t' | b'\n' | b'\r') => state,
                (State::Before, b'[') => State::First,
                (State::First | State::Next, b'{') => {
                    start = at;
                    self.depth = 0;
                    State::Element
                }
                (State::Between, b',') => State::Next,
                (State::First | State::Between, b']') => State::Ended,
                // Bytes after the array are ignored, as after `[DONE]`.
                (State::Ended, _) => return Ok(()),
                _ => return Err(NOT_AN_ARRAY.into()),
            };
            if self.state != State::Element {
                at += 1;
            }
        }
        if self.state == State::Element {
            if self.carry.len() + chunk.len() - start > self.limit {
                return Err(TOO_LARGE.into());
            }
            self.carry.extend_from_slice(&chunk[start..]);
        }
        Ok(())
    }

    /// Offset of the end of the current element, if it ends in this chunk.
    fn element_end(&mut self, chunk: &[u8], at: usize) -> Option<usize> {
        for (offset, byte) in chunk[at..].iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + offset + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &[u8], cut: usize) -> Result<(Vec<String>, bool), StreamError> {
        let mut splitter = ArraySplitter::with_limit(100);
        let mut found = Vec::new();
        for piece in text.chunks(cut) {
            splitter.push(&Bytes::copy_from_slice(piece), |element| {
                found.push(String::from_utf8(element.to_vec()).unwrap());
                Ok::<(), StreamError>(())
            })?;
        }
        Ok((found, splitter.ended()))
    }

    #[test]
    fn elements_do_not_depend_on_chunk_boundaries() {
        let text = "\n[ {\"a\":\"]}\\\"\u{fc}\"} ,\r\n{\"b\":[{},{\"c\":[1]}]}\n,{}]\n rest";
        let expected = vec!["{\"a\":\"]}\\\"\u{fc}\"}".to_owned(), "{\"b\":[{},{\"c\":[1]}]}".to_owned(), "{}".to_owned()];
        for cut in 1..=text.len() {
            assert_eq!(elements(text.as_bytes(), cut), Ok((expected.clone(), true)), "cut every {cut} bytes");
        }
    }

    #[test]
    fn unclosed_array_is_not_ended() {
        assert_eq!(elements(b"[{\"a\":1},{\"b\"", 3), Ok((vec!["{\"a\":1}".to_owned()], false)));
        assert_eq!(elements(b"[]", 3), Ok((Vec::new(), true)));
    }

    #[test]
    fn anything_but_an_array_of_objects_is_an_error() {
        for text in ["<html>", "[1]", "[{}{}]", "[{},]", "{}", "[\"a\"]"] {
            assert_eq!(elements(text.as_bytes(), 2), Err(NOT_AN_ARRAY), "{text}");
        }
    }

    #[test]
    fn element_above_the_limit_is_an_error() {
        let long = format!("[{{\"a\":\"{}\"", "x".repeat(120));
        for cut in [1, 7, 400] {
            assert_eq!(elements(long.as_bytes(), cut), Err(TOO_LARGE));
        }
    }
}
