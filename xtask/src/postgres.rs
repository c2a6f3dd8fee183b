//! A temporary PostgreSQL server for tests and benches, in its own folder, on a free loopback port.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::shell;

/// A running server; stopped and removed on drop.
pub(crate) struct PostgresServer {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl PostgresServer {
    /// Installs PostgreSQL if it is missing, then starts a server without fsync, for tests.
    pub(crate) fn start() -> Result<Self> {
        Self::start_with("-c fsync=off")
    }

    /// The same with fsync, for measurements.
    pub(crate) fn start_durable() -> Result<Self> {
        Self::start_with("-c fsync=on")
    }

    fn start_with(setting: &str) -> Result<Self> {
        let programs = if let Some(programs) = programs() {
            programs
        } else {
            shell::ensure_debian("pg_ctlcluster", "postgresql")?;
            programs().context("PostgreSQL was installed but its server programs were not found")?
        };
        let folder = PathBuf::from(shell::output(Command::new("mktemp").args(["-d", "/tmp/tollgate-pg-XXXXXX"]))?.trim());
        let data = folder.join("data");
        let root = shell::output(Command::new("id").arg("-u"))?.trim() == "0";
        if root {
            shell::output(Command::new("chown").arg("postgres").arg(&folder))?;
        }
        let data_text = data.to_string_lossy().into_owned();
        shell::output(&mut as_server(
            root,
            &programs.join("initdb"),
            &["-D", &data_text, "-A", "trust", "-U", "postgres", "--no-sync"],
        ))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let options = format!("-D {data_text} -h 127.0.0.1 -p {port} -k {} {setting}", folder.display());
        let arguments: Vec<&str> = options.split(' ').collect();
        let process = as_server(root, &programs.join("postgres"), &arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start postgres")?;
        let mut server = Self { process, folder, port };
        server.wait(&programs)?;
        Ok(server)
    }

    /// URL for the tests.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn wait(&mut self, programs: &Path) -> Result<()> {
        for _ in 0..200 {
            let ready = Command::new(programs.join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status()
                .is_ok_and(|status| status.success());
            if ready {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("postgres exited with {status}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("postgres was not ready within 10 s")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // SIGINT is PostgreSQL's fast shutdown.
        let _ = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The folder with `initdb` and `postgres`, newest version first.
fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> =
        std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path().join("bin")).collect();
    versions.sort();
    versions.into_iter().rev().find(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
}

/// A command that runs as `postgres` when we are root, because PostgreSQL refuses to run as root. `setpriv` replaces itself
/// by the program, so signals reach it.
fn as_server(root: bool, program: &Path, arguments: &[&str]) -> Command {
    if !root {
        let mut command = Command::new(program);
        command.args(arguments);
        return command;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program).args(arguments).current_dir("/tmp");
    command
}
