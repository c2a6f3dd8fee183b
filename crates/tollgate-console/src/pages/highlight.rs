//! Colours of the lines that pages offer for copying: strings, numbers, comments, keywords and commands. One scanner serves
//! shell, Python, JavaScript and TOML, because the lines are short and written by this crate.

/// A piece of code with the class of its colour; empty for plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) class: &'static str,
}

const KEYWORD: &str = "ck";
const STRING: &str = "cs";
const NUMBER: &str = "cn";
const COMMENT: &str = "cc";

const KEYWORDS: [&str; 11] = ["curl", "export", "import", "from", "const", "await", "new", "print", "def", "for", "return"];

/// The pieces of some lines, in order; together they are the lines.
pub(crate) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found: Vec<Token<'_>> = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let (length, class) = token(code, at);
        let end = at + length;
        match found.last_mut() {
            // Join adjacent tokens of the same colour.
            Some(last) if last.class == class && class.is_empty() => last.text = &code[end - last.text.len() - length..end],
            _ => found.push(Token { text: &code[at..end], class }),
        }
        at = end;
    }
    found
}

/// Length and class of the token that begins at a byte.
fn token(code: &str, at: usize) -> (usize, &'static str) {
    let rest = &code[at..];
    let first = rest.chars().next().unwrap_or('\n');
    let begins_line = at == 0 || code[..at].ends_with('\n');
    match first {
        '#' if begins_line => (line(rest), COMMENT),
        '"' => (string(rest, '"', true), STRING),
        '\'' => (string(rest, '\'', false), STRING),
        digit if digit.is_ascii_digit() => (span(rest, |c| c.is_ascii_digit() || ".,_".contains(c)), NUMBER),
        letter if letter.is_alphabetic() || letter == '_' => {
            let length = span(rest, |c| c.is_alphanumeric() || "_-".contains(c));
            let is_keyword = KEYWORDS.contains(&&rest[..length]);
            (length, if is_keyword { KEYWORD } else { "" })
        }
        other => (other.len_utf8(), ""),
    }
}

fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

fn span(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

/// Length of a text in quotes; without a closing quote it extends to the end of the lines.
fn string(text: &str, quote: char, escapes: bool) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if is_escaped {
            is_escaped = false;
        } else if escapes && c == '\\' {
            is_escaped = true;
        } else if c == quote {
            return at + quote.len_utf8();
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highlighted_tokens_concatenate_to_the_whole_code() {
        for code in
            ["curl 'https://a/v1' \\\n  -H \"a: $B\" -d '{\"m\": 1}'", "# x\nimport os\na = \"b\\\"c\"\n\u{4f60}'", "", "\"open"]
        {
            assert_eq!(tokens(code).iter().map(|token| token.text).collect::<String>(), code);
        }
    }

    #[test]
    fn strings_numbers_comments_and_keywords_have_colours() {
        let of = |code: &'static str, class: &str| {
            tokens(code).into_iter().filter(|token| token.class == class).map(|token| token.text).collect::<Vec<_>>()
        };
        let code = "# a file\nfrom openai import OpenAI\nclient = OpenAI(key=\"a'b\", max_tokens=1024)";
        assert_eq!(of(code, COMMENT), ["# a file"]);
        assert_eq!(of(code, KEYWORD), ["from", "import"]);
        assert_eq!(of(code, STRING), ["\"a'b\""]);
        assert_eq!(of(code, NUMBER), ["1024"]);
        // In a shell a backslash before the end of a text in single quotes is part of it.
        assert_eq!(of("'a\\' 'b'", STRING), ["'a\\'", "'b'"]);
    }
}
