//! The menu of a row in the list of keys: the actions that are possible now.

use super::view::KeyObject;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowMenu {
    /// It has lines for clients.
    pub(super) is_usable: bool,
    pub(super) may_replace: bool,
    pub(super) may_disable: bool,
    pub(super) may_enable: bool,
}

impl RowMenu {
    /// If a group lets its members change nothing, the page of the key says so.
    pub(super) fn of(key: &KeyObject, is_operator: bool) -> Self {
        let is_changeable = key.owner != "file";
        let (is_usable, is_off) = (key.is_active(), key.state == "disabled");
        Self {
            is_usable,
            may_replace: is_usable && is_changeable,
            may_disable: is_usable && is_changeable,
            // Members turn their keys off, and operators turn them on.
            may_enable: is_off && is_changeable && is_operator,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(state: &str, owner: &str) -> KeyObject {
        serde_json::from_value(json!({
            "id": "key_1", "revision": 1, "name": "ci", "member": "ann", "prefix": "sk-tg-abcd", "suffix": "wxyz", "state": state, "owner": owner,
            "groups": [], "models": [], "models_deny": [], "protocols": [], "tags": {}, "ip_allow": [], "expires_at": null, "rpm": 0,
            "tpm": 0, "concurrency": 0, "budget": null, "previous_until": null, "created_at": "1970-01-01T00:00:00Z", "revoked_at": null,
        }))
        .unwrap()
    }

    #[test]
    fn menu_offers_what_the_state_and_the_role_allow() {
        let of = |state: &str, owner: &str, is_operator: bool| {
            let RowMenu { is_usable, may_replace, may_disable, may_enable } = RowMenu::of(&key(state, owner), is_operator);
            [is_usable, may_replace, may_disable, may_enable]
        };
        assert_eq!(of("active", "database", false), [true, true, true, false]);
        assert_eq!(of("exhausted", "database", true), [true, true, true, false]);
        assert_eq!(of("disabled", "database", true), [false, false, false, true]);
        assert_eq!(of("disabled", "database", false), [false; 4]);
        assert_eq!(of("revoked", "database", true), [false; 4]);
        assert_eq!(of("active", "file", true), [true, false, false, false]);
    }
}
