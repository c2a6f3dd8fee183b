//! Every bound in the sources of the gateway is documented, or there is a reason why it need not be. A constant is found by its name and
//! a semaphore, channel, cache or counter by its construction, so a new one fails the test until it is assigned here.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{NOT_SHARED, page};
use crate::state::shares::bounds::Bound;

/// Words of a constant's name that make it a bound.
const WORDS: [&str; 7] = ["MAX", "MOST", "LIMIT", "CAPACITY", "QUEUE", "WAITING", "PERMITS"];
/// Types of constants that count something.
const COUNTS: [&str; 6] = ["usize", "u64", "u32", "u16", "u8", "NonZeroUsize"];
/// Constructions of bounded things, and of things that should be bounded.
const CONSTRUCTIONS: [&str; 8] = [
    "Semaphore::new(",
    "mpsc::channel(",
    "mpsc::channel::<",
    "broadcast::channel(",
    "unbounded_channel(",
    "max_capacity(",
    "Capacity::default(",
    "Pool::new(",
];

/// How a bound in the sources is accounted for.
#[derive(Clone, Copy)]
enum Assigned {
    /// It has shares.
    Shared(Bound),
    /// It is in this row of `docs/operating.md` that need not be shared.
    Row(&'static str),
    /// It is not documented, for this reason.
    Reason(&'static str),
}

use Assigned::{Reason, Row, Shared};

const EACH: Assigned = Reason("a detail of one request, one connection or one answer, within what is documented for it");
const WORK: Assigned = Reason("bounds work, not something that callers use together");
const NEVER_SENT: Assigned = Reason("nothing is ever sent through it");
const OF_THE_CATALOG: Assigned = Reason("as many as the catalog has, or the least used are forgotten; callers add none");
const SNAPSHOT: Assigned = Reason("what a page of the console shows, not what the gateway keeps");
const FIGURE: Assigned = Reason("the largest value of a field, not a bound");

/// Bounds by file and by name or construction.
#[rustfmt::skip]
const ASSIGNED: &[(&str, &str, Assigned)] = &[
    ("background/content_writer.rs", "MAX_BATCH", Shared(Bound::Contents)),
    ("background/content_writer.rs", "MAX_BATCH_BYTES", Shared(Bound::Contents)),
    ("background/health_recorder.rs", "MAX_WAITING", Row("changes of account health that wait to be recorded")),
    ("background/probes.rs", "MAX_BODY_BYTES", EACH),
    ("background/probes.rs", "MAX_PROBES", Row("probes of accounts")),
    ("background/telemetry.rs", "MAX_SPANS", Row("exports to the collector")),
    ("background/telemetry.rs", "MAX_SPAN_BYTES", Row("exports to the collector")),
    ("background/telemetry/exporter.rs", "MAX_ANSWER_BYTES", Row("exports to the collector")),
    ("background/telemetry/exporter.rs", "MAX_TRIES", Row("exports to the collector")),
    ("background/telemetry/metrics.rs", "MAX_POINTS", Row("exports to the collector")),
    ("background/usage_writer.rs", "MAX_QUARANTINED", Row("records quarantined because the database refuses them")),
    ("serving_state.rs", "Capacity::default()", Row("refusals that are delayed")),
    ("serving_state.rs", "Pool::new(Bound::BodyMemory)", Shared(Bound::BodyMemory)),
    ("serving_state.rs", "Pool::new(Bound::RequestsInProgress)", Shared(Bound::RequestsInProgress)),
    ("fallback.rs", "QUEUE", Row("admin API")),
    ("fallback.rs", "mpsc::channel(CHUNKS)", EACH),
    ("fallback.rs", "mpsc::channel(QUEUE)", Row("admin API")),
    ("ingress/hint.rs", "MAX_COMPARED", WORK),
    ("gathered_write.rs", "MAX_COPIED", EACH),
    ("path/attempt.rs", "MAX_FIRST_BUFFER", EACH),
    ("path/attempt.rs", "MAX_CHARS", EACH),
    ("path/attempt.rs", "MAX_PROBLEM_BYTES", EACH),
    ("path/attempt/body.rs", "MAX_BYTES", Row("upstream answer, not streamed")),
    ("path/attempt/stream.rs", "MAX_PRELUDE_BYTES", Row("stream before its content")),
    ("path/finish.rs", "MAX_KEPT_CAPACITY", EACH),
    ("path/relay/read_on.rs", "MAX_ANSWER_BYTES", Row("upstream answer, not streamed")),
    ("path/relay/read_on.rs", "MAX_BYTES", EACH),
    ("path/select.rs", "MAX_ROUNDS", WORK),
    ("path/select.rs", "MAX_WAKE_UPS", WORK),
    ("path/types/context.rs", "MAX_RENEWALS", WORK),
    ("refusal/redact.rs", "MAX_CHARS", EACH),
    ("refusal/redact.rs", "MAX_ID", EACH),
    ("refusal/redact.rs", "MAX_NUMBERED_WORD", EACH),
    ("refusal/redact.rs", "MAX_WORD", EACH),
    ("refusal/text.rs", "MAX", EACH),
    ("request/unread_body.rs", "MAX_BYTES", EACH),
    ("request/unread_body.rs", "MAX_EMPTY_READS", WORK),
    ("server/client_address.rs", "MAX_PROXIES", Row("trusted proxies in a row in `X-Forwarded-For`")),
    ("server/cors.rs", "MAX_NAMES_BYTES", Row("origins of pages that may call the model API")),
    ("server/fallback_listener.rs", "mpsc::channel(1)", NEVER_SENT),
    ("server/guard.rs", "MAX_CHARS", EACH),
    ("server/run.rs", "mpsc::channel(1)", NEVER_SENT),
    ("state/capacity_limiter/queue.rs", "MAX_WAITERS", Shared(Bound::CapacityQueue)),
    ("state/capacity_limiter/wait_queue.rs", "MAX_AWAITED", EACH),
    ("state/address_rate.rs", "max_capacity(ADDRESSES)", Shared(Bound::WrongKeys)),
    ("state/alert_queue.rs", "MAX_REMEMBERED", Row("messages about alerts")),
    ("state/alert_queue.rs", "QUEUE_CAPACITY", Row("messages about alerts")),
    ("state/alert_queue.rs", "mpsc::channel(QUEUE_CAPACITY)", Row("messages about alerts")),
    ("state/authenticator.rs", "MAX_KEY_BYTES", EACH),
    ("state/authenticator.rs", "Semaphore::new(Bound::KeyLookups, LOOKUPS, WAITING_LOOKUPS)", Shared(Bound::KeyLookups)),
    ("state/authenticator.rs", "WAITING_LOOKUPS", Shared(Bound::KeyLookups)),
    ("state/authenticator/blocked.rs", "MAX_BLOCKED", Row("revoked and disabled keys and suspended members shared by nodes")),
    ("state/authenticator/cache.rs", "max_capacity(entries)", Row("keys cached")),
    ("state/authenticator/revoked_keys.rs", "MAX_KEYS", Row("revoked and disabled keys and suspended members shared by nodes")),
    ("state/content_queue.rs", "QUEUE_BYTES", Shared(Bound::Contents)),
    ("state/content_queue.rs", "QUEUE_CAPACITY", Shared(Bound::Contents)),
    ("state/content_queue.rs", "mpsc::channel(QUEUE_CAPACITY)", Shared(Bound::Contents)),
    ("state/health_records.rs", "QUEUE_CAPACITY", Row("changes of account health that wait to be recorded")),
    ("state/health_records.rs", "mpsc::channel(QUEUE_CAPACITY)", Row("changes of account health that wait to be recorded")),
    ("state/latency_estimate.rs", "MAX_MODELS", OF_THE_CATALOG),
    ("state/learned_parameters.rs", "MAX_MODELS", Shared(Bound::RefusedFields)),
    ("state/retry_budget.rs", "MAX_COUNT", FIGURE),
    ("state/retry_budget.rs", "MAX_LAG", FIGURE),
    ("state/runtime_state.rs", "MAX_ACCOUNTS", SNAPSHOT),
    ("state/runtime_state.rs", "MAX_LEARNED_MODELS", SNAPSHOT),
    ("state/runtime_state.rs", "MAX_SUBJECTS", SNAPSHOT),
    ("state/shares.rs", "Capacity::default()", Reason("the counter of every shared bound of this type")),
    ("state/shares/in_flight.rs", "MAX_DELAYED", Row("refusals that are delayed")),
    ("state/shares/in_flight.rs", "MAX_LINGERING", Row("refused connections that are read on")),
    ("state/shares/recent.rs", "MAX_COUNT", FIGURE),
    ("state/shares/refusals.rs", "MAX_MODELS", Shared(Bound::RecordedRefusals)),
    ("state/shares/start_queue.rs", "MAX_WAITING", Shared(Bound::Starts)),
    ("state/shares/queue_capacity.rs", "Pool::new(Bound::Contents)", Shared(Bound::Contents)),
    ("state/shares/queue_capacity.rs", "Pool::new(Bound::Traces)", Shared(Bound::Traces)),
    ("state/token_count_rate.rs", "max_capacity(KEYS)", Row("token counts of a key")),
    ("state/trace_queue/trace_context.rs", "MAX_HEADER", EACH),
    ("state/trace_queue.rs", "QUEUE_CAPACITY", Shared(Bound::Traces)),
    ("state/trace_queue.rs", "mpsc::channel(QUEUE_CAPACITY)", Shared(Bound::Traces)),
    ("state/usage_recorder.rs", "QUEUE_CAPACITY", Row("records in memory that wait for the database")),
    ("state/usage_recorder.rs", "mpsc::channel(QUEUE_CAPACITY)", Row("records in memory that wait for the database")),
    ("upstream/client/fetch.rs", "MAX_DOCUMENT", EACH),
    ("upstream/client/host.rs", "MAX_IDLE", Row("idle upstream connections")),
    ("upstream/client/http1.rs", "MAX_READ", EACH),
    ("upstream/client/http1/body.rs", "MAX_SIZE_LINE", EACH),
    ("upstream/client/http1/body.rs", "MAX_TRAILERS", EACH),
    ("upstream/client/http1/response.rs", "MAX_FIELDS", EACH),
    ("upstream/client/http1/response.rs", "MAX_HEAD", EACH),
    ("upstream/client/model_list.rs", "MAX_LIST_BYTES", EACH),
    ("upstream/client/model_list.rs", "MAX_NAMES", EACH),
    ("upstream/client/connection_permits.rs", "MAX_DIALS", Shared(Bound::UpstreamDials)),
    ("upstream/client/connection_permits.rs", "MAX_HTTP2", Shared(Bound::UpstreamStreams)),
    ("upstream/client/connection_permits.rs", "MAX_WAITING", Shared(Bound::UpstreamStreams)),
    ("upstream/client/connection_permits.rs", "MAX_STREAMS", FIGURE),
    ("upstream/client/connection_permits.rs", "Semaphore::new(Bound::UpstreamDials, 1, MAX_WAITING)", Shared(Bound::UpstreamDials)),
    ("upstream/client/connection_permits.rs", "Semaphore::new(Bound::UpstreamDials, MAX_DIALS, MAX_WAITING)", Shared(Bound::UpstreamDials)),
    ("upstream/client/connection_permits.rs", "Semaphore::new(Bound::UpstreamStreams, MAX_HTTP2 * USUAL_STREAMS, MAX_WAITING)", Shared(Bound::UpstreamStreams)),
    ("upstream/client/probe.rs", "MAX_BYTES", EACH),
    ("upstream/client/request_heads.rs", "MAX_HEADS", OF_THE_CATALOG),
    ("upstream/client/resolver.rs", "MAX_ADDRESSES", EACH),
    ("upstream/media.rs", "MAX_ADDRESSES", Shared(Bound::Media)),
    ("upstream/media.rs", "MAX_AT_ONCE", Shared(Bound::Media)),
    ("upstream/media.rs", "MAX_BYTES", Shared(Bound::Media)),
    ("upstream/media.rs", "MAX_REDIRECTS", Shared(Bound::Media)),
    ("upstream/media.rs", "MAX_REQUEST_BYTES", Shared(Bound::Media)),
    ("upstream/media.rs", "MAX_WAITING", Shared(Bound::Media)),
    ("upstream/media.rs", "Semaphore::new(Bound::Media, MAX_AT_ONCE, MAX_WAITING)", Shared(Bound::Media)),
    ("upstream/media.rs", "max_capacity(CACHE_BYTES)", Shared(Bound::Media)),
];

/// The bounds in one file: names of constants, and constructions.
fn bounds_in(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = source.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines
        .flat_map(|line| constant(line).into_iter().chain(CONSTRUCTIONS.iter().filter_map(|how| construction(line, how))))
        .collect()
}

fn constant(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("const ")?;
    let (name, rest) = rest.split_once(':')?;
    let (kind, _) = rest.split_once('=')?;
    let is_item = before.is_empty() || before.starts_with("pub");
    let is_bound = name.split('_').any(|word| WORDS.contains(&word)) && COUNTS.contains(&kind.trim());
    (is_item && is_bound).then(|| name.to_owned())
}

/// The constructor call with the arguments that are on the same line.
fn construction(line: &str, how: &str) -> Option<String> {
    let at = line.find(how)?;
    let (found, mut depth) = (&line[at..], 0);
    let end = found.find(|character| {
        depth += i32::from(character == '(') - i32::from(character == ')');
        character == ')' && depth == 0
    });
    Some(end.map_or(found, |end| &found[..=end]).to_owned())
}

/// Source files that are not tests, below `folder`.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources can be read").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let is_source = entry.extension().is_some_and(|extension| extension == "rs");
        if entry.is_dir() && !matches!(name.as_str(), "tests" | "testing") {
            sources(&entry, found);
        } else if is_source && !matches!(name.as_str(), "tests.rs" | "testing.rs" | "exercise.rs") {
            found.push(entry);
        }
    }
}

