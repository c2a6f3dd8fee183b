//! Models: sale prices and facts. A model exists when a channel serves it, with or without a row here.

use tollgate_store::{
    AdminScope, Change, ModelSpec, RowKind,
    fields::{Kind, Object, WriteMode},
};

use super::{
    named_resource::{self, NamedResource, named_routes},
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route},
    schema::{CREATED_AT, OWNER, REVISION, both, read, row_object},
};

static MODEL: Object = row_object!(ModelSpec, [read("id", Kind::Id("mdl_"), "Id.")], [OWNER, CREATED_AT, REVISION]);

pub(super) static ROUTES: &[Route] = &named_routes!(
    ModelResource,
    &MODEL,
    "models",
    "models",
    ["list_models", "make_model", "get_model", "change_model", "remove_model"],
    AdminScope::Operator,
    "model"
);

/// The resource.
struct ModelResource;

impl NamedResource for ModelResource {
    type Spec = ModelSpec;
    const KIND: RowKind = RowKind::Model;

    fn put(spec: ModelSpec) -> Change {
        Change::PutModel(Box::new(spec))
    }

    fn remove(model: String) -> Change {
        Change::RemoveModel { model }
    }
}
