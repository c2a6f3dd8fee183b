//! Errors of becoming a member.

use http::StatusCode;

use super::ApiError;

impl ApiError {
    /// 403: invites are of no use while registration is off.
    pub(crate) fn registration_off() -> Self {
        let message = "Registration is off: invites can be neither made nor accepted. An admin can change access.registration.";
        Self::new(StatusCode::FORBIDDEN, "registration_off", message)
    }

    /// 403: visitors cannot register.
    pub(crate) fn registration_closed() -> Self {
        let message = "Visitors cannot register here. Ask an admin for an invite.";
        Self::new(StatusCode::FORBIDDEN, "registration_closed", message)
    }

    /// 409: the same for a name and for an e-mail address of another member.
    pub(crate) fn login_taken() -> Self {
        let message = "The name or the e-mail address cannot be used. Choose another name, or leave the address out.";
        Self::conflict("login_taken", message)
    }

    /// 429: too many registrations.
    pub(crate) fn too_many_registrations(retry_after: u32) -> Self {
        let message = format!("Too many registrations. Try again in {retry_after} s.");
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        Self { kind: "rate_limit_error", retry_after: Some(retry_after), ..problem }
    }
}
