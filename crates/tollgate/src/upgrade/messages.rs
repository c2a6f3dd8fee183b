//! The messages between the two processes of an upgrade: a length, then JSON; open files travel with the length.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    net::SocketAddr,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::{
    io::retry_on_intr,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg,
        sendmsg,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tollgate_core::UsageRecord;
use tollgate_store::CounterHandOver;

/// Maximum number of files that the kernel passes with one message.
pub(super) const MAX_FILES: usize = 253;
/// Larger messages are refused.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// A message of the new process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Ask {
        protocol: u32,
        /// Version of the program.
        version: String,
        listen: SocketAddr,
        console: Option<SocketAddr>,
    },
    /// The new process is ready to serve.
    Ready,
    /// The new process ends without having served.
    Failed { why: String },
}

/// A message of the running process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Refused {
        why: String,
    },
    /// With the lock of the data folder, the socket where further processes ask, one listening socket per core, that of the
    /// console, and the conversations with processes before this one that have not ended.
    Handed {
        has_console: bool,
        predecessors: usize,
        counters: CounterHandOver,
    },
    Go,
    /// A request that ended after its reservation was handed over.
    Settled {
        record: Box<UsageRecord>,
    },
    /// Sent with the socket of a connection. `first` are the bytes already read of its next request.
    Connection {
        first: Vec<u8>,
    },
}

/// One end of the connection between the two processes. Its calls block.
#[derive(Debug)]
pub(super) struct Conversation(UnixStream);

impl Conversation {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        Ok(Self(stream))
    }

    /// The socket, for another process.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The next message, if one begins within `limit`.
    pub(super) fn receive_within<M: DeserializeOwned>(&mut self, limit: Duration) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        self.wait_at_most(Some(limit))?;
        match rustix::net::recv(&self.0, &mut [0_u8; 1][..], RecvFlags::PEEK) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        self.wait_at_most(None)?;
        self.receive().map(Some)
    }

    /// Sets the longest wait for a message; `None`: no limit.
    pub(super) fn wait_at_most(&self, limit: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(limit)
    }

    pub(super) fn send(&mut self, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidData)?.to_be_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::Error::other("too many open files for one message"));
        }
        let sent = retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL))?;
        self.0.write_all(&length[sent..])?;
        self.0.write_all(&text)
    }

    /// The next message with its files.
    pub(super) fn receive<M: DeserializeOwned>(&mut self) -> io::Result<(M, Vec<OwnedFd>)> {
        let (mut length, mut files) = ([0; 4], Vec::new());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            retry_on_intr(|| recvmsg(&self.0, &mut [IoSliceMut::new(&mut length)], &mut control, RecvFlags::CMSG_CLOEXEC))?.bytes;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        self.0.read_exact(&mut length[received..])?;
        let bytes = u32::from_be_bytes(length) as usize;
        if bytes > MAX_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = vec![0; bytes];
        self.0.read_exact(&mut text)?;
        Ok((serde_json::from_slice(&text)?, files))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn file_descriptors_are_received_with_their_message() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Conversation::new(one).unwrap(), Conversation::new(other).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        one.send(&Request::Ready, &[]).unwrap();
        one.send(&Reply::Connection { first: b"POST".to_vec() }, &[listener.as_fd()]).unwrap();
        one.send(&Request::Ready, &[]).unwrap();
        assert!(matches!(other.receive::<Request>().unwrap(), (Request::Ready, files) if files.is_empty()));
        let (message, mut files) = other.receive::<Reply>().unwrap();
        assert!(matches!(message, Reply::Connection { first } if first == b"POST"));
        let received = TcpListener::from(files.remove(0));
        assert_eq!(received.local_addr().unwrap(), listener.local_addr().unwrap());
        assert!(matches!(other.receive::<Request>().unwrap(), (Request::Ready, files) if files.is_empty()));
        drop(one);
        assert_eq!(other.receive::<Request>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
