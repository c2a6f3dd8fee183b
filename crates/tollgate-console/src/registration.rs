//! How people become members: the settings of registration.

use tollgate_core::Billing;

/// The settings of registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub mode: RegistrationMode,
    /// Name of the group of members who register; `None`: they have no group of their own.
    pub group: Option<String>,
    /// Billing of members who register.
    pub billing: Billing,
    /// Registrations in an hour, on this node.
    pub per_hour: u32,
}

/// How people become members without an admin creating them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrationMode {
    Off,
    /// With the link of an invite.
    Invite,
    /// By themselves, too.
    Open,
}

impl Registration {
    /// The words of [`RegistrationMode`].
    pub const MODES: &'static [&'static str] = &["off", "invite", "open"];
    /// The words of [`Billing`].
    pub const BILLING: &'static [&'static str] = &["prepaid", "postpaid"];

    /// The settings of these values. An unknown word selects the narrower choice; an empty group means none.
    #[must_use]
    pub fn of(mode: &str, group: &str, billing: &str, per_hour: u32) -> Self {
        Self {
            mode: match mode {
                "open" => RegistrationMode::Open,
                "invite" => RegistrationMode::Invite,
                _ => RegistrationMode::Off,
            },
            group: Some(group.trim().to_owned()).filter(|group| !group.is_empty()),
            billing: if billing == "postpaid" { Billing::Postpaid } else { Billing::Prepaid },
            per_hour,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.mode == RegistrationMode::Open
    }

    /// Whether invites can be made and accepted.
    pub(crate) fn takes_invites(&self) -> bool {
        self.mode != RegistrationMode::Off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_stand_for_the_narrower_choice() {
        let open = Registration::of("open", " guests ", "postpaid", 9);
        assert!(open.is_open() && open.takes_invites());
        assert_eq!((open.group.as_deref(), open.billing, open.per_hour), (Some("guests"), Billing::Postpaid, 9));
        let invite = Registration::of("invite", "", "prepaid", 9);
        assert!(!invite.is_open() && invite.takes_invites() && invite.group.is_none());
        let unknown = Registration::of("Open", "", "Postpaid", 9);
        assert!(!unknown.is_open() && !unknown.takes_invites());
        assert_eq!(unknown.billing, Billing::Prepaid);
    }
}
