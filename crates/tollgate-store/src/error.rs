//! Errors of the store. Each has an [`ErrorClass`], which the binary turns into its exit code.

use std::{fmt, io, path::PathBuf};

use tollgate_core::{MemberId, Revision};

use crate::{IdentityRefusal, RowKind};

/// The party that can resolve a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The machine or the stored data is at fault (exit code 1).
    Data,
    /// The operator's input is wrong or missing (exit code 3).
    Operator,
    /// A database cannot be reached (exit code 4).
    Unreachable,
}

/// A failure of the store. Messages say what failed, where, and what to do next. No address in it has its password.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot read the database address '{url}': {detail}; use sqlite:<path>, postgres://… or memory:")]
    BadUrl { url: String, detail: String },
    #[error("cannot read the Redis address '{url}': {detail}; use redis://… or rediss://…")]
    BadRedisUrl { url: String, detail: String },
    /// The database does not answer, closed the connection, or accepts no writes for now.
    #[error("cannot reach the database at {database}: {detail}; check that it runs and that the address is right")]
    Unreachable { database: String, detail: String },
    #[error(
        "the database at {database} was written by a newer tollgate (schema {found}, this one supports up to {known}); \
         start the newer version again, or restore the backup made before the upgrade"
    )]
    Newer { database: String, found: i64, known: i64 },
    /// The file is damaged or not a tollgate database; it is never overwritten.
    #[error("the database at {database} is damaged or is not a tollgate database: {detail}; nothing was written; restore a backup")]
    Corrupt { database: String, detail: String },
    #[error("{location} is in use by another tollgate{}; stop it first, or give this one another folder", by_process(holder.as_ref()))]
    InUse { location: String, holder: Option<u32> },
    #[error(
        "another tollgate serves from the database at {database}; several nodes on one database share their counters in Redis: \
         set redis.url (REDIS_URL) on every one of them"
    )]
    SecondNode { database: String },
    #[error("cannot move the gateway to {database}: {detail}")]
    TransferRefused { database: String, detail: String },
    #[error("the backup {}: {detail}", .path.display())]
    Backup { path: PathBuf, detail: String },
    #[error("cannot restore into {location}: {detail}")]
    RestoreRefused { location: String, detail: String },
    /// The journal's message.
    #[error("{detail}")]
    Journal { detail: String },
    #[error("cannot {action} {}: {source}; check that it exists, its owner and its mode", .path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the master key is missing ({location}), and {database} holds secrets sealed with it; put the key back \
         (or set TOLLGATE_MASTER_KEY); without it credentials and keys must be entered again"
    )]
    MasterKeyMissing { location: String, database: String },
    #[error(
        "there is no database at {database}, and {folder} holds the master key of one; put the database back (`tollgate restore`), or, \
         to start from scratch, move master.key and the folder journal out of {folder} (to keep the key, name it in database.master_key)"
    )]
    DatabaseMissing { database: String, folder: String },
    #[error("the master key cannot be rotated: {detail}")]
    RotationRefused { detail: String },
    #[error("the master key ({location}) is not the one that sealed {database}; nothing was written; put the right key back")]
    MasterKeyWrong { location: String, database: String },
    #[error("cannot read the master key file {path}: {source}; check database.master_key (or TOLLGATE_MASTER_KEY_FILE)", path = path.display())]
    MasterKeyUnreadable { path: PathBuf, source: io::Error },
    #[error("the master key ({location}) is not readable: {detail}; a line is 'tgm1:' and 32 bytes in base64")]
    MasterKeyMalformed { location: String, detail: String },
    #[error("a sealed value cannot be opened ({table}.{column} of {row}); it was changed or moved; enter the secret again")]
    Sealed { table: &'static str, column: &'static str, row: String },
    #[error("a stored row cannot be read ({kind} {row}): {detail}; restore a backup, or remove the row")]
    Row { kind: &'static str, row: String, detail: String },
    /// A change was refused; no part of its batch was written.
    #[error("{0}")]
    Refused(ChangeRefused),
    /// A posting was refused; the ledger is unchanged.
    #[error(transparent)]
    Posting(#[from] PostingRefused),
    /// The database rejected a value: out of range, or against a constraint. Retrying cannot help.
    #[error("the database rejected the data: {detail}")]
    InvalidData { detail: String },
    /// A sum that would read more records than its bound.
    #[error(
        "the sum is read from the records, of which the time has {records}; at most {max} are read: \
         take a later 'since', set 'until', or filter by a key"
    )]
    TooManyRecords { records: u64, max: u64 },
    /// A sum with more groups than the bound for one pass.
    #[error("the sum has more than {max} groups; group by one thing less, or filter by a group, model, member, channel or key")]
    TooManyGroups { max: usize },
    /// Long work ended before it was complete.
    #[error("it was cancelled")]
    Cancelled,
    #[error("the database failed to {operation}: {source}")]
    Query { operation: &'static str, source: sqlx::Error },
}

