//! Tests of the journal: kills, torn tails, damage, full disks and crashes during recovery.

mod collected;
mod crashes;
mod size_limit;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use proptest::prelude::*;
use tempfile::TempDir;
use tollgate_core::{Multiplier, Outcome, RequestId, Tags, UsageRecord};
use uuid::Uuid;

use super::*;
use crate::samples::{begin, progress, record, request_id};

fn options(dir: &TempDir) -> JournalOptions {
    JournalOptions::new(dir.path().join("journal"), Uuid::from_u128(7))
}

fn open(dir: &TempDir) -> (Journal, Vec<UsageRecord>) {
    let (journal, recovery) = Journal::open(options(dir)).unwrap();
    (journal, recovery.records.map(Result::unwrap).collect())
}

/// The requests with an end on disk, as another process reads them.
fn ended(dir: &TempDir) -> Vec<RequestId> {
    let entries = read_journal(&dir.path().join("journal")).unwrap().map(Result::unwrap);
    let ends = entries.filter_map(|entry| match entry {
        JournalEntry::Ended { record, .. } => Some(record.id),
        JournalEntry::Begun(_) => None,
    });
    ends.collect()
}

fn segments(dir: &TempDir) -> Vec<PathBuf> {
    let folder = dir.path().join("journal");
    segment::list(&folder).unwrap().into_iter().map(|name| name.path(&folder)).collect()
}

fn write(journal: &Journal, core: u16, ends: impl IntoIterator<Item = u64>) {
    let writer = journal.writer(core).unwrap();
    for n in ends {
        writer.begin(&begin(n)).unwrap();
        let _ = writer.end(&record(n)).unwrap();
    }
}

/// Simulates a kill after something was sent: the entries before it are written; no destructor runs, nothing is flushed or closed.
fn kill(journal: Journal, writer: JournalWriter) {
    writer.write_collected();
    std::mem::forget(writer);
    std::mem::forget(journal);
}

/// Offsets of the valid frames of a segment.
fn frame_offsets(bytes: &[u8]) -> Vec<usize> {
    let mut offsets = Vec::new();
    segment::scan(Path::new("x"), bytes, &mut |entry| {
        offsets.push(entry.offset);
        Ok(())
    })
    .unwrap();
    offsets
}

#[test]
fn unbooked_records_are_recovered_after_a_kill() {
    let dir = TempDir::new().unwrap();
    let (journal, recovered) = open(&dir);
    assert_eq!(recovered, []);
    let writer = journal.writer(0).unwrap();
    for n in 0..3 {
        writer.begin(&begin(n)).unwrap();
        let _ = writer.end(&record(n)).unwrap();
    }
    kill(journal, writer);
    let (journal, recovered) = open(&dir);
    assert_eq!(recovered, [record(0), record(1), record(2)]);
    assert_eq!((journal.unbooked(), journal.oldest_unbooked()), (3, Some(record(0).at)));
}

#[test]
fn unfinished_request_is_ended_once_even_after_a_second_crash() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = open(&dir);
    let writer = journal.writer(1).unwrap();
    writer.begin(&begin(0)).unwrap();
    writer.begin(&begin(1)).unwrap();
    writer.progress(&progress(1, 400)).unwrap();
    kill(journal, writer);

    let (first, recovery) = Journal::open(options(&dir)).unwrap();
    assert_eq!(recovery.stopped, [request_id(0), request_id(1)]);
    let ended: Vec<UsageRecord> = recovery.records.map(Result::unwrap).collect();
    assert!(ended.iter().all(|record| record.outcome == Outcome::GatewayStopped), "{ended:?}");
    assert_eq!(ended[0].sale.map(|sale| sale.0), Some(0), "no bytes had reached the caller");
    assert!(ended[1].sale.is_some_and(|sale| sale.0 > 0), "400 bytes had reached the caller");
    std::mem::forget(first);

    let (second, recovery) = Journal::open(options(&dir)).unwrap();
    assert_eq!(recovery.stopped, []);
    assert_eq!(recovery.records.map(Result::unwrap).collect::<Vec<_>>(), ended);
    second.mark_booked(&[request_id(0), request_id(1)]);
    assert_eq!(segments(&dir), Vec::<PathBuf>::new());
}

