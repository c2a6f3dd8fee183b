//! The life of one request, top to bottom. What each stage makes is what the next one needs; the shell around them
//! draws the guard, writes refusals down and puts the guard into the body, which carries it to its end.

pub(crate) mod admit;
pub(crate) mod attempt;
mod attempts;
pub(crate) mod authenticate;
mod hedge;
pub(crate) mod judge;
pub mod receive;
mod relay;
mod resolve;
pub(crate) mod select;
pub(crate) mod types;

use std::{fmt, mem, sync::Arc};

use http::{HeaderName, HeaderValue, Response, header};
use tollgate_core::{Caller, Catalog, money_is_bounded};
use tollgate_protocol::{Framing, Target};

use self::{
    attempt::AttemptAnswer,
    attempts::{RetryState, forward, outcome_of},
    authenticate::authenticate,
    receive::receive,
    relay::relay,
    resolve::Admission,
    select::{RouteContext, SelectionError},
    types::{
        request_bodies::Bodies,
        trace::{TRACE, is_asked},
        usage_guard::{Ending, JournalFailurePolicy, UsageGuard},
    },
};
use crate::{
    clock::CoreRng,
    refusal::{REQUEST_ID, Refusal},
    request::{Head, Incoming, RequestBody},
    response::{AnswerBody, whole},
    server::ModelPath,
    state::shared::Shared,
    state::usage_recorder::UsageRecorder,
    upstream::call::Upstream,
};

const ATTEMPTS: HeaderName = HeaderName::from_static("x-tollgate-attempts");
const DROPPED: HeaderName = HeaderName::from_static("x-tollgate-dropped");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// What one core serves with.
pub struct Core {
    /// What all cores share.
    pub shared: Arc<Shared>,
    /// Where its tickets are handed in.
    pub recorder: Arc<UsageRecorder>,
    /// The outside world.
    pub upstream: Arc<dyn Upstream>,
    /// Its dice.
    pub dice: CoreRng,
}

