//! The results of a test of several models: the rows of their table, and the same results as fields of a form, so that they can be shown
//! again after the page that follows them.

use askama::Template;
use serde::{Deserialize, Serialize};

use super::{test_models::MAX_MODELS, test_usage::TestUsage};
use crate::{
    api_error::ApiError,
    pages::{
        failure_text,
        form::FormData,
        format,
        locale::Locale,
        money::Amount,
        problem,
        stages::{Tally, mark},
    },
};

/// Largest form with the results of a run.
pub(super) const MAX_BYTES: usize = 2 << 20;
/// Bytes of a result as a field. Encoded in a form, each can take three bytes.
const MAX_RESULT_BYTES: usize = 6 << 10;
/// Fields of a form that the results are in.
const FIELDS: [&str; 4] = ["tested", "use", "result", "untested"];

/// The test of one account, as the admin API answers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TestedObject {
    account: String,
    passed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    took_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_ms: Option<f64>,
    #[serde(flatten)]
    usage: TestUsage,
}

/// What the test of a model found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelResult {
    pub(super) model: String,
    accounts: Vec<TestedObject>,
    /// Number of accounts that do not fit into the field.
    #[serde(default, skip_serializing_if = "is_zero")]
    left_out: usize,
    /// Why no account was tested, in the reader's language.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

/// The rows of a model: one for each account.
#[derive(Debug, Template)]
#[template(path = "parts/tested_model.html")]
pub(super) struct ModelRows {
    t: Locale,
    icons: String,
    model: String,
    can_use: bool,
    /// Whether it is ticked.
    is_used: bool,
    /// The result as the value of a field.
    field: String,
    rows: Vec<AccountRow>,
}

#[derive(Debug)]
struct AccountRow {
    account: String,
    tone: &'static str,
    icon: &'static str,
    word: &'static str,
    first_byte: String,
    took: String,
    tokens: String,
    /// The part of the input that the provider's cache had or got.
    cached: Option<String>,
    cost: Amount,
    error: String,
}

/// The last row.
#[derive(Debug, Template)]
#[template(path = "parts/tested_end.html")]
pub(super) struct EndRow {
    icons: String,
    tone: &'static str,
    icon: &'static str,
    text: String,
    untested: usize,
}

impl ModelResult {
    pub(super) fn of(t: Locale, model: String, tested: Result<Vec<TestedObject>, ApiError>) -> Self {
        let (accounts, refused) = match tested {
            Ok(accounts) => (accounts, None),
            Err(error) => (Vec::new(), Some(problem::say(t, &error))),
        };
        Self { model, accounts, left_out: 0, refused }
    }

    /// A model has worked if every account passed.
    pub(super) fn has_worked(&self) -> bool {
        !self.accounts.is_empty() && self.accounts.iter().all(|account| account.passed)
    }

    /// The results in a form, at most those of one run. Results that cannot be read, or that are larger than [`Self::field`] makes
    /// them, are left out.
    pub(super) fn of_form(form: &FormData) -> Vec<Self> {
        let fields = form.all("result").filter(|field| field.len() <= MAX_RESULT_BYTES);
        fields.filter_map(|field| serde_json::from_str(field).ok()).take(MAX_MODELS).collect()
    }

