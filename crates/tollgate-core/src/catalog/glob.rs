//! Name patterns: `*` matches any run of characters, `?` one character, any other character itself.

use super::Glob;

impl Glob {
    /// True when the name matches. Case-sensitive; at worst linear in the pattern for each character of the name.
    pub fn matches(&self, name: &str) -> bool {
        let pattern = self.0.as_bytes();
        if pattern == b"*" {
            return true;
        }
        let name = name.as_bytes();
        let (mut p, mut n) = (0, 0);
        // Where to resume on a mismatch: after the last `*`, one character further in the name.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p + 1, n));
                    p += 1;
                }
                Some(b'?') => {
                    p += 1;
                    n += char_len(name[n]);
                }
                Some(byte) if *byte == name[n] => {
                    p += 1;
                    n += 1;
                }
                Some(_) | None => {
                    let Some((after_star, from)) = star else { return false };
                    let next = from + char_len(name[from]);
                    star = Some((after_star, next));
                    (p, n) = (after_star, next);
                }
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }

    /// False when it matches only its own text.
    pub fn has_wildcards(&self) -> bool {
        self.0.contains(['*', '?'])
    }

    /// True for `*` and other patterns that match every name.
    pub fn matches_all(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte == b'*')
    }

    /// True when one of the patterns matches, or when there are none.
    pub fn any(patterns: &[Self], name: &str) -> bool {
        patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name))
    }
}

/// Length of the UTF-8 character with this first byte.
const fn char_len(first: u8) -> usize {
    match first {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xFF => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pattern: &str, name: &str) -> bool {
        Glob(pattern.to_owned()).matches(name)
    }

    #[test]
    fn wildcards_match_runs_and_single_characters() {
        assert!(check("*", ""));
        assert!(check("gpt-*", "gpt-fast"));
        assert!(check("*-fast", "gpt-fast"));
        assert!(check("g*t*t", "gpt-fast"));
        assert!(check("gpt-?", "gpt-5"));
        assert!(check("modell-?", "modell-ü"));
        assert!(check("a**b", "ab"));
        assert!(!check("gpt-?", "gpt-"));
        assert!(!check("gpt-*", "gp"));
        assert!(!check("", "a"));
        assert!(check("", ""));
    }

    #[test]
    fn matching_is_case_sensitive_and_other_characters_are_literal() {
        assert!(!check("GPT-*", "gpt-fast"));
        assert!(!check("a.c", "abc"));
        assert!(check("[ab]", "[ab]"));
    }

    #[test]
    fn empty_list_matches_everything() {
        assert!(Glob::any(&[], "x"));
        assert!(!Glob::any(&[Glob("y".to_owned())], "x"));
    }

    proptest! {
        #[test]
        fn name_matches_itself_and_any_prefix_with_a_star(name in "[a-zä-ü/.:-]{0,24}", at in 0usize..24) {
            prop_assert!(check(&name, &name));
            let cut = name.char_indices().map(|(i, _)| i).nth(at).unwrap_or(name.len());
            let starred = format!("{}*", &name[..cut]);
            let middle = format!("{}*{}", &name[..cut], &name[cut..]);
            prop_assert!(check(&starred, &name));
            prop_assert!(check(&middle, &name));
        }
    }
}
