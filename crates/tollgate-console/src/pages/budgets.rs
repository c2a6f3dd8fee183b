//! Budgets in forms: an amount for each period and each action once it is spent. No two budgets of a row have the same
//! period and action, so these fields hold all budgets that a row can have.

use serde_json::{Value, json};

use super::{
    control::{Control, ControlKind, decimal},
    form::{FormData, FormState},
    format,
    locale::Locale,
};
use crate::api_error::ApiError;

const WINDOWS: [&str; 3] = ["month", "day", "total"];
const ACTIONS: [&str; 2] = ["block", "alert"];
/// The field of each budget, in the order in which they are sent: period by period.
pub(crate) const FIELDS: [&str; 6] = [
    "budget_month_block",
    "budget_month_alert",
    "budget_day_block",
    "budget_day_alert",
    "budget_total_block",
    "budget_total_alert",
];
/// Longest amount, in characters.
const MAX_AMOUNT: usize = 30;

/// The fields as a control shows them: periods below each other, actions beside each other.
#[derive(Clone, Debug)]
pub(crate) struct AmountTable {
    /// Word and label.
    pub(crate) columns: Vec<(&'static str, &'static str)>,
    pub(crate) rows: Vec<AmountRow>,
}

#[derive(Clone, Debug)]
pub(crate) struct AmountRow {
    pub(crate) window: &'static str,
    pub(crate) label: &'static str,
    pub(crate) cells: Vec<AmountCell>,
}

#[derive(Clone, Debug)]
pub(crate) struct AmountCell {
    pub(crate) name: &'static str,
    pub(crate) action: &'static str,
    pub(crate) value: String,
    pub(crate) fault: Option<String>,
}

impl AmountTable {
    pub(crate) fn has_fault(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.cells).any(|cell| cell.fault.is_some())
    }
}

/// Each field with its period and action.
fn fields() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let words = WINDOWS.into_iter().flat_map(|window| ACTIONS.into_iter().map(move |action| (window, action)));
    FIELDS.into_iter().zip(words).map(|(field, (window, action))| (field, window, action))
}

/// A period as budgets have it.
pub(crate) fn window(t: Locale, word: &str) -> &'static str {
    match word {
        "day" => t.say("window.day"),
        "month" => t.say("window.month"),
        _ => t.say("window.total"),
    }
}

/// What happens once a budget is spent.
pub(crate) fn action(t: Locale, word: &str) -> &'static str {
    if word == "block" { t.say("budget.block") } else { t.say("budget.alert") }
}

/// The budgets of a row, one on a line.
pub(crate) fn lines(t: Locale, budget: &Value) -> Vec<String> {
    let line = |budget: &Value| {
        let (amount, window) = (budget["amount"].as_str()?, window(t, budget["window"].as_str()?));
        let values = [("amount", format::usd(amount)), ("window", window.to_owned())];
        let values = values.each_ref().map(|(name, value)| (*name, value.as_str()));
        let is_alert = budget["action"] == "alert";
        Some(if is_alert { t.say_with("groups.alert_is", &values) } else { t.say_with("groups.budget_is", &values) })
    };
    budget.as_array().map_or(std::slice::from_ref(budget), Vec::as_slice).iter().filter_map(line).collect()
}

/// Limits of a row, one on a line; 0 means no limit.
pub(crate) fn limit_lines(t: Locale, (rpm, tpm, concurrency): (u64, u64, u64)) -> Vec<String> {
    let line = |limit: u64, say: fn(Locale, &str) -> String| (limit > 0).then(|| say(t, &format::integer(limit)));
    let lines = [
        line(rpm, |t, limit| t.say_with("keys.rpm_is", &[("limit", limit)])),
        line(tpm, |t, limit| t.say_with("keys.tpm_is", &[("limit", limit)])),
        line(concurrency, |t, limit| t.say_with("keys.concurrency_is", &[("limit", limit)])),
    ];
    lines.into_iter().flatten().collect()
}

/// All budgets of a row.
pub(crate) fn control(t: Locale, state: &FormState) -> Control {
    let cell = |(name, _, action)| AmountCell {
        name,
        action,
        value: state.value(name).to_owned(),
        fault: state.fault(name).map(str::to_owned),
    };
    let row = |window: &'static str| AmountRow {
        window,
        label: self::window(t, window),
        cells: fields().filter(|(_, of, _)| *of == window).map(cell).collect(),
    };
    let table = AmountTable { columns: ACTIONS.map(|word| (word, action(t, word))).to_vec(), rows: WINDOWS.map(row).to_vec() };
    Control { kind: ControlKind::Amounts(table), max: MAX_AMOUNT, ..state.text("budgets", t.say("budgets.title")) }
        .hint(t.say("budgets.hint"))
}

