//! `audit`, `budget list` and `settings`: lists of the admin API as tables.

use crate::{
    admin::{self, ApiPath},
    cli::{self, Audit, Budget, Common},
    command::resource,
    failure::Failure,
};

/// Lists the audit log, newest entry first.
pub(crate) fn audit(common: &Common, arguments: &Audit) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let target = ApiPath::of(&["audit"]).with("limit", &arguments.limit.to_string());
        let target = target.maybe("kind", arguments.kind.as_deref()).maybe("id", arguments.id.as_deref());
        let (items, _) = admin.page(&target).await?;
        let columns = [
            ("at", "at"),
            ("who", "actor"),
            ("through", "door"),
            ("action", "action"),
            ("kind", "kind"),
            ("name", "name"),
            ("id", "id"),
        ];
        resource::print_list(common, &columns, &items);
        Ok(())
    })
}

/// Lists budgets with current spending; by default of every subject except keys, which may be many. A running gateway includes
/// requests in progress.
pub(crate) fn budgets(common: &Common, subcommand: &Budget) -> Result<(), Failure> {
    let Budget::List { of } = subcommand;
    let subjects = match of {
        Some(subject) => vec![cli::word(subject)],
        None => ["gateway", "group", "member", "channel"].map(str::to_owned).to_vec(),
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

/// Lists the effective settings of this machine or of a running gateway.
pub(crate) fn settings(common: &Common, source: Option<&str>) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let (items, _) = admin.page(&ApiPath::of(&["settings"]).maybe("source", source)).await?;
        let columns = [("setting", "name"), ("value", "value"), ("from", "source"), ("variable", "variable")];
        resource::print_list(common, &columns, &items);
        Ok(())
    })
}
