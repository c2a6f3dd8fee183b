//! Faults of catalog files in the reader's language. The admin API returns them as English sentences that contain names and
//! numbers, and that can be nested. Each of these sentences is in the catalogues of all languages; a fault is recognised by the
//! English one.

use tollgate_store::catalog_file::FileError;

use super::locale::{Language, Locale, fill};

/// Maximum number of faults that are shown.
const MAX_FAULTS: usize = 20;
/// Placeholders whose values are sentences themselves.
const SENTENCES: [&str; 5] = ["problem", "expected", "found", "kind", "other"];

/// The sentences in the order in which they are tried: a specific one comes before a general one that matches its
/// texts, too.
fn sentences(t: Locale) -> impl Iterator<Item = &'static str> {
    about_rows(t).into_iter().chain(about_values(t)).chain(words(t))
}

/// Texts for faults of a row or of a field.
fn about_rows(t: Locale) -> [&'static str; 19] {
    [
        t.say("file_fault.unknown_field_near"),
        t.say("file_fault.renamed_usd"),
        t.say("file_fault.renamed_field"),
        t.say("file_fault.unknown_field"),
        t.say("file_fault.twice"),
        t.say("file_fault.new_account"),
        t.say("file_fault.new_key"),
        t.say("file_fault.unknown_row_near"),
        t.say("file_fault.unknown_row"),
        t.say("file_fault.of_file"),
        t.say("file_fault.missing_channel"),
        t.say("file_fault.other_name"),
        t.say("file_fault.other_rows"),
        t.say("file_fault.kept_proxy"),
        t.say("file_fault.kept_header"),
        t.say("file_fault.needs"),
        t.say("file_fault.needs_vowel"),
        t.say("file_fault.fixed"),
        t.say("file_fault.of_field"),
    ]
}

/// Texts for faults of a value.
fn about_values(t: Locale) -> [&'static str; 52] {
    [
        t.say("file_fault.type"),
        t.say("file_fault.empty_list"),
        t.say("file_fault.too_many"),
        t.say("file_fault.long_header"),
        t.say("file_fault.long"),
        t.say("file_fault.long_bytes"),
        t.say("file_fault.empty"),
        t.say("file_fault.control"),
        t.say("file_fault.white_space"),
        t.say("file_fault.invisible"),
        t.say("file_fault.like_id"),
        t.say("file_fault.word_near"),
        t.say("file_fault.word"),
        t.say("file_fault.text_at_most"),
        t.say("file_fault.text_between"),
        t.say("file_fault.whole_any"),
        t.say("file_fault.whole_least"),
        t.say("file_fault.whole_or_zero"),
        t.say("file_fault.whole_between"),
        t.say("file_fault.amount_above"),
        t.say("file_fault.amount_between"),
        t.say("file_fault.factor"),
        t.say("file_fault.number_between"),
        t.say("file_fault.names_at_most"),
        t.say("file_fault.decimal"),
        t.say("file_fault.time"),
        t.say("file_fault.network"),
        t.say("file_fault.url_needed"),
        t.say("file_fault.url_echo"),
        t.say("file_fault.url"),
        t.say("file_fault.url_scheme"),
        t.say("file_fault.url_host"),
        t.say("file_fault.url_port"),
        t.say("file_fault.url_user"),
        t.say("file_fault.url_query"),
        t.say("file_fault.url_dots"),
        t.say("file_fault.header_twice"),
        t.say("file_fault.header_name"),
        t.say("file_fault.header_own"),
        t.say("file_fault.header_value"),
        t.say("file_fault.model_dots"),
        t.say("file_fault.model_as_upstream"),
        t.say("file_fault.model_twice"),
        t.say("file_fault.tiers"),
        t.say("file_fault.valid_from"),
        t.say("file_fault.budgets"),
        t.say("file_fault.free"),
        t.say("file_fault.no_figure"),
        t.say("file_fault.credential"),
        t.say("file_fault.secret_empty"),
        t.say("file_fault.secret_variable"),
        t.say("file_fault.secret_file"),
    ]
}

