//! What the database knows better: at the start all of it, and then what has changed, brought by one node at a time.

use std::{collections::HashMap, time::Duration};

use redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};
use tollgate_core::{MemberId, NanoUsd, SpendTotals, Subject, Timestamp, Window};

use super::{
    super::script::{NodeSeat, SubjectSpending, ask},
    ANSWER, Disconnect, RedisWorker, SUBJECTS, TURN_MS,
};
use crate::{LedgerPosition, Spending};

/// Longest wait for a page of what the database knows, and most pages in one turn.
const NEWS: Duration = Duration::from_secs(10);
const MOST_PAGES: usize = 50;

impl RedisWorker {
    /// One node at a time brings the database's word; a database that is away has none. `now`: there is news.
    pub(super) async fn reconcile(
        &mut self,
        link: &mut MultiplexedConnection,
        seat: &NodeSeat,
        news: bool,
    ) -> Result<(), Disconnect> {
        let turn = self.shared.scripts.name("reconciling");
        let mut command = redis::cmd("SET");
        command.arg(&turn).arg(&seat.node).arg("NX").arg("PX").arg(TURN_MS);
        if ask::<Option<String>>(link, &mut command).await?.is_none() {
            if news {
                // Whoever has the turn may have asked before the news.
                sleep(Duration::from_millis(50)).await;
                self.shared.stale.notify_one();
            }
            return Ok(());
        }
        let brought = self.bring_news(link).await;
        ask::<i64>(link, redis::cmd("DEL").arg(&turn)).await?;
        brought
    }

    /// Groups and the gateway, and how far the ledger had come.
    pub(super) fn know(&mut self, spending: &Spending) {
        let many = spending.spent.iter().filter(|(of, _)| matches!(of, Subject::Group(_) | Subject::Gateway));
        self.shared_by_many = many.copied().collect();
        self.place = spending.ledger;
    }

    /// Brings what the database said at the start, and then only of whom it says something new, page by page.
    async fn bring_news(&mut self, link: &mut MultiplexedConnection) -> Result<(), Disconnect> {
        let now = (self.shared.options.clock)();
        if let Some(first) = self.first.take() {
            let brought = self.bring(link, &first.spent, &first.balances, first.ledger, now).await;
            if brought.is_err() {
                self.first = Some(first);
            }
            brought?;
        }
        for _ in 0..MOST_PAGES {
            // A database that is away has no news.
            let Ok(Ok(changed)) = timeout(NEWS, self.ledger.spending_since(self.place, now)).await else { return Ok(()) };
            let mut spent = changed.spent;
            for (of, at, amount) in changed.added {
                let sum = self.shared_by_many.entry(of).or_default();
                sum.add(amount, at);
                if let Some(told) = spent.iter_mut().find(|(told, _)| *told == of) {
                    told.1 = *sum;
                } else {
                    spent.push((of, *sum));
                }
            }
            // From here on it counts as read: what is not told now for want of a connection, a new one finds in no page.
            self.place = changed.until;
            if let Err(ended) = self.bring(link, &spent, &changed.balances, changed.ledger, now).await {
                self.first = Some(Spending { spent, balances: changed.balances, ledger: changed.ledger });
                return Err(ended);
            }
            if changed.until >= changed.ledger {
                break;
            }
        }
        Ok(())
    }

    /// Brings what was spent and posted; both are of one moment.
    pub(super) async fn bring(
        &self,
        link: &mut MultiplexedConnection,
        spent: &[(Subject, SpendTotals)],
        balances: &[(MemberId, NanoUsd)],
        ledger: LedgerPosition,
        now: Timestamp,
    ) -> Result<(), Disconnect> {
        let mut balances: HashMap<Subject, i64> =
            balances.iter().map(|(member, balance)| (Subject::Member(*member), balance.0)).collect();
        for spent in spent.chunks(SUBJECTS) {
            let loaded = spent.iter().map(|(subject, spent)| {
                let within = |window| spent.within(window, now).0;
                let total = within(Window::Total);
                // What was posted is the balance without what was spent.
                let posted = balances.remove(subject).map(|balance| balance.saturating_add(total));
                SubjectSpending { subject: *subject, day: within(Window::Day), month: within(Window::Month), total, posted }
            });
            self.load(link, &loaded.collect::<Vec<_>>(), ledger, now).await?;
        }
        // Members who spent nothing.
        let rest: Vec<SubjectSpending> = balances
            .into_iter()
            .map(|(subject, balance)| SubjectSpending { subject, day: 0, month: 0, total: 0, posted: Some(balance) })
            .collect();
        for loaded in rest.chunks(SUBJECTS) {
            self.load(link, loaded, ledger, now).await?;
        }
        Ok(())
    }

    async fn load(
        &self,
        link: &mut MultiplexedConnection,
        loaded: &[SubjectSpending],
        ledger: LedgerPosition,
        now: Timestamp,
    ) -> Result<(), Disconnect> {
        let told = self.shared.scripts.load(link, loaded, now, ledger.0);
        timeout(ANSWER, told).await.map_err(|_| Disconnect::Late)?.map_err(Disconnect::Away)
    }
}
