//! Mail by SMTP. As for all outbound connections, the address is checked after it is resolved. TLS trusts the same roots as for
//! upstreams. Unless the address is `smtp+plain://`, only the greeting and STARTTLS are sent unencrypted.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use lettre::{
    Message,
    message::{Mailbox, header::ContentType},
    transport::smtp::{
        authentication::{Credentials, Mechanism},
        client::{AsyncSmtpConnection, AsyncTokioStream},
        extension::ClientId,
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpStream,
};
use tollgate_store::AlertDestination;
use url::Url;

use super::{Mail, Notification, policy};
use crate::upstream::client::{Trust, destination::UpstreamTarget, dial::dial, resolver::resolve, tls::handshake};

/// Largest reply before TLS.
const REPLY_BYTES: usize = 16 * 1024;
/// Maximum number of bytes read from a server in total, however long its lines are.
const ANSWER_BYTES: usize = 64 * 1024;
const GREETING: &[u8] = b"220 ready\r\n";
const SUBJECT_CHARACTERS: usize = 200;

/// How a connection is protected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protection {
    /// TLS from the beginning (port 465).
    Tls,
    /// TLS after STARTTLS, which the server must offer (port 587).
    StartTls,
    None,
}

/// Sends the mail about an alert to the recipients of the destination.
pub(super) async fn send(destination: &AlertDestination, message: &Notification, trust: &Trust) -> Result<(), String> {
    let id = if message.id.is_empty() { format!("test-{}", message.at.0) } else { message.id.clone() };
    let id = format!("{id}.{}", message.state);
    let mail = compose(destination, &destination.spec.to, (&message.line(), &id), body(message))?;
    transmit(destination, &mail, trust).await
}

/// Sends a mail to one person.
pub(super) async fn send_to(destination: &AlertDestination, mail: &Mail<'_>, trust: &Trust) -> Result<(), String> {
    let mail = compose(destination, &[mail.to.to_owned()], (mail.subject, mail.id), mail.body.to_owned())?;
    transmit(destination, &mail, trust).await
}

async fn transmit(destination: &AlertDestination, mail: &Message, trust: &Trust) -> Result<(), String> {
    let url = Url::parse(&destination.secrets.url).map_err(|_| "the address cannot be read".to_owned())?;
    let (protection, port) = match url.scheme() {
        "smtps" => (Protection::Tls, 465),
        "smtp" => (Protection::StartTls, 587),
        _ => (Protection::None, 25),
    };
    let hello = destination.spec.from.split_once('@').map_or("localhost", |(_, domain)| domain).to_owned();
    let host = url.host_str().unwrap_or_default();
    // [`UpstreamTarget`], which is made from an HTTP URL, has the rules for hosts and addresses.
    let address = format!("https://{host}:{}", url.port().unwrap_or(port));
    let address = Url::parse(&address).map_err(|_| "the address cannot be read".to_owned())?;
    let target = UpstreamTarget::of_url(&address, policy(destination)).map_err(super::fault_text)?;
    let addresses = resolve(&target, trust.addresses()).await.map_err(super::fault_text)?;
    let mut socket = dial(addresses).await.map_err(|_| "the connection was refused".to_owned())?;
    let peer = socket.peer_addr().map_err(|_| "the connection was closed".to_owned())?;
    let stream: Box<dyn AsyncTokioStream> = if protection == Protection::None {
        Box::new(MailStream { greeting: &[], inner: socket, peer, left: ANSWER_BYTES })
    } else {
        if protection == Protection::StartTls {
            start_tls(&mut socket, &hello).await?;
        }
        let inner = handshake(Arc::new(trust.without_alpn()), &target, socket).await.map_err(|fault| fault.to_string())?;
        // After STARTTLS the server does not greet again, but the client below waits for a greeting.
        let greeting = if protection == Protection::StartTls { GREETING } else { &[] };
        Box::new(MailStream { greeting, inner, peer, left: ANSWER_BYTES })
    };
    deliver(stream, &hello, mail, url.username(), destination).await.map_err(|fault| fault_text(&fault))
}

async fn deliver(
    stream: Box<dyn AsyncTokioStream>,
    hello: &str,
    mail: &Message,
    user: &str,
    destination: &AlertDestination,
) -> Result<(), lettre::transport::smtp::Error> {
    let mut connection = AsyncSmtpConnection::connect_with_transport(stream, &ClientId::Domain(hello.to_owned())).await?;
    if let Some(password) = destination.secrets.secret.as_ref().filter(|_| !user.is_empty()) {
        let user = percent_encoding::percent_decode_str(user).decode_utf8_lossy().into_owned();
        let credentials = Credentials::new(user, password.clone());
        connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await?;
    }
    connection.send(mail.envelope(), &mail.formatted()).await?;
    // The mail is accepted by now, however the connection ends.
    let _ = connection.quit().await;
    Ok(())
}

