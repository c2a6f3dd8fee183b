//! The data plane: the path of a model request, from the socket to the last byte of the answer.
//!
//! Modules stand in the order a request meets them.

mod server;

mod incoming;
mod ingress;

mod path;

mod authenticate;
mod receive;

mod admit;
mod route;
mod terms;
mod translate;

mod forward;
mod relay;

mod dropped;
mod ticket;
mod till;

mod lists;

mod answer;
mod refusal;

mod elsewhere;

mod explain;
mod known;

mod account_places;
mod account_room;
mod alerts;
mod clock;
mod health_board;
mod hedge_spending;
mod lessons;
mod media;
mod metrics;
mod news;
mod pace;
mod probes;
mod settings;
mod shared;
mod trace;
mod traffic;

pub use account_room::AccountUsage;
pub use account_room::Permit;
pub use alerts::{AlertQueue, Alerts, Webhook};
pub use answer::{AnswerAborted, AnswerBody};
pub use authenticate::{AuthError, Authenticator, authenticate};
pub use clock::{Clock, CoreRng, SystemClock};
pub use elsewhere::{
    FallbackQueue, FallbackRequest, FallbackRequests, FallbackResponder, FallbackResponse, FallbackService, NotFound,
    PendingFallback, queue,
};
pub use explain::{
    CallerCounters, CallerLimit, Candidate, CapacityBound, CounterSource, Estimate, ExcludedAccount, ExplainInput, ExplainRequest,
    Explanation, Refused, RefusedField, SubjectCounters, USUAL_INPUT, explain, subjects_of,
};
pub use forward::{
    Client, ConnectFault, ProbeFault, ProbeStep, RetryBudget, SentMark, Trust, Upstream, UpstreamAnswer, UpstreamBody,
    UpstreamBodyFault, UpstreamCall, UpstreamDispatch, UpstreamError, is_public, probe,
};
pub use health_board::{HealthRegistry, RegistrySnapshot};
pub use incoming::{Head, Incoming, RequestBody, RequestBodyFault};
pub use known::{AccountUsageEntry, ChannelSpending, LearnedFields, RuntimeState, SubjectUsage, budgets};
pub use metrics::{METRICS_CONTENT_TYPE, Metrics};
pub use path::{Core, serve};
pub use probes::Probes;
pub use receive::receive;
pub use refusal::{
    BudgetSubject, LimitKind, LimitSubject, RateFigures, RateLimit, Refusal, Rejection, SpentBudget, UpstreamFailure,
};
pub use server::{Certificate, Drained, ListenError, Listening, ModelPath, RunError, TlsError, listen, run, tls_acceptor};
pub use settings::{Bounds, HttpLimits, MetricsAccess, Settings, TlsFiles, UpstreamLimits};
pub use shared::{Condition, Readiness, Shared};
pub use ticket::UsageRecorder;
pub use till::{UsageBacklog, UsageQueue, UsageWriter, UsageWriterParts, replay};
pub use traffic::{Traffic, TrafficView};

#[cfg(test)]
mod testing;
