//! `/docs`: how to call this gateway, with its own addresses and limits. Paths and headers of protocols are those of their table, lines for
//! clients those of a key's page.

mod errors;
mod reference;
mod schema_text;

use std::sync::Arc;

use askama::Template;
use tollgate_protocol::{CallerSurface, Protocol};
use tollgate_store::AdminScope;

use super::{
    clients::{self, Access, ProtocolLines},
    format,
    home::{first_model, model_url},
    inline,
    layout::Layout,
    locale::Locale,
    models::document_for,
    protocols,
    reply::{PageFailure, PageReply},
    request::PageRequest,
    route::{PageRoute, SeenBy, page},
};
use errors::{CauseRow, ErrorTable};
pub(crate) use errors::{cause, is_explained};

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/docs", SeenBy::Anyone, page!(show)),
    PageRoute::get("/docs/api", SeenBy::Anyone, page!(reference::of_callers)),
    PageRoute::get("/docs/admin-api", SeenBy::Role(AdminScope::Member), page!(reference::of_admins)),
];

#[derive(Debug, Template)]
#[template(path = "docs.html")]
struct DocsPage {
    layout: Layout,
    t: Locale,
    address: String,
    by_protocol: Vec<ProtocolLines>,
    endpoints: Vec<ProtocolEndpoints>,
    request_headers: Vec<HeaderRow>,
    answer_headers: Vec<HeaderRow>,
    limits: Vec<LimitRow>,
    errors: Vec<ErrorTable>,
    causes: Vec<CauseRow>,
}

/// The endpoints of a protocol.
#[derive(Debug)]
struct ProtocolEndpoints {
    label: &'static str,
    tone: &'static str,
    clients: &'static str,
    base: String,
    /// The header that has the key.
    credential: String,
    endpoints: Vec<Endpoint>,
    streams: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
struct Endpoint {
    method: &'static str,
    path: String,
}

#[derive(Debug)]
struct HeaderRow {
    name: &'static str,
    about: &'static str,
}

#[derive(Debug)]
struct LimitRow {
    label: &'static str,
    value: String,
    about: &'static str,
}

/// Methods and paths of a protocol.
fn endpoints(surface: CallerSurface) -> Vec<Endpoint> {
    let post = |target: &&'static str| {
        let path =
            if target.starts_with('/') { (*target).to_owned() } else { format!("{}/{{model}}:{target}", surface.model_list_path) };
        Endpoint { method: "POST", path }
    };
    let list = Endpoint { method: "GET", path: surface.model_list_path.to_owned() };
    let one = Endpoint { method: "GET", path: format!("{}/{{model}}", surface.model_list_path) };
    surface.generation.iter().chain(surface.embedding).map(post).chain([list, one]).collect()
}

fn of_protocol(t: Locale, address: &str, (protocol, surface): (Protocol, CallerSurface)) -> ProtocolEndpoints {
    let credential = protocol.spec().credential;
    ProtocolEndpoints {
        label: protocols::label(t, protocol.as_str()),
        tone: protocols::tone(protocol.as_str()),
        clients: protocols::clients(t, protocol),
        base: protocols::client_base(protocol, address),
        credential: format!("{}: {}$TOLLGATE_KEY", credential.name, credential.prefix),
        endpoints: endpoints(surface),
        streams: match protocol {
            Protocol::Gemini => t.say("docs.streams_native"),
            Protocol::OpenAi | Protocol::Anthropic | Protocol::Responses => t.say("docs.streams"),
        },
    }
}

fn request_headers(t: Locale) -> Vec<HeaderRow> {
    let rows = [
        ("x-tollgate-max-price", t.say("docs.header_max_price")),
        ("x-tollgate-tags", t.say("docs.header_tags")),
        ("x-tollgate-trace: 1", t.say("docs.header_ask_trace")),
        ("x-request-id", t.say("docs.header_own_id")),
        ("content-encoding: gzip", t.say("docs.header_encoding")),
    ];
    rows.map(|(name, about)| HeaderRow { name, about }).into()
}

