//! The party at fault when a request is not answered. The availability of a model and the error statistics are based on it.

use crate::Outcome;

/// The party at fault for a request that was not answered completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request, its key, its limits, or a caller that left. Says nothing about availability.
    Caller,
    /// A provider, or the connection to it.
    Upstream,
    /// The gateway or its configuration.
    Gateway,
}

impl Fault {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Upstream => "upstream",
            Self::Gateway => "gateway",
        }
    }

    /// The party at fault for a record with this outcome and reason; `None` if it was answered completely.
    pub fn of(outcome: Outcome, reason: Option<&str>) -> Option<Self> {
        match outcome {
            Outcome::Completed => None,
            Outcome::CallerLeft => Some(Self::Caller),
            Outcome::GatewayStopped => Some(Self::Gateway),
            Outcome::UpstreamBroke => Some(reason.and_then(Self::of_error).unwrap_or(Self::Upstream)),
            Outcome::Refused => Some(reason.and_then(Self::of_error).unwrap_or(Self::Caller)),
        }
    }

    /// The party at fault for an error of docs/errors.md; `None` for an unknown id.
    pub fn of_error(id: &str) -> Option<Self> {
        let number: u8 = id.strip_prefix('E')?.parse().ok()?;
        match number {
            // Keys, paths, bodies, models and parameters; limits and money; requests that the provider rejects.
            1..=7 | 10..=23 | 31..=33 | 41 | 52 | 64..=67 | 69 | 70 => Some(Self::Caller),
            50..=60 => Some(Self::Upstream),
            40 | 42 | 61..=63 | 68 => Some(Self::Gateway),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_error_has_a_fault() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md")).unwrap();
        let rows = page.lines().filter_map(|line| line.strip_prefix("| E")?.split_once(' '));
        let ids: Vec<String> = rows.map(|(number, _)| format!("E{number}")).collect();
        assert!(ids.len() > 40, "{ids:?}");
        for id in ids {
            assert!(Fault::of_error(&id).is_some(), "{id} has no fault");
        }
    }

    #[test]
    fn fault_is_derived_from_the_error_code_or_the_outcome() {
        let of = |outcome, reason: &str| Fault::of(outcome, Some(reason).filter(|reason| !reason.is_empty()));
        assert_eq!(of(Outcome::Completed, ""), None);
        assert_eq!(of(Outcome::Completed, "usage_excess"), None, "it was answered");
        assert_eq!(of(Outcome::CallerLeft, "E59"), Some(Fault::Caller));
        assert_eq!(of(Outcome::GatewayStopped, "gateway_stopped"), Some(Fault::Gateway));
        for (reason, fault) in [
            ("E17", Fault::Caller),
            ("E31", Fault::Caller),
            ("E41", Fault::Caller),
            ("E52", Fault::Caller),
            ("E40", Fault::Gateway),
            ("E63", Fault::Gateway),
            ("E51", Fault::Upstream),
            ("E54", Fault::Upstream),
            ("overflow", Fault::Caller),
        ] {
            assert_eq!(of(Outcome::Refused, reason), Some(fault), "{reason}");
        }
        assert_eq!(of(Outcome::UpstreamBroke, "E59"), Some(Fault::Upstream));
        assert_eq!(of(Outcome::UpstreamBroke, "E4"), Some(Fault::Caller), "its key was revoked meanwhile");
        assert_eq!(of(Outcome::UpstreamBroke, ""), Some(Fault::Upstream));
    }
}
