//! The bytes that a stream keeps count against the memory for bodies and answers.

use super::{shares::within, *};
use crate::state::shares::InFlightRequest;

/// A chunk with this much content, in pieces of 50,000 bytes.
fn large_event(bytes: usize) -> Vec<Piece> {
    let Piece::Data(event) = chunk(&"x".repeat(bytes)) else { unreachable!("a chunk is data") };
    event.chunks(50_000).map(|piece| Piece::Data(Bytes::copy_from_slice(piece))).collect()
}

fn stream(parts: impl IntoIterator<Item = Vec<Piece>>) -> Vec<Piece> {
    [vec![role(), chunk("begin")]].into_iter().chain(parts).flatten().collect()
}

/// A request for a stream within memory of `limit` bytes. The request ends when the second value is dropped.
fn asked(rig: &Rig, limit: usize) -> (Incoming, Arc<InFlightRequest>) {
    let (mut incoming, request) = within(rig, limit);
    incoming.body = RequestBody::from(Bytes::copy_from_slice(STREAM.as_bytes())).within(Arc::clone(&request));
    (incoming, request)
}

/// Reads an answer to its end, and returns the most memory that was counted meanwhile.
async fn read_counting(rig: &Rig, answer: Response<AnswerBody>) -> (Got, usize) {
    let serving = Arc::clone(&rig.core.shared.serving);
    let most = std::cell::Cell::new(0);
    let counts = async {
        loop {
            most.set(most.get().max(serving.memory.used()));
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        got = read(answer) => (got, most.get()),
        () = counts => unreachable!("it counts for ever"),
    }
}

#[tokio::test(start_paused = true)]
async fn stream_event_counts_against_the_memory_only_while_it_is_received() {
    let (before, after) = {
        let mut pieces = large_event(600_000);
        let after = pieces.split_off(11);
        (pieces, after)
    };
    let pause = vec![Piece::Wait(SECOND * 5)];
    let quiet = vec![chunk("more"), Piece::Wait(SECOND * 5)];
    let script = Script::new().streams(stream([before, pause, after, quiet, vec![tail()]]));
    let mut rig = Rig::new(script, 1);
    let serving = Arc::clone(&rig.core.shared.serving);
    let (incoming, request) = asked(&rig, 10_000_000);
    let mut answer = serve(&rig.core, incoming).await;
    let of_the_request = serving.memory.used();
    let mut received = 0;
    let mut used = Vec::new();
    let read = async {
        while let Some(frame) = answer.body_mut().frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= 256 * 1024, "a large event is handed over in pieces");
            received += piece.len();
        }
    };
    let looks = async {
        for _ in 0..2 {
            tokio::time::sleep(SECOND * 3).await;
            used.push(serving.memory.used() - of_the_request);
        }
    };
    tokio::join!(read, looks);
    assert!(received > 600_000);
    assert!((450_000..1_200_000).contains(&used[0]), "while the event is received: {}", used[0]);
    assert_eq!(used[1], 0, "when the caller has it");
    drop((answer, request));
    assert_eq!((serving.memory.used(), rig.record().outcome), (0, tollgate_core::Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn ordinary_stream_reserves_no_memory() {
    let chunks = (0..2_000).map(|number| chunk(&format!("{number} {}", "word ".repeat(20)))).collect();
    // And a stream of which many chunks arrive in one read.
    let Piece::Data(one) = chunk("word") else { unreachable!("a chunk is data") };
    let joined = vec![Piece::Data(Bytes::from(one.repeat(1_000))), Piece::Wait(SECOND)];
    let mut rig = Rig::new(Script::new().streams(stream([chunks, joined, vec![tail()]])), 1);
    let (incoming, request) = asked(&rig, 2_000);
    let answer = serve(&rig.core, incoming).await;
    let of_the_request = rig.core.shared.serving.memory.used();
    let (got, most) = read_counting(&rig, answer).await;
    assert_eq!((got.status, got.aborted, most), (200, false, of_the_request), "although there is hardly any memory");
    drop(request);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn stream_without_memory_ends_with_an_error_event_and_is_not_blamed_on_the_account() {
    let rest = large_event(600_000);
    let script = (0..4).fold(Script::new(), |script, _| script.streams(stream([rest.clone(), vec![tail()]])));
    let mut rig = Rig::new(script.replies(REPLY), 1);
    for _ in 0..4 {
        let (incoming, request) = asked(&rig, 300_000);
        let answer = serve(&rig.core, incoming).await;
        assert_eq!(answer.status(), 200);
        let (got, most) = read_counting(&rig, answer).await;
        let last = got.body.trim_end().lines().last().unwrap().to_owned();
        assert!(got.aborted && got.body.contains("begin") && last.contains("\"code\":\"server_overloaded\""), "{last}");
        assert!(most <= 300_000, "{most}");
        drop(request);
    }
    assert_eq!((rig.core.shared.serving.memory.used(), rig.script.open()), (0, 0), "the upstream's streams are closed");
    assert_eq!(rig.ask(CHAT).await.status, 200, "the account does not cool");
    for record in &rig.records()[..4] {
        assert_eq!((record.reason.as_deref(), record.attempts.len()), (Some("E63"), 1));
        assert_eq!(record.attempts[0].result, tollgate_core::AttemptResult::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_memory_does_not_count_as_upstream_silence() {
    let pieces = || stream([large_event(600_000), vec![Piece::Wait(SECOND * 8)], vec![tail()]]);
    let mut rig = Rig::with(Script::new().streams(pieces()).streams(pieces()), 1, |channel| {
        channel.spec.timeouts.idle_ms = 9_000;
    });
    let serving = Arc::clone(&rig.core.shared.serving);
    // Another request holds most of the memory for a while.
    let (_, holder) = within(&rig, 1_000_000);
    holder.reserve_bytes(700_000).unwrap();
    let (incoming, request) = asked(&rig, 1_000_000);
    let answer = serve(&rig.core, incoming).await;
    let began = rig.clock.instant();
    let releases = async {
        tokio::time::sleep(SECOND * 7).await;
        drop(holder);
    };
    let (got, ()) = tokio::join!(read(answer), releases);
    assert_eq!((got.status, got.aborted), (200, false), "{}", &got.body[got.body.len() - 300..]);
    assert!(got.body.len() > 600_000);
    let took = rig.clock.instant().saturating_duration_since(began);
    assert!((SECOND * 15..SECOND * 16).contains(&took), "{took:?}: seven seconds for memory, eight of the upstream");
    drop(request);
    assert_eq!((serving.memory.used(), rig.record().outcome), (0, tollgate_core::Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn stream_without_memory_for_its_beginning_is_refused_and_not_blamed_on_the_account() {
    // A comment that does not end is not content.
    let beginning = || vec![Piece::Data(Bytes::from(format!(": {}", "x".repeat(900_000))))];
    let script = (0..4).fold(Script::new(), |script, _| script.streams(beginning()));
    let mut rig = Rig::new(script.replies(REPLY), 1);
    for _ in 0..4 {
        let (incoming, _request) = asked(&rig, 300_000);
        let got = read(serve(&rig.core, incoming).await).await;
        assert_eq!((got.status, got.code().as_str()), (503, "server_overloaded"));
    }
    assert_eq!(rig.core.shared.serving.memory.used(), 0);
    assert_eq!(rig.ask(CHAT).await.status, 200, "the account does not cool");
    assert_eq!(rig.records()[0].reason.as_deref(), Some("E63"));
}

#[tokio::test(start_paused = true)]
async fn caller_leaving_while_its_stream_waits_for_memory_releases_it() {
    let mut rig = Rig::new(Script::new().streams(stream([large_event(600_000), vec![tail()]])), 1);
    let (incoming, request) = asked(&rig, 300_000);
    let mut answer = serve(&rig.core, incoming).await;
    let left = tokio::time::timeout(SECOND, async { while answer.body_mut().frame().await.is_some() {} }).await;
    assert!(left.is_err(), "it waits");
    assert!(rig.core.shared.serving.memory.used() > 0);
    drop((answer, request));
    assert_eq!(rig.core.shared.serving.memory.used(), 0);
    assert_eq!(rig.record().outcome, tollgate_core::Outcome::CallerLeft);
}

#[tokio::test(start_paused = true)]
async fn text_repeated_by_a_responses_stream_counts_once_against_the_memory() {
    const PIECES: usize = 400;
    let text = "x".repeat(10_000);
    let chunks = (0..PIECES).map(|_| chunk(&text)).collect();
    let mut rig = Rig::new(Script::new().streams(stream([chunks, vec![tail()]])), 1);
    let request = rig.core.shared.serving.enter(100, 5_000_000);
    let mut incoming = rig.responses(r#"{"model":"m","stream":true,"input":"hello"}"#);
    incoming.body = incoming.body.within(Arc::clone(&request));
    let mut body = serve(&rig.core, incoming).await.into_body();
    let (mut received, mut most) = (0, 0);
    while let Some(frame) = body.frame().await {
        received += frame.expect("there is memory for one text").into_data().unwrap().len();
        most = most.max(rig.core.shared.serving.memory.used());
    }
    let length = PIECES * text.len();
    assert!(received > 5 * length, "in pieces, and four times as a whole: {received}");
    // The first 64 KiB are free.
    assert!((length - 128 * 1024..length + length / 4).contains(&most), "{most} bytes for {length}");
    drop((body, request));
    assert_eq!(rig.core.shared.serving.memory.used(), 0);
    rig.record();
}
