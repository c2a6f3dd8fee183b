//! A mail server that records the messages that it receives.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// How a mail server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailServerMode {
    Plain,
    /// It offers only STARTTLS until then.
    StartTls,
    /// TLS from the first byte.
    Tls,
    /// Plain; each recipient is refused.
    Refusing,
}

/// A running mail server on a loopback port of its own. Its certificate is for `localhost`.
#[derive(Debug)]
pub struct MailServer {
    port: u16,
    recorded: Arc<Mutex<Recorded>>,
}

#[derive(Debug, Default)]
struct Recorded {
    commands: Vec<String>,
    logins: Vec<String>,
    mails: Vec<String>,
}

/// A certificate or key of the tests.
fn fixture(name: &str) -> String {
    format!("{}/../tollgate-gateway/fixtures/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn lock(recorded: &Mutex<Recorded>) -> MutexGuard<'_, Recorded> {
    recorded.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MailServer {
    /// Starts a server. It ends with the process.
    pub fn start(mode: MailServerMode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let recorded = Arc::new(Mutex::new(Recorded::default()));
        let kept = Arc::clone(&recorded);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let recorded = Arc::clone(&kept);
                // A client that leaves early ends its connection only.
                thread::spawn(move || serve(socket, mode, &recorded));
            }
        });
        Self { port, recorded }
    }

    /// PEM file with the authority of its certificate.
    pub fn authority() -> String {
        fixture("ca.pem")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The lines of commands, in order.
    pub fn commands(&self) -> Vec<String> {
        lock(&self.recorded).commands.clone()
    }

    /// User and password of each `AUTH PLAIN`, with a blank between.
    pub fn logins(&self) -> Vec<String> {
        lock(&self.recorded).logins.clone()
    }

    /// The mails with their heads.
    pub fn mails(&self) -> Vec<String> {
        lock(&self.recorded).mails.clone()
    }
}

/// A connection with TLS, which is negotiated by its first read.
fn with_tls(socket: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
    let chain = CertificateDer::pem_file_iter(fixture("server.pem")).expect("the certificate is there");
    let chain = chain.map(|certificate| certificate.expect("the certificate is PEM")).collect();
    let key = PrivateKeyDer::from_pem_file(fixture("server.key")).expect("the key is there");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("the key is that of the certificate");
    StreamOwned::new(ServerConnection::new(Arc::new(config)).expect("the configuration is valid"), socket)
}

fn serve(socket: TcpStream, mode: MailServerMode, recorded: &Mutex<Recorded>) -> Option<()> {
    match mode {
        MailServerMode::Tls => talk(with_tls(socket), mode, Greeting::Sent, recorded).map(drop),
        MailServerMode::Plain | MailServerMode::Refusing => talk(socket, mode, Greeting::Sent, recorded).map(drop),
        MailServerMode::StartTls => {
            let socket = talk(socket, mode, Greeting::Sent, recorded)?;
            talk(with_tls(socket), MailServerMode::Tls, Greeting::LeftOut, recorded).map(drop)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Sent,
    /// After STARTTLS a server does not greet again.
    LeftOut,
}

/// Answers commands until the client ends. Returns the connection when the client has asked for TLS.
fn talk<S: Read + Write>(stream: S, mode: MailServerMode, greeting: Greeting, recorded: &Mutex<Recorded>) -> Option<S> {
    let mut stream = BufReader::new(stream);
    let answer = |stream: &mut BufReader<S>, text: &str| {
        let out = stream.get_mut();
        out.write_all(format!("{text}\r\n").as_bytes()).and_then(|()| out.flush()).ok()
    };
    if greeting == Greeting::Sent {
        answer(&mut stream, "220 mail.example.com")?;
    }
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        lock(recorded).commands.push(line.clone());
        let text = match line.split(' ').next().unwrap_or_default() {
            "EHLO" if mode == MailServerMode::StartTls => "250-mail.example.com\r\n250-8BITMIME\r\n250 STARTTLS",
            "EHLO" => "250-mail.example.com\r\n250-8BITMIME\r\n250 AUTH PLAIN LOGIN",
            "STARTTLS" => {
                answer(&mut stream, "220 go ahead")?;
                return Some(stream.into_inner());
            }
            "AUTH" => {
                let login = decoded(line.rsplit(' ').next().unwrap_or_default());
                lock(recorded).logins.push(login.trim_start_matches('\0').replace('\0', " "));
                "235 welcome"
            }
            "RCPT" if mode == MailServerMode::Refusing => "452 mailbox of a@example.com is full",
            "MAIL" | "RCPT" => "250 ok",
            "DATA" => {
                answer(&mut stream, "354 go on")?;
                let mut mail = String::new();
                while !mail.ends_with("\r\n.\r\n") {
                    if stream.read_line(&mut mail).ok()? == 0 {
                        return None;
                    }
                }
                lock(recorded).mails.push(mail);
                "250 accepted"
            }
            "QUIT" => "221 bye",
            _ => "500 unknown",
        };
        answer(&mut stream, text)?;
    }
}

/// Text in base64, without checks.
fn decoded(text: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
        bits = (bits << 6) | u32::try_from(digit).expect("a digit is below 64");
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).expect("a byte"));
        }
    }
    String::from_utf8(bytes).expect("logins are UTF-8")
}
