//! Groups: which models and channels their keys reach, at which prices, within which limits.

use tollgate_store::{
    AdminScope, Change, GroupSpec, RowKind,
    fields::{FieldShape, Kind, Object, WriteMode},
};

use super::{
    named_resource::{self, NamedResource, named_routes},
    previews,
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route},
    schema::{CREATED_AT, OWNER, REVISION, both, read, row_object},
};

static GROUP: Object = row_object!(
    GroupSpec,
    [read("id", Kind::Id("grp_"), "Id.")],
    [OWNER, CREATED_AT, REVISION, previews::WITH_ROW, previews::CUT_WITH_ROW]
);

pub(super) static ROUTES: &[Route] = &named_routes!(
    GroupResource,
    &GROUP,
    "groups",
    "groups",
    ["list_groups", "make_group", "get_group", "change_group", "remove_group"],
    AdminScope::Operator,
    "group"
);

/// The resource.
struct GroupResource;

impl NamedResource for GroupResource {
    type Spec = GroupSpec;
    const KIND: RowKind = RowKind::Group;
    const CHANGE_QUERY: &'static [FieldShape] = previews::QUERY;

    fn put(spec: GroupSpec) -> Change {
        Change::PutGroup(Box::new(spec))
    }

    fn remove(group: String) -> Change {
        Change::RemoveGroup { group }
    }
}
