//! A temporary Redis server for tests, without persistence, on a free loopback port.

use std::{
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::shell;

/// A running server; stopped on drop.
pub(crate) struct RedisServer {
    process: Child,
    port: u16,
}

impl RedisServer {
    /// Installs Redis if it is missing, then starts a server.
    pub(crate) fn start() -> Result<Self> {
        shell::ensure_debian("redis-server", "redis-server")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start redis-server")?;
        let mut server = Self { process, port };
        server.wait()?;
        Ok(server)
    }

    /// URL for the tests.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn wait(&mut self) -> Result<()> {
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("redis-server exited with {status}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("redis-server was not ready within 10 s")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