/// The code of a refusal. Its text may contain addresses and is left out.
fn fault_text(fault: &lettre::transport::smtp::Error) -> String {
    match fault.status() {
        Some(code) => format!("the mail server refused it with the code {code}"),
        None if fault.is_timeout() => "timed out".to_owned(),
        None => "the mail server closed the connection, or does not speak SMTP as expected".to_owned(),
    }
}

fn compose(
    destination: &AlertDestination,
    people: &[String],
    (subject, id): (&str, &str),
    body: String,
) -> Result<Message, String> {
    let mailbox = |address: &str| {
        let parsed = address.parse().map_err(|_| "an address of the mail cannot be read".to_owned());
        parsed.map(|address| Mailbox::new(None, address))
    };
    let from = &destination.spec.from;
    let domain = from.split_once('@').map_or("localhost", |(_, domain)| domain);
    let subject: String = subject.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SUBJECT_CHARACTERS).collect();
    let mut mail = Message::builder()
        .from(mailbox(from)?)
        .subject(subject)
        .message_id(Some(format!("<{id}@{domain}>")))
        .header(ContentType::TEXT_PLAIN);
    for to in people {
        mail = mail.to(mailbox(to)?);
    }
    mail.body(body).map_err(|_| "the mail cannot be composed".to_owned())
}

fn body(message: &Notification) -> String {
    let mut text = format!("{}.\n\n", message.text);
    let mut line = |name: &str, value: &str| text.extend([name, ": ", value, "\n"]);
    for (name, value) in [
        ("rule", message.rule.as_str()),
        ("state", message.state),
        ("at", &message.at.to_string()),
        ("subject", &message.subject),
        ("node", &message.node),
        ("alert", &message.id),
    ] {
        if !value.is_empty() {
            line(name, value);
        }
    }
    for (name, value) in &message.detail {
        line(name, &value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    text
}

/// Asks for TLS. Replies are read byte by byte, so that nothing after them is mistaken for a reply within TLS.
async fn start_tls(socket: &mut TcpStream, hello: &str) -> Result<(), String> {
    let unexpected = || "the mail server does not speak SMTP as expected".to_owned();
    let closed = |_| "the mail server closed the connection".to_owned();
    if !reply(socket).await.map_err(closed)?.starts_with("220") {
        return Err(unexpected());
    }
    socket.write_all(format!("EHLO {hello}\r\n").as_bytes()).await.map_err(closed)?;
    let offered = reply(socket).await.map_err(closed)?;
    if !offered.lines().any(|line| line.get(4..).is_some_and(|word| word.trim().eq_ignore_ascii_case("STARTTLS"))) {
        return Err("the mail server does not offer STARTTLS".to_owned());
    }
    socket.write_all(b"STARTTLS\r\n").await.map_err(closed)?;
    if reply(socket).await.map_err(closed)?.starts_with("220") { Ok(()) } else { Err(unexpected()) }
}

/// A reply of one or more lines. Its last line has a space after the code.
async fn reply(socket: &mut TcpStream) -> io::Result<String> {
    let (mut text, mut line) = (Vec::new(), 0);
    while text.len() < REPLY_BYTES {
        let byte = socket.read_u8().await?;
        text.push(byte);
        if byte == b'\n' {
            if text.get(line + 3) != Some(&b'-') {
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            line = text.len();
        }
    }
    Err(io::Error::other("a reply is too long"))
}

/// A connection to a mail server that begins with a greeting. It ends with an error when the server has sent too much.
#[derive(Debug)]
struct MailStream<S> {
    /// Bytes that reads return before those of `inner`.
    greeting: &'static [u8],
    inner: S,
    peer: SocketAddr,
    /// Bytes that may still be read.
    left: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for MailStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.greeting.is_empty() {
            let before = buffer.filled().len();
            let read = Pin::new(&mut self.inner).poll_read(context, buffer);
            let Some(left) = self.left.checked_sub(buffer.filled().len() - before) else {
                return Poll::Ready(Err(io::Error::other("the mail server sends too much")));
            };
            self.left = left;
            return read;
        }
        let (now, later) = self.greeting.split_at(self.greeting.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.greeting = later;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MailStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + std::fmt::Debug> AsyncTokioStream for MailStream<S> {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}
