//! File descriptors: the soft limit is raised to the hard one, and the bounds of connections and requests are fitted to it, with a
//! reserve for database, Redis, journal and listeners. A gateway without descriptors could neither reach an upstream nor check a
//! key.

use rlimit::Resource;
use tollgate_gateway::settings::HttpLimits;

/// Descriptors for everything but callers and upstreams.
const RESERVE: u64 = 128;
/// Value of a limit without a bound.
const UNLIMITED: u64 = 1 << 30;

/// Bounds that fit the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorBounds {
    /// Callers' connections.
    pub(crate) connections: usize,
    /// Requests in progress, each of which may need a connection to an upstream.
    pub(crate) requests: usize,
    /// Descriptors that the configured bounds need.
    needed: u64,
    limit: u64,
}

impl DescriptorBounds {
    /// The configured bounds if they fit, else lower ones.
    pub(crate) fn fit(limit: u64, connections: usize, requests: usize) -> Self {
        let needed = connections as u64 + requests as u64 + RESERVE;
        if needed <= limit {
            return Self { connections, requests, needed, limit };
        }
        let free = usize::try_from(limit.saturating_sub(RESERVE)).unwrap_or(usize::MAX);
        // Most connections are idle. Either of the two may use descriptors that the other does not need.
        let requests = requests.min((free / 5 * 2).max(free.saturating_sub(connections))).max(1);
        let connections = connections.min(free.saturating_sub(requests)).max(1);
        Self { connections, requests, needed, limit }
    }

    fn fits(&self) -> bool {
        self.needed <= self.limit
    }
}

/// Raises the soft limit to the hard one. Returns it.
pub(crate) fn raise() -> u64 {
    rlimit::increase_nofile_limit(u64::MAX).map_or(UNLIMITED, |limit| limit.min(UNLIMITED))
}

/// Fits the settings of a gateway that starts, and logs a warning if it has to lower them.
pub(crate) fn apply(http: &mut HttpLimits) {
    let fitted = DescriptorBounds::fit(raise(), http.connections, http.requests);
    if !fitted.fits() {
        tracing::warn!(
            open_files = fitted.limit,
            needed = fitted.needed,
            connections = fitted.connections,
            requests = fitted.requests,
            "the limit of open files is too low for server.max_connections and limits.in_flight: both are lowered; raise the hard \
             limit (ulimit -Hn, LimitNOFILE)"
        );
        http.connections_per_address = http.connections_per_address.min(fitted.connections);
        (http.connections, http.requests) = (fitted.connections, fitted.requests);
    }
}

/// With fewer connections than this the limit is a fault, not only lower than configured.
const MIN_CONNECTIONS: usize = 256;

/// The result of checking the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorCheck {
    /// Whether the configured bounds fit.
    pub(crate) fits: bool,
    /// Whether enough connections remain even if they do not fit.
    pub(crate) may_serve: bool,
    pub(crate) text: String,
}

/// Compares the limit with the configured bounds.
pub(crate) fn check(connections: usize, requests: usize) -> DescriptorCheck {
    let hard = rlimit::getrlimit(Resource::NOFILE).map_or(UNLIMITED, |(_, hard)| hard.min(UNLIMITED));
    let fitted = DescriptorBounds::fit(hard, connections, requests);
    if fitted.fits() {
        let text = "enough for server.max_connections and limits.in_flight".to_owned();
        return DescriptorCheck { fits: true, may_serve: true, text };
    }
    let DescriptorBounds { connections, requests, needed, .. } = fitted;
    let text = format!(
        "{hard} open files allowed, {needed} needed: the gateway serves at most {connections} connections and {requests} requests \
         at once; raise the hard limit (ulimit -Hn, LimitNOFILE), or lower server.max_connections and limits.in_flight"
    );
    DescriptorCheck { fits: false, may_serve: connections >= MIN_CONNECTIONS, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_and_request_limits_fit_the_descriptor_limit() {
        let bounds = |limit, connections, requests| {
            let fitted = DescriptorBounds::fit(limit, connections, requests);
            (fitted.connections, fitted.requests)
        };
        assert_eq!(bounds(1_048_576, 20_000, 16_384), (20_000, 16_384));
        assert_eq!(bounds(4_128, 20_000, 16_384), (2_400, 1_600));
        assert_eq!(bounds(4_096, 20_000, 100), (3_868, 100), "what requests do not need is the connections'");
        assert_eq!(bounds(4_096, 100, 16_384), (100, 3_868));
        assert_eq!(bounds(64, 20_000, 16_384), (1, 1));
        for limit in [200, 256, 1_024, 5_000] {
            let (connections, requests) = bounds(limit, 20_000, 16_384);
            assert!(connections as u64 + requests as u64 + RESERVE <= limit, "{limit}: {connections} and {requests}");
        }
    }
}
