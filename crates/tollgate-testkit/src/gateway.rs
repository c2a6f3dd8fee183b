//! Starts the executable on a free port with its own data folder, and checks invariants when it stops: every answered,
//! authenticated request has exactly one usage record, and the log holds no secret.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{ClientResponse, Request, client::PendingResponse};

/// The service key of catalogs made by [`TestGatewayBuilder`].
pub const SERVICE_KEY: &str = "tk-caller-key-CANARY-0123456789abcdef";
/// The credential of accounts in test catalogs; only the upstream may see it.
pub const UPSTREAM_CREDENTIAL: &str = "upstream-credential-CANARY-0123456789";
/// Part of prompts in tests; must not occur in a log.
const PROMPT_CANARY: &str = "prompt-canary";
/// Longest wait for a stop or a record, generous because the machine may be busy.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Longest wait for a start: an unoptimised build with the largest catalog.
const START_TIMEOUT: Duration = Duration::from_mins(3);

/// Arguments and environment of a gateway to start.
#[derive(Debug)]
#[must_use]
pub struct TestGatewayBuilder {
    program: PathBuf,
    catalog: Option<String>,
    listen: String,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    data: Option<TempDir>,
    count_records: bool,
}

/// A running gateway; stopped and checked on drop.
#[derive(Debug)]
pub struct TestGateway {
    program: PathBuf,
    process: Option<Child>,
    address: SocketAddr,
    key: String,
    data: Option<TempDir>,
    log: Arc<Mutex<String>>,
    startup: Value,
    /// Variables of the gateway, which its commands get too.
    environment: Vec<(String, String)>,
    /// The arguments it was started with.
    arguments: Vec<String>,
    /// Processes that have handed over to another.
    replaced: Vec<Child>,
    /// Ids of requests that must have a usage record.
    expected: Mutex<Vec<String>>,
    count_records: bool,
}

impl TestGateway {
    /// Prepares a start of this executable.
    pub fn builder(program: &str) -> TestGatewayBuilder {
        TestGatewayBuilder {
            program: program.into(),
            catalog: None,
            listen: "127.0.0.1:0".to_owned(),
            // The log of every test is searched for secrets and bodies.
            environment: vec![("TOLLGATE_LOG__REQUESTS".to_owned(), "all".to_owned())],
            arguments: Vec::new(),
            data: None,
            count_records: true,
        }
    }

    /// Address of the model path.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A service key of the gateway.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The JSON object it printed when it was ready (`--json`).
    pub fn startup(&self) -> &Value {
        &self.startup
    }

