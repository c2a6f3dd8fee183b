//! The life of one request, top to bottom. What each stage makes is what the next one needs; the shell around them
//! draws the ticket, writes refusals down and puts the ticket into the body, which carries it to its end.

use std::{fmt, mem, sync::Arc};

use http::{HeaderName, HeaderValue, Response, header};
use tollgate_core::{Caller, Catalog, money_is_bounded};
use tollgate_protocol::{Framing, Target};

use crate::{
    AnswerBody, Dice, Head, Incoming, ModelPath, Refusal, RequestBody, Shared, Upstream,
    answer::whole,
    authenticate,
    forward::{Answered, Journey, forward, outcome_of},
    receive,
    refusal::REQUEST_ID,
    relay::relay,
    route::{Asked, NotChosen},
    terms::Terms,
    ticket::{Desk, Ending, Ticket, Unwritten},
    trace::{TRACE, is_asked},
    translate::Bodies,
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
    pub desk: Arc<Desk>,
    /// The outside world.
    pub upstream: Arc<dyn Upstream>,
    /// Its dice.
    pub dice: Dice,
}

impl Core {
    /// A core at its desk. Must be made inside the runtime that will use it.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn new(desk: Desk, upstream: Arc<dyn Upstream>) -> Result<Self, getrandom::Error> {
        let shared = Arc::clone(&desk.shared);
        Ok(Self { shared, desk: Arc::new(desk), upstream, dice: Dice::shaken()? })
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
    let mut ticket = Ticket::draw(&core.desk, &head);
    match walk(core, &head, &target, body, &mut ticket).await {
        Ok(answered) => answer(answered, &target, ticket, head).await,
        Err(refusal) => refuse(&refusal, ticket, &head).await,
    }
}

async fn walk(core: &Core, head: &Head, target: &Target, body: RequestBody, ticket: &mut Ticket) -> Result<Answered, Refusal> {
    // One snapshot a request: a change in the middle of it is the next one's, unless nothing of this one can serve it.
    let catalog = core.shared.catalog.load_full();
    let caller = door(core, &catalog, head, target, ticket).await?;
    let room = body.room();
    let body = receive(head, body, &core.shared.settings.bounds).await?;
    let mut terms = Terms::of(core, head, target, catalog, caller, body, ticket).await?;
    let mut journey = Journey::default();
    loop {
        let body = mem::take(&mut terms.body);
        let Terms { catalog, caller, offer, outline, .. } = &terms;
        let bodies = Bodies::new(head, target, outline, body, caller, offer, room.clone()).limited(terms.limit.clone());
        let asked = Asked { core, head, catalog, caller, offer, outline, bodies: &bodies };
        let unwritten = if money_is_bounded(caller, offer) { Unwritten::Refuse } else { Unwritten::GoOn };
        match forward(&asked, &mut journey, unwritten, ticket).await {
            Ok(answered) => return Ok(answered),
            Err(NotChosen::Refused(refusal)) => return Err(refusal),
            Err(NotChosen::Outdated) => terms.body = bodies.into_body(),
        }
        match Box::pin(terms.renewed(core, head, target, ticket)).await {
            Some(renewed) => {
                terms = renewed;
                journey.patience.renewed();
            }
            None => journey.patience.stays(),
        }
    }
}

/// The key; from here on a record is left, and also of a known key that is not let in.
async fn door(core: &Core, catalog: &Catalog, head: &Head, target: &Target, ticket: &mut Ticket) -> Result<Caller, Refusal> {
    match authenticate(&core.shared.keys, catalog, head, head.arrived).await {
        Ok(caller) => {
            ticket.known(&caller.key, head, target.method);
            Ok(caller)
        }
        Err(unwelcome) => {
            if let Some(key) = &unwelcome.key {
                ticket.known(key, head, target.method);
            }
            Err(unwelcome.refusal)
        }
    }
}

async fn answer(answered: Answered, target: &Target, mut ticket: Ticket, mut head: Head) -> Response<AnswerBody> {
    let attempts = ticket.sent_attempts();
    let dropped = ticket.dropped_entries().join(",");
    let trace = is_asked(&head.headers).then(|| ticket.trace()).flatten();
    let rates = ticket.rates();
    let (kind, body) = match answered {
        Answered::Whole { body, reading, events } => {
            ticket.answering();
            ticket.delivered(reading);
            ticket.succeeded();
            if let Some(flush) = ticket.hand_in(Ending::completed()) {
                flush.wait().await;
            }
            (if events { EVENT_STREAM } else { JSON }, whole(body))
        }
        Answered::Stream(streaming) => {
            // The body may live for long: it keeps of the head what an error event needs, and no secret.
            head.presented_key = None;
            head.headers = http::HeaderMap::new();
            let request_id = head.request_id;
            let kind = if target.framing == Framing::Sse { EVENT_STREAM } else { JSON };
            let mut response = Response::new(relay(streaming, ticket, head));
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

async fn refuse(refusal: &Refusal, mut ticket: Ticket, head: &Head) -> Response<AnswerBody> {
    let problem = refusal.problem(head);
    let attempts = ticket.sent_attempts();
    let dropped = ticket.dropped_entries().join(",");
    let outcome = outcome_of(refusal);
    let trace = is_asked(&head.headers).then(|| ticket.trace()).flatten();
    if ticket.is_known() {
        let status = if matches!(refusal, Refusal::CallerLeft) { 499 } else { problem.status };
        let ending =
            Ending { status, outcome, reason: Some(refusal.id(head.from).to_owned()), detail: Some(problem.message.clone()) };
        if let Some(flush) = ticket.hand_in(ending) {
            flush.wait().await;
        }
    } else {
        ticket.refuse_stranger(head, refusal.id(head.from), problem.status);
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