/// Kinds of rows and of values.
fn words(t: Locale) -> [&'static str; 18] {
    [
        t.say("file_fault.served_model"),
        t.say("file_fault.channel"),
        t.say("file_fault.account"),
        t.say("file_fault.model"),
        t.say("file_fault.group"),
        t.say("file_fault.member"),
        t.say("file_fault.key"),
        t.say("file_fault.a_string"),
        t.say("file_fault.a_time"),
        t.say("file_fault.a_flag"),
        t.say("file_fault.a_flag_or_tools"),
        t.say("file_fault.whole"),
        t.say("file_fault.decimal_or_number"),
        t.say("file_fault.number"),
        t.say("file_fault.list"),
        t.say("file_fault.table_or_list"),
        t.say("file_fault.table_of_strings"),
        t.say("file_fault.table"),
    ]
}

/// All faults as one text.
pub(super) fn say(t: Locale, faults: &[FileError]) -> String {
    let sentences = faults.iter().take(MAX_FAULTS).map(|fault| {
        let (line, column) = (fault.line.to_string(), fault.column.to_string());
        let text = translated(t, &fault.message).unwrap_or_else(|| t.say_with("file_fault.other", &[("fault", &fault.message)]));
        t.say_with("file_fault.at", &[("line", &line), ("column", &column), ("fault", &text)])
    });
    let sentences = sentences.collect::<Vec<_>>().join(t.say("file_fault.separator"));
    match faults.len().saturating_sub(MAX_FAULTS) {
        0 => sentences,
        more => t.say_with("file_fault.more", &[("faults", &sentences), ("count", &more.to_string())]),
    }
}

/// An English sentence in another language; `None` if it is not in the catalogues.
pub(super) fn translated(t: Locale, text: &str) -> Option<String> {
    let mut both = sentences(Locale { language: Language::En, ..t }).zip(sentences(t));
    let (values, own) = both.find_map(|(english, own)| Some((values(english, text)?, own)))?;
    let values: Vec<(&str, String)> = values
        .into_iter()
        .map(|(name, value)| {
            let inner = if SENTENCES.contains(&name) { translated(t, value) } else { None };
            (name, inner.unwrap_or_else(|| value.to_owned()))
        })
        .collect();
    let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Some(fill(own, &values))
}

/// The values of the placeholders of a sentence, if the text is this sentence. A value ends where the text after its placeholder begins.
fn values<'a>(sentence: &'a str, text: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let (begin, mut rest) = sentence.split_once('{').unwrap_or((sentence, ""));
    let mut text = text.strip_prefix(begin)?;
    let mut values = Vec::new();
    while let Some((name, after)) = rest.split_once('}') {
        let (literal, next) = after.split_once('{').unwrap_or((after, ""));
        let end = if next.is_empty() { text.strip_suffix(literal)?.len() } else { text.find(literal)? };
        let (value, behind) = text.split_at(end);
        if value.is_empty() {
            return None;
        }
        values.push((name, value));
        text = &behind[literal.len()..];
        rest = next;
    }
    text.is_empty().then_some(values)
}

#[cfg(test)]
mod tests {
    use std::io;

    use tollgate_store::catalog_file::parse;

    use super::*;

