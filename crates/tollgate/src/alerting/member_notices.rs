//! Notifies members by mail about their own budgets and balances, if they enabled it and have an address: once for each threshold
//! and period, through the mail server of the destination that `alerts.member_mail` names. The node that evaluates the rules about
//! all nodes sends the notices.
//!
//! Bounds: 10,000 members each minute, one mail at a time; a mail is tried 8 times over about two hours.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tollgate_console::notice_mail;
use tollgate_core::{
    AlertCondition, Billing, LowBalance, MemberId, MemberStatus, NanoUsd, Subject, Timestamp, balance_conditions,
    budget_conditions, budget_subjects,
};
use tollgate_gateway::background::notify::{Mail, Notifier};
use tollgate_store::{AlertDestination, DestinationKind, MailedMember, MemberSpec, ObjectScope, RowKind, StoreError};

use super::{Sources, delivery::WAITS_S};
use crate::{compose, config::Config, console_settings, last_fault::LastFault, live_settings::LiveSettings};

/// How often members are looked at.
const TICK: Duration = Duration::from_mins(1);

/// The task that sends mails to members.
pub(super) struct MemberNotices {
    pub(super) sources: Sources,
    pub(super) settings: Arc<LiveSettings>,
    pub(super) notifier: Arc<Notifier>,
    /// Whether this node evaluates the rules about all nodes.
    pub(super) leads: Arc<AtomicBool>,
}

/// Attempts that failed, and when the next one is due.
type Failures = HashMap<MemberId, (usize, Timestamp)>;

/// The values that the thresholds of a member are compared with.
struct Standing {
    spec: MemberSpec,
    balance: NanoUsd,
}

/// The thresholds that a member has reached, and what to record about them.
#[derive(Debug, PartialEq, Eq)]
struct Reached {
    /// The conditions that the member is not notified of yet.
    new: Vec<AlertCondition>,
    /// The subjects to record once the member is notified.
    notified: Vec<String>,
}

impl MemberNotices {
    /// Runs until `stop` is cancelled.
    pub(super) async fn run(self, stop: CancellationToken) {
        let (mut failures, mut last_fault) = (Failures::new(), LastFault::default());
        let mut changes = self.settings.subscribe();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(TICK) => {}
                Ok(()) = changes.changed() => {}
            }
            if !self.leads.load(Ordering::Relaxed) {
                failures.clear();
                continue;
            }
            match stop.run_until_cancelled(self.notify_all(&mut failures)).await {
                None => return,
                Some(result) => {
                    if let Some(fault) = last_fault.observe(&result) {
                        tracing::warn!(%fault, "members were not notified of their budgets; this is tried again");
                    }
                }
            }
        }
    }

    async fn notify_all(&self, failures: &mut Failures) -> Result<(), StoreError> {
        let (config, now) = (self.settings.current(), compose::now());
        let store = &self.sources.store;
        let Some(destination) = self.destination(config.text("alerts.member_mail")).await? else { return Ok(()) };
        let members = store.identity.mailed_members().await?;
        if members.is_empty() {
            return Ok(());
        }
        let balances: HashMap<MemberId, NanoUsd> =
            store.ledger.balances().await?.into_iter().map(|balance| (balance.member, balance.balance)).collect();
        failures.retain(|member, _| members.iter().any(|known| known.member == *member));
        for member in &members {
            if failures.get(&member.member).is_some_and(|(_, due)| *due > now) {
                continue;
            }
            let row = store.listing.row(RowKind::Member, &member.member.to_string(), ObjectScope::Everything).await?;
            let Some(spec) = row.map(|row| row.read::<MemberSpec>()).transpose()? else { continue };
            let balance = balances.get(&member.member).copied().unwrap_or(NanoUsd::ZERO);
            let standing = Standing { spec, balance };
            self.notify((member, &standing), &destination, (&config, now), failures).await?;
        }
        Ok(())
    }

    /// The destination whose mail server is used.
    async fn destination(&self, name: &str) -> Result<Option<AlertDestination>, StoreError> {
        if name.is_empty() {
            return Ok(None);
        }
        let known = self.sources.store.alerts.destinations().await?;
        let found = known.into_iter().find(|it| it.spec.name == name && it.spec.kind == DestinationKind::Email && it.spec.on);
        if found.is_none() {
            tracing::debug!(
                name,
                "members are not notified by mail: alerts.member_mail names no destination of kind email that is on"
            );
        }
        Ok(found)
    }

    async fn notify(
        &self,
        (member, standing): (&MailedMember, &Standing),
        destination: &AlertDestination,
        (config, now): (&Config, Timestamp),
        failures: &mut Failures,
    ) -> Result<(), StoreError> {
        let subject = Subject::Member(member.member);
        let found = reached(member, standing, |window| self.sources.spent(subject, window, now), now);
        if found.notified == member.notified {
            return Ok(());
        }
        let new: Vec<&AlertCondition> = found.new.iter().collect();
        let gateway = (&console_settings::appearance(config), console_settings::currency(config));
        let url = Some(config.text("console.url")).filter(|url| !url.is_empty());
        if let Some(mail) = notice_mail(&member.preferences, gateway, url, &new) {
            let id = format!("notice-{}-{}", member.member, now.0);
            let mail = Mail { to: &member.email, subject: &mail.subject, body: &mail.body, id: &id };
            if let Err(fault) = self.notifier.send_mail(destination, &mail).await {
                let attempt = failures.get(&member.member).map_or(0, |(attempts, _)| *attempts);
                if let Some(wait) = WAITS_S.get(attempt) {
                    tracing::warn!(member = %member.member, fault, "a mail to a member was not accepted; it is sent again");
                    failures.insert(member.member, (attempt + 1, now.plus_ms(wait * 1_000)));
                    return Ok(());
                }
                self.sources.shared.metrics.alert("lost");
                tracing::error!(member = %member.member, fault, "a mail to a member could not be delivered and is lost");
            } else {
                self.sources.shared.metrics.alert("sent");
            }
            failures.remove(&member.member);
        }
        self.sources.store.identity.record_notified(member.member, &found.notified).await
    }
}

