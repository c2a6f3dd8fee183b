//! Starts the executable on a free port with a folder of its own, and checks the invariants when it goes:
//! every answered request past the door has exactly one usage record, and no secret is in the log.

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
/// The credential of accounts made by tests; must never be seen but by the upstream.
pub const UPSTREAM_CREDENTIAL: &str = "upstream-credential-CANARY-0123456789";
/// Stands in prompts of tests; must never be in a log.
const PROMPT_CANARY: &str = "prompt-canary";
/// How long a start, an end or a record may take on a machine that does other work meanwhile.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a start may take there, with the largest catalog and a program that was built without optimization.
const LONGEST_START: Duration = Duration::from_mins(3);

/// What to start.
#[derive(Debug)]
pub struct TestGatewayBuilder {
    program: PathBuf,
    catalog: Option<String>,
    listen: String,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    data: Option<TempDir>,
    count_records: bool,
}

/// A running gateway.
#[derive(Debug)]
pub struct TestGateway {
    program: PathBuf,
    process: Option<Child>,
    address: SocketAddr,
    key: String,
    data: Option<TempDir>,
    log: Arc<Mutex<String>>,
    said: Value,
    /// What was set beside the defaults; its commands get the same.
    environment: Vec<(String, String)>,
    /// Request ids of answers that must have a record.
    expected: Mutex<Vec<String>>,
    count_records: bool,
}

