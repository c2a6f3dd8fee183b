//! The check of the folder of backups: whether backups can be written to it, and whether the newest scheduled one is recent enough.

use std::path::Path;

use tollgate_core::{Timestamp, size_text};
use tollgate_store::{BackupOrigin, backup_bytes};

use super::Level;
use crate::{compose, config::Config};

const HOUR_MS: i64 = 3_600_000;
/// Minimum tolerance for a late backup: a failed one is retried after 10 minutes, and making one takes a while.
const MIN_TOLERANCE_MS: i64 = HOUR_MS;

pub(super) fn check(config: &Config, database: &Path, now: Timestamp) -> (Level, String) {
    let folder = compose::backup_folder(config);
    let shown = folder.path().display();
    let hours = config.number("backup.interval_hours");
    let probed = match folder.probe() {
        Ok(probed) => probed,
        Err(fault) => return (Level::Fault, format!("{fault}, or set another backup.folder")),
    };
    let needed = backup_bytes(&config.data, Some(database));
    if let Some(free) = probed.free.filter(|free| *free < needed) {
        let (free, needed) = (size_text(free), size_text(needed));
        let text = format!(
            "the disk of {shown} has {free} free, and a backup needs {needed}; free some space, or set backup.folder to a folder on \
             another disk"
        );
        return (if hours > 0 { Level::Fault } else { Level::Note }, text);
    }
    let newest = match folder.list() {
        Ok(files) => files.into_iter().find(|file| file.origin == BackupOrigin::Schedule).map(|file| file.made_at),
        Err(fault) => return (Level::Fault, format!("{fault}, or set another backup.folder")),
    };
    let (level, schedule) = on_schedule(hours, newest, now);
    let state = if probed.exists { "takes backups" } else { "is made with the first backup" };
    let free = probed.free.map_or_else(String::new, |free| format!(", {} free", size_text(free)));
    let separator = if schedule.is_empty() { "" } else { "; " };
    (level, format!("{shown} {state}{free}{separator}{schedule}"))
}

/// Whether the newest scheduled backup is recent enough. The text is empty without a schedule.
fn on_schedule(hours: u64, newest: Option<Timestamp>, now: Timestamp) -> (Level, String) {
    let interval_ms = i64::try_from(hours).unwrap_or(i64::MAX).saturating_mul(HOUR_MS);
    if interval_ms == 0 {
        return (Level::Good, String::new());
    }
    let Some(newest) = newest else {
        let text = "there is no scheduled backup yet, and a running gateway makes the first one at once; if it runs, its page System \
                    and the alert backup_failed say why there is none";
        return (Level::Note, text.to_owned());
    };
    let age_ms = now.ms_since(newest);
    if age_ms <= interval_ms.saturating_add(MIN_TOLERANCE_MS.max(interval_ms / 10)) {
        return (Level::Good, format!("the newest scheduled backup is of {newest}"));
    }
    let text = format!(
        "the newest scheduled backup is {} h old ({newest}), and one is due every {hours} h; start the gateway if it does not run; \
         otherwise its page System and the alert backup_failed say why there is none",
        age_ms / HOUR_MS
    );
    (Level::Fault, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    fn age(hours: u64, minutes: i64) -> Level {
        on_schedule(hours, Some(NOW.plus_ms(-minutes * 60_000)), NOW).0
    }

    #[test]
    fn newest_backup_may_be_late_by_an_hour_or_a_tenth_of_the_interval() {
        for (hours, minutes, level) in [
            (1, 119, Level::Good),
            (1, 121, Level::Fault),
            (24, 26 * 60, Level::Good),
            (24, 27 * 60, Level::Fault),
            (168, 184 * 60, Level::Good),
            (168, 185 * 60, Level::Fault),
            (24, -60, Level::Good),
        ] {
            assert_eq!(age(hours, minutes), level, "{hours} h, {minutes} min");
        }
        assert_eq!(age(0, 1_000_000), Level::Good, "without a schedule");
        assert_eq!(on_schedule(24, None, NOW).0, Level::Note);
    }
}
