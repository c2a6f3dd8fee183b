//! Model lists: `/v1/models` and `/v1beta/models`. They contain exactly the models the key can use, as computed by
//! `tollgate_core::visible_models`. Lists leave no usage record.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use tollgate_core::{VisibleModel, visible_model, visible_models};
use tollgate_protocol::lists::ListedModel;

use crate::{
    ingress::ListRequest,
    refusal::Refusal,
    request::Head,
    response::{AnswerBody, whole},
    state::shared::Shared,
};

/// `owned_by` of every model: the upstream is not disclosed.
const OWNER: &str = "tollgate";

pub(crate) async fn list(shared: &Shared, head: &Head, request: &ListRequest) -> Response<AnswerBody> {
    match render(shared, head, request).await {
        Ok(body) => {
            let mut response = Response::new(whole(body));
            let kind = HeaderValue::from_static("application/json; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Err(refusal) => shared.refused_without_record(&refusal, head),
    }
}

async fn render(shared: &Shared, head: &Head, request: &ListRequest) -> Result<Bytes, Refusal> {
    let catalog = shared.catalog.load_full();
    let caller = shared.keys.caller_of(&catalog, head, head.arrived).await.map_err(|error| error.refusal)?;
    if !caller.key.allows_model_list(head.from) {
        return Err(Refusal::protocol_blocked(&caller.key));
    }
    let format = head.from.spec().model_list;
    match request {
        ListRequest::All(query) => {
            let visible = visible_models(&catalog, &caller);
            // Clients expect every listed model to answer, so a protocol without embeddings lists none of their models.
            let embeddings = head.from.spec().embeddings;
            let models = visible.iter().filter(|model| embeddings || !model.embeds()).map(listed).collect::<Vec<_>>();
            (format.list)(&models, query).map_err(|bad| Refusal::InvalidValue { name: bad.parameter(), message: bad.to_string() })
        }
        ListRequest::One(name) => {
            let model = visible_model(&catalog, &caller, name).ok_or_else(|| Refusal::ModelNotFound {
                model: name.clone(),
                hidden: catalog.mappings_by_model.contains_key(name),
            })?;
            Ok((format.model)(&listed(&model)))
        }
    }
}

/// The listed fields of a model.
fn listed(visible: &VisibleModel) -> ListedModel {
    let model = &visible.model;
    ListedModel {
        name: model.spec.name.clone(),
        owned_by: OWNER.to_owned(),
        description: model.spec.description.clone(),
        context: model.spec.context,
        max_output: model.spec.max_output,
        methods: visible.methods.clone(),
    }
}

#[cfg(test)]
mod tests;
