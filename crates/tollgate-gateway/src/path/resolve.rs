//! The terms a request is served on: what it is offered by one catalog, and what was set aside for that. A request keeps
//! those it began with. Only where nothing of them can serve it, and another catalog is in force by then, are they made
//! anew, wholly by that one: its channels, its prices, its limits.

use std::{mem, sync::Arc};

use bytes::Bytes;
use tollgate_core::{Caller, Catalog, Offer, Reservation, resolve};
use tollgate_protocol::{RequestSummary, Target, codec, remove_fields};

use crate::{
    path::{
        Core,
        admit::{admit, admit_more},
        select::not_offered,
        types::{request_bodies::OutputLimit, usage_guard::UsageGuard},
    },
    refusal::Refusal,
    request::Head,
};

/// What a request is served on.
pub(crate) struct Admission {
    pub catalog: Arc<Catalog>,
    pub caller: Caller,
    pub offer: Offer,
    /// The body without what the offer takes out of it.
    pub body: Bytes,
    pub summary: RequestSummary,
    /// The output limit that the request must be given.
    pub limit: Option<OutputLimit>,
    /// The body as it came, where something was taken out of it.
    original: Option<Bytes>,
    /// What was set aside.
    held: Option<Reservation>,
}

impl Admission {
    /// The terms by the catalog that the request began with.
    ///
    /// # Errors
    /// E13 to E17 where the model is not offered like this, E31 to E33 where too little is left.
    pub(crate) async fn of(
        core: &Core,
        head: &Head,
        target: &Target,
        catalog: Arc<Catalog>,
        caller: Caller,
        body: Bytes,
        guard: &mut UsageGuard,
    ) -> Result<Self, Refusal> {
        let summary = codec(head.from).summarise(target, &body).map_err(Refusal::Malformed)?;
        guard.record_summary(&summary);
        let offer = resolve(&catalog, &caller, &summary, head.from, head.arrived).map_err(|no| not_offered(no, &summary))?;
        guard.set_offer(&offer);
        let mut terms = Self { catalog, caller, offer, body, summary, limit: None, original: None, held: None };
        terms.drop_fields(head, target)?;
        let admitted = admit(core, head, &terms, guard).await?;
        terms.limit = admitted.limit;
        terms.held = admitted.hold;
        Ok(terms)
    }

    /// Takes out what the model does not take and its row says to drop.
    fn drop_fields(&mut self, head: &Head, target: &Target) -> Result<(), Refusal> {
        if self.offer.drop_fields.is_empty() {
            return Ok(());
        }
        let body = remove_fields(&self.body, &self.offer.drop_fields);
        self.summary = codec(head.from).summarise(target, &body).map_err(Refusal::Malformed)?;
        self.original = Some(mem::replace(&mut self.body, body));
        Ok(())
    }

    /// The terms by the catalog that is in force now; `None`: by that one the model is not offered to this caller, or too
    /// little is left for what it costs there.
    pub(crate) async fn renew(&self, core: &Core, head: &Head, target: &Target, guard: &mut UsageGuard) -> Option<Self> {
        let catalog = core.shared.catalog.load_full();
        let caller = Caller::of(&catalog, Arc::clone(&self.caller.key));
        let body = self.original.as_ref().unwrap_or(&self.body).clone();
        let summary = codec(head.from).summarise(target, &body).ok()?;
        let offer = resolve(&catalog, &caller, &summary, head.from, head.arrived).ok()?;
        let mut terms = Self { catalog, caller, offer, body, summary, limit: None, original: None, held: None };
        terms.drop_fields(head, target).ok()?;
        let admitted = admit_more(core, head, &terms, self.held.as_ref(), guard).await?;
        terms.limit = [self.limit.clone(), admitted.limit].into_iter().flatten().min_by_key(|limit| limit.tokens);
        terms.held = admitted.hold;
        // Only now: until here the ones before were in force.
        guard.set_offer(&terms.offer);
        Some(terms)
    }
}
