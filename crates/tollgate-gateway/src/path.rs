//! The life of one request, top to bottom. [`walk`] is the list of stages; a stage never calls another stage. Types that stages
//! share are in [`types`].
//!
//! Around the walk, [`serve`] begins the usage guard, which records the request however it ends, and writes the response.

mod admit;
mod attempt;
mod attempt_loop;
mod authenticate;
mod finish;
mod judge;
mod prepare;
pub(crate) mod receive;
mod relay;
mod resolve;
mod select;
mod summarise;
pub(crate) mod types;

use std::sync::Arc;

use http::Response;
use tollgate_core::{Caller, Catalog};
use tollgate_protocol::Target;
use tollgate_store::JournalWriter;

pub use self::types::worker::Worker;
use self::{
    admit::admit,
    authenticate::{authenticate, start},
    finish::{AnswerHeaders, finish, refuse},
    receive::receive,
    relay::relay,
    resolve::resolve,
    summarise::summarise,
    types::{
        attempt::AttemptAnswer,
        context::{RetryState, RouteContext, SelectionError},
        offered::{Admission, OfferedRequest},
        usage_guard::UsageGuard,
    },
};
use crate::{
    in_place::{boxed, pinned},
    refusal::Refusal,
    request::{Head, Incoming, RequestBody},
    response::AnswerBody,
    server::ModelPath,
    state::shares::Receiving,
};

impl ModelPath for Worker {
    fn serve(&self, incoming: Incoming) -> impl Future<Output = Response<AnswerBody>> + Send {
        serve(self, incoming)
    }

    fn journal(&self) -> Option<&Arc<JournalWriter>> {
        Some(&self.recorder.journal)
    }
}

/// Answers one model request. Refusals are answers too, so this never fails.
pub async fn serve(worker: &Worker, incoming: Incoming) -> Response<AnswerBody> {
    let Incoming { mut head, target, body } = incoming;
    let in_flight = body.memory();
    let mut guard = boxed(|| UsageGuard::begin(&worker.recorder, &head));
    let walked = tokio::select! {
        biased;
        walked = walk(worker, &head, &target, body, &mut guard) => walked,
        () = worker.recorder.cut_off.cancelled() => Err(Refusal::ShuttingDown),
    };
    match walked {
        Ok(AttemptAnswer::Whole { body, summary, events }) => {
            guard.note_left_out(&summary);
            guard.capture_answer(&body);
            let headers = AnswerHeaders::of(&guard, &mut head);
            finish(guard, summary).await;
            headers.complete(body, events)
        }
        Ok(AttemptAnswer::Stream(streaming)) => {
            guard.note_left_out(&streaming.relay.summary());
            let headers = AnswerHeaders::of(&guard, &mut head);
            if streaming.whole_by.is_some() {
                headers.pieces(relay(streaming, guard, head))
            } else {
                headers.stream(relay(streaming, guard, head), &target)
            }
        }
        Err(refusal) => refuse(worker, &refusal, guard, &head, in_flight.as_deref()).await,
    }
}

/// The stages up to an answer, in order: authenticate, receive, summarise, resolve, admit, and then the attempt loop with select,
/// prepare, attempt and judge. [`serve`] calls relay and finish.
async fn walk(
    worker: &Worker,
    head: &Head,
    target: &Target,
    body: RequestBody,
    guard: &mut UsageGuard,
) -> Result<AttemptAnswer, Refusal> {
    // A request is served by one catalog snapshot. Changes apply to later requests, unless no account of this snapshot can
    // serve this one.
    let catalog = worker.shared.catalog.load_full();
    let (caller, receiving) = authenticate(worker, &catalog, head, target, guard).await?;
    start(worker, receiving.share(), body.memory().as_ref()).await?;
    // Allocated only now, so that waiting requests take little memory, and requests that begin reuse memory that was just
    // released and is still in the caches.
    pinned(|| walk_authenticated(worker, catalog, head, target, body, (caller, receiving), guard)).await
}

/// The stages after authentication.
async fn walk_authenticated(
    worker: &Worker,
    catalog: Arc<Catalog>,
    head: &Head,
    target: &Target,
    body: RequestBody,
    (caller, receiving): (Caller, Receiving),
    guard: &mut UsageGuard,
) -> Result<AttemptAnswer, Refusal> {
    let memory = body.memory();
    let body = receive(head, body, &head.settings.bounds).await?;
    guard.received(&body);
    guard.capture_request(&body, memory.as_ref());
    let summary = summarise(head, target, &body)?;
    guard.record_summary(&summary);
    let mut offered = resolve(head, target, catalog, caller, body, summary)?;
    guard.set_offer(&offered.offer, &offered.summary);
    guard.capture_request(offered.original_body(), memory.as_ref());
    drop(receiving);
    let mut admission = admit(worker, head, &offered, None, guard).await?;
    guard.limit_output(admission.output_tokens());
    let mut retry = RetryState::default();
    loop {
        let context = RouteContext::new(worker, head, target, &offered, &admission, memory.clone());
        match attempt_loop::run(&context, &mut retry, guard).await {
            Ok(answer) => return Ok(answer),
            Err(SelectionError::Refused(refusal)) => return Err(refusal),
            Err(SelectionError::StaleCatalog) => {}
        }
        drop(context);
        match Box::pin(renew(worker, head, target, &offered, &admission, guard)).await {
            Some(renewed) => {
                (offered, admission) = renewed;
                retry.wait_budget.count_renewal();
            }
            None => retry.wait_budget.stop_renewing(),
        }
    }
}

/// Runs summarise, resolve and admit again with the catalog now in force, because no account of the request's own snapshot can
/// serve it. `None` when they refuse: the request then stays with its snapshot.
async fn renew(
    worker: &Worker,
    head: &Head,
    target: &Target,
    offered: &OfferedRequest,
    admission: &Admission,
    guard: &mut UsageGuard,
) -> Option<(Box<OfferedRequest>, Admission)> {
    let catalog = worker.shared.catalog.load_full();
    let caller = Caller::of(&catalog, Arc::clone(&offered.caller.key));
    let body = offered.original_body().clone();
    let summary = summarise(head, target, &body).ok()?;
    let renewed = resolve(head, target, catalog, caller, body, summary).ok()?;
    let admission = admit(worker, head, &renewed, Some(admission), guard).await.ok()?;
    // From here on the new offer applies.
    guard.set_offer(&renewed.offer, &renewed.summary);
    guard.limit_output(admission.output_tokens());
    Some((renewed, admission))
}

#[cfg(test)]
mod tests;
