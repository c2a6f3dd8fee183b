//! What can go wrong with memory, sorted by who can mend it: the binary turns [`ErrorClass`] into its exit code.

use std::{fmt, io, path::PathBuf};

use tollgate_core::Revision;

use crate::{PostingRefused, RowKind};

/// Who can mend a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The machine or the data says no (exit code 1).
    Data,
    /// What the operator wrote is wrong or missing (exit code 3).
    Operator,
    /// A database cannot be reached (exit code 4).
    Unreachable,
}

/// A failure of the store. Messages say what, where, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address of the database cannot be read.
    #[error("cannot read the database address '{url}': {detail}; use sqlite:<path>, postgres://… or memory:")]
    BadUrl {
        /// As given, without a password.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The address of Redis cannot be read.
    #[error("cannot read the Redis address '{url}': {detail}; use redis://… or rediss://…")]
    BadRedisUrl {
        /// As given, without a password.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Nobody answers, or the answer is that the connection ends.
    #[error("cannot reach the database at {place}: {detail}; check that it runs and that the address is right")]
    Unreachable {
        /// Which database, without a password.
        place: String,
        /// The driver's words.
        detail: String,
    },
    /// A newer tollgate has written this database.
    #[error(
        "the database at {place} was written by a newer tollgate (schema {found}, this one knows {known}); \
         start the newer version again, or restore the backup made before the upgrade"
    )]
    Newer {
        /// Which database.
        place: String,
        /// Its schema.
        found: i64,
        /// The newest schema this program knows.
        known: i64,
    },
    /// The file is not a sound database; it is never written over.
    #[error("the database at {place} is damaged or is not a tollgate database: {detail}; nothing was written; restore a backup")]
    Corrupt {
        /// Which database.
        place: String,
        /// What was found.
        detail: String,
    },
    /// Another process serves from this data folder or database.
    #[error("{place} is in use by another tollgate{}; stop it first, or give this one another folder", by_process(holder.as_ref()))]
    InUse {
        /// Folder or database.
        place: String,
        /// Process id of the other one, where it is known.
        holder: Option<u32>,
    },
    /// Another server runs on this PostgreSQL database.
    #[error(
        "another tollgate serves from the database at {place}; several nodes on one database share their counters in Redis: \
         set redis.url (REDIS_URL) on every one of them"
    )]
    SecondNode {
        /// Which database.
        place: String,
    },
    /// A gateway cannot be moved there.
    #[error("cannot move the gateway to {place}: {detail}")]
    MoveRefused {
        /// Which database.
        place: String,
        /// Why.
        detail: String,
    },
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}; check that it exists, its owner and its mode", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// No master key, though something is sealed already.
    #[error(
        "the master key is missing ({place}), and {database} holds secrets sealed with it; put the key back \
         (or set TOLLGATE_MASTER_KEY); without it credentials and keys have to be entered anew"
    )]
    MasterKeyMissing {
        /// Where it was looked for.
        place: String,
        /// Which database.
        database: String,
    },
    /// The master key is not the one that sealed this database.
    #[error("the master key ({place}) is not the one that sealed {database}; nothing was written; put the right key back")]
    MasterKeyWrong {
        /// Where it came from.
        place: String,
        /// Which database.
        database: String,
    },
    /// The file that the settings name cannot be read.
    #[error("cannot read the master key file {path}: {source}; check database.master_key (or TOLLGATE_MASTER_KEY_FILE)", path = path.display())]
    MasterKeyUnreadable {
        /// As the settings name it.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The master key cannot be read as one.
    #[error("the master key ({place}) is not readable: {detail}; a line is 'tgm1:' and 32 bytes in base64")]
    MasterKeyMalformed {
        /// Where it came from.
        place: String,
        /// What is wrong.
        detail: String,
    },
    /// A sealed value was changed, or belongs to another row.
    #[error("a sealed value cannot be opened ({table}.{column} of {row}); it was changed or moved; enter the secret anew")]
    Sealed {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
        /// Row id.
        row: String,
    },
    /// A stored row cannot be understood.
    #[error("a stored row cannot be read ({kind} {row}): {detail}; restore a backup, or remove the row")]
    Row {
        /// What kind of row.
        kind: &'static str,
        /// Its id or name.
        row: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A change was refused; nothing of its batch was written.
    #[error("{0}")]
    Refused(ChangeRefused),
    /// Money was not moved.
    #[error(transparent)]
    Posting(#[from] PostingRefused),
    /// The database does not take what it was given: a value out of its range, or against one of its rules.
    #[error("the database refuses what it was given: {detail}")]
    Unfit {
        /// The driver's words.
        detail: String,
    },
    /// The database answered with an error of its own.
    #[error("the database failed while it was asked to {operation}: {source}")]
    Query {
        /// What was asked.
        operation: &'static str,
        /// The driver's error.
        source: sqlx::Error,
    },
}

fn by_process(pid: Option<&u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl StoreError {
    /// Who can mend it.
    #[must_use]
    pub const fn fault(&self) -> ErrorClass {
        match self {
            Self::Unreachable { .. } => ErrorClass::Unreachable,
            Self::BadUrl { .. }
            | Self::BadRedisUrl { .. }
            | Self::SecondNode { .. }
            | Self::MoveRefused { .. }
            | Self::MasterKeyMissing { .. }
            | Self::MasterKeyWrong { .. }
            | Self::MasterKeyUnreadable { .. }
            | Self::MasterKeyMalformed { .. }
            | Self::Refused(_)
            | Self::Posting(_) => ErrorClass::Operator,
            Self::Newer { .. }
            | Self::Corrupt { .. }
            | Self::InUse { .. }
            | Self::File { .. }
            | Self::Sealed { .. }
            | Self::Row { .. }
            | Self::Unfit { .. }
            | Self::Query { .. } => ErrorClass::Data,
        }
    }

    /// Whether waiting may help: the database is away, not wrong.
    #[must_use]
    pub const fn is_away(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Whether what was given is at fault, and not the database: the same without it may be taken.
    #[must_use]
    pub const fn is_unfit(&self) -> bool {
        matches!(self, Self::Unfit { .. })
    }
}

/// Why a change was refused, and which one of the batch it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRefused {
    /// Kind of row.
    pub kind: RowKind,
    /// Its name, with its channel or member in front where it has one.
    pub name: String,
    /// The reason.
    pub reason: ChangeRefusal,
}

/// The reason of a refused change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeRefusal {
    /// No such row.
    NotFound,
    /// A served catalog file owns it.
    OwnedByFile,
    /// It names a row that does not exist.
    Unknown {
        /// Kind of the row named.
        kind: RowKind,
        /// The name.
        name: String,
    },
    /// A new account or key without a secret.
    NeedsSecret,
    /// The secret belongs to another key already.
    SecretTaken,
    /// A field is wrong.
    Invalid(Vec<FieldProblem>),
    /// A revoked key cannot be used again.
    Revoked,
    /// The last admin would go.
    LastAdmin,
    /// A row of this name is there already.
    Exists,
    /// The row was changed after the revision the change was made for.
    RowStale {
        /// What the change was made for.
        expected: Revision,
        /// The row's last change.
        found: Revision,
    },
    /// The same was asked for before under the same idempotency key; it wrote this row.
    Repeated {
        /// Kind of row.
        kind: RowKind,
        /// Its id.
        id: String,
    },
    /// Something else was asked for under the same idempotency key.
    OnceTaken,
    /// The catalog was changed meanwhile.
    Stale {
        /// What the change was made for.
        expected: Revision,
        /// What is there.
        found: Revision,
    },
}

/// What is wrong with one field of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// The field, as a catalog file spells it.
    pub field: &'static str,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ChangeRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, reason } = self;
        match reason {
            ChangeRefusal::Stale { expected, found } => write!(
                f,
                "the catalog was changed meanwhile (revision {}, this change was made for {}); read it again and repeat",
                found.0, expected.0
            ),
            ChangeRefusal::NotFound => write!(f, "there is no {kind} '{name}'"),
            ChangeRefusal::OwnedByFile => write!(f, "{kind} '{name}' is owned by the served catalog file; change it there"),
            ChangeRefusal::Unknown { kind: other, name: missing } => {
                write!(f, "{kind} '{name}' names {other} '{missing}', which does not exist")
            }
            ChangeRefusal::NeedsSecret => write!(f, "{kind} '{name}' is new and needs its secret"),
            ChangeRefusal::SecretTaken => write!(f, "the secret of {kind} '{name}' belongs to another key already"),
            ChangeRefusal::Invalid(problems) => {
                write!(f, "{kind} '{name}':")?;
                for (i, problem) in problems.iter().enumerate() {
                    write!(f, "{} {}: {}", if i == 0 { "" } else { ";" }, problem.field, problem.message)?;
                }
                Ok(())
            }
            ChangeRefusal::Revoked => write!(f, "{kind} '{name}' is revoked, which is for good; make a new one"),
            ChangeRefusal::Exists => {
                write!(f, "there is {} {kind} '{name}' already; change that one, or take another name", kind.article())
            }
            ChangeRefusal::RowStale { expected, found } => write!(
                f,
                "{kind} '{name}' was changed meanwhile (revision {}, this change was made for {}); read it again and repeat",
                found.0, expected.0
            ),
            ChangeRefusal::Repeated { kind: made, id } => {
                write!(f, "this was done before under the same idempotency key; it made {made} {id}")
            }
            ChangeRefusal::OnceTaken => f.write_str("the idempotency key belongs to another request; use a new one"),
            ChangeRefusal::LastAdmin => write!(f, "{kind} '{name}' is the last admin; make another one first"),
        }
    }
}

impl std::error::Error for ChangeRefused {}
