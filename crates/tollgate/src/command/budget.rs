//! `budget list`: budgets, and what is spent of them now. A running gateway counts requests under way too.

use crate::{
    admin::{Admin, ApiPath, FolderPolicy},
    cli::{Budget, BudgetSubject, Common},
    command::resource,
    compose,
    failure::Failure,
};

/// Lists budgets; of everybody but single keys where none is named, since keys may be many.
pub(crate) fn run(common: &Common, verb: &Budget) -> Result<(), Failure> {
    let Budget::List { of } = verb;
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
            ("amount USD", "amount_usd"),
            ("spent USD", "spent_usd"),
            ("action", "action"),
            ("id", "id"),
        ];
        resource::print_list(common, &columns, &items);
        Ok(())
    })
}