/// The thresholds that a member has reached. A suspended member gets no notice, and subjects of earlier notices remain recorded
/// while they hold.
fn reached(
    member: &MailedMember,
    Standing { spec, balance }: &Standing,
    spent: impl Fn(tollgate_core::Window) -> NanoUsd,
    now: Timestamp,
) -> Reached {
    let (subject, percents) = (Subject::Member(member.member), member.preferences.effective_percents());
    let mut found = budget_conditions(&subject, &spec.name, &spec.budgets, spent, percents, now);
    if spec.billing == Billing::Prepaid {
        let low = LowBalance { member: member.member, name: spec.name.clone(), balance: *balance };
        found.extend(balance_conditions(std::iter::once(low), member.preferences.effective_balance()));
    }
    if spec.status != MemberStatus::Active {
        found.clear();
    }
    // A budget whose spending was corrected causes no second notice in a period.
    let valid: BTreeSet<String> = budget_subjects(&subject, &spec.budgets, percents, now).collect();
    let kept = member.notified.iter().filter(|notified| valid.contains(*notified)).cloned();
    let notified: BTreeSet<String> = found.iter().map(|condition| condition.subject.clone()).chain(kept).collect();
    found.retain(|condition| !condition.is_quiet && !member.notified.contains(&condition.subject));
    Reached { new: found, notified: notified.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Budget, BudgetAction, Window};
    use tollgate_store::MemberPreferences;

    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn mailed(notified: &[String]) -> MailedMember {
        let preferences = MemberPreferences { notice_percents: Some(vec![50, 80, 100]), ..MemberPreferences::default() };
        let member = MemberId::from_parts(Timestamp(0), [1; 10]);
        MailedMember { member, email: "ann@example.com".to_owned(), preferences, notified: notified.to_vec() }
    }

    fn standing(billing: Billing, status: MemberStatus, balance: i64) -> Standing {
        let budgets = vec![Budget { amount: NanoUsd(10), window: Window::Day, action: BudgetAction::Block }];
        let spec = MemberSpec { name: "ann".to_owned(), billing, status, budgets, ..MemberSpec::default() };
        Standing { spec, balance: NanoUsd(balance) }
    }

    #[test]
    fn member_is_notified_once_for_each_threshold_and_period() {
        let postpaid = standing(Billing::Postpaid, MemberStatus::Active, 0);
        let of = |notified: &[String], spent: i64, now: i64| {
            let found = reached(&mailed(notified), &postpaid, |_| NanoUsd(spent), Timestamp(0).plus_ms(now));
            (found.new.iter().map(|it| it.detail[3].1.clone()).collect::<Vec<_>>(), found.notified)
        };
        assert_eq!(of(&[], 4, 0), (vec![], vec![]));
        let (new, notified) = of(&[], 8, 0);
        assert_eq!((new, notified.len()), (vec!["80".to_owned()], 2), "the highest, and the lower one is noted, too");
        assert_eq!(of(&notified, 9, 0), (vec![], notified.clone()));
        assert_eq!(of(&notified, 3, 0), (vec![], notified.clone()), "a correction does not repeat it");
        assert_eq!(of(&notified, 10, 0).0, ["100"]);
        assert_eq!(of(&notified, 0, DAY_MS), (vec![], vec![]), "the next day");
        assert_eq!(of(&notified, 6, DAY_MS).0, ["50"]);
    }

    #[test]
    fn prepaid_member_is_notified_again_after_a_top_up_was_spent() {
        let of = |notified: &[String], balance: i64| {
            let prepaid = standing(Billing::Prepaid, MemberStatus::Active, balance);
            let found = reached(&mailed(notified), &prepaid, |_| NanoUsd::ZERO, Timestamp(0));
            (found.new.len(), found.notified)
        };
        let (new, notified) = of(&[], 999_999_999);
        assert_eq!((new, notified.len()), (1, 1));
        assert_eq!(of(&notified, 5), (0, notified.clone()));
        assert_eq!(of(&notified, 1_000_000_000), (0, vec![]), "it was topped up");
        assert_eq!(of(&[], 5).0, 1);
        let postpaid = standing(Billing::Postpaid, MemberStatus::Active, -5);
        assert!(reached(&mailed(&[]), &postpaid, |_| NanoUsd::ZERO, Timestamp(0)).new.is_empty());
        let suspended = standing(Billing::Prepaid, MemberStatus::Suspended, 0);
        assert!(reached(&mailed(&[]), &suspended, |_| NanoUsd(99), Timestamp(0)).new.is_empty());
    }
}
