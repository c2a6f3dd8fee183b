//! Name resolution with a cache for each destination: one query at a time, at most one every 30 s. While the resolver
//! fails, the last answer is used for up to 10 minutes.

use std::{
    net::{IpAddr, SocketAddr},
    sync::PoisonError,
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use super::{destination::UpstreamTarget, guard::AddressRules};
use crate::{clock::Clock, upstream::call::ConnectFault};

/// How long an answer is used without a new query.
const FRESH: Duration = Duration::from_secs(30);
/// Age at which the background sweep resolves a name again. The sweep runs every 15 s, so a change is seen within 30 s.
const RENEW_AFTER: Duration = Duration::from_secs(12);
/// How long an answer is used while the resolver fails.
const STALE: Duration = Duration::from_mins(10);
/// Addresses kept of one answer.
const MAX_ADDRESSES: usize = 16;

impl CachedAddresses {
    fn age(&self, clock: &dyn Clock) -> Duration {
        clock.instant().duration_since(self.since)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Addresses {
    known: Mutex<Option<CachedAddresses>>,
    /// A copy of the latest answer that is readable without waiting for a query; empty before the first.
    named: std::sync::RwLock<Vec<IpAddr>>,
}

#[derive(Clone, Debug)]
struct CachedAddresses {
    addresses: Vec<IpAddr>,
    since: Instant,
}

impl Addresses {
    /// The addresses to try, in order, without those the destination must not reach. Never empty.
    pub(crate) async fn of(
        &self,
        destination: &UpstreamTarget,
        rules: &AddressRules,
        clock: &dyn Clock,
    ) -> Result<Vec<SocketAddr>, ConnectFault> {
        let all = match destination.address {
            Some(address) => vec![address],
            None => self.look_up(&destination.host, clock).await?,
        };
        allowed(all, destination, rules)
    }

    async fn look_up(&self, host: &str, clock: &dyn Clock) -> Result<Vec<IpAddr>, ConnectFault> {
        let mut known = self.known.lock().await;
        if let Some(known) = &*known
            && known.age(clock) < FRESH
        {
            return Ok(known.addresses.clone());
        }
        self.refresh(host, clock, &mut known).await
    }

    /// Resolves the name again unless that happened within [`RENEW_AFTER`]. Returns whether there is a new answer.
    pub(crate) async fn renew(&self, host: &str, clock: &dyn Clock) -> bool {
        let mut known = self.known.lock().await;
        let old = known.as_ref().filter(|known| known.age(clock) >= RENEW_AFTER);
        let Some(since) = old.map(|known| known.since) else { return false };
        self.refresh(host, clock, &mut known).await.is_ok() && known.as_ref().is_some_and(|known| known.since > since)
    }

    /// Whether the latest answer contains this address; true while there is no answer.
    pub(crate) fn names(&self, address: IpAddr) -> bool {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        named.is_empty() || named.contains(&address)
    }

    #[cfg(test)]
    pub(crate) fn set(&self, addresses: Vec<IpAddr>) {
        *self.named.write().unwrap() = addresses;
    }

    async fn refresh(
        &self,
        host: &str,
        clock: &dyn Clock,
        known: &mut Option<CachedAddresses>,
    ) -> Result<Vec<IpAddr>, ConnectFault> {
        let addresses = query(host).await;
        if addresses.is_empty() {
            let stale = known.as_ref().filter(|known| known.age(clock) < STALE);
            return stale.map(|known| known.addresses.clone()).ok_or(ConnectFault::Resolve);
        }
        self.named.write().unwrap_or_else(PoisonError::into_inner).clone_from(&addresses);
        *known = Some(CachedAddresses { addresses: addresses.clone(), since: clock.instant() });
        Ok(addresses)
    }
}

/// Resolves a destination without a cache, for a single request.
pub(crate) async fn resolve(destination: &UpstreamTarget, rules: &AddressRules) -> Result<Vec<SocketAddr>, ConnectFault> {
    let all = match destination.address {
        Some(address) => vec![address],
        None => query(&destination.host).await,
    };
    if all.is_empty() { Err(ConnectFault::Resolve) } else { allowed(all, destination, rules) }
}

/// Asks the system's resolver; empty when it fails.
async fn query(host: &str) -> Vec<IpAddr> {
    let answer = tokio::net::lookup_host((host, 0)).await;
    interleave(answer.into_iter().flatten().map(|address| address.ip()))
}

/// The addresses the destination may reach, with its port.
fn allowed(all: Vec<IpAddr>, destination: &UpstreamTarget, rules: &AddressRules) -> Result<Vec<SocketAddr>, ConnectFault> {
    let permitted = rules.permitted(destination.reach, all)?;
    Ok(permitted.into_iter().map(|address| SocketAddr::new(address, destination.port)).collect())
}

/// Alternates between address families, so that an unreachable family costs one attempt and not all of them.
fn interleave(answer: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = Vec::new();
    for address in answer.take(4 * MAX_ADDRESSES) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    let v6_first = all.first().is_some_and(IpAddr::is_ipv6);
    let (mut first, mut second): (Vec<_>, Vec<_>) = all.into_iter().partition(|address| address.is_ipv6() == v6_first);
    first.reverse();
    second.reverse();
    let mut order = Vec::new();
    while order.len() < MAX_ADDRESSES {
        let next = [first.pop(), second.pop()];
        if next == [None, None] {
            break;
        }
        order.extend(next.into_iter().flatten());
    }
    order.truncate(MAX_ADDRESSES);
    order
}

#[cfg(test)]
mod tests {
    use tollgate_core::{AddressLists, UnlistedAddress};

    use super::*;
    use crate::testing::channel;

    #[test]
    fn families_alternate_and_duplicates_are_dropped() {
        let answer = ["2001:db8::1", "2001:db8::2", "2001:db8::1", "1.1.1.1", "1.1.1.2", "1.1.1.3"].map(|a| a.parse().unwrap());
        let order = interleave(answer.into_iter()).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(order, ["2001:db8::1", "1.1.1.1", "2001:db8::2", "1.1.1.2", "1.1.1.3"]);
    }

    #[test]
    fn number_of_addresses_is_bounded() {
        let many = (0..200u32).map(|i| IpAddr::from((0x0808_0000 + i).to_be_bytes()));
        assert_eq!(interleave(many).len(), MAX_ADDRESSES);
    }

    #[tokio::test]
    async fn name_resolving_to_loopback_is_denied() {
        let mut row = channel("http://localhost:9/v1");
        row.spec.private_network = false;
        let destination = UpstreamTarget::of(&row).unwrap();
        let rules = AddressRules::default();
        assert_eq!(resolve(&destination, &rules).await, Err(ConnectFault::Denied));
        row.spec.private_network = true;
        let destination = UpstreamTarget::of(&row).unwrap();
        assert!(resolve(&destination, &rules).await.unwrap().iter().all(|a| a.ip().is_loopback() && a.port() == 9));
        rules.replace(AddressLists::new(Vec::new(), vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]));
        assert_eq!(resolve(&destination, &rules).await, Err(ConnectFault::Unlisted(UnlistedAddress::Denied)));
    }
}
