//! Resources that callers share, and the share of each caller: the only list of them. A shared resource is constructed with its
//! [`Bound`] and enforces the shares that are named here. The tests take all of each bound and show that others still get some,
//! and `docs/operating.md` has the same rows.

use tollgate_core::{Concerned, Requester, share_of};

/// Declares [`Bound`]: the name, the row of `docs/operating.md`, and the shares, without which there is no bound.
macro_rules! bounds {
    ($($name:ident, $row:literal: $share:expr;)+) => {
        /// A bounded resource that callers share.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bound {
            $($name,)+
        }

        impl Bound {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)+];

            pub(crate) const fn share(self) -> Share {
                match self {
                    $(Self::$name => $share,)+
                }
            }

            /// Its row in `docs/operating.md`.
            #[cfg(test)]
            const fn row(self) -> &'static str {
                match self {
                    $(Self::$name => $row,)+
                }
            }
        }
    };
}

bounds! {
    Connections, "connections": Share::Address(Part::SettingThenTimesFree("server.max_connections_per_address"));
    BodyMemory, "bodies and answers held at once": Share::callers(Part::TimesFree);
    RequestsInProgress, "requests in progress": Share::callers(Part::TimesFree);
    Starts, "requests that wait for a busy core": Share::callers(Part::TimesFreeInTurns);
    WrongKeys, "wrong keys": Share::Address(Part::Setting("limits.wrong_keys_per_minute"));
    SquareRequests, "requests for the model square's feeds": Share::Address(Part::Setting("square.requests_per_minute"));
    KeyLookups, "keys looked up in the database": Share::Address(Part::TimesFree);
    RecordedRefusals, "refused requests of a key that are recorded each":
        Share::Callers { key: Part::EachMinute(10), member: Part::EachMinute(100) };
    Retries, "retries": Share::callers(Part::FifthOfOwn);
    CapacityQueue, "requests that wait for a busy account or channel": Share::callers(Part::TimesFreeInTurns);
    UpstreamDials, "connections being made to an upstream": Share::callers(Part::TimesFreeInTurns);
    UpstreamStreams, "streams of HTTP/2 connections to an upstream": Share::callers(Part::TimesFreeInTurns);
    AccountHealth, "account health": Share::callers(Part::Alone);
    RefusedFields, "fields remembered as refused": Share::callers(Part::Alone);
    Media, "remote media (`fetch_media` of a channel)": Share::callers(Part::TimesFree);
    Journal, "journal": Share::callers(Part::TimesFree);
    Traces, "requests whose spans wait for the collector": Share::callers(Part::TimesFree);
    Contents, "contents of requests that wait for the database": Share::callers(Part::TimesFree);
}

/// The shares of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// The shares of one key, and of one member with all its keys.
    Callers { key: Part, member: Part },
    /// The share of one address, because the caller is not known yet.
    Address(Part),
}

/// The part that one holder may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Three times the free capacity. The first unit is always admitted while any capacity is free.
    TimesFree,
    /// Like [`Part::TimesFree`], and waiting requests take turns.
    TimesFreeInTurns,
    /// This many per minute and error.
    EachMinute(u32),
    /// A fifth of the holder's own requests; above that, three times the free capacity.
    FifthOfOwn,
    /// Failures that a holder provokes concern it alone until another holder sees them too.
    Alone,
    /// A setting of the operator.
    Setting(&'static str),
    /// A setting of the operator. Of the last units, and of a few above the setting, three times the free capacity.
    SettingThenTimesFree(&'static str),
}

impl Share {
    /// Shares with the same part for a key and for a member.
    const fn callers(part: Part) -> Self {
        Self::Callers { key: part, member: part }
    }

    /// The parts of a key and of its member.
    pub(crate) const fn of_callers(self) -> [Part; 2] {
        match self {
            Self::Callers { key, member } => [key, member],
            Self::Address(part) => [part, part],
        }
    }

    /// The callers concerned by a failure that a request of `by` provoked.
    pub(crate) const fn concerned(self, by: Requester) -> Concerned {
        match self {
            Self::Callers { key: Part::Alone, member: Part::Alone } => Concerned::Key(by),
            Self::Callers { member: Part::Alone, .. } => Concerned::Member(by.member),
            Self::Callers { .. } | Self::Address(_) => Concerned::Everyone,
        }
    }

    /// The part of one kind of holder.
    pub(crate) const fn of(self, kind: HolderKind) -> Part {
        match (self, kind) {
            (Self::Callers { member, .. }, HolderKind::Member) => member,
            (Self::Callers { key, .. }, HolderKind::Key | HolderKind::Address) => key,
            (Self::Address(part), _) => part,
        }
    }
}

/// The kind of holder that a share belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HolderKind {
    Key,
    Member,
    Address,
}

impl Part {
    /// How many of `total` a holder may have while `used` are in use.
    pub(crate) const fn max(self, total: usize, used: usize) -> usize {
        match self {
            Self::TimesFree | Self::TimesFreeInTurns | Self::FifthOfOwn | Self::SettingThenTimesFree(_) => share_of(total, used),
            // Enforced elsewhere.
            Self::EachMinute(_) | Self::Alone | Self::Setting(_) => usize::MAX,
        }
    }

    /// Whether a holder may have `held` of `total`, of which `used` are in use, both including the new one.
    pub(crate) const fn permits(self, total: usize, used: usize, held: usize) -> bool {
        held <= self.max(total, used)
    }

    /// Units per minute; `setting` if an operator's setting decides.
    pub(crate) const fn each_minute(self, setting: u32) -> u32 {
        if let Self::EachMinute(max) = self { max } else { setting }
    }
}

#[cfg(test)]
mod tests;