#[test]
fn segment_is_removed_once_all_its_requests_are_booked() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = Journal::open(JournalOptions { segment_bytes: 1_024, ..options(&dir) }).unwrap();
    let writer = journal.writer(0).unwrap();
    writer.begin(&begin(0)).unwrap();
    for n in 1..10 {
        let _ = writer.end(&record(n)).unwrap();
    }
    let before = segments(&dir).len();
    assert!(before > 2, "{before} segments");
    journal.mark_booked(&(1..10).map(request_id).collect::<Vec<_>>());
    assert_eq!(segments(&dir).len(), before, "the first request is still in the first segment");
    let _ = writer.end(&record(0)).unwrap();
    journal.mark_booked(&[request_id(0)]);
    assert_eq!(segments(&dir).len(), 1, "the current segment is kept");
    drop(writer);
    assert_eq!((segments(&dir).len(), journal.bytes(), journal.unbooked()), (0, 0, 0));
}

#[test]
fn backlog_lists_unbooked_records_of_a_running_server() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = Journal::open(JournalOptions { segment_bytes: 8_192, ..options(&dir) }).unwrap();
    write(&journal, 0, 0..10);
    write(&journal, 1, 10..20);
    journal.mark_booked(&[request_id(3), request_id(12)]);
    let backlog: Vec<_> = journal.backlog().unwrap().map(|record| record.unwrap().id).collect();
    assert_eq!(backlog, (0..20).filter(|n| ![3, 12].contains(n)).map(request_id).collect::<Vec<_>>());
    let on_disk = ended(&dir);
    assert!(backlog.iter().all(|id| on_disk.contains(id)));
    assert_eq!(read_journal(&dir.path().join("nothing")).unwrap().count(), 0);
}

#[test]
fn cut_tail_of_a_closed_segment_fails_the_start_and_the_error_names_what_is_missing() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = open(&dir);
    write(&journal, 0, 0..6);
    drop(journal);
    let path = segments(&dir).remove(0);
    let bytes = fs::read(&path).unwrap();
    let offsets = frame_offsets(&bytes);
    // In the middle of a frame, and at the end of one.
    for cut in [offsets[6] + 9, offsets[6]] {
        fs::write(&path, &bytes[..cut]).unwrap();
        let fault = Journal::open(options(&dir)).map(|_| ()).unwrap_err();
        assert!(matches!(&fault, JournalError::Damaged { offset, .. } if *offset == offsets[6] as u64), "{fault}");
        assert!(fault.to_string().contains("6 of 12 entries are missing"), "{fault}");
        let faults: Vec<_> = read_journal(&dir.path().join("journal")).unwrap().filter_map(Result::err).collect();
        assert_eq!(faults.len(), 1, "{faults:?}");
    }
    let repaired = repair(&dir.path().join("journal")).unwrap();
    assert_eq!(repaired[0].kept, [0, 1, 2].map(request_id));
    assert_eq!(repaired[0].damaged[0].bytes, (bytes.len() - offsets[6]) as u64);
    let (_, recovered) = open(&dir);
    assert_eq!(recovered, [record(0), record(1), record(2)]);
}

#[test]
fn segment_that_a_kill_left_open_is_closed_by_the_next_start() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = open(&dir);
    let writer = journal.writer(0).unwrap();
    for n in 0..3 {
        let _ = writer.end(&record(n)).unwrap();
    }
    kill(journal, writer);
    let (journal, recovered) = open(&dir);
    assert_eq!(recovered.len(), 3);
    drop(journal);
    let path = segments(&dir).remove(0);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..frame_offsets(&bytes)[2]]).unwrap();
    let fault = Journal::open(options(&dir)).map(|_| ()).unwrap_err();
    assert!(fault.to_string().contains("1 of 3 entries are missing"), "{fault}");
}

#[test]
fn damaged_frame_fails_the_start_and_repair_keeps_the_rest() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = open(&dir);
    write(&journal, 0, 0..3);
    drop(journal);
    let path = segments(&dir).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    // A length in the middle that points past the end of the file is damage, not a torn tail.
    let second = frame_offsets(&bytes)[2];
    bytes[second + 1] ^= 0xf0;
    fs::write(&path, &bytes).unwrap();

    let Err(JournalError::Damaged { path: named, offset, .. }) = Journal::open(options(&dir)).map(|_| ()) else {
        panic!("a damaged journal must not open")
    };
    assert_eq!((named, offset), (path.clone(), second as u64));
    assert_eq!(fs::read(&path).unwrap(), bytes, "nothing was written");

    let server = crate::DataFolderLock::take(dir.path()).unwrap();
    assert!(matches!(repair(&dir.path().join("journal")), Err(JournalError::InUse(_))));
    drop(server);
    let repaired = repair(&dir.path().join("journal")).unwrap();
    assert_eq!(repaired.len(), 1);
    assert_eq!(fs::read(&repaired[0].moved_to).unwrap(), bytes);
    assert_eq!(repaired[0].damaged.len(), 1);
    assert_eq!(repaired[0].damaged[0].ids, [request_id(1)]);
    assert_eq!((&repaired[0].lost, &repaired[0].without_end), (&vec![], &vec![]), "its end is valid");
    assert_eq!(repaired[0].kept, [request_id(0), request_id(1), request_id(2)]);
    let (_journal, recovered) = open(&dir);
    assert_eq!(recovered.len(), 3, "the request with the damaged begin still has its end");
    assert_eq!(repair(&dir.path().join("journal")).unwrap(), []);
}

