//! The simulator: the price of a request with given token counts for a caller, its cost on each account, and the accounts that
//! price limits exclude.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_core::{
    ExactAmount, LimitLevel, NanoUsd, NoRouteCause, NotOffered, OVERFLOW, PriceLines, SimulatedAccount, SimulatedCaller,
    SimulatedExclusion, SimulatedRequest, Simulation, Tokens, parse_max_price, simulate,
};
use tollgate_protocol::{Protocol, RequestExtras, ServiceTier};
use tollgate_store::{
    AdminScope, RowKind,
    fields::{Access, FieldShape, Kind, Object, WriteMode},
};

use super::{group_of, show_margin};
use crate::{
    api::{
        request_context::{InputFields, RequestContext},
        route::{Method, Needs, Resource, ResponseSchema, Route, handler},
        rows,
        schema::{COUNT, MODEL_NAME, NAME, TEXT, USD, both, needed, read},
    },
    api_error::ApiError,
    response::ApiResponse,
};

/// Largest accepted number of tokens of a kind.
const MAX_TOKENS: i64 = 1_000_000_000;
const FACTOR: Kind = Kind::Factor { max: i64::MAX };

/// A field of the request.
const fn asked(name: &'static str, kind: Kind, doc: &'static str) -> FieldShape {
    both(name, kind, doc).with(Access::WriteOnly)
}

const fn tokens(name: &'static str, doc: &'static str) -> FieldShape {
    asked(name, Kind::Integer { min: 0, max: MAX_TOKENS }, doc)
}

static LINE: Object = Object::of(
    "PriceLine",
    &[
        read("kind", TEXT, "Kind of token, `web_search`, or `per_request`."),
        read("count", COUNT, "Tokens, or searches; 1 of `per_request`."),
        read("unit_price", USD, "USD per million tokens, or USD for `web_search` and `per_request`; before the factor."),
        read("amount", TEXT, "Exact product of both and the factor in USD; null beyond 128 bits.").or_null(),
    ],
);
const LINE_ENTRY: Kind = Kind::Object(&LINE);
pub(in crate::api) const LINE_FIELDS: &[FieldShape] = &[
    read("amount", USD, "Sum of the lines in USD, rounded once, half up; null: see `no_amount`.").or_null(),
    read(
        "no_amount",
        Kind::Word(&[OVERFLOW]),
        "Why there is no amount: `overflow`, the sum exceeds 10,000 USD, and a request of more is recorded without an amount, with this \
         reason; null: there is one.",
    )
    .or_null(),
    read("exact", TEXT, "The sum before rounding.").or_null(),
    read("multiplier", FACTOR, "Factor of the group on the model, or of the account."),
    read("tier", COUNT, "Bound of the tier that applies, in tokens; null: the base prices apply.").or_null(),
    read("lines", Kind::List { of: &LINE_ENTRY, max: 10 }, "Its lines."),
];
pub(in crate::api) static LINES: Object = Object::of("PriceLines", LINE_FIELDS);
static ACCOUNT: Object = Object::of(
    "SimulatedAccount",
    &[
        read("channel", NAME, "Channel."),
        read("account", NAME, "Account."),
        read("upstream", MODEL_NAME, "Model name of the provider."),
        read("protocol", TEXT, "Protocol of the channel."),
        read("cost", Kind::Object(&LINES), "The provider's charge; null: not known.").or_null(),
        read("margin", USD, "Sale minus cost in USD; null if one of them is not known or has no amount.").or_null(),
        read("margin_share", TEXT, "The margin as a share of the sale, rounded down; null if nothing is charged.").or_null(),
        read("below_cost", TEXT, "The first kind of token that sells below its cost, with both prices.").or_null(),
    ],
);
static EXCLUDED: Object = Object::of(
    "SimulatedExclusion",
    &[
        read("channel", NAME, "Channel."),
        read("account", NAME, "Account; null: every account of the channel.").or_null(),
        read("code", TEXT, "Exclusion code."),
        read("detail", TEXT, "Figures of the exclusion.").or_null(),
        read("by_price", Kind::Flag, "Whether prices are the reason."),
        read("limit_of", Kind::Word(&["group", "key", "request"]), "The price limit that excludes it, where a ceiling does.")
            .or_null(),
    ],
);
static SIMULATION: Object = Object::of(
    "PriceSimulation",
    &[
        needed("model", MODEL_NAME, "Model name as sent by a caller."),
        asked("key", NAME, "Key id, or key name if it is unambiguous; or else `group`."),
        both("group", NAME, "Group that serves it. In the request, by name or id: stands for any key of the group without limits."),
        both("protocol", Kind::Word(&Protocol::WORDS), "Protocol of the caller; default openai."),
        asked("service_tier", Kind::Word(&["priority", "flex"]), "Service tier that the request asks for."),
        asked("web_search", Kind::Flag, "Whether it uses the provider's web search, once."),
        asked("server_tools", Kind::Flag, "Whether it uses other tools that the provider runs."),
        asked("output_media", Kind::Flag, "Whether it asks for images or audio in the answer."),
        asked("max_price", Kind::Text { min: 1, max: 200 }, "Value of the header `x-tollgate-max-price`."),
        tokens("input", "Input tokens of no other kind."),
        tokens("output", "Output tokens without thinking."),
        tokens("cache_read", "Tokens read from a cache."),
        tokens("cache_write", "Tokens written to a cache."),
        tokens("cache_write_1h", "Those of `cache_write` that are kept for an hour."),
        tokens("thinking", "Thinking tokens."),
        tokens("image", "Image tokens of the input."),
        tokens("audio", "Audio tokens of the input."),
        read("revision", COUNT, "Catalog revision."),
        read("sale", Kind::Object(&LINES), "What the caller pays; null: not priced.").or_null(),
        read("refused", TEXT, "Why no account would serve it: the cause of E40, E41 or E42; null if one would.").or_null(),
        read("accounts", Kind::List { of: &Kind::Object(&ACCOUNT), max: 1_000_000 }, "Accounts that would serve it, in order."),
        read("excluded", Kind::List { of: &Kind::Object(&EXCLUDED), max: 1_000_000 }, "Accounts that would not."),
    ],
);

