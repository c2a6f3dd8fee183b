//! Why a command ends with an exit code other than 0: what, where, and what to do next.

use std::fmt;

use tollgate_store::{ErrorClass, StoreError};

/// A failure with its exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// 1: the machine or the data says no.
    Machine(String),
    /// 2: the command line is wrong.
    Usage(String),
    /// 3: what the operator wrote is wrong; every fault found.
    Written(Vec<String>),
    /// 4: something a command needs cannot be reached.
    Unreachable(String),
}

impl Failure {
    /// The process's exit code.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Machine(_) => 1,
            Self::Usage(_) => 2,
            Self::Written(_) => 3,
            Self::Unreachable(_) => 4,
        }
    }

    /// One fault in what the operator wrote.
    pub(crate) fn written(text: impl Into<String>) -> Self {
        Self::Written(vec![text.into()])
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(text) | Self::Usage(text) | Self::Unreachable(text) => f.write_str(text),
            Self::Written(faults) => f.write_str(&faults.join("\n")),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error.fault() {
            ErrorClass::Data => Self::Machine(error.to_string()),
            ErrorClass::Operator => Self::written(error.to_string()),
            ErrorClass::Unreachable => Self::Unreachable(error.to_string()),
        }
    }
}
