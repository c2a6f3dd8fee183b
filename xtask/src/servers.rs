//! Temporary PostgreSQL and Redis servers for tests and benches, installed if they are missing.

use anyhow::{Context, Result};
use tollgate_testkit::{Postgres, Redis};

use crate::shell;

/// Starts PostgreSQL with settings such as `fsync=off`.
pub(crate) fn postgres(settings: &[&str]) -> Result<Postgres> {
    if let Some(server) = Postgres::launch(settings) {
        return Ok(server);
    }
    shell::ensure_debian("pg_ctlcluster", "postgresql")?;
    Postgres::launch(settings).context("PostgreSQL was installed but its server programs were not found")
}

pub(crate) fn redis() -> Result<Redis> {
    if let Some(server) = Redis::launch() {
        return Ok(server);
    }
    shell::ensure_debian("redis-server", "redis-server")?;
    Redis::launch().context("Redis was installed but its server program was not found")
}
