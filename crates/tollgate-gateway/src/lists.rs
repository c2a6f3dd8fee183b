//! Lists of models, as a key sees them: `/v1/models` and `/v1beta/models`.

use http::Response;

use crate::{AnswerBody, Head, Refusal, Shared, authenticate, ingress::ListRequest};

/// Answers a list request. Lists leave no usage record; refusals are counted.
pub(crate) async fn list(shared: &Shared, head: &Head, request: &ListRequest) -> Response<AnswerBody> {
    let catalog = shared.catalog.load_full();
    let answered = match authenticate(&shared.keys, &catalog, head, head.arrived).await {
        Ok(_caller) => Err(Refusal::UnknownPath { hint: None }),
        Err(unwelcome) => Err(unwelcome.refusal),
    };
    let _ = request;
    match answered {
        Ok(response) => response,
        Err(refusal) => {
            let refusal: Refusal = refusal;
            shared.metrics.refused(refusal.id(head.from));
            refusal.respond(head, &refusal.problem(head))
        }
    }
}
