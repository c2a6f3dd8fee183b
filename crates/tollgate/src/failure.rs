//! Errors of commands, with their exit codes.

use std::fmt;

use tollgate_store::{ErrorClass, StoreError};

/// Error of a command. Each variant has its own exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// 1: the system or the data is at fault.
    Machine(String),
    /// 2: invalid command line.
    Usage(String),
    /// 3: invalid settings, catalog or request; every fault found.
    Invalid(Vec<String>),
    /// 4: the database or gateway is unreachable.
    Unreachable(String),
}

impl Failure {
    /// Exit code of the process.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Machine(_) => 1,
            Self::Usage(_) => 2,
            Self::Invalid(_) => 3,
            Self::Unreachable(_) => 4,
        }
    }

    /// Both failures where each is a list of faults; otherwise the one that is not.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Invalid(mut faults), Self::Invalid(more)) => {
                faults.extend(more.into_iter().filter(|fault| !faults.contains(fault)).collect::<Vec<_>>());
                Self::Invalid(faults)
            }
            (Self::Invalid(_), other) => other,
            (first, _) => first,
        }
    }

    /// [`Self::Invalid`] with one fault.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(vec![text.into()])
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(text) | Self::Usage(text) | Self::Unreachable(text) => f.write_str(text),
            Self::Invalid(faults) => f.write_str(&faults.join("\n")),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error.class() {
            ErrorClass::Data => Self::Machine(error.to_string()),
            ErrorClass::Operator => Self::invalid(error.to_string()),
            ErrorClass::Unreachable => Self::Unreachable(error.to_string()),
        }
    }
}
