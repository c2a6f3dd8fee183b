//! Connections in a process that has handed over.

use socket2::SockRef;
use tokio::{net::TcpSocket, sync::mpsc};

use super::*;
use crate::hand_over::MovedConnection;

/// Hands over to another process, which gets the connections from the channel.
async fn hand_over(gate: &Gate) -> mpsc::Receiver<MovedConnection> {
    let hand_over = &gate.shared.serving.hand_over;
    let (is_booked, ()) = tokio::join!(hand_over.pause(), async { hand_over.booked(true) });
    assert!(is_booked);
    let (moves, moved) = mpsc::channel(8);
    hand_over.leave(moves);
    moved
}

/// Waits until the process has completed its running requests.
async fn ended(gate: Gate) {
    let drained = timeout(TIMEOUT, gate.run).await.expect("the process ends").unwrap().unwrap();
    assert_eq!(drained, Drained::Complete);
    gate.shared.serving.hand_over.end_moves();
}

#[tokio::test]
async fn hand_over_does_not_cut_an_answer_that_is_read_slowly() {
    let settings = Settings { listen: SocketAddr::from(([127, 0, 0, 1], 0)), cores: 1, ..Settings::default() };
    let listening = listen(&settings).unwrap();
    for socket in listening.duplicates().unwrap() {
        SockRef::from(&socket).set_send_buffer_size(4 * 1024).unwrap();
    }
    let gate = Gate::on(listening, settings, Arc::new(NotFound));
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    let mut caller = Caller { socket: socket.connect(gate.address).await.unwrap(), read: Vec::new() };
    caller.send(chat("X-Script: large\r\n", "")).await;
    caller.until("\r\n\r\n").await;
    gate.quiet().await;

    let mut moved = hand_over(&gate).await;
    // Longer than a connection may take to close.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(moved.try_recv().is_err(), "the answer is still on its way");
    while caller.read.len() < LARGE {
        let read = timeout(TIMEOUT, caller.socket.read_buf(&mut caller.read)).await.expect("the answer continues").unwrap();
        assert_ne!(read, 0, "cut after {} bytes", caller.read.len());
    }
    let connection = timeout(TIMEOUT, moved.recv()).await.expect("it moves").unwrap();
    assert_eq!(connection.socket.peer_addr().unwrap(), caller.socket.local_addr().unwrap());
    ended(gate).await;
}

#[tokio::test]
async fn connection_that_closes_after_its_answer_is_not_handed_over() {
    let unframed = chat("Transfer-Encoding: chunked\r\n", "0\r\n\r\n");
    for first in [chat("Connection: close\r\n", ""), unframed] {
        let gate = Gate::open(Settings::default());
        let mut caller = gate.connect().await;
        caller.send(first).await;
        let answer = caller.until("\r\n\r\n").await;
        let mut moved = hand_over(&gate).await;
        // The other process must not read the following bytes as a request.
        let _ = caller.socket.write_all(chat("", "").as_bytes()).await;
        let rest = caller.rest().await;
        assert!(statuses(&rest).is_empty(), "{answer}{rest}");
        ended(gate).await;
        assert!(moved.recv().await.is_none(), "{answer}");
    }
}