    /// Its data folder.
    pub fn data(&self) -> &Path {
        self.data.as_ref().expect("the gateway has its folder").path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("the gateway runs").id()
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Replaces the catalog file atomically and has it reloaded (SIGHUP). `{key}` and `{credential}` are replaced as in
    /// [`TestGatewayBuilder::catalog`].
    pub fn serve_catalog(&self, text: &str) {
        let new = self.data().join("catalog.new");
        std::fs::write(&new, filled(text)).expect("the catalog can be written");
        std::fs::rename(&new, self.data().join("catalog.toml")).expect("the catalog can be replaced");
        self.signal("HUP");
    }

    /// Sends a request and reads the whole response.
    pub fn send(&self, request: &Request) -> ClientResponse {
        let response = request
            .send(self.address)
            .and_then(PendingResponse::read)
            .unwrap_or_else(|error| panic!("no response to {request:?}: {error}\n{}", self.log()));
        self.expect_record(request, &response);
        response
    }

    /// Sends a request; the caller reads the response.
    pub fn start_request(&self, request: &Request) -> PendingResponse {
        request.send(self.address).expect("the gateway listens")
    }

    /// Sends a chat completion with the gateway's key.
    pub fn chat(&self, body: &Value) -> ClientResponse {
        self.send(&Request::post("/v1/chat/completions", body).bearer(&self.key))
    }

    /// Sends a native call with the gateway's key. `verb` includes the query, such as `streamGenerateContent?alt=sse`.
    pub fn native(&self, model: &str, verb: &str, body: &Value) -> ClientResponse {
        self.send(&Request::post(&format!("/v1beta/models/{model}:{verb}"), body).native_key(&self.key))
    }

    /// Records that a response must have a usage record, as responses to authenticated model requests do.
    fn expect_record(&self, request: &Request, response: &ClientResponse) {
        const UNRECORDED: [&str; 16] = [
            "missing_api_key",
            "invalid_api_key",
            "unknown_url",
            "method_not_supported",
            "request_timeout",
            "header_too_large",
            "shutting_down",
            "key_check_unavailable",
            "API_KEY_MISSING",
            "API_KEY_INVALID",
            "UNKNOWN_PATH",
            "METHOD_NOT_ALLOWED",
            "UNKNOWN_METHOD",
            "REQUEST_TIMEOUT",
            "SHUTTING_DOWN",
            "KEY_CHECK_UNAVAILABLE",
        ];
        /// Beginnings of the messages of the same errors in Anthropic's format, which has no codes.
        const UNRECORDED_MESSAGES: [&str; 4] = ["No API key was sent", "Incorrect API key provided", "Unknown path", "Method "];
        let Some(id) = response.header("x-request-id") else { return };
        let error: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let code = error["error"]["code"].as_str().or_else(|| error["error"]["details"][0]["reason"].as_str());
        let message = error["error"]["message"].as_str().unwrap_or_default();
        let is_unrecorded = match code {
            Some(code) => UNRECORDED.contains(&code),
            None => UNRECORDED_MESSAGES.iter().any(|beginning| message.starts_with(beginning)),
        };
        // A form may be sent to a page of the console. All answers of pages have this header.
        let is_page = response.header("content-security-policy").is_some();
        if request.is_model_call() && !is_page && !is_unrecorded {
            self.expected.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(id.to_owned());
        }
    }

    /// Runs another command of the executable on the gateway's data folder.
    pub fn run(&self, arguments: &[&str]) -> Output {
        run(&self.program, self.data(), &self.environment, arguments)
    }

    /// All usage records, oldest first, including those still in the journal.
    pub fn records(&self) -> Vec<Value> {
        records(&self.program, self.data(), &self.environment)
    }

    /// The usage record of a response; waits, since it is written when the response ends.
    pub fn record_of(&self, response: &ClientResponse) -> Value {
        let id = response.header("x-request-id").expect("each response has an id").to_owned();
        self.wait_for_record(&format!("record of {id}"), |record| record["id"] == id.as_str())
    }

    /// Waits for a record that meets a condition.
    pub fn wait_for_record(&self, what: &str, meets: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let records = self.records();
            if let Some(record) = records.iter().find(|record| meets(record)) {
                return record.clone();
            }
            assert!(begin.elapsed() < TIMEOUT, "no {what} within {TIMEOUT:?}, only {records:#?}\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status().expect("kill");
        assert!(status.success(), "kill -{name} failed");
    }

    /// Kills it (SIGKILL) and returns its data folder.
    pub fn kill(mut self) -> TempDir {
        let mut process = self.process.take().expect("the gateway runs");
        process.kill().expect("it can be killed");
        process.wait().expect("the process ended");
        self.data.take().expect("the gateway has its folder")
    }

    /// Returns the data folder of a stopped gateway.
    pub fn into_data(mut self) -> TempDir {
        assert!(self.process.is_none(), "the gateway is stopped");
        self.data.take().expect("the gateway has its folder")
    }

    /// Upgrades to a new process, and waits until it serves.
    pub fn upgrade(&mut self) {
        let (process, startup) = start(self.upgrade_command(), &self.log);
        self.replaced.extend(self.process.replace(process));
        self.startup = startup;
    }

    /// Starts new processes at the same time, each of which takes over from the running one or from another new one, and waits
    /// until all have served.
    pub fn upgrade_at_once(&mut self, processes: usize) {
        let mut started: Vec<_> = thread::scope(|scope| {
            let starting: Vec<_> = (0..processes).map(|_| scope.spawn(|| start(self.upgrade_command(), &self.log).0)).collect();
            starting.into_iter().map(|process| process.join().expect("the new process serves")).collect()
        });
        let holder = std::fs::read_to_string(self.data().join("lock")).expect("the lock of the data folder");
        let last = started.iter().position(|process| process.id().to_string() == holder.trim());
        let last = started.swap_remove(last.expect("one of the new processes serves"));
        self.replaced.extend(self.process.replace(last).into_iter().chain(started));
    }

    /// The command that starts a process that takes over.
    pub fn upgrade_command(&self) -> Command {
        let mut command = command(&self.program, self.data());
        command.args(&self.arguments).arg("--upgrade").envs(self.environment.iter().cloned());
        command
    }

    /// Waits until all processes that have handed over have exited, and returns their exit codes.
    pub fn replaced_exits(&mut self) -> Vec<Option<i32>> {
        std::mem::take(&mut self.replaced).into_iter().map(|process| self.exit_of(process)).collect()
    }

    /// Process ids of those that have handed over.
    pub fn replaced_pids(&self) -> Vec<u32> {
        self.replaced.iter().map(Child::id).collect()
    }

    /// Sends SIGTERM, waits for the exit, and returns the exit code.
    pub fn stop(&mut self) -> Option<i32> {
        let process = self.process.take()?;
        let _ = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
        self.exit_of(process)
    }

    fn exit_of(&self, mut process: Child) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = process.try_wait().expect("the process can be polled") {
                return status.code();
            }
            assert!(begin.elapsed() < TIMEOUT, "the gateway did not exit within {TIMEOUT:?} of SIGTERM\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        if thread::panicking() {
            for mut process in self.process.take().into_iter().chain(self.replaced.drain(..)) {
                let _ = process.kill();
                let _ = process.wait();
            }
            return;
        }
        for code in self.replaced_exits() {
            assert!(matches!(code, Some(0) | None), "a replaced gateway exits with {code:?}\n{}", self.log());
        }
        let Some(data) = self.data.take() else { return };
        if self.process.is_some() {
            assert_eq!(self.stop(), Some(0), "the gateway exits with 0 after SIGTERM\n{}", self.log());
        }
        let log = self.log();
        for secret in [SERVICE_KEY, UPSTREAM_CREDENTIAL, PROMPT_CANARY, self.key.as_str()] {
            assert!(!log.contains(secret), "the log holds '{secret}'");
        }
        assert!(!log.contains("reservations were not released"), "every reservation is released\n{log}");
        if self.count_records {
            let verified = run(&self.program, data.path(), &self.environment, &["verify"]);
            assert!(
                verified.status.success(),
                "`tollgate verify` finds no difference\n{}",
                String::from_utf8_lossy(&verified.stderr)
            );
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            // Repeated refusals share a record, which states their number.
            let mut shared = 0;
            for record in records(&self.program, data.path(), &self.environment) {
                shared += shared_refusals(&record).saturating_sub(1);
                *counts.entry(record["id"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
            }
            let duplicates: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
            assert!(duplicates.is_empty(), "duplicate records: {duplicates:?}");
            let expected = self.expected.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let missing: Vec<_> = expected.iter().filter(|id| !counts.contains_key(*id)).collect();
            assert!(missing.len() <= shared, "answered requests without a usage record, {shared} counted in others: {missing:?}");
        }
    }
}

impl TestGatewayBuilder {
    /// Serves this catalog, with `{key}` and `{credential}` replaced by [`SERVICE_KEY`] and [`UPSTREAM_CREDENTIAL`].
    pub fn catalog(mut self, text: &str) -> Self {
        self.catalog = Some(filled(text));
        self
    }

    /// Listens on this address instead of a free loopback port.
    pub fn listen(mut self, address: &str) -> Self {
        address.clone_into(&mut self.listen);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes a variable that tests set by default.
    pub fn without_env(mut self, name: &str) -> Self {
        self.environment.retain(|(known, _)| known != name);
        self
    }

    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub fn data_folder(mut self, data: TempDir) -> Self {
        self.data = Some(data);
        self
    }

    /// Skips the check of usage records on drop, for folders that are damaged on purpose or records in another database.
    pub fn without_record_check(mut self) -> Self {
        self.count_records = false;
        self
    }

    /// Starts it and waits until it is ready.
    pub fn spawn(self) -> TestGateway {
        let data = self.data.unwrap_or_else(|| TempDir::new().expect("a temporary folder"));
        let mut arguments: Vec<String> = ["serve", "--json", "--listen", &self.listen].map(str::to_owned).to_vec();
        arguments.extend(self.arguments);
        if let Some(catalog) = &self.catalog {
            let path = data.path().join("catalog.toml");
            std::fs::write(&path, catalog).expect("the catalog can be written");
            arguments.extend(["--catalog".to_owned(), path.display().to_string()]);
        }
        let mut command = command(&self.program, data.path());
        command.args(&arguments).envs(self.environment.iter().cloned());
        let log = Arc::new(Mutex::new(String::new()));
        let (process, startup) = start(command, &log);
        let address = startup["address"].as_str().and_then(|text| text.parse().ok()).expect("the gateway prints its address");
        let key = startup["key"].as_str().unwrap_or(SERVICE_KEY).to_owned();
        TestGateway {
            program: self.program,
            process: Some(process),
            address,
            key,
            data: Some(data),
            log,
            startup,
            environment: self.environment,
            arguments,
            replaced: Vec::new(),
            expected: Mutex::default(),
            count_records: self.count_records,
        }
    }

    /// Runs `serve` until it exits by itself, for starts that fail.
    pub fn run_to_exit(self) -> Output {
        let data = self.data.unwrap_or_else(|| TempDir::new().expect("a temporary folder"));
        let mut arguments = vec!["serve".to_owned(), "--listen".to_owned(), "127.0.0.1:0".to_owned()];
        if let Some(catalog) = &self.catalog {
            let path = data.path().join("catalog.toml");
            std::fs::write(&path, catalog).expect("the catalog can be written");
            arguments.extend(["--catalog".to_owned(), path.display().to_string()]);
        }
        arguments.extend(self.arguments);
        command(&self.program, data.path()).args(arguments).envs(self.environment).output().expect("the executable starts")
    }
}

/// Starts a gateway and waits until it prints that it is ready.
fn start(mut command: Command, log: &Arc<Mutex<String>>) -> (Child, Value) {
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the executable starts");
    collect_log(process.stderr.take().expect("the stream is piped"), Arc::clone(log));
    let startup = read_startup(process.stdout.take().expect("the stream is piped"));
    let Some(startup) = startup else {
        let _ = process.kill();
        let _ = process.wait();
        thread::sleep(Duration::from_millis(50));
        panic!("the gateway did not start:\n{}", log.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    };
    (process, startup)
}

/// The number of refused requests that a record counts; 0 for all others.
fn shared_refusals(record: &Value) -> usize {
    let detail = record["detail"].as_str().unwrap_or_default();
    let counted = detail.strip_suffix(" requests were refused so in this minute.)").and_then(|text| text.rsplit_once('('));
    counted.and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

fn filled(catalog: &str) -> String {
    catalog.replace("{key}", SERVICE_KEY).replace("{credential}", UPSTREAM_CREDENTIAL)
}

/// Environment for `doctor`, which checks whether the gateway's address is free: an address that is always free.
pub const FREE_ADDRESS: (&str, &str) = ("TOLLGATE_SERVER__LISTEN", "127.0.0.1:0");

/// The executable with an empty environment except for its data folder and a path.
fn command(program: &Path, data: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("TOLLGATE_DATA", data).current_dir(data).stdin(Stdio::null());
    command
}

fn run(program: &Path, data: &Path, environment: &[(String, String)], arguments: &[&str]) -> Output {
    let address = (arguments.first() == Some(&"doctor")).then_some(FREE_ADDRESS);
    let mut command = command(program, data);
    command.envs(address).envs(environment.iter().cloned()).args(arguments).output().expect("the executable starts")
}

fn records(program: &Path, data: &Path, environment: &[(String, String)]) -> Vec<Value> {
    let out = run(program, data, environment, &["usage", "export", "--json"]);
    assert!(out.status.success(), "usage export failed: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect()
}

/// Reads the JSON object that `serve --json` prints when it is ready; `None` when none comes in time.
fn read_startup(stdout: impl Read + Send + 'static) -> Option<Value> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        let _ = reader.read_line(&mut line);
        let _ = sender.send(serde_json::from_str(&line).ok());
        // Drain the pipe, so that later output cannot block the gateway.
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
    });
    receiver.recv_timeout(START_TIMEOUT).ok().flatten()
}

fn collect_log(from: impl Read + Send + 'static, into: Arc<Mutex<String>>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut log = into.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            log.push_str(&line);
            log.push('\n');
        }
    });
}
