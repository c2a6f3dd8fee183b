//! The contract of [`crate::ExportStore`].

use crate::{ExportFailure, ExportedDay, Store, samples::MIDNIGHT};

const LEASE_MS: i64 = 60_000;

pub(super) async fn export_is_claimed_by_one_holder_and_exported_days_and_failures_are_stored(store: &Store) {
    let exports = &store.exports;
    let claim = async |holder: &str, seconds: i64| exports.claim_export(holder, MIDNIGHT.plus_ms(seconds * 1_000), LEASE_MS).await;
    assert!(claim("one", 0).await.unwrap());
    assert!(!claim("two", 1).await.unwrap());
    assert!(claim("one", 50).await.unwrap(), "renewed");
    assert!(!claim("two", 70).await.unwrap());
    exports.release_export("two").await.unwrap();
    assert!(!claim("two", 71).await.unwrap(), "only its holder releases it");
    assert!(claim("two", 111).await.unwrap(), "it was not renewed");
    exports.release_export("two").await.unwrap();
    assert!(claim("one", 112).await.unwrap());
    assert!(claim("two", -1_000).await.unwrap(), "the clock of the holder was wrong");

    assert_eq!(exports.export_failure().await.unwrap(), None);
    let later = MIDNIGHT.plus_ms(5_000);
    exports.put_export_failure(7, "no bucket", MIDNIGHT).await.unwrap();
    exports.put_export_failure(8, "refused", later).await.unwrap();
    let failure = ExportFailure { day: 8, since: MIDNIGHT, at: later, message: "refused".to_owned() };
    assert_eq!(exports.export_failure().await.unwrap(), Some(failure));
    assert!(!claim("one", -999).await.unwrap(), "a failure ends no claim");

    let day = |day, records| ExportedDay { day, records, files: 2, bytes: 1 << 40, at: later };
    for stored in [day(9, 3), day(7, 0), day(8, 1), day(9, 4)] {
        exports.put_exported_day(&stored).await.unwrap();
    }
    assert_eq!(exports.exported_days(8).await.unwrap(), [day(8, 1), day(9, 4)]);
    assert_eq!(exports.exported_days(i64::MIN).await.unwrap().len(), 3);
    assert_eq!(exports.export_failure().await.unwrap(), None);
    exports.put_export_failure(10, "refused", later).await.unwrap();
    assert_eq!(exports.export_failure().await.unwrap().unwrap().since, later);
}
