//! Stage 5 of 9. In: an offer and what the request asks; out: the accounts to try, in order, or why there is none.

use tollgate_core::{Caller, Catalog, NoRoute, NotOffered, Offer, Plan, PriceLimit, RouteInput, parse_max_price};
use tollgate_protocol::Outline;

use crate::{Core, Head, Refusal, forward::seconds_until, translate::Bodies};

/// Header with which a caller bounds the price of one request.
const MAX_PRICE: &str = "x-tollgate-max-price";

/// The plan of a request.
///
/// # Errors
/// The refusal, with the candidates' exclusions for the record.
pub(crate) fn plan(
    core: &Core,
    head: &Head,
    catalog: &Catalog,
    caller: &Caller,
    offer: &Offer,
    outline: &Outline,
    bodies: &Bodies<'_>,
) -> Result<Result<Plan, NoRoute>, Refusal> {
    let input = RouteInput {
        catalog,
        caller,
        offer,
        outline,
        from: head.from,
        health: &*core.desk.health,
        view: bodies,
        now: core.shared.clock.now(),
        request_limit: max_price(head)?,
        translates: true,
    };
    Ok(tollgate_core::route(&input, &mut || core.dice.throw_u32()))
}

/// What the caller is told when no account can be tried.
pub(crate) fn no_route(core: &Core, no: &NoRoute, bodies: &Bodies<'_>) -> Refusal {
    let model = bodies.model().to_owned();
    if let Some(supports) = no.only_other_protocol() {
        return Refusal::MethodUnsupported { model, supports };
    }
    if let Some(fields) = no.all_translate() {
        if let Some(fault) = bodies.malformed() {
            return Refusal::Malformed(fault.clone());
        }
        return Refusal::Unsupported { fields, model, reason: bodies.reason() };
    }
    let now = core.shared.clock.now();
    let retry_after = no.earliest_recovery().map(|at| seconds_until(at, now).clamp(1, 60));
    Refusal::NoRoute { model, cause: no.cause(), too_dear: no.price_limit_alone(), retry_after, price: no.price_figures() }
}

/// What the caller is told when the model is not offered to him like this.
pub(crate) fn not_offered(no: NotOffered, outline: &Outline) -> Refusal {
    let model = outline.model.clone();
    match no {
        NotOffered::Unknown => Refusal::ModelNotFound { model, hidden: false },
        NotOffered::OutsideGroup => Refusal::ModelNotFound { model, hidden: true },
        NotOffered::Method { supports } => Refusal::MethodUnsupported { model, supports },
        NotOffered::Unsupported { fields } => Refusal::Unsupported { fields, model, reason: None },
    }
}

fn max_price(head: &Head) -> Result<Option<PriceLimit>, Refusal> {
    let Some(value) = head.headers.get(MAX_PRICE) else { return Ok(None) };
    let read = value.to_str().ok().map(parse_max_price);
    match read {
        Some(Ok(limit)) => Ok(Some(limit)),
        Some(Err(_)) | None => Err(Refusal::InvalidValue {
            name: MAX_PRICE,
            message: format!(
                "Invalid value for the header '{MAX_PRICE}': expected 'input=<USD>,output=<USD>' per million tokens; either may be \
                 missing."
            ),
        }),
    }
}