    /// Two words of English prose side by side.
    fn has_english(text: &str) -> bool {
        let words: Vec<&str> = text.split(' ').collect();
        let is_word = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase());
        words.windows(2).any(|pair| is_word(pair[0]) && is_word(pair[1]))
    }

    #[test]
    fn channel_file_errors_are_translated() {
        let begin = "[[channel]]\nname = \"a\"\n";
        for rest in [
            "weigth = 3",
            "colour = 3",
            "budgets = []",
            "weight = 0",
            "weight = \"x\"",
            "probe_interval_s = 3",
            "priority = 99999999999",
            "provider = \"opnai\"",
            "provider = \"mine\"",
            "base_url = \"\"",
            "base_url = \"x\"",
            "base_url = \"ftp://x\"",
            "base_url = \"https://x:0/\"",
            "base_url = \"https://me:p@x/\"",
            "base_url = \"https://x/?a\"",
            "base_url = \"https://x/../y\"",
            "headers = { host = \"x\" }",
            "headers = { \"a b\" = \"x\" }",
            "headers = { a = \"x\", A = \"y\" }",
            "headers = 1",
            "proxy = \"x://y\"",
            "cooling = \"yes\"",
            "budget = [{ amount = \"0\", window = \"day\" }]",
            "budget = [{ amount = \"1\", window = \"day\" }, { amount = \"2\", window = \"day\" }]",
            "budget = { amount = \"much\", window = \"day\" }",
            "budget = { window = \"day\" }",
            "[[channel.account]]\ncredential = \"x\"",
            "[[channel.account]]\nname = \"a\"\ncredential = \"\u{2013}x\"",
            "[[channel.account]]\nname = \"a\"\ncredential = \"env:NONE\"\nrpm = -1",
            "[[channel.account]]\nname = \" a\"\ncredential = \"x\"",
            "[[channel.account]]\nname = \"a\"\ncost_multiplier = \"x\"",
            "[[channel.account]]\nname = \"a\"\n[[channel.account]]\nname = \"a\"",
            "[[channel.serves]]\nmodel = \"a/../b\"",
            "[[channel.serves]]\nmodel = \"a\"\ncost = {}",
            "[[channel.serves]]\nmodel = \"a\"\ncost = { free = true, input = \"1\" }",
            "[[channel.serves]]\nmodel = \"a\"\ncost = { input = \"x\" }",
            "[[channel.serves]]\nmodel = \"a\"\ncost = [{ input = \"1\" }, { input = \"2\" }]",
            "[[channel.serves]]\nmodel = \"a\"\n[[channel.serves]]\nmodel = \"a\"",
            "account = 1",
            "serves = [1]",
        ] {
            let unreadable = parse(&format!("{begin}{rest}\n"), &|_| None, &|_| Err(io::Error::other("none"))).unwrap_err();
            for FileError { message, .. } in unreadable.faults.iter().filter(|fault| !fault.message.contains("variable")) {
                let own = translated(Locale::ZH_CN, message).unwrap_or_else(|| panic!("{rest}: {message}"));
                assert!(!has_english(&own), "{rest}: {message}: {own}");
                assert_eq!(translated(Locale::EN, message).as_ref(), Some(message), "{rest}");
            }
        }
    }

    #[test]
    fn errors_outside_the_catalog_table_are_translated() {
        for message in [
            "the channel 'a' is missing",
            "the channel is 'a'; a channel keeps its name",
            "only the channel 'a' with its accounts is changed here",
            "account 'a/b' is new and needs its credential",
            "headers: '***' means the stored value, and none is stored for 'x'; give the value itself",
            "credential in [[channel.account]]: a variable of the gateway's machine cannot be named here; send the secret itself",
            "credential in [[channel.account]]: cannot read /etc/x: a file of the gateway's machine cannot be named here; send the secret itself",
            "group 'g' refers to unknown channel 'an'; did you mean 'a'?",
        ] {
            let own = translated(Locale::ZH_CN, message).unwrap_or_else(|| panic!("{message}"));
            assert!(!has_english(&own), "{message}: {own}");
            assert_eq!(translated(Locale::EN, message).as_deref(), Some(message));
        }
    }

    #[test]
    fn error_position_and_number_of_further_errors_are_shown() {
        let fault =
            FileError { line: 3, column: 7, message: "[[channel]] has no field 'weigth'; did you mean 'weight'?".to_owned() };
        assert_eq!(say(Locale::EN, std::slice::from_ref(&fault)), format!("line 3, column 7: {}", fault.message));
        let own = say(Locale::ZH_CN, &vec![fault; 22]);
        assert!(own.starts_with("\u{7b2c} 3 \u{884c}\u{7b2c} 7 \u{5217}\u{ff1a}[[channel]] ") && own.contains(" 2 "), "{own}");
        let syntax = FileError { line: 1, column: 1, message: "unclosed table".to_owned() };
        assert!(say(Locale::ZH_CN, &[syntax]).ends_with("unclosed table"));
    }

    #[test]
    fn template_values_are_matched_between_the_literal_parts() {
        assert_eq!(values("{a} in {b}: {c}", "x in y: z: w"), Some(vec![("a", "x"), ("b", "y"), ("c", "z: w")]));
        assert_eq!(values("{a}'?", "x'?"), Some(vec![("a", "x")]));
        assert_eq!(values("a number", "a number of"), None);
        assert_eq!(values("{a} b", " b"), None);
        assert_eq!(values("'{a}' x", "'q' y"), None);
    }
}
