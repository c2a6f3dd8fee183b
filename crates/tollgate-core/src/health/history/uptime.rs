//! How much of a span of time an account or channel could be used, in equal cells.

use super::{HealthTransition, ImpairedState};
use crate::Timestamp;

/// One cell of a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UptimeCell {
    pub since: Timestamp,
    /// Thousandths of the cell in which requests could use it, over all nodes.
    pub usable: u32,
    /// The worst state in the cell; `None`: usable all the time.
    pub worst: Option<ImpairedState>,
}

/// Divides a span into `cells` equal ones. `transitions` are those of one account or channel that overlap with it, of all nodes,
/// and `nodes` is how many nodes there are. A time in which some accounts of a channel cannot be used counts as usable.
pub fn uptime_cells(
    transitions: &[HealthTransition],
    (since, until): (Timestamp, Timestamp),
    cells: usize,
    nodes: usize,
    now: Timestamp,
) -> Vec<UptimeCell> {
    let (count, span) = (i64::try_from(cells).unwrap_or(i64::MAX).max(1), until.0.saturating_sub(since.0).max(0));
    let nodes = i64::try_from(nodes).unwrap_or(i64::MAX).max(1);
    // The product of a day in microseconds and of a thousand cells has no more than 47 bits.
    let begin =
        |cell: i64| Timestamp(since.0 + i64::try_from(i128::from(span) * i128::from(cell) / i128::from(count)).unwrap_or(0));
    let cell = |number: i64| {
        let (from, to) = (begin(number), begin(number + 1));
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
        let whole = i128::from(to.0 - from.0).max(1) * i128::from(nodes);
        let lost = i128::from(lost).min(whole);
        UptimeCell { since: from, usable: u32::try_from((whole - lost) * 1_000 / whole).unwrap_or(0), worst }
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
        let span = (NOW, NOW.plus_ms(40_000));
        let shares = |transitions: &[HealthTransition], nodes| -> Vec<(u32, Option<ImpairedState>)> {
            let cells = uptime_cells(transitions, span, 4, nodes, NOW.plus_ms(35_000));
            cells.into_iter().map(|cell| (cell.usable, cell.worst)).collect()
        };
        assert_eq!(shares(&[], 1), [(1_000, None); 4]);
        let cooling = of(ImpairedState::Cooling, 5, None, Some(15));
        let some = Some(ImpairedState::Cooling);
        assert_eq!(shares(&[cooling], 1), [(500, some), (500, some), (1_000, None), (1_000, None)]);
        assert_eq!(shares(&[cooling], 2)[0], (750, some), "of two nodes");
        let due = of(ImpairedState::Cooling, 5, Some(10), None);
        assert_eq!(shares(&[due], 1), [(500, some), (1_000, None), (1_000, None), (1_000, None)], "it ends by itself");
        let open = of(ImpairedState::Unavailable, 25, None, None);
        assert_eq!(shares(&[open], 1)[2..], [(500, Some(ImpairedState::Unavailable)); 2], "until now");
        let degraded = of(ImpairedState::Degraded, -5, None, Some(100));
        assert_eq!(shares(&[degraded, cooling], 1)[1], (500, some));
        assert_eq!(shares(&[degraded], 1)[0], (1_000, Some(ImpairedState::Degraded)));
    }
}