/// The values of the fields for the budgets of a row: one, a list of them, or null.
pub(crate) fn values(budget: &Value) -> Vec<(&'static str, String)> {
    let budgets = budget.as_array().map_or(std::slice::from_ref(budget), Vec::as_slice);
    let value = |(field, window, action): (&'static str, &str, &str)| {
        let of_field = |budget: &&Value| budget["window"] == window && budget["action"].as_str().unwrap_or("block") == action;
        let amount = budgets.iter().find(of_field).and_then(|budget| budget["amount"].as_str());
        (field, amount.unwrap_or_default().to_owned())
    };
    fields().map(value).collect()
}

/// The filled fields: field, period, action and amount.
fn filled(form: &FormData) -> impl Iterator<Item = (&'static str, &'static str, &'static str, &str)> {
    fields().filter_map(|(field, window, action)| Some((field, window, action, form.filled(field)?)))
}

/// The budgets as the admin API shows and takes them; `None` if the form has no fields for them.
pub(crate) fn body(form: &FormData) -> Option<Value> {
    FIELDS.iter().any(|field| form.has(field)).then(|| filled_body(form).unwrap_or_default())
}

/// As [`body`]; `None` if no budget is entered.
pub(crate) fn filled_body(form: &FormData) -> Option<Value> {
    let budgets =
        filled(form).map(|(_, window, action, amount)| json!({"amount": decimal(amount), "window": window, "action": action}));
    let budgets: Vec<Value> = budgets.collect();
    match budgets.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        _ => Some(budgets.into()),
    }
}

/// A fault that the admin API reports for a budget, as a fault of the field that the budget comes from.
pub(crate) fn placed(form: &FormData, error: ApiError) -> ApiError {
    let Some(path) = error.param().and_then(|param| param.strip_prefix("budget")) else { return error };
    if !path.is_empty() && !path.starts_with(['.', '[']) {
        return error;
    }
    let number = path.strip_prefix('[').and_then(|rest| rest.split(']').next()?.parse().ok()).unwrap_or(0);
    let field = filled(form).nth(number).map_or(FIELDS[0], |(field, ..)| field);
    error.about(field).because("amount")
}

#[cfg(test)]
mod tests {
    use askama::Template;

    use super::*;

    #[test]
    fn every_budget_of_a_row_has_a_field_and_is_parsed_back_unchanged() {
        let budget = |amount: &str, window: &str, action: &str| json!({"amount": amount, "window": window, "action": action});
        let of_form = |budget: &Value| body(&FormData::of_pairs(owned(values(budget)))).unwrap();
        let all = json!([
            budget("1.00", "month", "block"),
            budget("2.00", "month", "alert"),
            budget("3.00", "day", "block"),
            budget("4.00", "day", "alert"),
            budget("5.00", "total", "block"),
            budget("6.00", "total", "alert"),
        ]);
        for budgets in [all, budget("5.00", "day", "alert"), Value::Null] {
            assert_eq!(of_form(&budgets), budgets);
        }
        assert_eq!(of_form(&json!({"amount": "5", "window": "total"})), budget("5", "total", "block"));
        assert_eq!(body(&FormData::of(&[("rpm", "1")])), None, "a form without the fields leaves the budgets unchanged");
    }

    fn owned(values: Vec<(&'static str, String)>) -> Vec<(String, String)> {
        values.into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
    }

    #[test]
    fn amounts_are_parsed_leniently_and_empty_ones_are_ignored() {
        let form = FormData::of(&[("budget_month_block", " $1,000 "), ("budget_day_block", " "), ("budget_total_alert", "much")]);
        let expected = json!([
            {"amount": "1000", "window": "month", "action": "block"}, {"amount": "much", "window": "total", "action": "alert"}
        ]);
        assert_eq!(body(&form), Some(expected));
        let none = FormData::of(&[("budget_month_block", "")]);
        assert_eq!((body(&none), filled_body(&none)), (Some(Value::Null), None));
    }

    #[test]
    fn faults_are_placed_beside_the_amount_that_they_are_about() {
        let form = FormData::of(&[("budget_month_alert", "1"), ("budget_total_block", "much")]);
        let field = |param: &str| placed(&form, ApiError::value(param, "x")).param().unwrap_or_default().to_owned();
        let fields = ["budget[1].amount", "budget[0].amount", "budget", "budget[9].amount", "budgets", "rpm"].map(field);
        let first = "budget_month_alert";
        assert_eq!(fields, ["budget_total_block", first, first, "budget_month_block", "budgets", "rpm"]);
    }

    #[test]
    fn control_has_a_named_field_for_each_period_and_action() {
        let values = FormData::of(&[("budget_day_alert", "0.50")]);
        let state = FormState::worded(&values, "budget_day_alert", "Enter an amount".to_owned());
        let control = control(Locale::EN, &state);
        assert!(control.has_fault());
        let html = control.render().unwrap();
        for field in FIELDS {
            assert!(html.contains(&format!("name=\"{field}\"")), "{field}");
        }
        assert_eq!(html.matches("aria-invalid").count(), 1);
        assert!(html.contains("value=\"0.50\"") && html.contains("id=\"budget_day_alert-note\">Enter an amount"), "{html}");
    }
}
