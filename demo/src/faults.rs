//! Faults of the providers, and their times.

use tollgate_core::Timestamp;

const MINUTE_MS: i64 = 60_000;
const DAY_MIN: i64 = 24 * 60;

/// A period in which requests of an account fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) channel: &'static str,
    /// Empty: all accounts of the channel.
    pub(crate) account: &'static str,
    /// Minutes before the end of the history.
    pub(crate) from: i64,
    pub(crate) until: i64,
    pub(crate) kind: FaultKind,
    /// Thousandths of the requests.
    pub(crate) share: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// 429 with a wait in seconds.
    RateLimited(u64),
    /// 503 with a wait in seconds.
    Overloaded(u64),
    /// 500.
    Broken,
    /// No answer in time.
    Silent,
    /// No connection.
    Unreachable,
    /// 401.
    CredentialRefused,
    /// 402 until the end of the month.
    CreditSpent,
    /// The stream ends in the middle.
    CutOff,
}

const FAULTS: &[Fault] = &[
    fault("anthropic", "", 19 * DAY_MIN + 125, 42, FaultKind::Overloaded(20), 900),
    fault("gpu-rack", "", 13 * DAY_MIN + 300, 9, FaultKind::Unreachable, 1_000),
    fault("google", "", 9 * DAY_MIN + 700, 14, FaultKind::Broken, 700),
    fault("openai", "us", 6 * DAY_MIN + 260, 185, FaultKind::CredentialRefused, 1_000),
    fault("mistral", "", 3 * DAY_MIN, 3 * DAY_MIN, FaultKind::Silent, 25),
    fault("google", "project-2", 3 * DAY_MIN + 400, 30, FaultKind::RateLimited(90), 500),
    fault("reseller", "trial", 20 * 60, 20 * 60, FaultKind::CreditSpent, 1_000),
    fault("anthropic", "team-b", 9 * 60 + 20, 25, FaultKind::Overloaded(45), 650),
    fault("openai", "europe", 4 * 60 + 35, 8, FaultKind::Broken, 600),
    fault("google", "project-2", 52, 42, FaultKind::RateLimited(120), 700),
    fault("google", "project-2", 10, 10, FaultKind::RateLimited(1_800), 1_000),
    fault("mistral", "", 31, 17, FaultKind::Silent, 900),
    fault("anthropic", "team-a", 22, 6, FaultKind::Overloaded(60), 800),
];

const fn fault(channel: &'static str, account: &'static str, from: i64, minutes: i64, kind: FaultKind, share: u64) -> Fault {
    Fault { channel, account, from, until: from - minutes, kind, share }
}

/// Occasional faults of any provider.
pub(crate) const USUAL: &[(FaultKind, u64)] =
    &[(FaultKind::Broken, 4), (FaultKind::RateLimited(4), 5), (FaultKind::CutOff, 3), (FaultKind::Silent, 1)];
/// Thousandths of the requests.
pub(crate) const USUAL_SHARE: u64 = 6;

/// The faults of an account at a time, of a history that ends at `end`.
pub(crate) fn faults_at(channel: &str, account: &str, at: Timestamp, end: Timestamp) -> impl Iterator<Item = Fault> {
    let before = end.ms_since(at) / MINUTE_MS;
    let is_of = move |fault: &Fault| {
        fault.channel == channel
            && (fault.account.is_empty() || fault.account == account)
            && (fault.until..=fault.from).contains(&before)
    };
    FAULTS.iter().copied().filter(is_of).collect::<Vec<_>>().into_iter()
}
