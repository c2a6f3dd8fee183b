//! Error responses of the admin API as errors of a command, with hints and exit codes.

use http::{Response, StatusCode};
use serde_json::Value;
use tollgate_console::{Body, InternalFailure};
use tollgate_store::ErrorClass;

use super::remote;
use crate::failure::Failure;

/// Largest error response.
const MAX_ERROR_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct AdminRefusal {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
    /// Faults of a catalog file: line, column, message.
    pub(crate) faults: Vec<(u64, u64, String)>,
}

#[derive(Debug)]
pub(crate) enum AdminError {
    /// The admin API answered with an error.
    Refused(AdminRefusal),
    /// There is no response, or it is not from an admin API.
    Failed(Failure),
}

impl From<Failure> for AdminError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Failed(failure) => failure,
            AdminError::Refused(refused) => refused.failure(),
        }
    }
}

impl AdminRefusal {
    /// Adds a hint and chooses the exit code.
    fn failure(&self) -> Failure {
        let message = self.message.trim_end_matches('.').to_owned();
        let text = match (self.code.as_str(), list_command(&self.message)) {
            ("not_found", Some(command)) => format!("{message}; `tollgate {command}` shows them"),
            ("invalid_api_key" | "missing_api_key", _) => {
                format!("{message}; check TOLLGATE_ADMIN_KEY (or --admin-key)")
            }
            _ => message,
        };
        match self.status.as_u16() {
            400 | 401 | 403 | 413 | 415 => Failure::invalid(text),
            // The request can never succeed: the row is owned by a file, or the idempotency key belongs to another posting.
            409 if matches!(self.code.as_str(), "owned_by_file" | "idempotency_key_reused") => Failure::invalid(text),
            408 | 429 | 502..=504 => Failure::Unreachable(format!("{text}; try again in a moment")),
            _ => Failure::Machine(text),
        }
    }
}

/// The command that lists rows of the kind that a `There is no …` message names.
fn list_command(message: &str) -> Option<&'static str> {
    let kind = message.strip_prefix("There is no ")?.strip_suffix(" with this name or id.")?;
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

pub(super) fn not_admin_api(server: &str) -> Failure {
    Failure::Unreachable(format!(
        "the server at {server} is not the admin API of a tollgate gateway: check --url (TOLLGATE_URL); if console.listen is set, \
         use that address"
    ))
}

pub(super) async fn read(response: Response<Body>, server: &str) -> AdminError {
    let status = response.status();
    if let Some(InternalFailure { fault, message }) = response.extensions().get::<InternalFailure>().cloned() {
        return AdminError::Failed(match fault {
            ErrorClass::Data => Failure::Machine(message),
            ErrorClass::Operator => Failure::invalid(message),
            ErrorClass::Unreachable => Failure::Unreachable(message),
        });
    }
    let id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let bytes = match remote::read_body(response.into_body(), MAX_ERROR_BYTES).await {
        Ok(bytes) => bytes,
        Err(failure) => return failure.into(),
    };
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let error = &body["error"];
    let (Some(message), Some(code)) = (error["message"].as_str(), error["code"].as_str()) else {
        return not_admin_api(server).into();
    };
    if code == "unknown_url" {
        return not_admin_api(server).into();
    }
    let mut message = message.to_owned();
    if status == StatusCode::INTERNAL_SERVER_ERROR
        && let Some(id) = id
    {
        message = format!("{} ({id})", message.trim_end_matches('.'));
    }
    let fault = |fault: &Value| Some((fault["line"].as_u64()?, fault["column"].as_u64()?, fault["message"].as_str()?.to_owned()));
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
    fn exit_codes_follow_status_and_code() {
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
    fn missing_rows_name_the_list_command() {
        let text = failure(404, "not_found", "There is no admin key with this name or id.").to_string();
        assert_eq!(text, "There is no admin key with this name or id; `tollgate admin-key list` shows them");
        assert!(failure(404, "not_found", "There is no account with this name or id.").to_string().contains("channel list"));
    }
}
