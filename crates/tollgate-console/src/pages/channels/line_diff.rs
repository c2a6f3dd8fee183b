//! The lines that differ between two texts, with the lines around them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    Same,
    Removed,
    Added,
    /// Unchanged lines that are not shown.
    Gap,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct DiffLine {
    pub(super) kind: LineKind,
    pub(super) text: String,
}

/// Lines around a difference.
const CONTEXT: usize = 2;
/// Pairs of lines that are compared, at most. If texts differ in more, everything from the first to the last difference is shown as
/// replaced.
const MAX_PAIRS: usize = 1_000_000;

/// Empty if the texts have the same lines.
pub(super) fn line_diff(before: &str, after: &str) -> Vec<DiffLine> {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let begin = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let (rest_before, rest_after) = (&before[begin..], &after[begin..]);
    let end = rest_before.iter().rev().zip(rest_after.iter().rev()).take_while(|(one, other)| one == other).count();
    let (removed, added) = (&rest_before[..rest_before.len() - end], &rest_after[..rest_after.len() - end]);
    if removed.is_empty() && added.is_empty() {
        return Vec::new();
    }
    let same = |text: &&str| (LineKind::Same, (*text).to_owned());
    let mut lines: Vec<(LineKind, String)> = before[..begin].iter().map(same).collect();
    lines.extend(between(removed, added).into_iter().map(|(kind, text)| (kind, text.to_owned())));
    lines.extend(before[before.len() - end..].iter().map(same));
    with_gaps(lines)
}

/// The shortest edit from one list of lines to another.
fn between<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<(LineKind, &'a str)> {
    let mut found = Vec::new();
    let (mut at, mut to) = (0, 0);
    if before.len().saturating_mul(after.len()) <= MAX_PAIRS {
        // Lengths of the longest common subsequences from each pair of positions on.
        let width = after.len() + 1;
        let mut common = vec![0_u32; (before.len() + 1) * width];
        for row in (0..before.len()).rev() {
            for column in (0..after.len()).rev() {
                common[row * width + column] = if before[row] == after[column] {
                    common[(row + 1) * width + column + 1] + 1
                } else {
                    common[(row + 1) * width + column].max(common[row * width + column + 1])
                };
            }
        }
        while at < before.len() && to < after.len() {
            if before[at] == after[to] {
                found.push((LineKind::Same, before[at]));
                (at, to) = (at + 1, to + 1);
            } else if common[(at + 1) * width + to] >= common[at * width + to + 1] {
                found.push((LineKind::Removed, before[at]));
                at += 1;
            } else {
                found.push((LineKind::Added, after[to]));
                to += 1;
            }
        }
    }
    found.extend(before[at..].iter().map(|text| (LineKind::Removed, *text)));
    found.extend(after[to..].iter().map(|text| (LineKind::Added, *text)));
    found
}

/// Replaces lines that are far from a difference by a gap.
fn with_gaps(lines: Vec<(LineKind, String)>) -> Vec<DiffLine> {
    let changed: Vec<usize> =
        lines.iter().enumerate().filter(|(_, (kind, _))| *kind != LineKind::Same).map(|(index, _)| index).collect();
    let is_near = |index: usize| {
        let next = changed.partition_point(|changed| *changed < index);
        let near = |other: Option<&usize>| other.is_some_and(|other| other.abs_diff(index) <= CONTEXT);
        near(changed.get(next)) || near(next.checked_sub(1).and_then(|last| changed.get(last)))
    };
    let mut shown: Vec<DiffLine> = Vec::new();
    for (index, (kind, text)) in lines.into_iter().enumerate() {
        if is_near(index) {
            shown.push(DiffLine { kind, text });
        } else if shown.last().is_none_or(|last| last.kind != LineKind::Gap) {
            shown.push(DiffLine { kind: LineKind::Gap, text: String::new() });
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `-` and `+` before lines that are removed and added, `…` for a gap.
    fn shown(before: &str, after: &str) -> Vec<String> {
        let line = |line: DiffLine| match line.kind {
            LineKind::Same => format!(" {}", line.text),
            LineKind::Removed => format!("-{}", line.text),
            LineKind::Added => format!("+{}", line.text),
            LineKind::Gap => "…".to_owned(),
        };
        line_diff(before, after).into_iter().map(line).collect()
    }

    #[test]
    fn diff_shows_changed_lines_with_context() {
        assert!(shown("a\nb\n", "a\nb").is_empty());
        assert_eq!(shown("a\nb\nc\nd\ne\nf\ng", "a\nb\nc\nd\nX\nf\ng"), ["…", " c", " d", "-e", "+X", " f", " g"]);
        assert_eq!(shown("", "a\n"), ["+a"]);
        assert_eq!(shown("a\nb\nc", "a\nc"), [" a", "-b", " c"]);
        assert_eq!(shown("a\nb\na\nb", "a\nb\na\nx\nb"), ["…", " b", " a", "+x", " b"]);
        let long = "1\n2\n3\n4\n5\n6\n7\n8\n9";
        assert_eq!(shown(long, &format!("0\n{long}\n10")), ["+0", " 1", " 2", "…", " 8", " 9", "+10"]);
    }

    #[test]
    fn texts_too_long_to_compare_are_shown_as_replaced() {
        let text = |letter: char| (0..1_100).map(|line| format!("{letter}{}", line % 7)).collect::<Vec<_>>().join("\n");
        let lines = line_diff(&text('a'), &text('b'));
        assert_eq!(lines.len(), 2_200);
        assert!(lines[..1_100].iter().all(|line| line.kind == LineKind::Removed));
    }
}