const RESOURCE: Resource = Resource { tag: "prices", needs: Needs::Scope(AdminScope::Operator) };

pub(in crate::api) static ROUTES: &[Route] = &[RESOURCE
    .route(
        Method::Post,
        "/admin/v1/prices/simulate",
        "simulate_price",
        "Computes the price of a request line by line, its cost and margin on each account, and which accounts price limits exclude. \
         All accounts are taken as healthy and free.",
        handler!(run),
    )
    .takes(&SIMULATION, WriteMode::Create)
    .returns(ResponseSchema::Object(&SIMULATION))];

async fn run(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let catalog = context.with_query_timeout(context.state.store.catalog.load()).await?;
    let body = &context.body;
    let caller = match (body.text("key"), body.text("group")) {
        (Some(key), None) => {
            let id = rows::key_id(&context, key).await?;
            let key = context.state.store.listing.key(id).await?.ok_or_else(|| ApiError::not_found(RowKind::Key))?;
            SimulatedCaller::Key(Arc::new(key))
        }
        (None, Some(group)) => SimulatedCaller::Group(Arc::clone(group_of(&catalog, group)?)),
        _ => return Err(ApiError::invalid("missing_required_parameter", "key", "Send either 'key' or 'group'.")),
    };
    let request = SimulatedRequest {
        caller,
        model: body.text("model").unwrap_or_default().to_owned(),
        protocol: body.text("protocol").and_then(Protocol::parse).unwrap_or(Protocol::OpenAi),
        tokens: tokens_of(body)?,
        extras: RequestExtras {
            tier: match body.text("service_tier") {
                Some("priority") => ServiceTier::Priority,
                Some("flex") => ServiceTier::Flex,
                Some(_) | None => ServiceTier::Standard,
            },
            web_search: is_set(body, "web_search"),
            server_tools: is_set(body, "server_tools"),
            output_media: is_set(body, "output_media"),
            ..RequestExtras::default()
        },
        limit: body.text("max_price").map(parse_max_price).transpose().map_err(|fault| ApiError::value("max_price", fault))?,
    };
    let found = simulate(&catalog, &request, context.now()).map_err(|reason| not_offered(&reason))?;
    Ok(ApiResponse::ok(show(&request, &found)))
}

