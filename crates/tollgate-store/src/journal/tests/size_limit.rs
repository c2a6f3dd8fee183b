//! A journal at its size limit: entries that are buffered, rejected, written later and lost.

use super::*;

#[test]
fn entries_beyond_the_size_limit_are_buffered_then_rejected() {
    let dir = TempDir::new().unwrap();
    let size = {
        let mut frame = Vec::new();
        encode_end(&record(0), &mut frame).unwrap();
        frame.len() as u64
    };
    let limited = JournalOptions { max_bytes: 36 + 2 * size + size / 2, memory_bytes: 2 * size + size / 2, ..options(&dir) };
    let (journal, _) = Journal::open(limited).unwrap();
    let writer = journal.writer(0).unwrap();
    for n in 0..4 {
        let _ = writer.end(&record(n)).unwrap();
    }
    assert!(matches!(writer.end(&record(4)), Err(JournalError::Full { .. })));
    assert_eq!(journal.pending_bytes(), writer.pending_bytes());
    assert_eq!((journal.pending_requests(), journal.unbooked()), (2, 4));
    assert_eq!(ended(&dir), [request_id(0), request_id(1)], "only these fit on disk");
    let backlog: Vec<_> = journal.backlog().unwrap().map(|record| record.unwrap().id).collect();
    assert_eq!(backlog, [2, 3, 0, 1].map(request_id), "records in memory come first");

    // Records booked from memory are not written.
    journal.mark_booked(&[request_id(0), request_id(1), request_id(2)]);
    drop(writer);
    assert_eq!(journal.pending_bytes(), 0);
    assert_eq!(journal.backlog().unwrap().map(|record| record.unwrap().id).collect::<Vec<_>>(), [request_id(3)]);
}

#[test]
fn buffered_entries_are_written_once_segments_are_removed() {
    let dir = TempDir::new().unwrap();
    let (first, _) = Journal::open(JournalOptions { segment_bytes: 1, max_bytes: 3_000, ..options(&dir) }).unwrap();
    let writer = first.writer(0).unwrap();
    let mut n = 0;
    while first.pending_bytes() == 0 {
        let _ = writer.end(&record(n)).unwrap();
        n += 1;
    }
    let pending = n - 1;
    first.mark_booked(&(0..pending).map(request_id).collect::<Vec<_>>());
    writer.progress(&progress(pending, 1)).unwrap();
    assert_eq!(first.pending_bytes(), 0);
    assert_eq!(first.backlog().unwrap().map(|record| record.unwrap().id).collect::<Vec<_>>(), [request_id(pending)]);
}

/// A journal whose limit fits one record; of the `records` ends written, all but the first are buffered in memory.
fn full_journal(dir: &TempDir, records: u64) -> (Journal, JournalWriter) {
    let mut frame = Vec::new();
    encode_end(&record(0), &mut frame).unwrap();
    let limited = JournalOptions { max_bytes: 36 + frame.len() as u64 * 3 / 2, ..options(dir) };
    let (journal, _) = Journal::open(limited).unwrap();
    let writer = journal.writer(0).unwrap();
    for n in 0..records {
        let _ = writer.end(&record(n)).unwrap();
    }
    assert_eq!(journal.pending_requests(), usize::try_from(records - 1).unwrap());
    (journal, writer)
}

#[test]
fn buffered_records_are_booked_after_their_writer_is_dropped() {
    let dir = TempDir::new().unwrap();
    let (journal, writer) = full_journal(&dir, 5);
    assert_eq!((journal.unbooked(), journal.oldest_unbooked()), (5, Some(record(0).at)));
    drop(writer);
    let backlog: Vec<UsageRecord> = journal.backlog().unwrap().map(Result::unwrap).collect();
    assert_eq!(backlog.iter().map(|record| record.id).collect::<Vec<_>>(), [1, 2, 3, 4, 0].map(request_id));
    journal.mark_booked(&(0..5).map(request_id).collect::<Vec<_>>());
    assert_eq!((journal.unbooked(), journal.pending_requests(), journal.backlog().unwrap().count()), (0, 0, 0));
    assert_eq!(journal.finish(&[]), 0);
    assert_eq!((journal.pending_bytes(), ended(&dir)), (0, vec![]));
}

#[test]
fn write_pending_needs_no_further_request() {
    let dir = TempDir::new().unwrap();
    let (journal, writer) = full_journal(&dir, 3);
    journal.write_pending();
    assert_eq!(journal.pending_requests(), 2, "the limit is still reached");
    journal.mark_booked(&[request_id(0)]);
    journal.write_pending();
    assert_eq!((journal.pending_requests(), ended(&dir)), (1, vec![request_id(1)]));
    kill(journal, writer);
    let (_journal, recovered) = open(&dir);
    assert_eq!(recovered, [record(1)]);
}

#[test]
fn finish_writes_buffered_entries_beyond_the_size_limit() {
    let dir = TempDir::new().unwrap();
    let (journal, writer) = full_journal(&dir, 4);
    drop(writer);
    assert_eq!(journal.finish(&[record(9)]), 0, "records that no shard accepted are written too");
    drop(journal);
    let (_journal, recovered) = open(&dir);
    let recovered: Vec<_> = recovered.iter().map(|record| record.id).collect();
    assert_eq!(recovered, [0, 1, 2, 3, 9].map(request_id));
}

#[test]
fn finish_returns_the_number_of_lost_requests() {
    let dir = TempDir::new().unwrap();
    let (journal, writer) = full_journal(&dir, 4);
    writer.begin(&begin(4)).unwrap();
    drop(writer);
    journal.mark_booked(&[request_id(3)]);
    fs::remove_dir_all(dir.path().join("journal")).unwrap();
    assert_eq!(journal.finish(&[record(9)]), 3, "two in memory and one that was never written; a begin is not a record");
}