impl Core {
    /// A core at its recorder. Must be made inside the runtime that will use it.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn new(recorder: UsageRecorder, upstream: Arc<dyn Upstream>) -> Result<Self, getrandom::Error> {
        let shared = Arc::clone(&recorder.shared);
        Ok(Self { shared, recorder: Arc::new(recorder), upstream, dice: CoreRng::from_os()? })
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl ModelPath for Core {
    fn serve(&self, incoming: Incoming) -> impl Future<Output = Response<AnswerBody>> + Send {
        serve(self, incoming)
    }
}

/// Answers one model request. Never fails: refusals are answers too.
pub async fn serve(core: &Core, incoming: Incoming) -> Response<AnswerBody> {
    let Incoming { head, target, body } = incoming;
    let mut guard = UsageGuard::begin(&core.recorder, &head);
    match walk(core, &head, &target, body, &mut guard).await {
        Ok(answered) => answer(answered, &target, guard, head).await,
        Err(refusal) => refuse(&refusal, guard, &head).await,
    }
}

async fn walk(
    core: &Core,
    head: &Head,
    target: &Target,
    body: RequestBody,
    guard: &mut UsageGuard,
) -> Result<AttemptAnswer, Refusal> {
    // One snapshot a request: a change in the middle of it is the next one's, unless nothing of this one can serve it.
    let catalog = core.shared.catalog.load_full();
    let caller = authenticate_caller(core, &catalog, head, target, guard).await?;
    let room = body.room();
    let body = receive(head, body, &core.shared.settings.bounds).await?;
    let mut terms = Admission::of(core, head, target, catalog, caller, body, guard).await?;
    let mut retry_state = RetryState::default();
    loop {
        let body = mem::take(&mut terms.body);
        let Admission { catalog, caller, offer, summary, .. } = &terms;
        let bodies = Bodies::new(head, target, summary, body, caller, offer, room.clone()).limited(terms.limit.clone());
        let asked = RouteContext { core, head, catalog, caller, offer, summary, bodies: &bodies };
        let unwritten = if money_is_bounded(caller, offer) { JournalFailurePolicy::Refuse } else { JournalFailurePolicy::GoOn };
        match forward(&asked, &mut retry_state, unwritten, guard).await {
            Ok(answered) => return Ok(answered),
            Err(SelectionError::Refused(refusal)) => return Err(refusal),
            Err(SelectionError::Outdated) => terms.body = bodies.into_body(),
        }
        match Box::pin(terms.renew(core, head, target, guard)).await {
            Some(renewed) => {
                terms = renewed;
                retry_state.wait_budget.count_renewal();
            }
            None => retry_state.wait_budget.stop_renewing(),
        }
    }
}

/// The key; from here on a record is left, and also of a known key that is not let in.
async fn authenticate_caller(
    core: &Core,
    catalog: &Catalog,
    head: &Head,
    target: &Target,
    guard: &mut UsageGuard,
) -> Result<Caller, Refusal> {
    match authenticate(&core.shared.keys, catalog, head, head.arrived).await {
        Ok(caller) => {
            guard.authenticated(&caller.key, head, target.method);
            Ok(caller)
        }
        Err(auth_error) => {
            if let Some(key) = &auth_error.key {
                guard.authenticated(key, head, target.method);
            }
            Err(auth_error.refusal)
        }
    }
}

async fn answer(answered: AttemptAnswer, target: &Target, mut guard: UsageGuard, mut head: Head) -> Response<AnswerBody> {
    let attempts = guard.sent_attempts();
    let dropped = guard.dropped_entries().join(",");
    let trace = is_asked(&head.headers).then(|| guard.trace()).flatten();
    let rates = guard.rates();
    let (kind, body) = match answered {
        AttemptAnswer::Whole { body, reading, events } => {
            guard.answering();
            guard.delivered(reading);
            guard.succeeded();
            if let Some(flush) = guard.finish(Ending::completed()) {
                flush.wait().await;
            }
            (if events { EVENT_STREAM } else { JSON }, whole(body))
        }
        AttemptAnswer::Stream(streaming) => {
            // The body may live for long: it keeps of the head what an error event needs, and no secret.
            head.presented_key = None;
            head.headers = http::HeaderMap::new();
            let request_id = head.request_id;
            let kind = if target.framing == Framing::Sse { EVENT_STREAM } else { JSON };
            let mut response = Response::new(relay(streaming, guard, head));
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
            rates.write(headers);
            return finish(response, kind, &request_id.to_string(), attempts, &dropped, trace);
        }
    };
    let mut response = Response::new(body);
    rates.write(response.headers_mut());
    finish(response, kind, &head.request_id.to_string(), attempts, &dropped, trace)
}

/// The headers every answer of an upstream has.
fn finish(
    mut response: Response<AnswerBody>,
    kind: HeaderValue,
    request_id: &str,
    attempts: usize,
    dropped: &str,
    trace: Option<HeaderValue>,
) -> Response<AnswerBody> {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    if attempts > 0 {
        headers.insert(ATTEMPTS, HeaderValue::from(attempts));
    }
    if let Ok(value) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, value);
    }
    if let Some(trace) = trace {
        headers.insert(TRACE, trace);
    }
    name_dropped(&mut response, dropped);
    response
}

/// Names what was left out of the request or changed in it.
fn name_dropped(response: &mut Response<AnswerBody>, dropped: &str) {
    if !dropped.is_empty()
        && let Ok(value) = HeaderValue::from_str(dropped)
    {
        response.headers_mut().insert(DROPPED, value);
    }
}

async fn refuse(refusal: &Refusal, mut guard: UsageGuard, head: &Head) -> Response<AnswerBody> {
    let problem = refusal.problem(head);
    let attempts = guard.sent_attempts();
    let dropped = guard.dropped_entries().join(",");
    let outcome = outcome_of(refusal);
    let trace = is_asked(&head.headers).then(|| guard.trace()).flatten();
    if guard.is_known() {
        let status = if matches!(refusal, Refusal::CallerLeft) { 499 } else { problem.status };
        let ending =
            Ending { status, outcome, reason: Some(refusal.id(head.from).to_owned()), detail: Some(problem.message.clone()) };
        if let Some(flush) = guard.finish(ending) {
            flush.wait().await;
        }
    } else {
        guard.refuse_unauthenticated(head, refusal.id(head.from), problem.status);
    }
    let mut response = refusal.respond(head, &problem);
    if attempts > 0 {
        response.headers_mut().insert(ATTEMPTS, HeaderValue::from(attempts));
    }
    // What the attempt that failed was sent without.
    name_dropped(&mut response, &dropped);
    if let Some(trace) = trace {
        response.headers_mut().insert(TRACE, trace);
    }
    response
}

#[cfg(test)]
mod tests;
