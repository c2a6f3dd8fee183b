//! The measured targets: nginx and gateways in front of one fast upstream, each a child process killed on drop.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::shell;

/// A key without limits.
pub(crate) const KEY: &str = "bench-key-0123456789abcdefghijklmnop";
/// A key with a budget, rates and a concurrency limit.
pub(crate) const BOUNDED_KEY: &str = "bounded-key-0123456789abcdefghijklm";

/// A key without limits of another member.
const OTHER_KEY: &str = "other-key-0123456789abcdefghijklmnop";

/// A child process, terminated on drop.
pub(crate) struct ChildGuard(pub(crate) Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// A measured target: name, address, process whose CPU time counts, requested model and key.
pub(super) struct BenchTarget {
    pub(super) name: &'static str,
    pub(super) address: String,
    pub(super) pid: Option<u32>,
    pub(super) model: &'static str,
    pub(super) key: &'static str,
    /// Further header fields of each request.
    pub(super) headers: Vec<String>,
}

impl BenchTarget {
    pub(super) fn new(name: &'static str, address: &str, pid: Option<u32>, model: &'static str) -> Self {
        Self { name, address: address.to_owned(), pid, model, key: KEY, headers: Vec::new() }
    }

    /// Uses the key with limits.
    pub(super) fn bounded(mut self) -> Self {
        self.key = BOUNDED_KEY;
        self
    }

    /// Uses the key of another member.
    pub(super) fn of_other_member(mut self) -> Self {
        self.key = OTHER_KEY;
        self
    }
}

pub(super) fn start_nginx(folder: &Path, port: u16, upstream: &str) -> Result<ChildGuard> {
    let tmp = folder.display();
    let text = format!(
        "worker_processes 2; daemon off; error_log {tmp}/error.log; pid {tmp}/nginx.pid; worker_rlimit_nofile 20000;\n\
         events {{ worker_connections 9000; multi_accept on; }}\n\
         http {{ access_log off; keepalive_requests 1000000; tcp_nodelay on; client_body_temp_path {tmp}/a; proxy_temp_path {tmp}/b;\n\
         fastcgi_temp_path {tmp}/c; uwsgi_temp_path {tmp}/d; scgi_temp_path {tmp}/e;\n\
         upstream fast {{ server {upstream}; keepalive 2048; keepalive_requests 10000000; }}\n\
         server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://fast; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; proxy_buffering off; client_max_body_size 50m; client_body_buffer_size 256k; }} }} }}\n"
    );
    let path = folder.join("nginx.conf");
    fs::write(&path, text)?;
    shell::output(Command::new("chmod").arg("755").arg(folder))?;
    start(Command::new("nginx").arg("-c").arg(path))
}

/// Starts the upstream.
pub(crate) fn start_upstream(programs: &Path, address: &str) -> Result<ChildGuard> {
    let upstream = start(Command::new(programs.join("fast-upstream")).args(["--listen", address]))?;
    wait_for(address)?;
    Ok(upstream)
}

/// Starts a gateway with this `journal.sync`.
pub(crate) fn start_gateway(programs: &Path, folder: &Path, sync: &str, port: u16, upstream: &str) -> Result<ChildGuard> {
    let mut command = Command::new(programs.join("tollgate"));
    serve(&mut command, folder, sync, port, upstream)?;
    start(command.env("TOLLGATE_JOURNAL__SYNC", sync))
}

/// Adds the arguments of a gateway for the benchmark's catalog, with its data in `folder/data`.
pub(super) fn serve(command: &mut Command, folder: &Path, data: &str, port: u16, upstream: &str) -> Result<()> {
    let file = folder.join("catalog.toml");
    fs::write(&file, catalog(upstream))?;
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--catalog"]).arg(file);
    command.arg("--data").arg(folder.join(data)).current_dir(folder);
    Ok(())
}

fn catalog(upstream: &str) -> String {
    let channel = |name: &str, protocol: &str, version: &str, model: &str| {
        format!(
            "[[channel]]\nname = \"{name}\"\nprovider = \"compatible\"\nprotocol = \"{protocol}\"\nbase_url = \"http://{upstream}/{version}\"\nprivate_network = true\n\
             [[channel.account]]\nname = \"{name}\"\ncredential = \"bench\"\n\
             [[channel.serves]]\nmodel = \"{model}\"\ncost = {{ input = \"0.25\", output = \"2.00\" }}\n\
             [[model]]\nname = \"{model}\"\nmax_output = 1024\nprice = {{ input = \"0.30\", output = \"2.40\" }}\n"
        )
    };
    channel("chat", "openai", "v1", "bench-chat")
        + &channel("native", "gemini", "v1beta", "bench-native")
        + &channel("messages", "anthropic", "v1", "bench-messages")
        + &channel("responses", "responses", "v1", "bench-responses")
        + &format!(
            "[[group]]\nname = \"default\"\nchannels = [\"chat\", \"native\", \"messages\", \"responses\"]\n\
             [[key]]\nname = \"bench\"\ngroups = [\"default\"]\nsecret = \"{KEY}\"\n\
             [[key]]\nname = \"bounded\"\ngroups = [\"default\"]\nsecret = \"{BOUNDED_KEY}\"\nrpm = 100000000\ntpm = 100000000000\n\
             concurrency = 10000\nbudget = {{ amount = \"1000000\", window = \"month\" }}\n\
             [[member]]\nname = \"other\"\n\
             [[key]]\nname = \"other\"\nmember = \"other\"\ngroups = [\"default\"]\nsecret = \"{OTHER_KEY}\"\n"
        )
}

pub(crate) fn start(command: &mut Command) -> Result<ChildGuard> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Ok(ChildGuard(child.with_context(|| format!("cannot start {name}"))?))
}

pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

pub(crate) fn wait_for(address: &str) -> Result<()> {
    for _ in 0..2_000 {
        if TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("{address} does not accept connections")
}

pub(crate) fn http_get(address: &str, path: &str) -> Result<()> {
    use std::io::{Read, Write};
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = [0; 64];
    let length = stream.read(&mut answer)?;
    if answer[..length].starts_with(b"HTTP/1.1 200") { Ok(()) } else { bail!("{address}{path} did not answer 200") }
}

pub(super) fn resident_mb(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: f64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4096.0 / 1e6
}
