//! `budget list`: budgets with current spending. A running gateway includes requests in progress.

use crate::{
    admin::{Admin, ApiPath, FolderPolicy},
    cli::{Budget, BudgetSubject, Common},
    command::resource,
    compose,
    failure::Failure,
};

/// Lists budgets; by default of every subject except keys, which may be many.
pub(crate) fn run(common: &Common, subcommand: &Budget) -> Result<(), Failure> {
    let Budget::List { of } = subcommand;
    let subjects = match of {
        Some(BudgetSubject::Gateway) => &["gateway"][..],
        Some(BudgetSubject::Group) => &["group"],
        Some(BudgetSubject::Member) => &["member"],
        Some(BudgetSubject::Channel) => &["channel"],
        Some(BudgetSubject::Key) => &["key"],
        None => &["gateway", "group", "member", "channel"],
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
