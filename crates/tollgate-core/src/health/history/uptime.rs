//! How much of a span of time an account or channel could be used, in equal cells.

use super::{HealthTransition, ImpairedState};
use crate::Timestamp;

/// One cell of a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UptimeCell {
    pub since: Timestamp,
    /// Thousandths of the observed time of the cell in which requests could use it, over all nodes; `None`: no node observed it.
    pub usable: Option<u32>,
    /// The worst state in the cell; `None`: usable all the time, or not observed.
    pub worst: Option<ImpairedState>,
}

/// Divides a span into `cells` equal ones. `transitions` are those of one account or channel that overlap with it, of all nodes,
/// and `observed` is when a node ran while the account or channel existed, an entry for each node and run. Time outside of it is
/// unknown, neither usable nor lost. A time in which some accounts of a channel cannot be used counts as usable.
pub fn uptime_cells(
    transitions: &[HealthTransition],
    observed: &[(Timestamp, Timestamp)],
    (since, until): (Timestamp, Timestamp),
    cells: usize,
    now: Timestamp,
) -> Vec<UptimeCell> {
    let (count, span) = (i64::try_from(cells).unwrap_or(i64::MAX).max(1), until.0.saturating_sub(since.0).max(0));
    // The product of a day in microseconds and of a thousand cells has no more than 47 bits.
    let begin =
        |cell: i64| Timestamp(since.0 + i64::try_from(i128::from(span) * i128::from(cell) / i128::from(count)).unwrap_or(0));
    let cell = |number: i64| {
        let (from, to) = (begin(number), begin(number + 1));
        let within = |(first, last): &(Timestamp, Timestamp)| i128::from((last.0.min(to.0) - first.0.max(from.0)).max(0));
        let known: i128 = observed.iter().map(within).sum();
        if known == 0 {
            return UptimeCell { since: from, usable: None, worst: None };
        }
        let (mut lost, mut worst) = (0_i64, None);
        for transition in transitions {
            let (first, last) = (transition.impairment.since.max(from), transition.effective_end(now).min(to));
            if first >= last {
                continue;
            }
            let state = transition.impairment.state;
            if severity(state) > worst.map_or(0, severity) {
                worst = Some(state);
            }
            if state != ImpairedState::Degraded {
                lost = lost.saturating_add(last.0 - first.0);
            }
        }
        let lost = i128::from(lost).min(known);
        UptimeCell { since: from, usable: u32::try_from((known - lost) * 1_000 / known).ok(), worst }
    };
    (0..count).map(cell).collect()
}

/// Order of states: the higher, the worse.
const fn severity(state: ImpairedState) -> u8 {
    match state {
        ImpairedState::Degraded => 1,
        ImpairedState::Off => 2,
        ImpairedState::Cooling => 3,
        ImpairedState::Resting => 4,
        ImpairedState::Unavailable => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CoolingReason,
        health::history::{HealthReason, Impairment, TransitionCause},
        samples::{NOW, channel_id},
    };

    fn of(state: ImpairedState, from_s: i64, until_s: Option<i64>, ended_s: Option<i64>) -> HealthTransition {
        let at = |s: i64| NOW.plus_ms(s * 1_000);
        let reason = HealthReason::Cooling(CoolingReason::Timeout);
        HealthTransition {
            channel: channel_id("c"),
            account: None,
            impairment: Impairment { state, reason, since: at(from_s), until: until_s.map(at) },
            cause: TransitionCause::Request,
            ended_at: ended_s.map(at),
        }
    }

    #[test]
    fn uptime_cells_have_the_usable_share_and_the_worst_state() {
        let (span, now) = ((NOW, NOW.plus_ms(40_000)), NOW.plus_ms(35_000));
        let shares = |transitions: &[HealthTransition], nodes| -> Vec<(u32, Option<ImpairedState>)> {
            let cells = uptime_cells(transitions, &vec![(NOW, now); nodes], span, 4, now);
            cells.into_iter().map(|cell| (cell.usable.unwrap(), cell.worst)).collect()
        };
        assert_eq!(shares(&[], 1), [(1_000, None); 4]);
        let cooling = of(ImpairedState::Cooling, 5, None, Some(15));
        let some = Some(ImpairedState::Cooling);
        assert_eq!(shares(&[cooling], 1), [(500, some), (500, some), (1_000, None), (1_000, None)]);
        assert_eq!(shares(&[cooling], 2)[0], (750, some), "of two nodes");
        let due = of(ImpairedState::Cooling, 5, Some(10), None);
        assert_eq!(shares(&[due], 1), [(500, some), (1_000, None), (1_000, None), (1_000, None)], "it ends by itself");
        let open = of(ImpairedState::Unavailable, 25, None, None);
        let unavailable = Some(ImpairedState::Unavailable);
        assert_eq!(shares(&[open], 1)[2..], [(500, unavailable), (0, unavailable)], "what comes after now is unknown");
        let degraded = of(ImpairedState::Degraded, -5, None, Some(100));
        assert_eq!(shares(&[degraded, cooling], 1)[1], (500, some));
        assert_eq!(shares(&[degraded], 1)[0], (1_000, Some(ImpairedState::Degraded)));
    }

    #[test]
    fn cells_that_no_node_observed_are_unknown() {
        let (span, at) = ((NOW, NOW.plus_ms(40_000)), |s: i64| NOW.plus_ms(s * 1_000));
        let shares = |transitions: &[HealthTransition], observed: &[(Timestamp, Timestamp)], cells| -> Vec<Option<u32>> {
            uptime_cells(transitions, observed, span, cells, at(40)).into_iter().map(|cell| cell.usable).collect()
        };
        assert_eq!(shares(&[], &[], 4), [None; 4]);
        assert_eq!(shares(&[], &[(at(12), at(20)), (at(30), at(40))], 4), [None, Some(1_000), None, Some(1_000)]);
        let cooling = of(ImpairedState::Cooling, 16, None, Some(18));
        let runs = [(at(12), at(16)), (at(16), at(20))];
        assert_eq!(shares(&[cooling], &runs, 4), [None, Some(750), None, None], "two of the eight seconds that are known");
        assert_eq!(shares(&[cooling], &runs, 1), [Some(750)], "the share of the whole is that of the known time, too");
    }
}
