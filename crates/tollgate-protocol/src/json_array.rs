//! A JSON array that arrives piecewise, cut into its elements (native `:streamGenerateContent` without `alt=sse`).
//!
//! Only brackets and strings are followed; whether an element is sound JSON is its reader's business. An element
//! that lies inside one chunk is read in place.

use bytes::Bytes;

use crate::{StreamError, sse::EVENT_LIMIT};

const NOT_AN_ARRAY: StreamError = StreamError::Malformed("not a JSON array of objects");
const TOO_LARGE: StreamError = StreamError::Malformed("an element larger than the limit");

/// Cuts a streamed array into elements, which must be objects.
#[derive(Debug)]
pub(crate) struct ArraySplitter {
    limit: usize,
    state: State,
    /// Open brackets inside the current element.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Beginning of an element that began in an earlier chunk.
    carry: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In front of `[`.
    Before,
    /// Behind `[`: an element or `]`.
    First,
    /// Inside an element.
    Element,
    /// Behind an element: `,` or `]`.
    Between,
    /// Behind `,`: an element.
    Next,
    /// Behind `]`.
    Ended,
}

impl ArraySplitter {
    /// A splitter with the usual bound for one element.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::with_limit(EVENT_LIMIT)
    }

    /// A splitter that refuses elements above `limit` bytes.
    #[must_use]
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self { limit, state: State::Before, depth: 0, in_string: false, escaped: false, carry: Vec::new() }
    }

    /// Whether the closing bracket was seen.
    #[cfg(test)]
    fn ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Takes the next chunk and hands every element that is now whole to `on`, without the comma.
    ///
    /// # Errors
    /// Something that is not an array of objects, an element above the limit, or the first error of `on`.
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
                // What stands behind the array is ignored, as behind `[DONE]`.
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

    /// Follows the current element from `at`; the offset behind it, if it ends in this chunk.
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
    fn elements_do_not_depend_on_the_cut() {
        let text = "\n[ {\"a\":\"]}\\\"\u{fc}\"} ,\r\n{\"b\":[{},{\"c\":[1]}]}\n,{}]\n rest";
        let expected = vec!["{\"a\":\"]}\\\"\u{fc}\"}".to_owned(), "{\"b\":[{},{\"c\":[1]}]}".to_owned(), "{}".to_owned()];
        for cut in 1..=text.len() {
            assert_eq!(elements(text.as_bytes(), cut), Ok((expected.clone(), true)), "cut every {cut} bytes");
        }
    }

    #[test]
    fn an_open_array_is_not_ended() {
        assert_eq!(elements(b"[{\"a\":1},{\"b\"", 3), Ok((vec!["{\"a\":1}".to_owned()], false)));
        assert_eq!(elements(b"[]", 3), Ok((Vec::new(), true)));
    }

    #[test]
    fn what_is_no_array_of_objects_is_a_fault() {
        for text in ["<html>", "[1]", "[{}{}]", "[{},]", "{}", "[\"a\"]"] {
            assert_eq!(elements(text.as_bytes(), 2), Err(NOT_AN_ARRAY), "{text}");
        }
    }

    #[test]
    fn an_element_above_the_limit_is_a_fault() {
        let long = format!("[{{\"a\":\"{}\"", "x".repeat(120));
        for cut in [1, 7, 400] {
            assert_eq!(elements(long.as_bytes(), cut), Err(TOO_LARGE));
        }
    }
}
