//! Names to addresses: one look-up at a time for a name, at most every 30 s, and the last answer for a while longer
//! when the name service is away.

use std::{
    net::{IpAddr, SocketAddr},
    sync::PoisonError,
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use super::destination::UpstreamTarget;
use crate::upstream::call::ConnectFault;

/// How long an answer is used.
const FRESH: Duration = Duration::from_secs(30);
/// RouteContext again, behind connections that are kept, when it is as old as this: with a look every 15 s a change is followed
/// within 30.
const RENEWED: Duration = Duration::from_secs(12);
/// How long it is used when no newer one can be had.
const STALE: Duration = Duration::from_mins(10);
/// Addresses kept of one answer.
const MOST_ADDRESSES: usize = 16;

/// The addresses of one destination.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    known: Mutex<Option<CachedAddresses>>,
    /// What the name stands for, for a look without waiting; empty: not known.
    named: std::sync::RwLock<Vec<IpAddr>>,
}

#[derive(Clone, Debug)]
struct CachedAddresses {
    addresses: Vec<IpAddr>,
    since: Instant,
}

impl Addresses {
    /// The addresses to try, in order; those the destination must not reach are left out. Never empty.
    pub(crate) async fn of(&self, destination: &UpstreamTarget) -> Result<Vec<SocketAddr>, ConnectFault> {
        let all = match destination.address {
            Some(address) => vec![address],
            None => self.look_up(&destination.host).await?,
        };
        let allowed: Vec<_> = all
            .into_iter()
            .filter(|address| destination.reach.allows(*address))
            .map(|address| SocketAddr::new(address, destination.port))
            .collect();
        if allowed.is_empty() { Err(ConnectFault::Denied) } else { Ok(allowed) }
    }

    async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, ConnectFault> {
        let mut known = self.known.lock().await;
        if let Some(known) = &*known
            && known.since.elapsed() < FRESH
        {
            return Ok(known.addresses.clone());
        }
        self.ask(host, &mut known).await
    }

    /// Looks the name up again, unless that was done lately. Whether there is a new answer.
    pub(crate) async fn renew(&self, host: &str) -> bool {
        let mut known = self.known.lock().await;
        let Some(since) = known.as_ref().map(|known| known.since).filter(|since| since.elapsed() >= RENEWED) else { return false };
        self.ask(host, &mut known).await.is_ok() && known.as_ref().is_some_and(|known| known.since > since)
    }

    /// Whether the name stands for this address, as far as known.
    pub(crate) fn names(&self, address: IpAddr) -> bool {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        named.is_empty() || named.contains(&address)
    }

    #[cfg(test)]
    pub(crate) fn set(&self, addresses: Vec<IpAddr>) {
        *self.named.write().unwrap() = addresses;
    }

    async fn ask(&self, host: &str, known: &mut Option<CachedAddresses>) -> Result<Vec<IpAddr>, ConnectFault> {
        let answer = tokio::net::lookup_host((host, 0)).await;
        let addresses = interleave(answer.into_iter().flatten().map(|address| address.ip()));
        if addresses.is_empty() {
            let stale = known.as_ref().filter(|known| known.since.elapsed() < STALE);
            return stale.map(|known| known.addresses.clone()).ok_or(ConnectFault::Resolve);
        }
        self.named.write().unwrap_or_else(PoisonError::into_inner).clone_from(&addresses);
        *known = Some(CachedAddresses { addresses: addresses.clone(), since: Instant::now() });
        Ok(addresses)
    }
}

/// First one family, then the other, in turn, so that a dead family costs one attempt and not all of them.
fn interleave(answer: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = Vec::new();
    for address in answer.take(4 * MOST_ADDRESSES) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    let v6_first = all.first().is_some_and(IpAddr::is_ipv6);
    let (mut first, mut second): (Vec<_>, Vec<_>) = all.into_iter().partition(|address| address.is_ipv6() == v6_first);
    first.reverse();
    second.reverse();
    let mut order = Vec::new();
    while order.len() < MOST_ADDRESSES {
        let next = [first.pop(), second.pop()];
        if next == [None, None] {
            break;
        }
        order.extend(next.into_iter().flatten());
    }
    order.truncate(MOST_ADDRESSES);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::testing::channel;

    #[test]
    fn families_take_turns_and_repeats_go() {
        let answer = ["2001:db8::1", "2001:db8::2", "2001:db8::1", "1.1.1.1", "1.1.1.2", "1.1.1.3"].map(|a| a.parse().unwrap());
        let order = interleave(answer.into_iter()).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(order, ["2001:db8::1", "1.1.1.1", "2001:db8::2", "1.1.1.2", "1.1.1.3"]);
    }

    #[test]
    fn an_answer_is_bounded() {
        let many = (0..200u32).map(|i| IpAddr::from((0x0808_0000 + i).to_be_bytes()));
        assert_eq!(interleave(many).len(), MOST_ADDRESSES);
    }

    #[tokio::test]
    async fn a_name_that_means_loopback_is_denied() {
        let mut row = channel("http://localhost:9/v1");
        row.private_network = false;
        let destination = UpstreamTarget::of(&row).unwrap();
        assert_eq!(Addresses::default().of(&destination).await, Err(ConnectFault::Denied));
        row.private_network = true;
        let destination = UpstreamTarget::of(&row).unwrap();
        assert!(Addresses::default().of(&destination).await.unwrap().iter().all(|a| a.ip().is_loopback() && a.port() == 9));
    }
}
