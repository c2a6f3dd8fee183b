//! Undo of turning a row off: the message about it has a form that turns the row on again. The message and the row are in
//! cookies; the form goes to a fixed path of its kind.

use http::HeaderMap;

use super::{models::path_of_name, preferences::Toast};
use crate::identity::cookies::cookie;

const COOKIE: &str = "tollgate_undo";
/// As long as that of the message.
const AGE_S: u32 = 60;
/// Between the ids of several keys or channels.
pub(super) const BETWEEN: &str = "~";
/// Longest row: the ids of a hundred keys or channels.
const MAX_CHARS: usize = 3_500;

/// `Set-Cookie` for the row of the next message: its name or id; for an account preceded by that of its channel.
pub(super) fn keep(row: &[&str]) -> String {
    let names: Vec<String> = row.iter().map(|name| path_of_name(name).replace('/', "%2F")).collect();
    set(&names.join("/"), AGE_S)
}

/// `Set-Cookie` that removes the row.
pub(super) fn forget() -> String {
    set("", 0)
}

fn set(row: &str, age_s: u32) -> String {
    format!("{COOKIE}={row}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age_s}")
}

/// Target of the form that turns the row of a message on again; `None` for other messages.
pub(super) fn path(toast: Toast, headers: &HeaderMap) -> Option<String> {
    let row = cookie(headers, COOKIE)?;
    let is_path = |name: &str| !name.is_empty() && !matches!(name, "." | "..");
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%:@/".contains(&byte);
    if row.len() > MAX_CHARS || !row.bytes().all(is_known) {
        return None;
    }
    let (first, second) = row.split_once('/').map_or((row, None), |(first, second)| (first, Some(second)));
    if !is_path(first) || second.is_some_and(|second| !is_path(second) || second.contains('/')) {
        return None;
    }
    match (toast, second) {
        (Toast::KeysOff, None) => Some(format!("/key-selection/enable?key={}", first.replace(BETWEEN, "&key="))),
        (Toast::ChannelsOff, None) => Some(format!("/channel-selection/enable?channel={}", first.replace(BETWEEN, "&channel="))),
        (Toast::KeyOff, None) => Some(format!("/keys/{first}/enable")),
        (Toast::ChannelOff, None) => Some(format!("/channels/{first}/switch")),
        (Toast::AccountOff, Some(account)) => Some(format!("/channels/{first}/accounts/{account}/switch")),
        (Toast::MemberOff, None) => Some(format!("/members/{first}/activate")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    fn at(toast: Toast, row: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_str(&format!("{COOKIE}={row}")).unwrap());
        path(toast, &headers)
    }

    #[test]
    fn undo_cookie_maps_to_the_path_that_turns_the_row_on() {
        let kept = |row: &[&str]| keep(row).split(';').next().unwrap().strip_prefix("tollgate_undo=").unwrap().to_owned();
        assert_eq!(at(Toast::KeyOff, &kept(&["key_1"])).as_deref(), Some("/keys/key_1/enable"));
        assert_eq!(at(Toast::KeysOff, &kept(&["key_1~key_2"])).as_deref(), Some("/key-selection/enable?key=key_1&key=key_2"));
        assert_eq!(
            at(Toast::ChannelsOff, &kept(&["chn_1~chn_2"])).as_deref(),
            Some("/channel-selection/enable?channel=chn_1&channel=chn_2")
        );
        assert_eq!(at(Toast::ChannelOff, &kept(&["a b/c; d"])).as_deref(), Some("/channels/a%20b%2Fc%3B%20d/switch"));
        assert_eq!(at(Toast::AccountOff, &kept(&["main", "a/b"])).as_deref(), Some("/channels/main/accounts/a%2Fb/switch"));
        assert_eq!(at(Toast::MemberOff, &kept(&["mbr_1"])).as_deref(), Some("/members/mbr_1/activate"));
    }

    #[test]
    fn malformed_undo_cookie_maps_to_no_path() {
        for (toast, row) in [
            (Toast::Saved, "key_1"),
            (Toast::KeyOff, "a/b"),
            (Toast::KeyOff, ".."),
            (Toast::AccountOff, "main"),
            (Toast::AccountOff, "main/../x"),
            (Toast::AccountOff, "main/.."),
            (Toast::KeyOff, "\"><script>"),
            (Toast::KeyOff, "a?b"),
            (Toast::KeyOff, ""),
        ] {
            assert_eq!(at(toast, row), None, "{row}");
        }
    }
}
