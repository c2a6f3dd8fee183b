//! A small S3-compatible server: it checks signatures of AWS Signature Version 4 in the query by its own computation, keeps objects in
//! memory, and fails as scripted.
//!
//! The computation follows <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html>.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

pub(super) const BUCKET: &str = "records";
pub(super) const REGION: &str = "eu-test-1";
pub(super) const ACCESS_KEY: &str = "AKTESTKEY";
pub(super) const SECRET: &str = "storage-secret-CANARY-0123456789";

/// How a request fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// Status and code.
    Answer(u16, &'static str),
    /// The connection is closed in the middle of the request.
    Cut,
    /// The object is stored, and the connection is closed without an answer.
    CutAfter,
    /// No answer is sent for a long time.
    Hang,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    /// Results of the next requests; `None`: success.
    faults: VecDeque<Option<Fault>>,
    /// Applies to all further requests.
    always: Option<Fault>,
    /// How long a request takes.
    time: Duration,
    /// Methods and keys of all correctly signed requests.
    requests: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct ObjectStorage {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl ObjectStorage {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let storage = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let served = storage.clone();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let served = served.clone();
                thread::spawn(move || served.serve(connection));
            }
        });
        storage
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.state().objects.clone()
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// The next requests end like this.
    pub(super) fn fail_next(&self, faults: &[Option<Fault>]) {
        self.state().faults = faults.iter().copied().collect();
    }

    /// The result of all requests, until it is changed.
    pub(super) fn fail(&self, fault: Option<Fault>) {
        self.state().always = fault;
    }

    /// Delays every response by this time.
    pub(super) fn take(&self, time: Duration) {
        self.state().time = time;
    }

    fn serve(&self, mut connection: TcpStream) {
        let Some((head, mut body)) = read_head(&mut connection) else { return };
        let mut lines = head.split("\r\n");
        let mut line = lines.next().unwrap().split(' ');
        let (method, target) = (line.next().unwrap().to_owned(), line.next().unwrap().to_owned());
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let length: usize = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let signed = verify(&method, path, query, &headers["host"]);
        let fault = {
            let mut state = self.state();
            if signed.is_ok() {
                state.requests.push(format!("{method} {path}"));
            }
            let next = state.faults.pop_front();
            next.unwrap_or(state.always)
        };
        if matches!(fault, Some(Fault::Cut)) {
            return;
        }
        let mut rest = vec![0; length.saturating_sub(body.len())];
        if connection.read_exact(&mut rest).is_err() {
            return;
        }
        body.extend(rest);
        let time = self.state().time;
        thread::sleep(time);
        let (status, document) = match (fault, signed) {
            (Some(Fault::Hang), _) => {
                thread::sleep(Duration::from_mins(1));
                return;
            }
            (Some(Fault::Answer(status, code)), _) => (status, error(code, "the test reports it", "")),
            (_, Err((status, document))) => (status, document),
            (_, Ok(())) => self.apply(&method, path, body),
        };
        if matches!(fault, Some(Fault::CutAfter)) {
            return;
        }
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", document.len());
        let _ = connection.write_all((head + &document).as_bytes());
    }

    fn apply(&self, method: &str, path: &str, body: Vec<u8>) -> (u16, String) {
        let Some(key) = path.strip_prefix(&format!("/{BUCKET}/")) else {
            return (404, error("NoSuchBucket", "The specified bucket does not exist", ""));
        };
        let mut state = self.state();
        match method {
            "PUT" => {
                state.objects.insert(key.replace("%3D", "="), body);
                (200, String::new())
            }
            "DELETE" => {
                state.objects.remove(&key.replace("%3D", "="));
                (204, String::new())
            }
            _ => (405, error("MethodNotAllowed", "not here", "")),
        }
    }
}

/// The head of a request, and the bytes already read of its body.
fn read_head(connection: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut read, mut chunk) = (Vec::new(), [0; 16_384]);
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let body = read.split_off(end + 4);
            read.truncate(end);
            return Some((String::from_utf8(read).unwrap(), body));
        }
        match connection.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(count) => read.extend_from_slice(&chunk[..count]),
        }
    }
}

fn error(code: &str, message: &str, region: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message><Region>{region}</Region></Error>"
    )
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Checks the signature in the query, which covers the method, the path, the rest of the query and the host.
fn verify(method: &str, path: &str, query: &str, host: &str) -> Result<(), (u16, String)> {
    let mut pairs: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("X-Amz-Signature=")).collect();
    pairs.sort_unstable();
    let value = |name: &str| {
        let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().replace("%2F", "/")
    };
    let credential = value("X-Amz-Credential");
    let (access_key, scope) = credential.split_once('/').ok_or((403, error("AccessDenied", "unsigned", "")))?;
    if access_key != ACCESS_KEY {
        return Err((403, error("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.", "")));
    }
    let parts: Vec<&str> = scope.split('/').collect();
    assert_eq!((parts.len(), parts[2], parts[3]), (4, "s3", "aws4_request"), "{scope}");
    if parts[1] != REGION {
        return Err((400, error("AuthorizationQueryParametersError", "the region is wrong", REGION)));
    }
    assert_eq!(value("X-Amz-SignedHeaders"), "host");
    assert_eq!(value("X-Amz-Algorithm"), "AWS4-HMAC-SHA256");
    let request = format!("{method}\n{path}\n{}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD", pairs.join("&"));
    let digest = hex::encode(Sha256::digest(request.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{digest}", value("X-Amz-Date"));
    let key = parts.iter().fold(format!("AWS4{SECRET}").into_bytes(), |key, part| mac(&key, part));
    if hex::encode(mac(&key, &text)) != value("X-Amz-Signature") {
        let message = "The request signature we calculated does not match the signature you provided.";
        return Err((403, error("SignatureDoesNotMatch", message, "")));
    }
    Ok(())
}
