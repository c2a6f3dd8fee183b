//! The model path of a gateway that cannot open its database yet: it can check no key.

use std::sync::Arc;

use http::Response;

use super::ModelPath;
use crate::{refusal::Refusal, request::Incoming, response::AnswerBody, state::shared::Shared};

/// Refuses every model request (E68). `/readyz` answers 503 besides, as [`Condition`](crate::condition::Condition) says.
#[derive(Debug)]
pub struct ClosedPath(pub Arc<Shared>);

impl ModelPath for ClosedPath {
    async fn serve(&self, incoming: Incoming) -> Response<AnswerBody> {
        self.0.refused_without_record(&Refusal::KeyCheckUnavailable, &incoming.head)
    }
}
