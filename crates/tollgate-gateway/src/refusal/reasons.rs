//! Conversions from core's reasons to refusals: a model that is not offered, a limit that is exceeded.

use tollgate_core::{
    FundsStatus, LimitExceeded, NotOffered, RateExceeded, RateKind, RateStatus, RateStatuses, Subject, Timestamp, Window,
};
use tollgate_protocol::RequestSummary;

use super::{BudgetSubject, LimitKind, LimitSubject, RateFigures, RateLimit, Refusal, SpentBudget};

impl Refusal {
    /// E13 to E17: the model is not offered for this caller or request.
    pub(crate) fn not_offered(reason: NotOffered, summary: &RequestSummary) -> Self {
        let model = summary.model.clone();
        match reason {
            NotOffered::Unknown => Self::ModelNotFound { model, hidden: false },
            NotOffered::OutsideGroup => Self::ModelNotFound { model, hidden: true },
            NotOffered::Method { supports } => Self::MethodUnsupported { model, supports },
            NotOffered::Unsupported { fields } => Self::Unsupported { fields, model, reason: None },
        }
    }

    /// E31 to E33, for a request that arrived at `at`.
    pub(crate) fn limit_exceeded(exceeded: &LimitExceeded, at: Timestamp) -> Self {
        match exceeded {
            LimitExceeded::Rate(rate) => rate_limited(rate),
            LimitExceeded::Money(funds) => insufficient_funds(funds, at),
        }
    }
}

impl RateFigures {
    /// The figures for the rate-limit headers.
    pub(crate) fn of(statuses: &RateStatuses) -> Self {
        let left = |status: RateStatus| status.limit.saturating_sub(status.used);
        Self {
            limit_requests: statuses.requests.map(|status| status.limit),
            limit_tokens: statuses.tokens.map(|status| status.limit),
            remaining_requests: statuses.requests.map(left),
            remaining_tokens: statuses.tokens.map(left),
            reset_requests_ms: statuses.requests.map(|status| status.reset_ms),
            reset_tokens_ms: statuses.tokens.map(|status| status.reset_ms),
        }
    }
}

fn rate_limited(rate: &RateExceeded) -> Refusal {
    let subject = match rate.subject {
        Subject::Key(_) => LimitSubject::Key,
        Subject::Member(_) => LimitSubject::Member,
        // Channels and the gateway as a whole have no rates.
        Subject::Group(_) | Subject::Channel(_) | Subject::Gateway => LimitSubject::Group,
    };
    let limited = match rate.kind {
        RateKind::Requests => LimitKind::Requests,
        RateKind::Tokens => LimitKind::Tokens,
        RateKind::Concurrency => LimitKind::Concurrency,
    };
    let retry_after = u32::try_from(rate.wait_ms.div_ceil(1_000)).unwrap_or(u32::MAX).clamp(1, 60);
    let figures = RateFigures::of(&rate.rate_statuses);
    Refusal::RateLimited(Box::new(RateLimit { limited, subject, limit: rate.limit, used: rate.used, retry_after, figures }))
}

/// Nothing is left (E32), or not enough for this request (E33).
fn insufficient_funds(funds: &FundsStatus, at: Timestamp) -> Refusal {
    let subject = match funds.subject {
        Subject::Member(_) if funds.budget.is_none() => BudgetSubject::Balance,
        Subject::Key(_) => BudgetSubject::Key,
        Subject::Member(_) => BudgetSubject::Member,
        Subject::Group(_) => BudgetSubject::Group,
        // A channel's budget excludes the channel; it never refuses a caller.
        Subject::Gateway | Subject::Channel(_) => BudgetSubject::Gateway,
    };
    if funds.left.0 > 0 {
        return Refusal::TooDear(subject);
    }
    let spent = match funds.budget {
        Some(budget) => SpentBudget {
            subject,
            window: budget.window,
            spent: funds.spent,
            amount: budget.amount,
            renews_at: budget.window.ends(at),
        },
        None => SpentBudget { subject, window: Window::Total, spent: funds.spent, amount: funds.left, renews_at: None },
    };
    Refusal::Spent(Box::new(spent))
}
