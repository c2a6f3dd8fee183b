//! Rules about words: one term per thing, as `CONTRIBUTING.md` asks, and nothing unfinished or of one machine.

use super::{
    rust_text::code,
    source_tree::{SourceFile, SourceTree},
};

/// Names that no type may have, with the term to use.
const TYPES: &[(&str, &str)] = &[
    ("AccountRoom", "CapacityLimiter"),
    ("Answer", "a name that says whose answer"),
    ("Asked", "RouteContext"),
    ("AtRest", "StoppedGateway"),
    ("Beat", "ConnectionTimers"),
    ("Census", "ConnectionLimiter"),
    ("Chosen", "Selection"),
    ("Complaint", "UpstreamError"),
    ("Desk", "UsageRecorder"),
    ("Elsewhere", "FallbackService"),
    ("Glance", "HealthSnapshot"),
    ("Hand", "Handoff or WriterGuard"),
    ("Handover", "AnswerPipeline"),
    ("HealthBoard", "HealthRegistry"),
    ("Heard", "Version"),
    ("Here", "LocalAdmin"),
    ("Hold", "Reservation"),
    ("Journey", "RetryState"),
    ("KeyDoor", "Authenticator"),
    ("Lane", "ChannelIndex or Shard"),
    ("Lessons", "LearnedParameters"),
    ("Line", "a type named for what the line holds"),
    ("News", "ChangeSignal"),
    ("Nowhere", "NotFound"),
    ("Outline", "RequestSummary"),
    ("Outside", "UpstreamDispatch"),
    ("Pace", "LatencyEstimate"),
    ("Past", "AttemptHistory"),
    ("Patience", "WaitBudget"),
    ("Pen", "SegmentWriter"),
    ("Place", "Position, or a type named for what is found there"),
    ("Road", "AttemptContext"),
    ("Room", "a type named for what it counts"),
    ("Say", "Output"),
    ("Seat", "AccountEntry"),
    ("Seen", "ReceivedCall"),
    ("Sieve", "CandidateFilter"),
    ("Slot", "a type named for what fills it"),
    ("Specimen", "MinimalRequest"),
    ("Survey", "SummaryBuilder"),
    ("Terms", "Admission"),
    ("There", "Existing"),
    ("Ticket", "UsageGuard"),
    ("Till", "UsageWriter"),
    ("Turns", "FairSemaphore"),
    ("Unwelcome", "AuthError"),
    ("Usable", "a type named for what is usable"),
    ("Visit", "FallbackRequest"),
    ("Watched", "a type named for what is watched"),
];

/// Words and phrases that must not occur, with their replacements. `_` in a name counts as a space.
const WORDS: &[(&str, &str)] = &[
    ("anew", "again"),
    ("census", "connection limiter"),
    ("complaint", "upstream error"),
    ("complaints", "upstream errors"),
    ("desk", "usage recorder"),
    ("error reference", "docs/errors.md, or the fact itself"),
    ("from afar", "over the API"),
    ("gave back", "released or settled"),
    ("gave it back", "released or settled"),
    ("give back", "release or settle"),
    ("given back", "released or settled"),
    ("gives back", "releases or settles"),
    ("giving back", "releasing or settling"),
    ("heard of", "received or known"),
    ("his", "its or their"),
    ("journey", "attempt"),
    ("lets go", "releases"),
    ("let go of", "released"),
    ("mend", "repair"),
    ("mended", "repaired"),
    ("mending", "repairing"),
    ("mends", "repairs"),
    ("nobody", "no caller, no account, nothing: name it"),
    ("patience", "wait budget or time limit"),
    ("seat", "account entry"),
    ("seats", "account entries"),
    ("set aside", "reserve"),
    ("sets aside", "reserves"),
    ("setting aside", "reserving"),
    ("shelf", "cache or store"),
    ("sieve", "filter"),
    ("somebody", "a caller, an operator, another process: name it"),
    ("specimen", "minimal request"),
    ("stands twice", "occurs twice"),
    ("stranger", "unauthenticated caller"),
    ("strangers", "unauthenticated callers"),
    ("the door", "authentication"),
    ("ticket", "usage guard"),
    ("tickets", "usage guards"),
    ("till", "until, or usage writer"),
    ("unwelcome", "refused or unauthenticated"),
    ("vault", "data keys"),
    ("whoever", "the caller, the account, …: name it"),
    ("whom", "which account, key, …: name it"),
    ("whomever", "the caller, the account, …: name it"),
    ("wire reference", "the vendor's page by name, or the fact itself"),
];

/// Wire names that keep such a word: the metric `tollgate_till_records_total`.
const KEPT: &str = "till records";

/// The file that may contain these words: this list.
const EXEMPT: &str = "xtask/src/tidy/words.rs";

/// Terms that the glossary replaced, in every file of the tree: code, comments, settings and documentation.
pub(crate) fn retired_terms(tree: &SourceTree) -> Vec<String> {
    let checked = tree.files.iter().filter(|file| file.path != EXEMPT);
    checked.flat_map(|file| types_in(file).into_iter().chain(words_in(file))).collect()
}

/// Retired type names: in code, and in text where they are set as code.
fn types_in(file: &SourceFile) -> Vec<String> {
    let code = if file.has_extension("rs") { code(&file.text) } else { String::new() };
    let mut code_lines = code.lines();
    let mut violations = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let in_code = code_lines.next().unwrap_or_default();
        for (name, instead) in TYPES {
            let quoted = format!("`{name}`");
            if line.contains(&quoted) || names_type(in_code, name) {
                violations.push(format!("{}:{}: `{name}` is a retired name: say {instead}", file.path, number + 1));
            }
        }
    }
    violations
}

