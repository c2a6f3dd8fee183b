//! PostgreSQL and Redis servers for one test each, on free loopback ports, removed on drop. Tests stop, freeze and restart
//! them to simulate outages. Without the server programs, or without the environment variable that asks for tests with
//! services, no server starts and the skip is printed.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Longest start of a server.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// A PostgreSQL server; stopped on drop.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Child>,
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
}

impl Postgres {
    /// Starts a server with an empty database; `None` unless `TOLLGATE_TEST_POSTGRES` is set and the programs are installed.
    pub fn start(test: &str) -> Option<Self> {
        let server = std::env::var_os("TOLLGATE_TEST_POSTGRES").and_then(|_| Self::launch(&["fsync=off"]));
        if server.is_none() {
            skipped(&format!("{test} (needs PostgreSQL: TOLLGATE_TEST_POSTGRES is not set, or it is not installed)"));
        }
        server
    }

    /// Starts a server with an empty database and settings such as `fsync=off`; `None` if the programs are not installed.
    pub fn launch(settings: &[&str]) -> Option<Self> {
        let programs = postgres_programs()?;
        let folder = TempDir::with_prefix("tollgate-pg-").expect("a temporary folder");
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        let data = folder.path().join("data");
        let data = data.to_str().expect("temporary folders have UTF-8 names");
        run(&mut as_postgres(&programs.join("initdb"), &["-D", data, "-A", "trust", "-U", "postgres", "--no-sync"]));
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { process: None, programs, folder, port: 0, settings };
        for _ in 0..5 {
            server.port = free_port();
            if server.try_start() {
                return Some(server);
            }
        }
        panic!("postgres does not start")
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Stops it immediately; connections are closed.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            signal("INT", process.id());
            process.wait().expect("the process can be waited for");
        }
    }

    /// Suspends the server (SIGSTOP): connections hang, as on a machine that hangs.
    pub fn freeze(&self) {
        if let Some(process) = &self.process {
            signal("STOP", process.id());
            wait_until("suspension of postgres", || is_stopped(process.id()));
        }
    }

    pub fn thaw(&self) {
        if let Some(process) = &self.process {
            signal("CONT", process.id());
        }
    }

    /// Starts it again with the same data and address.
    pub fn restart(&mut self) {
        assert!(self.try_start(), "postgres does not start again at port {}", self.port);
    }

    /// Starts it; `false` when the process ended. Another process may have taken the port since it was found free; then
    /// another server answers there.
    fn try_start(&mut self) -> bool {
        let (folder, port) = (self.folder.path().display().to_string(), self.port.to_string());
        let data = format!("{folder}/data");
        let mut arguments = vec!["-D", &data, "-h", "127.0.0.1", "-p", &port, "-k", &folder];
        arguments.extend(self.settings.iter().flat_map(|setting| ["-c", setting.as_str()]));
        let mut command = as_postgres(&self.programs.join("postgres"), &arguments);
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("postgres starts");
        let is_ready = || {
            let mut command = Command::new(self.programs.join("pg_isready"));
            command.args(["-q", "-h", "127.0.0.1", "-p", &port]).status().is_ok_and(|status| status.success())
        };
        let mut ended = false;
        wait_until("postgres", || {
            let ready = is_ready();
            ended = process.try_wait().expect("the process can be polled").is_some();
            ended || ready
        });
        self.process = (!ended).then_some(process);
        !ended
    }

    /// Runs statements and returns what `psql` prints, without headings.
    pub fn sql(&self, statements: &str) -> String {
        let out = Command::new(self.programs.join("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statements, &self.url()])
            .output()
            .expect("psql starts");
        assert!(out.status.success(), "{statements}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.thaw();
        self.stop();
    }
}

/// A Redis server without persistence; stopped on drop.
#[derive(Debug)]
pub struct Redis {
    process: Option<Child>,
    program: PathBuf,
    folder: TempDir,
    port: u16,
    tls: Option<Tls>,
}

/// Certificate of a Redis server that requires TLS and [`TLS_USER`].
#[derive(Debug)]
struct Tls {
    certificate: PathBuf,
    key: PathBuf,
}

/// User and password of the Redis server with TLS, percent-encoded.
const TLS_USER: &str = "gate:opens%3Asesame";

impl Redis {
    /// Starts an empty server; `None` unless `TOLLGATE_TEST_REDIS` is set and Redis is installed.
    pub fn start(test: &str) -> Option<Self> {
        Self::started_for(test, Self::launch)
    }

    /// Starts an empty server that requires TLS and a password; user and password are part of its URL.
    pub fn start_tls(test: &str, certificate: &Path, key: &Path) -> Option<Self> {
        Self::started_for(test, || Self::launch_as(Some(Tls { certificate: certificate.to_owned(), key: key.to_owned() })))
    }

    fn started_for(test: &str, launch: impl FnOnce() -> Option<Self>) -> Option<Self> {
        let server = std::env::var_os("TOLLGATE_TEST_REDIS").and_then(|_| launch());
        if server.is_none() {
            skipped(&format!("{test} (needs Redis: TOLLGATE_TEST_REDIS is not set, or redis-server is not installed)"));
        }
        server
    }

    /// Starts an empty server; `None` if Redis is not installed.
    pub fn launch() -> Option<Self> {
        Self::launch_as(None)
    }

    fn launch_as(tls: Option<Tls>) -> Option<Self> {
        let program = redis_program()?;
        let folder = TempDir::with_prefix("tollgate-redis-").expect("a temporary folder");
        let mut server = Self { process: None, program, folder, port: free_port(), tls };
        server.restart();
        Some(server)
    }

    pub fn url(&self) -> String {
        match &self.tls {
            None => format!("redis://127.0.0.1:{}", self.port),
            Some(_) => format!("rediss://{TLS_USER}@localhost:{}", self.port),
        }
    }

    /// Kills it; its data is lost.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            process.wait().expect("the process can be waited for");
        }
    }

    /// Suspends the server (SIGSTOP), as on a machine that hangs.
    pub fn freeze(&self) {
        if let Some(process) = &self.process {
            signal("STOP", process.id());
        }
    }

    pub fn thaw(&self) {
        if let Some(process) = &self.process {
            signal("CONT", process.id());
        }
    }

    /// Removes all its data while it runs (FLUSHALL). Its connections stay.
    pub fn flush(&self) {
        assert!(self.tls.is_none(), "only without TLS");
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).expect("redis accepts connections");
        connection.write_all(b"FLUSHALL\r\n").expect("redis reads");
        let mut answer = [0; 5];
        connection.read_exact(&mut answer).expect("redis answers");
        assert_eq!(&answer, b"+OK\r\n");
    }

    /// Starts it again, empty, at the same address.
    pub fn restart(&mut self) {
        let port = self.port.to_string();
        let mut command = Command::new(&self.program);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]).arg(self.folder.path());
        match &self.tls {
            None => command.args(["--port", &port]),
            Some(Tls { certificate, key }) => command
                .args(["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no", "--tls-ca-cert-dir", "/etc"])
                .arg("--tls-cert-file")
                .arg(certificate)
                .arg("--tls-key-file")
                .arg(key)
                .args(["--user", "gate", "on", ">opens:sesame", "~*", "&*", "+@all", "--user", "default", "off"]),
        };
        self.process =
            Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("redis starts"));
        let port = self.port;
        wait_until("redis", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.thaw();
        self.stop();
    }
}

