//! A PostgreSQL and a Redis of a test's own, on free loopback ports: stopped, frozen and started again as faults ask for
//! it, gone afterwards. Without the servers' programs, or where nobody asked for tests with services, there is none and
//! that is said aloud.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// How long a server may take to start.
const START: Duration = Duration::from_mins(1);

/// A PostgreSQL server.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Child>,
    programs: PathBuf,
    folder: TempDir,
    port: u16,
}

impl Postgres {
    /// Starts a server with an empty database, where `TOLLGATE_TEST_POSTGRES` asks for tests on PostgreSQL.
    ///
    /// # Panics
    /// When it is asked for and does not start.
    #[must_use]
    pub fn start(test: &str) -> Option<Self> {
        let programs = postgres_programs().filter(|_| std::env::var_os("TOLLGATE_TEST_POSTGRES").is_some());
        let Some(programs) = programs else {
            skipped(&format!("{test} (it needs PostgreSQL; TOLLGATE_TEST_POSTGRES is not set, or there are no programs)"));
            return None;
        };
        let folder = TempDir::with_prefix("tollgate-pg-").expect("a temporary folder");
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        let data = folder.path().join("data");
        let data = data.to_str().expect("temporary folders have plain names");
        run(&mut as_postgres(&programs.join("initdb"), &["-D", data, "-A", "trust", "-U", "postgres", "--no-sync"]));
        let mut server = Self { process: None, programs, folder, port: 0 };
        for _ in 0..5 {
            server.port = free_port();
            if server.starts() {
                return Some(server);
            }
        }
        panic!("postgres does not start")
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Stops it at once; connections are cut.
    ///
    /// # Panics
    /// When it does not stop.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            signal("INT", process.id());
            process.wait().expect("it can be waited for");
        }
    }

    /// Lets nobody in and says nothing, like a machine that hangs.
    ///
    /// # Panics
    /// When it goes on.
    pub fn freeze(&self) {
        if let Some(process) = &self.process {
            signal("STOP", process.id());
            wait_until("a postgres that stands still", || is_stopped(process.id()));
        }
    }

    /// Ends a freeze.
    pub fn thaw(&self) {
        if let Some(process) = &self.process {
            signal("CONT", process.id());
        }
    }

    /// Starts it on what it had, at the same address.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        assert!(self.starts(), "postgres does not start again at port {}", self.port);
    }

    /// Starts it; `false` when it ended instead. Somebody else may have taken the port since it was found to be free: then
    /// who answers there is another server.
    fn starts(&mut self) -> bool {
        let (folder, port) = (self.folder.path().display().to_string(), self.port.to_string());
        let data = format!("{folder}/data");
        let arguments = ["-D", &data, "-h", "127.0.0.1", "-p", &port, "-k", &folder, "-c", "fsync=off"];
        let mut command = as_postgres(&self.programs.join("postgres"), &arguments);
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("postgres starts");
        let is_ready = || {
            let mut command = Command::new(self.programs.join("pg_isready"));
            command.args(["-q", "-h", "127.0.0.1", "-p", &port]).status().is_ok_and(|status| status.success())
        };
        let mut ended = false;
        wait_until("postgres", || {
            let ready = is_ready();
            ended = process.try_wait().expect("its state can be asked").is_some();
            ended || ready
        });
        self.process = (!ended).then_some(process);
        !ended
    }

    /// Runs statements; what `psql` prints, without headings.
    ///
    /// # Panics
    /// When they fail.
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

/// A Redis server. It keeps nothing on disk unless asked to.
#[derive(Debug)]
pub struct Redis {
    process: Option<Child>,
    program: PathBuf,
    folder: TempDir,
    port: u16,
    tls: Option<Tls>,
}

/// How a Redis server speaks TLS: it lets nobody in but one user.
#[derive(Debug)]
struct Tls {
    certificate: PathBuf,
    key: PathBuf,
}

/// Who may use a Redis that speaks TLS.
const TLS_USER: &str = "gate:opens%3Asesame";

impl Redis {
    /// Starts an empty server, where `TOLLGATE_TEST_REDIS` asks for tests on Redis.
    ///
    /// # Panics
    /// When it is asked for and does not start.
    #[must_use]
    pub fn start(test: &str) -> Option<Self> {
        Self::start_as(test, None)
    }

    /// Starts an empty server that speaks TLS alone and lets in one user with a password; both are in its address.
    ///
    /// # Panics
    /// When it is asked for and does not start.
    #[must_use]
    pub fn start_tls(test: &str, certificate: &Path, key: &Path) -> Option<Self> {
        Self::start_as(test, Some(Tls { certificate: certificate.to_owned(), key: key.to_owned() }))
    }

    fn start_as(test: &str, tls: Option<Tls>) -> Option<Self> {
        let program = redis_program().filter(|_| std::env::var_os("TOLLGATE_TEST_REDIS").is_some());
        let Some(program) = program else {
            skipped(&format!("{test} (it needs Redis; TOLLGATE_TEST_REDIS is not set, or there is no redis-server)"));
            return None;
        };
        let folder = TempDir::with_prefix("tollgate-redis-").expect("a temporary folder");
        let mut server = Self { process: None, program, folder, port: free_port(), tls };
        server.start_again();
        Some(server)
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.tls {
            None => format!("redis://127.0.0.1:{}", self.port),
            Some(_) => format!("rediss://{TLS_USER}@localhost:{}", self.port),
        }
    }

    /// Kills it; what it held is gone.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            process.wait().expect("it can be waited for");
        }
    }

    /// Says nothing more, like a machine that hangs.
    pub fn freeze(&self) {
        if let Some(process) = &self.process {
            signal("STOP", process.id());
        }
    }

    /// Ends a freeze.
    pub fn thaw(&self) {
        if let Some(process) = &self.process {
            signal("CONT", process.id());
        }
    }

    /// Starts it, empty, at the same address.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
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

/// Says that something is not tested.
///
/// # Panics
/// Where `TOLLGATE_TEST_REQUIRE_ALL` is set: then everything has to be.
pub fn skipped(what: &str) {
    assert!(std::env::var_os("TOLLGATE_TEST_REQUIRE_ALL").is_none(), "everything has to be tested here, and this is not: {what}");
    eprintln!("skipped: {what}");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    listener.local_addr().expect("it has an address").port()
}

fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !ready() {
        assert!(begin.elapsed() < START, "{what} was not ready within {START:?}");
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

/// Whether a process was stopped by a signal, as `/proc` says.
fn is_stopped(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.starts_with(b"0\n"))
}

/// PostgreSQL refuses to run as root: then it runs as `postgres`, with `exec` so that signals arrive.
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

/// The folder with the server's programs, newest version first.
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
