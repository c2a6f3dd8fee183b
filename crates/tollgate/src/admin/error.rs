//! What a refusal of the admin API means for a command: its words, what to do next, and the exit code.

use http::{Response, StatusCode};
use serde_json::Value;
use tollgate_console::{Body, InternalFailure};
use tollgate_store::ErrorClass;

use super::remote;
use crate::failure::Failure;

/// Longest refusal that is read.
const REFUSAL_BYTES: usize = 1 << 20;

/// A refusal.
#[derive(Debug)]
pub(crate) struct AdminRefusal {
    /// Status.
    pub(crate) status: StatusCode,
    /// Its word, such as `not_found`; empty where the answer is no refusal of the admin API.
    pub(crate) code: String,
    /// What it says.
    pub(crate) message: String,
    /// Faults of a file: line, column, words.
    pub(crate) faults: Vec<(u64, u64, String)>,
}

/// Why there is no answer that went well.
#[derive(Debug)]
pub(crate) enum AdminError {
    /// The admin API said no.
    Refused(AdminRefusal),
    /// It did not come to that.
    Failed(Failure),
}

impl From<Failure> for AdminError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<AdminError> for Failure {
    fn from(trouble: AdminError) -> Self {
        match trouble {
            AdminError::Failed(failure) => failure,
            AdminError::Refused(refused) => refused.failure(),
        }
    }
}

impl AdminRefusal {
    /// With its exit code, and where to look.
    fn failure(&self) -> Failure {
        let message = self.message.trim_end_matches('.').to_owned();
        let text = match (self.code.as_str(), where_to_look(&self.message)) {
            ("not_found", Some(verb)) => format!("{message}; `tollgate {verb}` shows them"),
            ("invalid_api_key" | "missing_api_key", _) => {
                format!("{message}; check TOLLGATE_ADMIN_KEY (or --admin-key)")
            }
            ("already_exists", _) => format!("{message}; take another name, or remove it first"),
            _ => message,
        };
        match self.status.as_u16() {
            400 | 401 | 403 | 413 | 415 => Failure::written(text),
            // What was written cannot be: the row is a file's, the idempotency key another posting's.
            409 if matches!(self.code.as_str(), "owned_by_file" | "idempotency_key_reused") => Failure::written(text),
            408 | 429 | 502..=504 => Failure::Unreachable(format!("{text}; try again in a moment")),
            _ => Failure::Machine(text),
        }
    }
}

/// The verb that lists what a `There is no …` names.
fn where_to_look(message: &str) -> Option<&'static str> {
    let kind = message.strip_prefix("There is no ")?.split(" '").next()?;
    Some(match kind {
        "key" => "key list",
        "admin key" => "admin-key list",
        "channel" | "account" | "served model" => "channel list",
        "model" => "model list",
        "group" => "group list",
        "member" => "member list",
        "usage record" => "usage tail",
        _ => return None,
    })
}

/// Nobody there speaks the admin API.
pub(super) fn not_admin_api(place: &str) -> Failure {
    Failure::Unreachable(format!(
        "what answers at {place} is not the admin API of a tollgate: check --url (TOLLGATE_URL); where console.listen is set, it \
         is that address"
    ))
}

/// Reads a refusal.
pub(super) async fn read(response: Response<Body>, place: &str) -> AdminError {
    let status = response.status();
    if let Some(InternalFailure { fault, message }) = response.extensions().get::<InternalFailure>().cloned() {
        return AdminError::Failed(match fault {
            ErrorClass::Data => Failure::Machine(message),
            ErrorClass::Operator => Failure::written(message),
            ErrorClass::Unreachable => Failure::Unreachable(message),
        });
    }
    let id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let bytes = match remote::read_body(response.into_body(), REFUSAL_BYTES).await {
        Ok(bytes) => bytes,
        Err(failure) => return failure.into(),
    };
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let error = &body["error"];
    let (Some(message), Some(code)) = (error["message"].as_str(), error["code"].as_str()) else {
        return not_admin_api(place).into();
    };
    if code == "unknown_url" {
        return not_admin_api(place).into();
    }
    let mut message = message.to_owned();
    if status == StatusCode::INTERNAL_SERVER_ERROR
        && let Some(id) = id
    {
        message = format!("{} ({id})", message.trim_end_matches('.'));
    }
    let fault = |it: &Value| Some((it["line"].as_u64()?, it["column"].as_u64()?, it["message"].as_str()?.to_owned()));
    let faults = error["faults"].as_array().into_iter().flatten().filter_map(fault).collect();
    AdminError::Refused(AdminRefusal { status, code: code.to_owned(), message, faults })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, code: &str, message: &str) -> Failure {
        let status = StatusCode::from_u16(status).unwrap();
        AdminRefusal { status, code: code.to_owned(), message: message.to_owned(), faults: Vec::new() }.failure()
    }

    #[test]
    fn exit_codes_say_who_can_mend_it() {
        for (status, code, exit) in [
            (400, "invalid_value", 3),
            (401, "invalid_api_key", 3),
            (403, "admin_only", 3),
            (404, "not_found", 1),
            (409, "owned_by_file", 3),
            (409, "already_exists", 1),
            (409, "revision_conflict", 1),
            (429, "rate_limit_exceeded", 4),
            (500, "internal_error", 1),
            (503, "database_unavailable", 4),
            (503, "server_overloaded", 4),
        ] {
            assert_eq!(failure(status, code, "No.").code(), exit, "{status} {code}");
        }
    }

    #[test]
    fn what_is_not_there_is_shown_where_to_find() {
        let said = failure(404, "not_found", "There is no admin key 'x'.").to_string();
        assert_eq!(said, "There is no admin key 'x'; `tollgate admin-key list` shows them");
        assert!(failure(404, "not_found", "There is no account 'x'.").to_string().contains("channel list"));
    }
}
