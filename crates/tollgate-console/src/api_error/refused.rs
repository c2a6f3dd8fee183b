//! Errors for changes that the store refused.

use tollgate_store::{ChangeRefusal, ChangeRefused, IdentityRefusal, RowKind};

use super::{ApiError, sentence};

impl ApiError {
    /// Error for a change that the store refused; `file` is the path of the served catalog file.
    pub(crate) fn refused(refused: &ChangeRefused, file: Option<&str>) -> Self {
        let message = sentence(&refused.to_string());
        match &refused.reason {
            ChangeRefusal::NotFound => Self::not_found(refused.kind),
            ChangeRefusal::OwnedByFile => {
                let file = file.map_or_else(String::new, |file| format!(" {file}"));
                let ChangeRefused { kind, name, .. } = refused;
                Self::conflict(
                    "owned_by_file",
                    format!("The {kind} '{name}' is owned by the served catalog file{file}; change it there."),
                )
            }
            ChangeRefusal::Unknown { kind, .. } => {
                let param = match kind {
                    RowKind::Channel => "channels",
                    RowKind::Group => "groups",
                    RowKind::Member => "member",
                    RowKind::Account
                    | RowKind::Model
                    | RowKind::Key
                    | RowKind::AdminKey
                    | RowKind::Setting
                    | RowKind::AlertDestination => "name",
                };
                Self::invalid("invalid_value", param, message)
            }
            ChangeRefusal::NeedsSecret => Self::invalid("missing_required_parameter", "credential", message),
            ChangeRefusal::Invalid(problems) => {
                let param = problems.first().map_or("", |problem| problem.field);
                let others = problems.iter().skip(1).map(|problem| Self::invalid("invalid_value", problem.field, &message));
                Self { others: others.collect(), ..Self::invalid("invalid_value", param, &message) }
            }
            ChangeRefusal::Identity(reason) => match reason {
                IdentityRefusal::LinkInvalid | IdentityRefusal::InviteInvalid => Self::no_token(*reason),
                IdentityRefusal::CodeUsed => Self::wrong_code(),
                IdentityRefusal::EmailTaken | IdentityRefusal::SubjectTaken | IdentityRefusal::LinkExists => {
                    Self::conflict("already_exists", message)
                }
                IdentityRefusal::TooManyInvites => Self::conflict("too_many_invites", message),
                IdentityRefusal::PasskeyTaken => Self::conflict("already_exists", message),
                IdentityRefusal::TooManyPasskeys => Self::conflict("too_many_passkeys", message),
                IdentityRefusal::PasskeyCounter => Self::wrong_passkey(),
                IdentityRefusal::ChallengeUsed => Self::no_challenge(),
            },
            ChangeRefusal::SecretTaken | ChangeRefusal::Exists => Self::conflict("already_exists", message),
            ChangeRefusal::TooManyKeys { .. } => Self::conflict("too_many_keys", message),
            ChangeRefusal::Revoked => Self::conflict("key_revoked", message),
            ChangeRefusal::LastAdmin => Self::conflict("last_admin", message),
            ChangeRefusal::Stale { .. } | ChangeRefusal::RowStale { .. } => Self::conflict("revision_conflict", message),
            ChangeRefusal::Repeated { .. } | ChangeRefusal::IdempotencyKeyReused => {
                Self::conflict("idempotency_key_reused", message)
            }
        }
    }
}
