//! Groups, models and members: named rows without further rules. A model exists when a channel serves it, with or without a
//! row; the money of members is in the ledger.

use std::future::Future;

use tollgate_core::ModelSpec;
use tollgate_store::{
    Change, GroupSpec, MemberSpec, RowKind,
    fields::{FieldShape, Kind, Object},
};

use super::{
    group_use, member_search,
    named_resource::{NAMED, NamedResource, named_routes},
    previews,
    request_context::{InputFields, RequestContext},
    route::{AFTER, LIMIT, Route},
    schema::{CREATED_AT, NAME, OWNER, REVISION, both, join, read, row_object},
};
use crate::{api_error::ApiError, response::ApiResponse};

static GROUP: Object = row_object!(
    GroupSpec,
    [read("id", Kind::Id("grp_"), "Id.")],
    [
        OWNER,
        CREATED_AT,
        REVISION,
        previews::WITH_ROW,
        previews::CUT_WITH_ROW,
        group_use::MEMBERS,
        group_use::KEYS,
        group_use::DEFAULT_KEYS,
        group_use::MODELS,
    ]
);
static MODEL: Object = row_object!(ModelSpec, [read("id", Kind::Id("mdl_"), "Id.")], [OWNER, CREATED_AT, REVISION]);
static MEMBER: Object =
    row_object!(MemberSpec, [read("id", Kind::Id("mbr_"), "Id.")], [OWNER, CREATED_AT, REVISION, member_search::LAST_USED_AT]);

pub(super) static GROUP_ROUTES: &[Route] =
    named_routes!(Groups, &GROUP, "groups", "group", Needs::Scope(AdminScope::Operator), AdminScope::Operator);
pub(super) static MODEL_ROUTES: &[Route] =
    named_routes!(Models, &MODEL, "models", "model", Needs::Scope(AdminScope::Operator), AdminScope::Operator);
pub(super) static MEMBER_ROUTES: &[Route] =
    named_routes!(Members, &MEMBER, "members", "member", Needs::Own { all: AdminScope::Operator }, AdminScope::Admin);

pub(super) struct Groups;

impl NamedResource for Groups {
    type Spec = GroupSpec;
    const KIND: RowKind = RowKind::Group;
    const LIST_QUERY: &'static [FieldShape] = &[LIMIT, AFTER, NAMED, group_use::USE];
    const CHANGE_QUERY: &'static [FieldShape] = previews::QUERY;
    const HAS_EFFECTS: bool = true;

    fn list(context: RequestContext) -> impl Future<Output = Result<ApiResponse, ApiError>> + Send {
        group_use::list(context)
    }

    fn put(spec: GroupSpec) -> Change {
        Change::PutGroup(Box::new(spec))
    }

    fn remove(group: String) -> Change {
        Change::RemoveGroup { group }
    }
}

struct Models;

impl NamedResource for Models {
    type Spec = ModelSpec;
    const KIND: RowKind = RowKind::Model;

    fn put(spec: ModelSpec) -> Change {
        Change::PutModel(Box::new(spec))
    }

    fn remove(model: String) -> Change {
        Change::RemoveModel { model }
    }

    /// A sent price counts as set by hand, even if it equals an imported price.
    fn changes_beside(sent: &InputFields, before: &ModelSpec, after: &ModelSpec) -> Vec<Change> {
        let change = || Change::SetPrice { model: after.name.clone(), price: after.price.clone(), source: None };
        (sent.has("price") && before.price == after.price).then(change).into_iter().collect()
    }
}

pub(super) struct Members;

impl NamedResource for Members {
    type Spec = MemberSpec;
    const KIND: RowKind = RowKind::Member;
    const LIST_QUERY: &'static [FieldShape] = &join::<{ member_search::PARAMETERS.len() + 4 }>(&[
        &[
            LIMIT,
            AFTER,
            NAMED,
            both("search", NAME, "With this in the name; for admins, or in the e-mail address that the member signs in with."),
        ],
        &member_search::PARAMETERS,
    ]);

    fn list(context: RequestContext) -> impl Future<Output = Result<ApiResponse, ApiError>> + Send {
        member_search::list(context)
    }

    fn put(spec: MemberSpec) -> Change {
        Change::PutMember(Box::new(spec))
    }

    fn remove(member: String) -> Change {
        Change::RemoveMember { member }
    }
}