fn found() -> BTreeSet<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut found = BTreeSet::new();
    for file in files {
        let source = fs::read_to_string(&file).expect("a source can be read");
        let name = file.strip_prefix(&root).expect("it is below the sources").to_str().expect("a name").to_owned();
        found.extend(bounds_in(&source).into_iter().map(|bound| (name.clone(), bound)));
    }
    found
}

#[test]
fn every_bound_in_the_sources_is_assigned() {
    let assigned: BTreeSet<_> = ASSIGNED.iter().map(|(file, bound, _)| ((*file).to_owned(), (*bound).to_owned())).collect();
    let found = found();
    let (new, gone): (Vec<_>, Vec<_>) = (found.difference(&assigned).collect(), assigned.difference(&found).collect());
    assert!(new.is_empty(), "give these a row in docs/operating.md, a share in bounds.rs, and assign them here: {new:#?}");
    assert!(gone.is_empty(), "these are not in the sources: {gone:#?}");
    let page = page();
    for (file, bound, assigned) in ASSIGNED {
        match assigned {
            Shared(bound) => assert!(page.contains(&format!("| {} |", bound.row())), "{file}: {bound:?}"),
            Row(row) => assert!(NOT_SHARED.iter().any(|(known, _)| known == row), "{file}: {bound}: no row \"{row}\""),
            Reason(reason) => assert!(!reason.is_empty(), "{file}: {bound}"),
        }
    }
}

