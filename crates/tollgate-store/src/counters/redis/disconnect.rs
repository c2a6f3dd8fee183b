//! Reasons for which a connection to Redis ends.

use super::script::ScriptError;
use crate::StoreError;

#[derive(Debug, thiserror::Error)]
pub(super) enum Disconnect {
    #[error("{0}")]
    Redis(#[from] redis::RedisError),
    #[error("it did not answer in time")]
    Timeout,
    #[error("the registration of this node has expired")]
    RegistrationLost,
    #[error("a request lost the connection")]
    ConnectionLost,
    #[error("it holds no data, and the database cannot provide it: {0}")]
    NoData(StoreError),
}

impl From<ScriptError> for Disconnect {
    fn from(error: ScriptError) -> Self {
        match error {
            ScriptError::Redis(error) => Self::Redis(error),
            ScriptError::RegistrationLost => Self::RegistrationLost,
        }
    }
}
