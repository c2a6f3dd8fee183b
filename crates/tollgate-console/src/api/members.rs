//! Members: the people whose keys call. Their money is in the ledger.

use serde_json::{Map, Value, json};
use tollgate_store::{AdminScope, Change, MemberSpec, RowKind};

use super::{
    named_resource::{self, NamedResource, named_routes},
    request_context::InputFields as Sent,
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route},
    schema::{CREATED_AT, NAME, OWNER, ObjectSchema, REVISION, ValueSchema, WriteMode, both, fixed, read},
    shared_fields::{self, BUDGETS, CONCURRENCY, RPM, TPM},
};
use crate::api_error::ApiError;

static MEMBER: ObjectSchema = ObjectSchema {
    name: "Member",
    fields: &[
        read("id", ValueSchema::Id("mbr_"), "Id."),
        fixed("name", NAME, "Unique."),
        both("role", ValueSchema::Enum(&["admin", "operator", "member"]), "What they may do in the console."),
        both("status", ValueSchema::Enum(&["active", "suspended"]), "Whether their keys work."),
        both("groups", ValueSchema::List { of: &NAME, most: 1_000 }, "Private groups granted."),
        both("default_group", NAME, "Used by keys that name no group.").or_null(),
        both("billing", ValueSchema::Enum(&["postpaid", "prepaid"]), "prepaid: the balance bounds."),
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
    MemberResource,
    &MEMBER,
    "members",
    "members",
    ["list_members", "make_member", "get_member", "change_member", "remove_member"],
    AdminScope::Admin,
    "member"
);

/// The resource.
struct MemberResource;

impl NamedResource for MemberResource {
    type Spec = MemberSpec;
    const KIND: RowKind = RowKind::Member;

    fn name(spec: &MemberSpec) -> &str {
        &spec.name
    }

    fn show(spec: &MemberSpec) -> Map<String, Value> {
        let MemberSpec { name, role, status, groups, default_group, billing, limits, budgets } = spec;
        let mut members = shared_fields::members(json!({
            "name": name,
            "role": role,
            "status": status,
            "groups": groups,
            "default_group": default_group,
            "billing": billing,
            "budgets": shared_fields::show_budgets(budgets),
        }));
        shared_fields::show_limits(limits, &mut members);
        members
    }

    fn take(sent: &Sent, spec: &mut MemberSpec) -> Result<(), ApiError> {
        sent.set_text("name", &mut spec.name);
        sent.set_word("role", &mut spec.role);
        sent.set_word("status", &mut spec.status);
        sent.set_texts("groups", &mut spec.groups);
        sent.set_or_null("default_group", &mut spec.default_group);
        sent.set_word("billing", &mut spec.billing);
        shared_fields::read_limits(sent, &mut spec.limits);
        shared_fields::set_budgets(sent, &mut spec.budgets)
    }

    fn put(spec: MemberSpec) -> Change {
        Change::PutMember(Box::new(spec))
    }

    fn remove(member: String) -> Change {
        Change::RemoveMember { member }
    }
}
