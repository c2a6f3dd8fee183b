//! Entries that are collected and written together.

use std::{fs::OpenOptions, sync::Arc};

use super::*;
use crate::journal::flusher::SegmentFile;

/// A journal whose segment is open, so that further entries are collected.
fn with_open_segment(dir: &TempDir) -> (Journal, JournalWriter) {
    let (journal, _) = open(dir);
    let writer = journal.writer(0).unwrap();
    let _ = writer.end(&record(0)).unwrap();
    (journal, writer)
}

#[test]
fn collected_entries_are_in_the_journal_once_written() {
    let dir = TempDir::new().unwrap();
    let (journal, writer) = with_open_segment(&dir);
    for n in 1..4 {
        writer.begin(&begin(n)).unwrap();
        let _ = writer.end(&record(n)).unwrap();
    }
    assert!(writer.has_collected());
    assert_eq!(ended(&dir), [request_id(0)]);
    writer.write_collected();
    assert!(!writer.has_collected());
    assert_eq!(ended(&dir), [0, 1, 2, 3].map(request_id));
    let length = fs::metadata(segments(&dir).remove(0)).unwrap().len();
    assert_eq!(journal.bytes(), length);
    // This entry is not written yet, and nothing that depends on it was sent.
    writer.begin(&begin(4)).unwrap();
    std::mem::forget((writer, journal));
    let (_journal, recovered) = open(&dir);
    assert_eq!(recovered, [record(0), record(1), record(2), record(3)]);
}

#[test]
fn collected_entries_are_written_for_backlog_readers_and_by_write_pending() {
    let dir = TempDir::new().unwrap();
    let (journal, writer) = with_open_segment(&dir);
    let _ = writer.end(&record(1)).unwrap();
    let backlog: Vec<_> = journal.backlog().unwrap().map(|record| record.unwrap().id).collect();
    assert_eq!(backlog, [0, 1].map(request_id));
    let _ = writer.end(&record(2)).unwrap();
    journal.write_pending();
    assert_eq!(ended(&dir), [0, 1, 2].map(request_id));
    let _ = writer.end(&record(3)).unwrap();
    drop(writer);
    assert_eq!(ended(&dir), [0, 1, 2, 3].map(request_id));
}

#[test]
fn collected_entries_are_written_when_there_are_many() {
    let dir = TempDir::new().unwrap();
    let (_journal, writer) = with_open_segment(&dir);
    for n in 1..400 {
        let _ = writer.end(&record(n)).unwrap();
    }
    assert!(ended(&dir).len() > 200, "{} entries", ended(&dir).len());
}

#[test]
fn collected_entries_that_cannot_be_written_stay_in_memory() {
    let dir = TempDir::new().unwrap();
    let (journal, writer) = with_open_segment(&dir);
    let bytes = journal.bytes();
    for n in 1..4 {
        let _ = writer.end(&record(n)).unwrap();
    }
    // Every write to this device fails for lack of space.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let whole = {
        let mut segment_writer = writer.shard.segment_writer();
        let open = segment_writer.segment.as_mut().unwrap();
        let path = open.file.path.clone();
        std::mem::replace(&mut open.file, Arc::new(SegmentFile::new(full, path)))
    };
    // Booked before it was written.
    let _ = writer.end(&record(4)).unwrap();
    journal.mark_booked(&[request_id(4)]);
    assert!(!writer.write_collected());
    assert_eq!((journal.pending_requests(), journal.unbooked(), journal.bytes()), (3, 4, bytes));
    let backlog: Vec<_> = journal.backlog().unwrap().map(|record| record.unwrap().id).collect();
    assert_eq!(backlog, [1, 2, 3, 0].map(request_id), "records in memory come first");

    journal.mark_booked(&[request_id(2)]);
    writer.shard.segment_writer().segment.as_mut().unwrap().file = whole;
    journal.write_pending();
    assert_eq!((journal.pending_bytes(), ended(&dir)), (0, [0, 1, 3].map(request_id).to_vec()));
}