fn by_process(pid: Option<&u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl StoreError {
    /// The party that can resolve the failure.
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable { .. } => ErrorClass::Unreachable,
            Self::BadUrl { .. }
            | Self::BadRedisUrl { .. }
            | Self::SecondNode { .. }
            | Self::TransferRefused { .. }
            | Self::RestoreRefused { .. }
            | Self::MasterKeyMissing { .. }
            | Self::RotationRefused { .. }
            | Self::MasterKeyWrong { .. }
            | Self::MasterKeyUnreadable { .. }
            | Self::MasterKeyMalformed { .. }
            | Self::Refused(_)
            | Self::Posting(_) => ErrorClass::Operator,
            Self::Newer { .. }
            | Self::Corrupt { .. }
            | Self::DatabaseMissing { .. }
            | Self::Backup { .. }
            | Self::Journal { .. }
            | Self::InUse { .. }
            | Self::File { .. }
            | Self::Sealed { .. }
            | Self::Row { .. }
            | Self::InvalidData { .. }
            | Self::Cancelled
            | Self::TooManyRecords { .. }
            | Self::TooManyGroups { .. }
            | Self::Query { .. } => ErrorClass::Data,
        }
    }

    /// Whether the database is temporarily unreachable, so that a retry may succeed.
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Whether the database rejected a value. A batch may succeed without the record that holds it.
    pub const fn is_invalid_data(&self) -> bool {
        matches!(self, Self::InvalidData { .. })
    }
}

/// A refused change of a batch; no part of the batch was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRefused {
    pub kind: RowKind,
    /// Name of the row, prefixed with its channel or member if it has one.
    pub name: String,
    /// Why it was refused.
    pub reason: ChangeRefusal,
}

/// Why a change was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeRefusal {
    /// No such row.
    NotFound,
    /// The row is owned by a served catalog file.
    OwnedByFile,
    /// The row refers to a row that does not exist.
    Unknown { kind: RowKind, name: String },
    /// A new account or key has no secret.
    NeedsSecret,
    /// The secret already belongs to another key.
    SecretTaken,
    /// One or more fields are invalid.
    Invalid(Vec<FieldProblem>),
    /// A revoked key cannot be reactivated.
    Revoked,
    /// The change would remove the last admin.
    LastAdmin,
    /// The member has as many keys as it may make.
    TooManyKeys { most: u32 },
    /// A row of this name exists.
    Exists,
    /// The row was changed after the expected revision.
    RowStale { expected: Revision, found: Revision },
    /// The same batch was applied before under this idempotency key; it first wrote this row.
    Repeated { kind: RowKind, id: String },
    /// Another batch was applied under this idempotency key.
    IdempotencyKeyReused,
    /// A change of how a member signs in.
    Identity(IdentityRefusal),
    /// The catalog was changed after the expected revision.
    Stale { expected: Revision, found: Revision },
}

/// An invalid field of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// Name of the field in a catalog file.
    pub field: &'static str,
    /// Why it is invalid.
    pub message: String,
}

impl fmt::Display for ChangeRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, reason } = self;
        match reason {
            ChangeRefusal::Stale { expected, found } => write!(
                f,
                "the catalog was changed concurrently (now revision {}, expected {}); read it again and retry",
                found.0, expected.0
            ),
            ChangeRefusal::NotFound => write!(f, "there is no {kind} '{name}'"),
            ChangeRefusal::OwnedByFile => write!(f, "{kind} '{name}' is owned by the served catalog file; change it there"),
            ChangeRefusal::Unknown { kind: other, name: missing } => {
                write!(f, "{kind} '{name}' names {other} '{missing}', which does not exist")
            }
            ChangeRefusal::NeedsSecret => write!(f, "{kind} '{name}' is new and needs its secret"),
            ChangeRefusal::SecretTaken => write!(f, "the secret of {kind} '{name}' already belongs to another key"),
            ChangeRefusal::Invalid(problems) => {
                write!(f, "{kind} '{name}':")?;
                for (i, problem) in problems.iter().enumerate() {
                    write!(f, "{} {}: {}", if i == 0 { "" } else { ";" }, problem.field, problem.message)?;
                }
                Ok(())
            }
            ChangeRefusal::TooManyKeys { most } => {
                write!(f, "a member makes at most {most} keys; ask an operator to end some that are not used, or for another one")
            }
            ChangeRefusal::Revoked => write!(f, "{kind} '{name}' is revoked permanently; create a new key"),
            ChangeRefusal::Exists => {
                write!(f, "there is {} {kind} '{name}' already; change that one, or take another name", kind.article())
            }
            ChangeRefusal::RowStale { expected, found } => write!(
                f,
                "{kind} '{name}' was changed concurrently (now revision {}, expected {}); read it again and retry",
                found.0, expected.0
            ),
            ChangeRefusal::Repeated { kind: made, id } => {
                write!(f, "this idempotency key was already used; it created {made} {id}")
            }
            ChangeRefusal::IdempotencyKeyReused => f.write_str("the idempotency key belongs to another request; use a new one"),
            ChangeRefusal::Identity(reason) => reason.fmt(f),
            ChangeRefusal::LastAdmin => write!(f, "{kind} '{name}' is the last admin; make another one first"),
        }
    }
}

impl std::error::Error for ChangeRefused {}

/// Why a posting was refused; the ledger is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostingRefused {
    #[error("there is no member {0}")]
    NoMember(MemberId),
    #[error("{0}")]
    Amount(&'static str),
    #[error("the idempotency key '{0}' belongs to another posting; use a new one")]
    KeyTaken(String),
    #[error("{0}")]
    Text(&'static str),
    #[error("the balance would exceed the limit of 1,000,000,000 USD")]
    Overflow,
}
