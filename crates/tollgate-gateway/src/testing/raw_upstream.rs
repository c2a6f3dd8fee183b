//! An upstream on loopback that sends raw bytes, to simulate invalid and hostile responses.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) struct RawUpstream {
    /// Its base URL.
    pub(crate) url: String,
    accepted: Arc<AtomicUsize>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl RawUpstream {
    /// Calls `serve` for every accepted connection, with its number from 0.
    pub(crate) async fn start<F, D>(serve: F) -> Self
    where
        F: Fn(TcpStream, usize) -> D + Send + 'static,
        D: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (accepted, tasks, stop) = (Arc::new(AtomicUsize::new(0)), TaskTracker::new(), CancellationToken::new());
        let (counted, own, until) = (Arc::clone(&accepted), tasks.clone(), stop.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let number = counted.fetch_add(1, Ordering::SeqCst);
                own.spawn(until.clone().run_until_cancelled_owned(serve(socket, number)));
            }
        }));
        Self { url, accepted, tasks, stop }
    }

    /// Answers every request of every connection with these bytes.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<Vec<u8>> = Arc::new(answer.into());
        Self::start(move |mut socket, _| {
            let answer = Arc::clone(&answer);
            async move {
                while read_request(&mut socket).await.is_some() {
                    if socket.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Answers the first request of a connection with these bytes, then closes it.
    pub(crate) async fn answering_once(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<Vec<u8>> = Arc::new(answer.into());
        Self::start(move |mut socket, _| {
            let answer = Arc::clone(&answer);
            async move {
                if read_request(&mut socket).await.is_some() {
                    let _ = socket.write_all(&answer).await;
                    let _ = socket.shutdown().await;
                }
            }
        })
        .await
    }

    /// Connections accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for RawUpstream {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.close();
    }
}

/// Reads one complete request by its `content-length`; `None` if the connection ends first.
pub(crate) async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut seen = Vec::new();
    loop {
        if let Some(head) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&seen[..head]).to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
            if seen.len() >= head + 4 + length {
                return Some(String::from_utf8_lossy(&seen).into_owned());
            }
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => seen.extend_from_slice(&piece[..n]),
        }
    }
}
