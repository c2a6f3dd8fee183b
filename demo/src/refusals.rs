//! Requests that are refused, in the words of the gateway.

use tollgate_core::{NanoUsd, NoRouteCause, Timestamp};
use tollgate_protocol::Protocol;

use crate::{faults::FaultKind, random::Random, workload::Workload};

/// How a request is refused.
#[derive(Clone, Debug)]
pub(crate) struct RefusedRequest {
    pub(crate) status: u16,
    pub(crate) error: &'static str,
    pub(crate) message: String,
}

impl RefusedRequest {
    const fn new(status: u16, error: &'static str, message: String) -> Self {
        Self { status, error, message }
    }

    /// A fault of the caller that is detected before an account is chosen. Also returns the requested model.
    pub(crate) fn by_fault_of_caller(workload: &Workload, model: &str, random: &mut Random) -> (Self, String) {
        let same = model.to_owned();
        match random.below(10) {
            0..3 => {
                let wanted = (*random.one_of(&["gpt-6.1-sol-latest", "claude-sonnet-4", "gemini-flash"])).to_owned();
                let message = format!(
                    "The model '{wanted}' does not exist or your group has no access to it. List the models you can use with GET {}.",
                    if workload.protocol == Protocol::Gemini { "/v1beta/models" } else { "/v1/models" }
                );
                (Self::new(404, "E13", message), wanted)
            }
            3..5 if workload.protocol == Protocol::OpenAi => {
                let message = "Unsupported parameter: 'temperature' is not supported with the model 'gpt-6.1-sol'. Remove the \
                               unsupported parameter; 'model' and 'messages' alone are enough to verify the call.";
                (Self::new(400, "E17", message.to_owned()), "gpt-6.1-sol".to_owned())
            }
            5..7 => {
                let message = "'messages[2].content' must be a text or a list of parts.";
                (Self::new(400, "E21", message.to_owned()), same)
            }
            _ => {
                let wait = random.between((2, 40));
                let message = format!("Rate limit reached for requests per minute: limit 120, used 120. Try again in {wait} s.");
                (Self::new(429, "E31", message), same)
            }
        }
    }

    /// The budget of a key is spent.
    pub(crate) fn budget_spent(spent: NanoUsd, amount: NanoUsd, window: &str, renews_at: Timestamp) -> Self {
        let message = format!(
            "The {window} budget of this API key is spent ({} of {} USD); it renews on {renews_at}.",
            spent.to_usd_string(),
            amount.to_usd_string()
        );
        Self::new(429, "E32", message)
    }

    /// No account was available.
    pub(crate) fn no_route(model: &str, cause: NoRouteCause, protocol: Protocol) -> Self {
        let family = protocol.as_str();
        if cause == NoRouteCause::PriceLimit {
            let message = format!(
                "No available accounts exist for the {family} protocol family: every channel offering model '{model}' is above the \
                 channel price limit of this key's group. Raise the limit, or use another model that GET /v1/models lists."
            );
            return Self::new(503, "E41", message);
        }
        let message = format!(
            "No available accounts exist for the {family} protocol family: model '{model}' has no usable upstream account at the \
             moment. Do not retry without limit: wait, or use another model that GET /v1/models lists."
        );
        Self::new(503, "E40", message)
    }

    /// The attempts of a request failed, the last one like this.
    pub(crate) fn by_upstream(kind: FaultKind, model: &str, timeout_ms: u64) -> Self {
        match kind {
            FaultKind::RateLimited(wait) => {
                let wait = wait.min(60);
                let message =
                    format!("The upstream provider's rate limit is reached for the model '{model}'. Try again in {wait} s.");
                Self::new(429, "E54", message)
            }
            FaultKind::Overloaded(_) => Self::new(503, "E56", "The upstream provider is overloaded.".to_owned()),
            FaultKind::Broken => Self::new(502, "E55", "The upstream provider failed with status 500.".to_owned()),
            FaultKind::Silent => {
                Self::new(504, "E51", format!("The upstream provider did not answer within {} s.", timeout_ms / 1_000))
            }
            FaultKind::Unreachable => Self::new(502, "E50", "The upstream provider could not be reached.".to_owned()),
            FaultKind::CredentialRefused | FaultKind::CreditSpent => {
                let message = "The upstream provider refused the gateway's account. The operator has been informed.";
                Self::new(502, "E53", message.to_owned())
            }
            FaultKind::CutOff => {
                let message = "The upstream provider's stream ended before the answer was complete.";
                Self::new(200, "E59", message.to_owned())
            }
        }
    }
}
