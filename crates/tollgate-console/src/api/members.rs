//! Members: the people whose keys call. Their money is in the ledger.

use tollgate_store::{
    AdminScope, Change, MemberSpec, RowKind,
    fields::{Kind, Object, WriteMode},
};

use super::{
    named_resource::{self, NamedResource, named_routes},
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route},
    schema::{CREATED_AT, OWNER, REVISION, both, read, row_object},
};

static MEMBER: Object = row_object!(MemberSpec, [read("id", Kind::Id("mbr_"), "Id.")], [OWNER, CREATED_AT, REVISION]);

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

    fn put(spec: MemberSpec) -> Change {
        Change::PutMember(Box::new(spec))
    }

    fn remove(member: String) -> Change {
        Change::RemoveMember { member }
    }
}
