//! Members: the people whose keys call. Their money is in the ledger.

use serde_json::{Map, Value, json};
use tollgate_store::{AdminScope, Change, Kind, MemberSpec};

use super::{
    ask::Members as Sent,
    form::{self, BUDGETS, CONCURRENCY, RPM, TPM},
    named::{self, Named, named_routes},
    route::{AFTER, Gives, LIMIT, Method, Route, Takes},
    shape::{CREATED_AT, How, NAME, OWNER, Object, REVISION, Shape, both, fixed, read},
};
use crate::problem::Problem;

static MEMBER: Object = Object {
    name: "Member",
    fields: &[
        read("id", Shape::Id("mbr_"), "Id."),
        fixed("name", NAME, "Unique."),
        both("role", Shape::Word(&["admin", "operator", "member"]), "What they may do in the console."),
        both("status", Shape::Word(&["active", "suspended"]), "Whether their keys work."),
        both("groups", Shape::List { of: &NAME, most: 1_000 }, "Private groups granted."),
        both("default_group", NAME, "Used by keys that name no group.").or_null(),
        both("billing", Shape::Word(&["postpaid", "prepaid"]), "prepaid: the balance bounds."),
        RPM,
        TPM,
        CONCURRENCY,
        BUDGETS,
        OWNER,
        CREATED_AT,
        REVISION,
    ],
};

pub(super) static ROUTES: &[Route] = &named_routes!(
    Members,
    &MEMBER,
    "members",
    "members",
    ["list_members", "make_member", "get_member", "change_member", "remove_member"],
    AdminScope::Admin,
    "member"
);

/// The resource.
struct Members;

impl Named for Members {
    type Spec = MemberSpec;
    const KIND: Kind = Kind::Member;

    fn name(spec: &MemberSpec) -> &str {
        &spec.name
    }

    fn show(spec: &MemberSpec) -> Map<String, Value> {
        let MemberSpec { name, role, status, groups, default_group, billing, limits, budgets } = spec;
        let mut members = form::members(json!({
            "name": name,
            "role": role,
            "status": status,
            "groups": groups,
            "default_group": default_group,
            "billing": billing,
            "budgets": form::show_budgets(budgets),
        }));
        form::show_limits(limits, &mut members);
        members
    }

    fn take(sent: &Sent, spec: &mut MemberSpec) -> Result<(), Problem> {
        sent.set_text("name", &mut spec.name);
        sent.set_word("role", &mut spec.role);
        sent.set_word("status", &mut spec.status);
        sent.set_texts("groups", &mut spec.groups);
        sent.set_or_null("default_group", &mut spec.default_group);
        sent.set_word("billing", &mut spec.billing);
        form::read_limits(sent, &mut spec.limits);
        form::set_budgets(sent, &mut spec.budgets)
    }

    fn put(spec: MemberSpec) -> Change {
        Change::PutMember(Box::new(spec))
    }

    fn remove(member: String) -> Change {
        Change::RemoveMember { member }
    }
}
