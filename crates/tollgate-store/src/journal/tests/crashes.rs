//! Crashes at random points, and tails cut at any byte.

use super::*;

/// A step of the crash property test.
#[derive(Clone, Debug)]
enum Step {
    Begin(u64),
    Progress(u64),
    End(u64),
    Book(u64),
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0_u64..12;
    let step = prop_oneof![
        4 => id.clone().prop_map(Step::Begin),
        2 => id.clone().prop_map(Step::Progress),
        4 => id.clone().prop_map(Step::End),
        2 => id.prop_map(Step::Book),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Opens the journal and books all recovered records into `booked`.
fn restart(dir: &TempDir, booked: &mut BTreeMap<tollgate_core::RequestId, UsageRecord>) -> Journal {
    let (journal, recovery) = Journal::open(JournalOptions { segment_bytes: 3_000, ..options(dir) }).unwrap();
    let mut ids = Vec::new();
    for record in recovery.records.map(Result::unwrap) {
        ids.push(record.id);
        booked.entry(record.id).or_insert(record);
    }
    journal.mark_booked(&ids);
    journal
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn entries_before_a_torn_tail_survive(cut in 0_usize..8_000) {
        let dir = TempDir::new().unwrap();
        let (journal, _) = open(&dir);
        let writer = journal.writer(0).unwrap();
        for n in 0..4 {
            writer.begin(&begin(n)).unwrap();
            let _ = writer.end(&record(n)).unwrap();
        }
        kill(journal, writer);
        let path = segments(&dir).remove(0);
        let bytes = fs::read(&path).unwrap();
        let offsets = frame_offsets(&bytes);
        let cut = cut % (bytes.len() + 1);
        fs::write(&path, &bytes[..cut]).unwrap();
        // A request is recovered once its begin is whole; frames 0, 2, 4, 6 are begins.
        let whole = offsets.iter().skip(1).chain([&bytes.len()]).filter(|end| **end <= cut).count();
        let (_journal, recovery) = Journal::open(options(&dir)).unwrap();
        let records: Vec<_> = recovery.records.map(Result::unwrap).collect();
        prop_assert_eq!(records.len(), whole.div_ceil(2));
        prop_assert_eq!(recovery.complete, whole / 2);
        let torn = cut != bytes.len() && cut != 0 && !offsets.contains(&cut);
        prop_assert_eq!(!recovery.truncated.is_empty(), torn || cut == 0);
    }

    #[test]
    fn random_crashes_neither_lose_nor_duplicate_a_request(steps in steps()) {
        let dir = TempDir::new().unwrap();
        let mut booked = BTreeMap::new();
        let (mut begun, mut ended) = (BTreeSet::new(), BTreeSet::new());
        let mut journal = restart(&dir, &mut booked);
        let mut writer = journal.writer(0).unwrap();
        for step in steps {
            match step {
                Step::Begin(n) if !ended.contains(&n) => {
                    writer.begin(&begin(n)).unwrap();
                    begun.insert(n);
                }
                Step::Progress(n) if begun.contains(&n) && !ended.contains(&n) => writer.progress(&progress(n, 10)).unwrap(),
                Step::End(n) if !ended.contains(&n) => {
                    let _ = writer.end(&record(n)).unwrap();
                    ended.insert(n);
                }
                Step::Book(n) if ended.contains(&n) => {
                    booked.entry(request_id(n)).or_insert_with(|| record(n));
                    journal.mark_booked(&[request_id(n)]);
                }
                Step::Crash => {
                    kill(journal, writer);
                    // Recovery ends unfinished requests.
                    ended.extend(&begun);
                    journal = restart(&dir, &mut booked);
                    writer = journal.writer(0).unwrap();
                }
                Step::Begin(_) | Step::Progress(_) | Step::End(_) | Step::Book(_) => {}
            }
        }
        kill(journal, writer);
        drop(restart(&dir, &mut booked));
        let expected: Vec<_> = begun.union(&ended).copied().map(request_id).collect();
        prop_assert_eq!(booked.keys().copied().collect::<Vec<_>>(), expected);
        prop_assert_eq!(segments(&dir), Vec::<PathBuf>::new());
    }
}
