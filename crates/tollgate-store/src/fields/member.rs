//! The fields of a member.

use tollgate_core::{Billing, Budget, MemberStatus, Role};

use super::{
    Access, Kind, field,
    price::budgets_differ,
    table,
    value::{NAME, not_an_id},
};
use crate::MemberSpec;

table!(
    MemberSpec,
    "Member",
    MemberSpec::default(),
    &[
        field!("name", name: String, "Unique.").kind(NAME).access(Access::Fixed).rule(not_an_id),
        field!("role", role: Role, "What the member may do in the console."),
        field!("status", status: MemberStatus, "Whether the member's keys work."),
        field!("groups", groups: Vec<String>, "Private groups granted.").kind(Kind::List { of: &NAME, most: 1_000 }),
        field!("default_group", default_group: Option<String>, "Used by keys that name no group.")
            .kind(NAME)
            .default_text("the group `default`"),
        field!("billing", billing: Billing, "`prepaid`: the balance bounds what is spent."),
        field!("rpm", limits.rpm: u32, "Requests a minute; 0: no bound."),
        field!("tpm", limits.tpm: u64, "Tokens a minute; 0: no bound."),
        field!("concurrency", limits.concurrency: u32, "Requests at once; 0: no bound."),
        field!("budget", budgets: Vec<Budget>, "Budget on sales, or a list of them.").rule(budgets_differ),
    ]
);