/// Prints that a test was skipped.
pub fn skipped(what: &str) {
    assert!(std::env::var_os("TOLLGATE_TEST_REQUIRE_ALL").is_none(), "skipped, although TOLLGATE_TEST_REQUIRE_ALL is set: {what}");
    eprintln!("skipped: {what}");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    listener.local_addr().expect("the listener has an address").port()
}

fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !ready() {
        assert!(begin.elapsed() < START_TIMEOUT, "{what} was not ready within {START_TIMEOUT:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn run(command: &mut Command) {
    let out = command.output().expect("the program starts");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn signal(name: &str, process: u32) {
    let _ = Command::new("kill").args([format!("-{name}"), process.to_string()]).status();
}

/// True when `/proc` shows the process as stopped by a signal.
fn is_stopped(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.starts_with(b"0\n"))
}

/// A command that runs as `postgres` when the test runs as root, because PostgreSQL refuses to run as root. `setpriv`
/// replaces itself by the program, so signals reach it.
fn as_postgres(program: &Path, arguments: &[&str]) -> Command {
    if !is_root() {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        return command;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program).args(arguments);
    command.current_dir("/tmp").stdin(Stdio::null());
    command
}

/// The folder with the newest installed version of PostgreSQL's programs.
fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut versions: Vec<PathBuf> = versions.flatten().map(|entry| entry.path().join("bin")).collect();
    versions.sort();
    versions.into_iter().rev().find(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
}

fn redis_program() -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"];
    let names = ["redis-server", "valkey-server"];
    folders.iter().flat_map(|folder| names.iter().map(move |name| Path::new(folder).join(name))).find(|path| path.exists())
}
