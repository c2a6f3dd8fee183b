//! Memory of answers, and what one key's requests mean for others.

use super::*;
use crate::state::shares::InFlightRequest;

/// An answer of about this many bytes.
fn large(bytes: usize) -> String {
    REPLY.replace("\"hi\"", &format!("\"{}\"", "x".repeat(bytes)))
}

/// A request whose body and answer count against `limit`. It is over when the second value is dropped.
fn within(rig: &Rig, limit: usize) -> (Incoming, Arc<InFlightRequest>) {
    let request = rig.core.shared.condition.enter(100, limit).unwrap();
    let mut incoming = rig.incoming(CHAT);
    incoming.body = incoming.body.within(Arc::clone(&request));
    (incoming, request)
}

#[tokio::test(start_paused = true)]
async fn complete_answers_counted_against_no_memory() {
    let mut rig = Rig::new(Script::new().replies(&large(600_000)).replies(&large(600_000)).replies(REPLY), 1);
    let condition = Arc::clone(&rig.core.shared.condition);
    let (first, first_request) = within(&rig, 1_000_000);
    let answered = serve(&rig.core, first).await;
    assert_eq!(answered.status(), 200);
    let used = condition.memory.used();
    assert!((600_000..610_000).contains(&used), "{used}");

    // The second waits until the first caller has its answer.
    let (second, second_request) = within(&rig, 1_000_000);
    let began = rig.clock.instant();
    let reads = async {
        tokio::time::sleep(SECOND * 5).await;
        assert_eq!(read(answered).await.status, 200);
        drop(first_request);
    };
    let (answer, ()) = tokio::join!(serve(&rig.core, second), reads);
    assert_eq!((answer.status(), rig.clock.instant().saturating_duration_since(began)), (http::StatusCode::OK, SECOND * 5));
    drop((answer, second_request));
    assert_eq!((condition.memory.used(), condition.in_flight()), (0, 0));
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_memory_is_refused_and_blames_no_account() {
    let mut rig = Rig::new((0..4).fold(Script::new(), |script, _| script.replies(&large(600_000))).replies(REPLY), 1);
    for _ in 0..4 {
        let (incoming, _request) = within(&rig, 300_000);
        let got = read(serve(&rig.core, incoming).await).await;
        assert_eq!((got.status, got.code().as_str()), (503, "server_overloaded"));
    }
    assert_eq!(rig.core.shared.condition.memory.used(), 0, "what was read is released");
    assert_eq!(rig.ask(CHAT).await.status, 200, "the account does not cool");
    assert!(rig.records()[..4].iter().all(|record| record.reason.as_deref() == Some("E63") && record.attempts.len() == 1));
}