fn answer_headers(t: Locale) -> Vec<HeaderRow> {
    let rows = [
        ("x-request-id", t.say("docs.header_id")),
        ("retry-after", t.say("docs.header_retry_after")),
        ("x-should-retry: false", t.say("docs.header_no_retry")),
        ("x-tollgate-attempts", t.say("docs.header_attempts")),
        ("x-tollgate-dropped", t.say("docs.header_dropped")),
        ("x-tollgate-cause", t.say("docs.header_cause")),
        ("x-tollgate-trace", t.say("docs.header_trace")),
    ];
    rows.map(|(name, about)| HeaderRow { name, about }).into()
}

/// The bounds for all callers, from the settings in force.
fn limits(request: &PageRequest) -> Vec<LimitRow> {
    let t = request.t();
    let settings = request.state.gateway.settings();
    let number = |name: &str| -> Option<u64> {
        settings.iter().find(|setting| setting.name == name).and_then(|setting| setting.value.as_ref()?.parse().ok())
    };
    #[expect(clippy::cast_precision_loss, reason = "a span that is shown needs no exact figures")]
    let span = |ms: u64| format::milliseconds(t, ms as f64);
    let rows = [
        (t.say("docs.limit_body"), number("limits.body_bytes").map(bytes), t.say("docs.limit_body_about")),
        (t.say("docs.limit_head"), number("server.header_bytes").map(bytes), ""),
        (t.say("docs.limit_time"), number("upstream.total_timeout_ms").map(span), t.say("docs.limit_time_about")),
        (t.say("docs.limit_keep_alive"), number("upstream.keep_alive_ms").map(span), t.say("docs.limit_keep_alive_about")),
    ];
    rows.into_iter().filter_map(|(label, value, about)| Some(LimitRow { label, value: value?, about })).collect()
}

/// A size in the largest unit that writes it without a fraction.
fn bytes(size: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| size >= *unit && size.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", size / unit),
        None => format!("{} B", format::integer(size)),
    }
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let address = model_url(&request);
    // Visitors see the page only if they see the square.
    let document = document_for(&request, None, None).await?;
    let model = first_model(&request, document.data.iter().map(|model| model.id.as_str())).await?.unwrap_or("MODEL");
    let access = Access { address: &address, key: "$TOLLGATE_KEY", model };
    let template = DocsPage {
        layout: request.layout(t.say("docs.title")),
        t,
        by_protocol: clients::by_protocol(t, access, |_| true),
        endpoints: protocols::of_callers().map(|protocol| of_protocol(t, &address, protocol)).collect(),
        request_headers: request_headers(t),
        answer_headers: answer_headers(t),
        limits: limits(&request),
        errors: errors::tables(t),
        causes: errors::causes(t),
        address,
    };
    PageReply::ok(&template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_match_the_protocols() {
        let of = |wanted: Protocol| {
            let (_, surface) = protocols::of_callers().find(|(protocol, _)| *protocol == wanted).unwrap();
            endpoints(surface).into_iter().map(|it| format!("{} {}", it.method, it.path)).collect::<Vec<_>>()
        };
        assert_eq!(
            of(Protocol::OpenAi),
            ["POST /v1/chat/completions", "POST /v1/embeddings", "GET /v1/models", "GET /v1/models/{model}"]
        );
        assert!(of(Protocol::Gemini).contains(&"POST /v1beta/models/{model}:streamGenerateContent".to_owned()));
    }

    #[test]
    fn endpoints_are_documented() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md")).unwrap();
        for endpoint in protocols::of_callers().flat_map(|(_, surface)| endpoints(surface)) {
            // A row of the native protocol has several verbs.
            let (path, verb) = endpoint.path.split_once(':').unwrap_or((&endpoint.path, ""));
            assert!(page.contains(path) && page.contains(verb), "{}", endpoint.path);
        }
        for header in request_headers(Locale::EN).iter().chain(&answer_headers(Locale::EN)) {
            let name = header.name.split(':').next().unwrap();
            assert!(page.contains(&format!("`{name}")), "{name}");
        }
    }

    #[test]
    fn byte_sizes_have_no_fraction() {
        assert_eq!([bytes(33_554_432), bytes(65_536), bytes(1_500), bytes(1 << 30)], ["32 MiB", "64 KiB", "1,500 B", "1 GiB"]);
    }
}
