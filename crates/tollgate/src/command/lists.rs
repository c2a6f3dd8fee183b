//! `audit` and `budget list`: lists of the admin API as tables.

use serde_json::Value;

use crate::{
    admin::{self, ApiPath},
    cli::{self, Audit, Budget, Common},
    command::{resource, time_flag},
    failure::Failure,
};

/// Lists the audit log, newest entry first.
pub(crate) fn audit(common: &Common, arguments: &Audit) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let target = ApiPath::of(&["audit"]).with("limit", &arguments.limit.to_string());
        let time = |flag: &str, text: Option<&String>| {
            text.map(|text| time_flag::parse(flag, text).map(tollgate_console::rfc3339)).transpose()
        };
        let target = target
            .maybe("kind", arguments.kind.as_deref())
            .maybe("id", arguments.id.as_deref())
            .maybe("name", arguments.name.as_deref())
            .maybe("actor", arguments.actor.as_deref())
            .maybe("address", arguments.address.as_deref())
            .maybe("since", time("--since", arguments.since.as_ref())?.as_deref())
            .maybe("until", time("--until", arguments.until.as_ref())?.as_deref());
        let (items, _) = admin.page(&target).await?;
        let columns = [
            ("at", "at"),
            ("who", "actor"),
            ("from", "address"),
            ("origin", "origin"),
            ("action", "action"),
            ("kind", "kind"),
            ("name", "name"),
            ("id", "id"),
        ];
        resource::print_list(common, &columns, &items);
        Ok(())
    })
}

/// Budgets of a row in their short form, such as `5/month, 0.50/day:alert`.
pub(crate) fn short_budgets(budgets: &Value) -> String {
    let one = |budget: &Value| {
        let alert = if budget["action"] == "alert" { ":alert" } else { "" };
        Some(format!("{}/{}{alert}", budget["amount"].as_str()?, budget["window"].as_str()?))
    };
    let shown: Vec<String> = match budgets.as_array() {
        Some(budgets) => budgets.iter().filter_map(one).collect(),
        None => one(budgets).into_iter().collect(),
    };
    if shown.is_empty() { "–".to_owned() } else { shown.join(", ") }
}

/// Lists budgets with current spending, of every subject by default. A running gateway includes requests in progress.
pub(crate) fn budgets(common: &Common, subcommand: &Budget) -> Result<(), Failure> {
    let Budget::List { of } = subcommand;
    let subjects = match of {
        Some(subject) => vec![cli::word(subject)],
        None => ["gateway", "group", "member", "channel", "key"].map(str::to_owned).to_vec(),
    };
    admin::run(common, async |admin| {
        let mut items = Vec::new();
        for subject in &subjects {
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

    use super::short_budgets;

    #[test]
    fn budgets_are_shown_in_their_short_form() {
        assert_eq!(short_budgets(&json!({"amount": "5", "window": "month", "action": "block"})), "5/month");
        let two = json!([{"amount": "5", "window": "month"}, {"amount": "0.50", "window": "day", "action": "alert"}]);
        assert_eq!(short_budgets(&two), "5/month, 0.50/day:alert");
        assert_eq!((short_budgets(&json!(null)), short_budgets(&json!([]))), ("–".to_owned(), "–".to_owned()));
    }
}