    /// The result as a field. If it is too large, errors are cut, then accounts are left out, passed ones first, so that a failed
    /// model is never shown as passed.
    fn field(&self) -> String {
        let mut kept = self.clone();
        let mut most = 1_000;
        loop {
            let field = serde_json::to_string(&kept).unwrap_or_default();
            if field.len() <= MAX_RESULT_BYTES {
                return field;
            }
            if most > 0 {
                most /= 4;
                let errors = kept.accounts.iter_mut().filter_map(|account| account.error.as_mut()).chain(kept.refused.as_mut());
                errors.for_each(|error| cut(error, most));
            } else if kept.accounts.is_empty() {
                // The name of the model alone is too long.
                return String::new();
            } else {
                kept.accounts.sort_by_key(|account| account.passed);
                kept.accounts.truncate(kept.accounts.len() * 3 / 4);
                kept.left_out = self.left_out + self.accounts.len() - kept.accounts.len();
            }
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Leaves the first characters of a text.
fn cut(text: &mut String, most: usize) {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
        text.push('…');
    }
}

/// The fields of a form that the results are in, for the form of the next page.
pub(super) fn fields_of(form: &FormData) -> Vec<(String, String)> {
    let pairs = form.pairs().filter(|(name, _)| FIELDS.contains(name));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(super) fn model_rows((t, icons): (Locale, String), result: &ModelResult, can_use: bool, is_used: bool) -> ModelRows {
    let row = |passed: bool, account: String, error: String| {
        let (tone, icon) = mark(passed);
        let word = if passed { t.say("test.passed") } else { t.say("test.failed") };
        let none = || "–".to_owned();
        let (first_byte, took, tokens) = (none(), none(), none());
        AccountRow { account, tone, icon, word, first_byte, took, tokens, cached: None, cost: Amount::none(), error }
    };
    let of_account = |tested: &TestedObject| {
        let error = tested.error.as_deref().map_or_else(String::new, |error| failure_text::say(t, error));
        let row = row(tested.passed, tested.account.clone(), error);
        AccountRow {
            first_byte: tested.first_byte_ms.map_or_else(|| row.first_byte.clone(), |ms| format::milliseconds(t, ms)),
            took: format::milliseconds(t, tested.took_ms),
            tokens: tested.usage.tokens().unwrap_or_else(|| row.tokens.clone()),
            cached: tested.usage.cached(t),
            cost: tested.usage.cost(t).unwrap_or_else(Amount::none),
            ..row
        }
    };
    let mut rows: Vec<AccountRow> = match &result.refused {
        Some(why) => vec![row(false, String::new(), why.clone())],
        None => result.accounts.iter().map(of_account).collect(),
    };
    if result.left_out > 0 {
        let text = t
            .say_with("test.accounts_left_out", &[("count", &format::integer(u64::try_from(result.left_out).unwrap_or(u64::MAX)))]);
        rows.push(AccountRow { tone: "off", icon: "warn", word: "–", ..row(true, String::new(), text) });
    }
    ModelRows { t, icons, model: result.model.clone(), can_use, is_used, field: result.field(), rows }
}

pub(super) fn end_row(t: Locale, icons: String, tally: &Tally, untested: usize) -> EndRow {
    let end = tally.summary(t, icons);
    if untested == 0 {
        return EndRow { icons: end.icons, tone: end.tone, icon: end.icon, text: end.detail, untested };
    }
    let left = t.say_with("test.models_left", &[("count", &untested.to_string())]);
    EndRow {
        icons: end.icons,
        tone: "warn",
        icon: "warn",
        text: format!("{}{}{left}", end.detail, t.say("list.separator")),
        untested,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tested(account: &str, error: Option<&str>) -> TestedObject {
        TestedObject {
            account: account.to_owned(),
            passed: error.is_none(),
            error: error.map(str::to_owned),
            took_ms: 812.4,
            first_byte_ms: error.is_none().then_some(480.0),
            usage: TestUsage {
                tokens_input: error.is_none().then_some(9),
                tokens_output: error.is_none().then_some(3),
                tokens_cache_read: error.is_none().then_some(4),
                cost: error.is_none().then(|| "0.0000125".to_owned()),
                ..TestUsage::default()
            },
        }
    }

    fn rendered(can_use: bool, tested: Result<Vec<TestedObject>, ApiError>) -> (bool, String) {
        let result = ModelResult::of(Locale::EN, "m<1>".to_owned(), tested);
        let rows = model_rows((Locale::EN, "/i.svg".to_owned()), &result, can_use, result.has_worked());
        (result.has_worked(), rows.render().unwrap())
    }

    #[test]
    fn model_that_worked_is_chosen_to_be_served() {
        let (has_worked, html) = rendered(true, Ok(vec![tested("a", None)]));
        assert!(has_worked && html.contains("name=\"use\" value=\"m&#60;1&#62;\" checked"), "{html}");
        assert!(html.contains("480 ms") && html.contains("812 ms") && html.contains("9 → 3"), "{html}");
        assert!(html.contains("4 from the cache") && html.contains("$0.0000125"), "{html}");
        let (_, html) = rendered(false, Ok(vec![tested("a", None)]));
        assert!(!html.contains("<input"), "{html}");
    }

    #[test]
    fn model_works_if_every_account_passed() {
        let (has_worked, html) = rendered(true, Ok(vec![tested("a", None), tested("b", Some("status 404: no <b>such</b> model"))]));
        assert!(!has_worked && html.contains("name=\"use\"") && !html.contains(" checked"), "{html}");
        assert_eq!((html.matches("<tr").count(), html.matches("name=\"use\"").count()), (2, 1), "{html}");
        assert!(html.contains("status 404: no &#60;b&#62;such"), "{html}");
        assert!(!rendered(true, Ok(Vec::new())).0, "no account was tested");
        assert!(!rendered(true, Err(ApiError::internal())).0);
    }

    #[test]
    fn last_row_names_untested_models() {
        let tally = Tally::default();
        tally.count(true);
        tally.count(false);
        let text = |untested| end_row(Locale::EN, String::new(), &tally, untested).render().unwrap();
        assert!(text(0).contains("1 passed, 1 failed") && !text(0).contains("<input"), "{}", text(0));
        assert!(text(3).contains("3 not tested") && text(3).contains("name=\"untested\" value=\"3\""), "{}", text(3));
    }

    #[test]
    fn results_are_read_from_the_fields_that_they_were_written_to() {
        let worked = ModelResult::of(Locale::EN, "m".to_owned(), Ok(vec![tested("a", None), tested("b", Some("\"no\" <b>"))]));
        let refused = ModelResult::of(Locale::EN, "n".to_owned(), Err(ApiError::internal()));
        let pairs = [&worked, &refused].map(|result| ("result".to_owned(), result.field()));
        let form = FormData::of_pairs([&pairs[..], &[("result".to_owned(), "no JSON".to_owned())]].concat());
        assert_eq!(ModelResult::of_form(&form), [worked, refused]);
        let more = form.with("untested", "2").with("csrf", "x");
        assert_eq!(fields_of(&more).len(), 4);
    }

    #[test]
    fn result_as_a_field_is_bounded() {
        let long = "中".repeat(3_000);
        let result = |count: usize, error: &str| {
            let accounts = (0..count).map(|at| tested(&format!("account-{at}"), Some(error))).collect();
            ModelResult::of(Locale::EN, "m".to_owned(), Ok(accounts))
        };
        for count in [1, 10, 1_000] {
            let field = result(count, &long).field();
            assert!(field.len() <= MAX_RESULT_BYTES, "{count}: {}", field.len());
            let read: ModelResult = serde_json::from_str(&field).unwrap();
            assert!(!read.has_worked() && (count > 10 || read.accounts.len() == count), "{count}");
        }
        assert_eq!(result(0, "").field(), r#"{"model":"m","accounts":[]}"#);
    }

    #[test]
    fn account_that_failed_is_kept_in_a_field_that_is_too_small_for_all() {
        let mut accounts: Vec<_> = (0..1_000).map(|at| tested(&format!("account-{at}"), None)).collect();
        accounts.push(tested("last", Some("status 404")));
        let result = ModelResult::of(Locale::EN, "m".to_owned(), Ok(accounts));
        let read = ModelResult::of_form(&FormData::of_pairs(vec![("result".to_owned(), result.field())])).remove(0);
        assert!(!read.has_worked() && read.accounts[0].account == "last" && read.accounts[1].account == "account-0", "{read:?}");
        assert_eq!(read.accounts.len() + read.left_out, 1_001);
        let html = model_rows((Locale::EN, String::new()), &read, true, false).render().unwrap();
        assert!(html.contains(&format!("{} more accounts", read.left_out)), "{html}");
        assert!(read.field().len() <= MAX_RESULT_BYTES && read.field() == result.field(), "shown again and again");
    }

    #[test]
    fn results_of_a_form_are_bounded() {
        let named = |model: &str| ("result".to_owned(), ModelResult::of(Locale::EN, model.to_owned(), Ok(Vec::new())).field());
        let large = ("result".to_owned(), format!("{}{}", " ".repeat(MAX_RESULT_BYTES), named("large").1));
        let pairs = std::iter::once(large).chain((0..2 * MAX_MODELS).map(|at| named(&format!("m{at}")))).collect();
        let read = ModelResult::of_form(&FormData::of_pairs(pairs));
        assert_eq!((read.len(), &*read[0].model), (MAX_MODELS, "m0"));
    }
}