fn is_set(body: &InputFields, name: &str) -> bool {
    body.0.get(name).is_some_and(|flag| flag == true)
}

fn tokens_of(body: &InputFields) -> Result<Tokens, ApiError> {
    let of = |name: &str| body.whole(name).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    let (cache_write, cache_write_1h) = (of("cache_write"), of("cache_write_1h"));
    if cache_write_1h > cache_write {
        return Err(ApiError::value("cache_write_1h", "it is part of 'cache_write' and cannot be more"));
    }
    Ok(Tokens {
        input: of("input"),
        output: of("output"),
        cache_read: of("cache_read"),
        cache_write,
        cache_write_1h,
        thinking: of("thinking"),
        image: of("image"),
        audio: of("audio"),
        web_searches: u64::from(is_set(body, "web_search")),
        ..Tokens::default()
    })
}

fn not_offered(reason: &NotOffered) -> ApiError {
    match reason {
        NotOffered::Unknown => ApiError::value("model", "no channel serves a model of this name"),
        NotOffered::OutsideGroup => ApiError::value("model", "it is served, but not for this key or group"),
        NotOffered::Method { supports } => {
            ApiError::value("protocol", format_args!("the model is offered for {} only", supports.join(", ")))
        }
        NotOffered::Unpriced { .. } | NotOffered::Unsupported { .. } => {
            ApiError::value("model", "it has no price for an option of the request, and the caller's money is limited")
        }
    }
}

fn show(request: &SimulatedRequest, found: &Simulation) -> Value {
    json!({
        "model": request.model, "group": found.group.name, "protocol": request.protocol.as_str(), "revision": found.revision,
        "sale": found.sale.as_ref().map(show_lines), "refused": found.refused.map(NoRouteCause::as_str),
        "accounts": found.accounts.iter().map(show_account).collect::<Vec<_>>(),
        "excluded": found.excluded.iter().map(show_exclusion).collect::<Vec<_>>(),
    })
}

/// The lines of an amount.
pub(in crate::api) fn show_lines(priced: &PriceLines) -> Value {
    let lines: Vec<Value> = priced
        .charged()
        .map(|line| {
            json!({
                "kind": line.kind, "count": line.count, "unit_price": NanoUsd(line.unit_price).to_usd_string(),
                "amount": line.amount.map(ExactAmount::to_decimal),
            })
        })
        .collect();
    let total = priced.total();
    json!({
        "amount": total.map(NanoUsd::to_usd_string), "no_amount": total.is_none().then_some(OVERFLOW), "exact": priced.sum().map(ExactAmount::to_decimal),
        "multiplier": priced.multiplier.to_decimal(), "tier": priced.tier, "lines": lines,
    })
}

fn show_account(account: &SimulatedAccount) -> Value {
    let margin = account.margin;
    json!({
        "channel": account.channel, "account": account.account, "upstream": account.upstream,
        "protocol": account.protocol.as_str(), "cost": account.cost.as_ref().map(show_lines),
        "margin": margin.map(|(amount, _)| amount.to_usd_string()),
        "margin_share": margin.and_then(|(_, share)| share).map(show_margin),
        "below_cost": account.below_cost.map(|below| below.to_string()),
    })
}

fn show_exclusion(excluded: &SimulatedExclusion) -> Value {
    let level = excluded.limit_of.map(|level| match level {
        LimitLevel::Group => "group",
        LimitLevel::Key => "key",
        LimitLevel::Request => "request",
    });
    json!({
        "channel": excluded.channel, "account": excluded.account, "code": excluded.code, "detail": excluded.detail,
        "by_price": excluded.by_price, "limit_of": level,
    })
}