#[test]
fn abandoned_request_does_not_keep_its_segment() {
    let dir = TempDir::new().unwrap();
    let (journal, _) =
        Journal::open(JournalOptions { segment_bytes: 1, max_bytes: 2_500, memory_bytes: 0, ..options(&dir) }).unwrap();
    let writer = journal.writer(0).unwrap();
    writer.begin(&begin(0)).unwrap();
    let mut n = 1;
    while writer.begin(&begin(n)).is_ok() {
        n += 1;
    }
    assert!(matches!(writer.end(&record(0)), Err(JournalError::Full { .. })));
    (0..n).for_each(|n| writer.abandon(request_id(n)));
    assert_eq!((journal.unbooked(), segments(&dir).len()), (0, 1), "only the current segment is left");
    let _ = writer.end(&record(n)).unwrap();
}

#[test]
fn quarantined_record_is_offered_again_at_the_next_start() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = Journal::open(JournalOptions { segment_bytes: 1, ..options(&dir) }).unwrap();
    write(&journal, 0, 0..3);
    journal.quarantine(&record(1)).unwrap();
    assert_eq!((journal.quarantined(), journal.unbooked()), (1, 3));
    let backlog: Vec<_> = journal.backlog().unwrap().map(|record| record.unwrap().id).collect();
    assert_eq!(backlog, [0, 2].map(request_id), "this process does not offer it again");
    journal.mark_booked(&[request_id(0), request_id(2)]);
    assert_eq!((segments(&dir).len(), journal.oldest_unbooked()), (1, None), "it keeps no other segment");
    let found: Vec<_> = read_journal(&dir.path().join("journal")).unwrap().map(Result::unwrap).collect();
    assert!(matches!(found.as_slice(), [JournalEntry::Ended { refused: true, .. }]), "{found:?}");
    drop(journal);

    let (journal, recovered) = open(&dir);
    assert_eq!((recovered, journal.quarantined()), (vec![record(1)], 0));
    journal.quarantine(&record(1)).unwrap();
    assert_eq!((ended(&dir), journal.quarantined()), (vec![request_id(1)], 1), "it is not written twice");
    journal.mark_booked(&[request_id(1)]);
    assert_eq!(segments(&dir), Vec::<PathBuf>::new());
}

#[test]
fn readers_report_damage_and_continue_after_it() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = open(&dir);
    write(&journal, 0, 0..4);
    let path = segments(&dir).remove(0);
    let bytes = fs::read(&path).unwrap();
    let offsets = frame_offsets(&bytes);
    let damaged = |at: usize| {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x20;
        fs::write(&path, &wrong).unwrap();
        let (mut ends, mut faults) = (Vec::new(), Vec::new());
        for entry in read_journal(&dir.path().join("journal")).unwrap() {
            match entry {
                Ok(JournalEntry::Ended { record, .. }) => ends.push(record.id),
                Ok(JournalEntry::Begun(_)) => {}
                Err(JournalError::Damaged { path: named, offset, .. }) if named == path => faults.push(offset),
                Err(other) => panic!("{other}"),
            }
        }
        (ends, faults)
    };
    // Frames 0, 2, 4, 6 are begins.
    assert_eq!(damaged(offsets[3] + 40), ([0, 2, 3].map(request_id).to_vec(), vec![offsets[3] as u64]));
    assert_eq!(damaged(offsets[7] + 40), ([0, 1, 2].map(request_id).to_vec(), vec![offsets[7] as u64]), "the segment is closed");
    assert_eq!(damaged(0), ((0..4).map(request_id).collect(), vec![0]), "the header is damaged");
    let backlog: Vec<_> = journal.backlog().unwrap().collect();
    assert_eq!((backlog.len(), backlog.iter().filter(|it| it.is_err()).count()), (5, 1), "one error, and all records");
}

