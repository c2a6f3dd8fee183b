//! Suggestions for misspelt names.

/// The known name nearest to a wrong one, if it is near enough for a typing error.
#[must_use]
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let allowed = (wrong.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|name| (distance(&wrong, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// `; did you mean 'x'?`, or nothing.
pub(crate) fn hint<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wrong, known).map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

/// Insertions, deletions, replacements and swaps of neighbours from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]));
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_are_matched_and_unrelated_ones_are_not() {
        let known = ["base_url", "protocol", "priority", "rpm", "tpm"];
        assert_eq!(nearest("base_ulr", known), Some("base_url"));
        assert_eq!(nearest("baseurl", known), Some("base_url"));
        assert_eq!(nearest("Protocol", known), Some("protocol"));
        assert_eq!(nearest("rmp", known), Some("rpm"));
        assert_eq!(nearest("colour", known), None);
    }
}