#[test]
fn every_shared_bound_is_found_in_the_sources_or_counted_elsewhere() {
    // These are counted by code of their own, or their number is a setting.
    let counted = [
        Bound::Connections,
        Bound::WrongKeys,
        Bound::SquareRequests,
        Bound::RecordedRefusals,
        Bound::Retries,
        Bound::AccountHealth,
        Bound::RefusedFields,
        Bound::Journal,
    ];
    for bound in Bound::ALL {
        let is_assigned = ASSIGNED.iter().any(|(.., assigned)| matches!(assigned, Shared(of) if of == bound));
        assert!(is_assigned || counted.contains(bound), "{bound:?}");
    }
}

#[test]
fn bounds_are_found_by_name_and_by_construction() {
    let source = "
        const MAX_THINGS: usize = 3;
        pub(crate) const QUEUE: u32 = 1;
        const WAIT_LIMIT: Duration = Duration::from_secs(1);
        // const MAX_OLD: usize = 3;
        let (sender, receiver) = mpsc::channel(QUEUE);
        places: Arc::new(Semaphore::new(MAX_THINGS.max(1))),
        #[cfg(test)]\nmod tests {
        const MAX_TEST: usize = 1;";
    let source = source.replace("        #[cfg", "#[cfg");
    let expected = ["MAX_THINGS", "QUEUE", "mpsc::channel(QUEUE)", "Semaphore::new(MAX_THINGS.max(1))"];
    assert_eq!(bounds_in(&source), expected);
}