#[test]
fn repair_reports_the_requests_it_cannot_keep() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = open(&dir);
    write(&journal, 0, 0..3);
    let writer = journal.writer(1).unwrap();
    let _ = writer.end(&record(7)).unwrap();
    let _ = writer.end(&record(8)).unwrap();
    drop((writer, journal));
    let damage = |path: &Path, frame: usize| {
        let mut bytes = fs::read(path).unwrap();
        let at = frame_offsets(&bytes)[frame] + 60;
        bytes[at] ^= 0x20;
        fs::write(path, bytes).unwrap();
    };
    let paths = segments(&dir);
    damage(&paths[0], 1);
    damage(&paths[1], 0);
    let repaired = repair(&dir.path().join("journal")).unwrap();
    assert_eq!((&repaired[0].lost, &repaired[0].without_end), (&vec![], &vec![request_id(0)]), "its begin is valid");
    assert_eq!((&repaired[1].lost, &repaired[1].without_end), (&vec![request_id(7)], &vec![]), "a refused request has no begin");
}

#[test]
fn oversized_record_is_shortened_instead_of_rejected() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = open(&dir);
    let mut long = record(0);
    long.trace = vec![long.trace[0].clone(); 100_000];
    let mut longer = record(1);
    longer.detail = Some("\u{e4}".repeat(1 << 20));
    let writer = journal.writer(0).unwrap();
    let _ = writer.end(&long).unwrap();
    let _ = writer.end(&longer).unwrap();
    let read: Vec<_> = journal.backlog().unwrap().map(Result::unwrap).collect();
    assert!(read[0].trace.is_empty());
    assert_eq!(read[0], UsageRecord { trace: Vec::new(), ..record(0) });
    assert_eq!(read[1].detail.as_ref().map(String::len), Some(4_096));
    assert_eq!(read[1].sale, record(1).sale);
}

#[test]
fn core_has_one_writer_at_a_time() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = open(&dir);
    let writer = journal.writer(0).unwrap();
    assert!(matches!(journal.writer(0), Err(JournalError::WriterExists(0))));
    drop(writer);
    journal.writer(0).unwrap();
}

#[tokio::test]
async fn group_commit_flushes_end_entries_of_several_cores() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = Journal::open(JournalOptions { sync: JournalSync::Group, segment_bytes: 4_096, ..options(&dir) }).unwrap();
    let writers: Vec<_> = (0..3).map(|core| journal.writer(core).unwrap()).collect();
    for round in 0..20 {
        // Several ends share a flush, others are written during one, and segments are closed in between.
        let waiters: Vec<_> = (0..9).map(|at| writers[at % 3].end(&record(round * 9 + at as u64)).unwrap()).collect();
        for waiter in waiters {
            tokio::time::timeout(std::time::Duration::from_secs(30), waiter.wait()).await.expect("the flush completes");
        }
    }
    assert_eq!(journal.flush_failures(), 0);
}

#[tokio::test]
async fn group_commit_end_waits_for_its_flush() {
    let dir = TempDir::new().unwrap();
    let (journal, _) = Journal::open(JournalOptions { sync: JournalSync::Group, ..options(&dir) }).unwrap();
    let writer = journal.writer(0).unwrap();
    let waiters: Vec<_> = (0..20).map(|n| writer.end(&record(n)).unwrap()).collect();
    for waiter in waiters {
        waiter.wait().await;
    }
    assert_eq!(journal.flush_failures(), 0);
    let last = writer.end(&record(20)).unwrap();
    drop(journal);
    last.wait().await;
}

/// `fixtures/journal/0.1.tgj` was written by version 0.1.
#[test]
fn segment_written_by_version_0_1_is_readable() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().join("journal");
    fs::create_dir_all(&folder).unwrap();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/journal/0.1.tgj");
    fs::copy(fixture, folder.join("0-00000001.tgj")).unwrap();
    let (_journal, recovery) = Journal::open(options(&dir)).unwrap();
    assert_eq!((recovery.complete, recovery.stopped.as_slice()), (2, [request_id(2)].as_slice()));
    let read: Vec<_> = recovery.records.map(Result::unwrap).collect();
    let written = |n| {
        let known = UsageRecord { tags: Tags::default(), sale_multiplier: Multiplier::ONE, finish: None, ..record(n) };
        let mut record = UsageRecord { client: None, request_bytes: 0, ..known };
        for attempt in &mut record.attempts {
            (attempt.cost_multiplier, attempt.message, attempt.sent_us) = (Multiplier::ONE, None, None);
        }
        record
    };
    assert_eq!(read[..2], [written(0), written(1)]);
    assert_eq!((read[2].id, read[2].outcome), (request_id(2), Outcome::GatewayStopped));
    assert_eq!(fs::read(folder.join("0-00000001.tgj")).unwrap(), fs::read(fixture).unwrap(), "it has no closing mark to write");
}