/// True when a line of code names this type rather than a variant or a member of that name.
fn names_type(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let word = !before.ends_with(|character: char| character.is_alphanumeric() || character == '_')
            && !after.starts_with(|character: char| character.is_alphanumeric() || character == '_');
        let declared = ["struct ", "enum ", "trait ", "type ", "union ", "impl ", "for "].iter().any(|kind| before.ends_with(kind));
        word && declared
    })
}

fn words_in(file: &SourceFile) -> Vec<String> {
    let (text, lines) = normalised(&file.text);
    let mut violations = Vec::new();
    for (word, instead) in WORDS {
        let sought = format!(" {word} ");
        // Each match ends with the space that the next one may begin with, so overlapping matches must be found too.
        let mut from = 0;
        while let Some(at) = text[from..].find(&sought).map(|at| from + at) {
            from = at + sought.len() - 1;
            if !text[at + 1..].starts_with(KEPT) {
                let line = lines[at + 1];
                violations.push((line, format!("{}:{line}: `{word}` is a retired term: say {instead}", file.path)));
            }
        }
    }
    violations.sort();
    violations.into_iter().map(|(_, violation)| violation).collect()
}

/// The words of a text in lower case with one space around each, and the line number of each byte. Camel case counts as one
/// word, `snake_case` as several; a line break and its comment mark count as a space, punctuation as a word of its own.
fn normalised(text: &str) -> (String, Vec<usize>) {
    let mut words = String::from(" ");
    let mut lines = vec![1];
    for (number, line) in text.lines().enumerate() {
        for part in line.split_inclusive(|character: char| !character.is_alphanumeric()) {
            let word = part.trim_end_matches(|character: char| !character.is_alphanumeric());
            let separator = &part[word.len()..];
            let mark = if [".", ",", ";", ":", "(", ")"].contains(&separator) { "." } else { "" };
            for piece in [word.to_lowercase().as_str(), mark].into_iter().filter(|piece| !piece.is_empty()) {
                words.push_str(piece);
                words.push(' ');
            }
            lines.resize(words.len(), number + 1);
        }
    }
    (words, lines)
}

/// Words that must not occur in the product: marks of unfinished work, and home folders of one machine.
pub(crate) fn unfinished(tree: &SourceTree) -> Vec<String> {
    let marks = [["to", "do!("].concat(), ["FIX", "ME"].concat()];
    let homes = ["root", "home"].map(|folder| format!("/{folder}/"));
    let mut violations = Vec::new();
    for file in &tree.files {
        for (number, line) in file.text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                violations.push(format!("{}:{}: unfinished work", file.path, number + 1));
            }
            if homes.iter().any(|home| line.contains(home)) {
                violations.push(format!("{}:{}: a path of one machine", file.path, number + 1));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        retired_terms(&SourceTree::of(&[(path, text)]))
    }

    #[test]
    fn retired_types_are_found_where_they_are_declared() {
        let place = "a.rs:1: `Ticket` is a retired name: say UsageGuard";
        assert_eq!(found("a.rs", "pub struct Ticket;\n"), [place, "a.rs:1: `ticket` is a retired term: say usage guard"]);
        assert_eq!(found("a.rs", "impl Drop for Terms {}\n").len(), 1);
        assert_eq!(found("a.rs", "// See [`Terms`].\n").len(), 1);
        assert_eq!(found("a.md", "The `Past` of a request.\n").len(), 1);
    }

    #[test]
    fn ordinary_words_and_longer_names_are_not_reported() {
        for text in [
            "// Elsewhere, in terms of the past.\n",
            "enum Site { Here, Outside }\nstruct TermsOfUse;\n",
            "fn history() -> bool { this.until(tillage) }\n",
            "/// Hand the value to the room's owner at rest; a set, aside from that.\n",
        ] {
            assert_eq!(found("a.rs", text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn retired_terms_are_found_in_names_text_and_across_lines() {
        assert_eq!(found("a.rs", "fn give_back() {}\n"), ["a.rs:1: `give back` is a retired term: say release or settle"]);
        assert_eq!(found("a.rs", "/// What is set\n/// aside for it.\n"), ["a.rs:1: `set aside` is a retired term: say reserve"]);
        assert_eq!(found("a.md", "Whoever opens his file till then, at the door.\n").len(), 4);
        assert_eq!(found("a.md", "`tollgate_till_records_total`\n"), Vec::<String>::new());
        assert_eq!(found("a.rs", "f(\"nobody, nobody\")\n").len(), 2);
        for path in ["CHANGELOG.md", "a.py", "a.sql", "a.lua", "a.toml", "a.yaml", "a.mjs"] {
            assert_eq!(found(path, "the till\n").len(), 1, "{path}");
        }
    }

    #[test]
    fn unfinished_work_and_home_folders_are_found() {
        let text = format!("{}\n{}x\nfine\n", ["FIX", "ME"].concat(), ["/", "home/"].concat());
        let tree = SourceTree::of(&[("a.toml", &text)]);
        assert_eq!(unfinished(&tree), ["a.toml:1: unfinished work", "a.toml:2: a path of one machine"]);
    }
}
