//! A request whose model is resolved, and its reservation.

use std::sync::Arc;

use bytes::Bytes;
use tollgate_core::{Caller, Catalog, Offer, Reservation};
use tollgate_protocol::{FieldPath, RequestSummary};

/// A request as one catalog snapshot offers it.
pub(crate) struct OfferedRequest {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) caller: Caller,
    pub(crate) offer: Offer,
    /// The body without the fields that the offer drops.
    pub(crate) body: Bytes,
    pub(crate) summary: RequestSummary,
    /// The body as received, if the offer drops fields.
    pub(crate) original_body: Option<Bytes>,
}

impl OfferedRequest {
    /// The body as the caller sent it.
    pub(crate) fn original_body(&self) -> &Bytes {
        self.original_body.as_ref().unwrap_or(&self.body)
    }
}

/// Reservations made when a request was admitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    /// The reservation as requested; `None` when nothing limits the request.
    pub(crate) reservation: Option<Reservation>,
    /// The output limit the reservation was lowered to. It is written into the request.
    pub(crate) output_limit: Option<OutputLimit>,
}

impl Admission {
    /// The output limit that the gateway writes into the request, for each candidate answer.
    pub(crate) fn output_tokens(&self) -> Option<u64> {
        self.output_limit.as_ref().map(|limit| limit.tokens)
    }
}

/// An output limit that the gateway writes into a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    pub tokens: u64,
    /// The field it is written to, as the caller's protocol spells it.
    pub field: FieldPath,
}
