//! `budget list`: budgets with current spending. A running gateway includes requests in progress.

use serde_json::Value;

use crate::{
    admin::{Admin, ApiPath, FolderPolicy},
    cli::{Budget, BudgetSubject, Common},
    command::resource,
    compose,
    failure::Failure,
};

/// Budgets of a row in their short form, such as `5/month, 0.50/day:alert`.
pub(crate) fn short(budgets: &Value) -> String {
    let one = |budget: &Value| {
        let alert = if budget["action"] == "alert" { ":alert" } else { "" };
        Some(format!("{}/{}{alert}", budget["amount"].as_str()?, budget["window"].as_str()?))
    };
    let shown: Vec<String> = match budgets {
        Value::Array(budgets) => budgets.iter().filter_map(one).collect(),
        budget => one(budget).into_iter().collect(),
    };
    if shown.is_empty() { "–".to_owned() } else { shown.join(", ") }
}

/// Lists budgets; by default of every subject.
pub(crate) fn run(common: &Common, subcommand: &Budget) -> Result<(), Failure> {
    let Budget::List { of } = subcommand;
    let subjects = match of {
        Some(BudgetSubject::Gateway) => &["gateway"][..],
        Some(BudgetSubject::Group) => &["group"],
        Some(BudgetSubject::Member) => &["member"],
        Some(BudgetSubject::Channel) => &["channel"],
        Some(BudgetSubject::Key) => &["key"],
        None => &["gateway", "group", "member", "channel", "key"],
    };
    compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::MustExist).await?;
        let mut items = Vec::new();
        for subject in subjects {
            items.extend(admin.all(&ApiPath::of(&["budgets"]).with("subject", subject)).await?);
        }
        let columns = [
            ("of", "subject"),
            ("name", "name"),
            ("window", "window"),
            ("amount USD", "amount"),
            ("spent USD", "spent"),
            ("action", "action"),
            ("id", "id"),
        ];
        resource::print_list(common, &columns, &items);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::short;

    #[test]
    fn budgets_are_written_as_the_command_line_takes_them() {
        assert_eq!(short(&json!({"amount": "5", "window": "month", "action": "block"})), "5/month");
        let two = json!([{"amount": "5", "window": "month"}, {"amount": "0.50", "window": "day", "action": "alert"}]);
        assert_eq!(short(&two), "5/month, 0.50/day:alert");
        assert_eq!((short(&json!(null)), short(&json!([]))), ("–".to_owned(), "–".to_owned()));
    }
}
