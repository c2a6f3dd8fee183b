//! How requests, tokens and money are counted in their windows.

use super::*;

#[test]
fn previous_bucket_counts_by_its_remaining_share_of_the_window() {
    let mut window = SlidingWindow::default();
    window.add(60, 10 * MINUTE + 30_000_000);
    assert_eq!(window.used(10 * MINUTE + 59_999_999), 60);
    assert_eq!(window.used(11 * MINUTE), 60);
    assert_eq!(window.used(11 * MINUTE + 30_000_000), 30);
    assert_eq!(window.used(11 * MINUTE + 59_999_999), 1, "rounded up");
    assert_eq!(window.used(12 * MINUTE), 0);
    assert_eq!(window.wait_ms(1, 60, 10 * MINUTE + 30_000_000), 31_000);
    assert_eq!(window.reset_ms(10 * MINUTE + 30_000_000), 90_000);
}

#[test]
fn estimate_is_adjusted_in_its_bucket() {
    let mut window = SlidingWindow::default();
    let at = 10 * MINUTE;
    let bucket = window.add(100, at);
    window.adjust(bucket, 100, 40, at + 1);
    assert_eq!(window.used(at + 1), 40);
    window.adjust(bucket, 40, 0, at + MINUTE);
    assert_eq!(window.used(at + MINUTE), 0, "the older bucket is adjusted too");
    window.adjust(bucket, 100, 130, at + 2 * MINUTE);
    assert_eq!(window.used(at + 2 * MINUTE), 30, "the shortfall counts now");
}

#[test]
fn wait_for_more_than_the_limit_is_long() {
    assert!(SlidingWindow::default().wait_ms(11, 10, 0) >= 60_000);
}

#[test]
fn previous_day_is_kept_for_requests_from_before_midnight() {
    let midnight = Timestamp::of_day(20_400);
    let before = Timestamp(midnight.0 - 1);
    let mut spent = SpendTotals::loaded(before, NanoUsd(5), NanoUsd(50), NanoUsd(500));
    spent.add(NanoUsd(7), midnight);
    assert_eq!((spent.within(Window::Day, before), spent.within(Window::Day, midnight)), (NanoUsd(5), NanoUsd(7)));
    spent.add(NanoUsd(1), before);
    assert_eq!((spent.within(Window::Day, before), spent.within(Window::Total, midnight)), (NanoUsd(6), NanoUsd(508)));
    assert_eq!(Window::Day.ends(before), Some(midnight));
    assert_eq!(Window::Total.ends(before), None);
}

#[test]
fn clock_jumps_do_not_lose_spending() {
    let day = Timestamp::of_day;
    let mut spent = SpendTotals::loaded(day(20_400), NanoUsd(5), NanoUsd(50), NanoUsd(500));
    for reservations in [day(20_440), day(20_500)] {
        spent.add(NanoUsd(3), reservations);
    }
    assert_eq!((spent.within(Window::Day, day(20_400)), spent.within(Window::Month, day(20_400))), (NanoUsd(5), NanoUsd(50)));
    // Later days are counted correctly beside the periods left by the jumps.
    for today in 20_401..20_600 {
        spent.add(NanoUsd(2), day(today));
        spent.add(NanoUsd(3), day(today - 1));
        assert_eq!(spent.within(Window::Day, day(today)).0 % 3, 2, "day {today}");
    }
}