impl TestGateway {
    /// Prepares a start of the executable.
    #[must_use]
    pub fn of(program: &str) -> TestGatewayBuilder {
        TestGatewayBuilder {
            program: program.into(),
            catalog: None,
            listen: "127.0.0.1:0".to_owned(),
            environment: Vec::new(),
            arguments: Vec::new(),
            data: None,
            count_records: true,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A key that works.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What it printed at its start (`--json`).
    #[must_use]
    pub fn said(&self) -> &Value {
        &self.said
    }

    /// Its data folder.
    ///
    /// # Panics
    /// When the folder was taken.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.data.as_ref().expect("the folder is still here").path()
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Puts another catalog file in place of the one it serves, whole as a deployment does, and has it read. `{key}` and
    /// `{credential}` stand for the same as in [`TestGatewayBuilder::catalog`].
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn serve_catalog(&self, text: &str) {
        let beside = self.data().join("catalog.new");
        std::fs::write(&beside, filled(text)).expect("the catalog can be written");
        std::fs::rename(&beside, self.data().join("catalog.toml")).expect("the catalog can be replaced");
        self.signal("HUP");
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Panics
    /// When no answer comes.
    pub fn send(&self, request: &Request) -> ClientResponse {
        let answer = request
            .send(self.address)
            .and_then(PendingResponse::answer)
            .unwrap_or_else(|error| panic!("no answer to {request:?}: {error}\n{}", self.log()));
        self.note(request, &answer);
        answer
    }

    /// Sends a request and leaves the answer to be read.
    ///
    /// # Panics
    /// When the gateway cannot be reached.
    pub fn open(&self, request: &Request) -> PendingResponse {
        request.send(self.address).expect("the gateway listens")
    }

    /// A chat completion with the gate's key.
    pub fn chat(&self, body: &Value) -> ClientResponse {
        self.send(&Request::post("/v1/chat/completions", body).bearer(&self.key))
    }

    /// A native call with the gate's key; `verb` with its query, such as `streamGenerateContent?alt=sse`.
    pub fn native(&self, model: &str, verb: &str, body: &Value) -> ClientResponse {
        self.send(&Request::post(&format!("/v1beta/models/{model}:{verb}"), body).native_key(&self.key))
    }

    /// Notes which record an answer must have left (the decisions call it the door: a known key).
    fn note(&self, request: &Request, answer: &ClientResponse) {
        const BEFORE_THE_DOOR: [&str; 16] = [
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
        let Some(id) = answer.header("x-request-id") else { return };
        let error: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let code = error["error"]["code"].as_str().or_else(|| error["error"]["details"][0]["reason"].as_str()).unwrap_or_default();
        if request.is_model_call() && !BEFORE_THE_DOOR.contains(&code) {
            self.expected.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(id.to_owned());
        }
    }

    /// Runs another command of the executable on this gate's data folder.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn run(&self, arguments: &[&str]) -> Output {
        run(&self.program, self.data(), &self.environment, arguments)
    }

    /// All usage records, those still in the journal included, oldest first.
    #[must_use]
    pub fn records(&self) -> Vec<Value> {
        records(&self.program, self.data(), &self.environment)
    }

    /// The record of an answer; waits a moment, since the last bytes may be on their way.
    ///
    /// # Panics
    /// When there is none within a minute.
    #[must_use]
    pub fn record_of(&self, answer: &ClientResponse) -> Value {
        let id = answer.header("x-request-id").expect("each answer has an id").to_owned();
        self.wait_for_record(&format!("record of {id}"), |record| record["id"] == id.as_str())
    }

    /// Waits for a record that meets a condition.
    ///
    /// # Panics
    /// When there is none within a minute.
    #[must_use]
    pub fn wait_for_record(&self, what: &str, meets: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let records = self.records();
            if let Some(record) = records.iter().find(|record| meets(record)) {
                return record.clone();
            }
            assert!(begin.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}, only {records:#?}\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal by name, such as `TERM`.
    ///
    /// # Panics
    /// When `kill` cannot be run.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status().expect("kill");
        assert!(status.success(), "kill -{name} failed");
    }

    /// Kills it without a word, and gives back what is needed to start anew on the same folder.
    ///
    /// # Panics
    /// When it cannot be killed.
    #[must_use]
    pub fn kill(mut self) -> TempDir {
        let mut process = self.process.take().expect("it runs");
        process.kill().expect("it can be killed");
        process.wait().expect("it ended");
        self.data.take().expect("the folder is still here")
    }

    /// Gives the folder of a gateway that was stopped, to start another one on it.
    ///
    /// # Panics
    /// When it still runs.
    #[must_use]
    pub fn take_data(mut self) -> TempDir {
        assert!(self.process.is_none(), "it was stopped before");
        self.data.take().expect("the folder is still here")
    }

    /// Asks it to stop, waits for its end, and gives its exit code.
    ///
    /// # Panics
    /// When it does not end within a minute.
    pub fn stop(&mut self) -> Option<i32> {
        let mut process = self.process.take()?;
        let _ = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
        let begin = Instant::now();
        loop {
            if let Some(status) = process.try_wait().expect("its state can be asked") {
                return status.code();
            }
            assert!(begin.elapsed() < PATIENCE, "it did not end within {PATIENCE:?} of SIGTERM\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        if thread::panicking() {
            if let Some(mut process) = self.process.take() {
                let _ = process.kill();
                let _ = process.wait();
            }
            return;
        }
        let Some(data) = self.data.take() else { return };
        if self.process.is_some() {
            assert_eq!(self.stop(), Some(0), "it ends with 0 after SIGTERM\n{}", self.log());
        }
        let log = self.log();
        for secret in [SERVICE_KEY, UPSTREAM_CREDENTIAL, PROMPT_CANARY, self.key.as_str()] {
            assert!(!log.contains(secret), "the log holds '{secret}'");
        }
        assert!(!log.contains("holds were not given back"), "holds taken are given back\n{log}");
        if self.count_records {
            let verified = run(&self.program, data.path(), &self.environment, &["verify"]);
            assert!(verified.status.success(), "the books agree\n{}", String::from_utf8_lossy(&verified.stderr));
            let mut times: BTreeMap<String, usize> = BTreeMap::new();
            for record in records(&self.program, data.path(), &self.environment) {
                *times.entry(record["id"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
            }
            let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
            assert!(doubled.is_empty(), "records that exist more than once: {doubled:?}");
            for id in self.expected.lock().unwrap_or_else(std::sync::PoisonError::into_inner).iter() {
                assert!(times.contains_key(id), "the answered request {id} has no usage record");
            }
        }
    }
}

impl TestGatewayBuilder {
    /// Serves this catalog. `{key}` and `{credential}` stand for [`SERVICE_KEY`] and [`UPSTREAM_CREDENTIAL`].
    #[must_use]
    pub fn catalog(mut self, text: &str) -> Self {
        self.catalog = Some(filled(text));
        self
    }

    /// Listens elsewhere than on a free loopback port.
    #[must_use]
    pub fn listen(mut self, address: &str) -> Self {
        address.clone_into(&mut self.listen);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an argument of `serve`.
    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Starts on a folder that was used before.
    #[must_use]
    pub fn on(mut self, data: TempDir) -> Self {
        self.data = Some(data);
        self
    }

    /// Leaves out the check of records at the end (the folder is damaged on purpose, or lives elsewhere).
    #[must_use]
    pub fn without_record_check(mut self) -> Self {
        self.count_records = false;
        self
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn spawn(self) -> TestGateway {
        let data = self.data.unwrap_or_else(|| TempDir::new().expect("a temporary folder"));
        let mut command = command(&self.program, data.path());
        command.args(["serve", "--json", "--listen", &self.listen]).args(&self.arguments).envs(self.environment.iter().cloned());
        if let Some(catalog) = &self.catalog {
            let path = data.path().join("catalog.toml");
            std::fs::write(&path, catalog).expect("the catalog can be written");
            command.arg("--catalog").arg(path);
        }
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the executable starts");
        let log = Arc::new(Mutex::new(String::new()));
        collect(process.stderr.take().expect("it is piped"), Arc::clone(&log));
        let said = announcement(process.stdout.take().expect("it is piped"));
        let Some(said) = said else {
            let _ = process.kill();
            let _ = process.wait();
            thread::sleep(Duration::from_millis(50));
            panic!("it did not start:\n{}", log.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        };
        let address = said["address"].as_str().and_then(|text| text.parse().ok()).expect("it says its address");
        let key = said["key"].as_str().unwrap_or(SERVICE_KEY).to_owned();
        TestGateway {
            program: self.program,
            process: Some(process),
            address,
            key,
            data: Some(data),
            log,
            said,
            environment: self.environment,
            expected: Mutex::default(),
            count_records: self.count_records,
        }
    }

    /// Runs `serve` and expects it to end by itself.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn fail(self) -> Output {
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

fn filled(catalog: &str) -> String {
    catalog.replace("{key}", SERVICE_KEY).replace("{credential}", UPSTREAM_CREDENTIAL)
}

/// The executable with nothing but its own folder around it.
fn command(program: &Path, data: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("TOLLGATE_DATA", data).current_dir(data).stdin(Stdio::null());
    command
}

fn run(program: &Path, data: &Path, environment: &[(String, String)], arguments: &[&str]) -> Output {
    command(program, data).envs(environment.iter().cloned()).args(arguments).output().expect("the executable starts")
}

fn records(program: &Path, data: &Path, environment: &[(String, String)]) -> Vec<Value> {
    let out = run(program, data, environment, &["usage", "export", "--json"]);
    assert!(out.status.success(), "usage export failed: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect()
}

/// Reads the one JSON object that `serve --json` prints when it is ready; bounded to 30 s.
fn announcement(stdout: impl Read + Send + 'static) -> Option<Value> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        let _ = reader.read_line(&mut line);
        let _ = sender.send(serde_json::from_str(&line).ok());
        // The pipe is kept open and empty, so that later words cannot block the gateway.
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
    });
    receiver.recv_timeout(LONGEST_START).ok().flatten()
}

fn collect(from: impl Read + Send + 'static, into: Arc<Mutex<String>>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut log = into.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            log.push_str(&line);
            log.push('\n');
        }
    });
}
