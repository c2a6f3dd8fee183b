//! The model path of a listener that answers no model requests.

use std::sync::Arc;

use http::Response;

use super::ModelPath;
use crate::{refusal::Refusal, request::Incoming, response::AnswerBody, state::shared::Shared};

/// Refuses every model request for the same reason.
#[derive(Debug)]
pub struct RefusingPath {
    shared: Arc<Shared>,
    refusal: Refusal,
}

impl RefusingPath {
    /// The path of a gateway that cannot open its database yet and so cannot check keys (E68). `/readyz` answers 503, too;
    /// see [`ServingState`](crate::serving_state::ServingState).
    pub fn without_database(shared: Arc<Shared>) -> Self {
        Self { shared, refusal: Refusal::KeyCheckUnavailable }
    }

    /// The path of a listener that serves other paths only.
    pub(super) fn without_models(shared: Arc<Shared>) -> Self {
        Self { shared, refusal: Refusal::UnknownPath { hint: None } }
    }
}

impl ModelPath for RefusingPath {
    async fn serve(&self, incoming: Incoming) -> Response<AnswerBody> {
        self.shared.refused_without_record(&self.refusal, &incoming.head)
    }
}
