//! Rust source without comments and literals, or without tests. Removed text is replaced by spaces, so line numbers stay.

/// Code with comments, string literals and character literals replaced by spaces.
pub(crate) fn code(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut previous = ' ';
    while !rest.is_empty() {
        let (text, behind) = rest.split_at(other_length(rest, previous).unwrap_or(0));
        out.extend(text.chars().map(|character| if character == '\n' { '\n' } else { ' ' }));
        let mut characters = behind.chars();
        if text.is_empty() {
            previous = characters.next().unwrap_or(' ');
            out.push(previous);
        } else {
            previous = ' ';
        }
        rest = characters.as_str();
    }
    out
}

/// Code without the inline test modules (`#[cfg(test)] mod tests { … }`) in it. Takes the result of [`code`].
pub(crate) fn without_tests(code: &str) -> String {
    let mut left = code.to_owned();
    let mut from = 0;
    while let Some(at) = left[from..].find("#[cfg(test)]").map(|at| from + at) {
        let item = left[at + "#[cfg(test)]".len()..].trim_start();
        let item_at = left.len() - item.len();
        from = item_at;
        if !item.starts_with("mod ") {
            continue;
        }
        let Some(open) = item.find(['{', ';']).filter(|open| item[*open..].starts_with('{')) else { continue };
        let end = item_at + open + matching_brace(&item[open..]);
        let blanked: String = left[at..end].chars().map(|character| if character == '\n' { '\n' } else { ' ' }).collect();
        left.replace_range(at..end, &blanked);
        from = at;
    }
    left
}

pub(crate) fn is_identifier(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Length of the block that begins with a brace, both braces included.
fn matching_brace(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// Length of the comment or literal that a text begins with; `None` for code.
fn other_length(text: &str, previous: char) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(text.find("*/").map_or(text.len(), |end| end + 2));
    }
    if text.starts_with('"') {
        return Some(string_length(text));
    }
    if let Some(raw) = text.strip_prefix('r').filter(|_| !is_identifier(previous) || previous == 'b') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = 1 + hashes + 1;
            return Some(text[body..].find(&end).map_or(text.len(), |at| body + at + end.len()));
        }
    }
    text.starts_with('\'').then(|| character_length(text)).flatten()
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of a character literal; `None` for a lifetime.
fn character_length(text: &str) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    let (_, first) = characters.next()?;
    if first != '\\' {
        return characters.next().filter(|(_, next)| *next == '\'').map(|(at, _)| at + 1);
    }
    characters.next()?;
    characters.find(|(_, next)| *next == '\'').map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let source = "let a = \"x // \\\" y\"; // note\nlet b: &'a str = r#\"q\"z\"#; let c = '\\''; /* d\n e */ f('\"', 'g');\n";
        let expected = ["let a =            ;", "let b: &'a str =         ; let c =     ;", "      f(   ,    );"];
        assert_eq!(code(source).lines().map(str::trim_end).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn inline_test_modules_are_removed() {
        let source = "struct A;\n#[cfg(test)]\nmod tests {\n    struct B;\n}\n#[cfg(test)]\nmod more;\nstruct C;\n";
        let left = without_tests(source);
        assert!(left.contains("struct A") && left.contains("struct C") && !left.contains("struct B"));
        assert_eq!(left.lines().count(), source.lines().count());
    }
}
