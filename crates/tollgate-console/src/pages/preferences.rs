//! Preferences of a reader: language and theme. Those of a member are stored with the login, those of a visitor in cookies; otherwise
//! the browser's languages and the system's theme apply. The message for the next page is a cookie, too.

use std::sync::Arc;

use http::{HeaderMap, header};
use serde_json::Map;
use tollgate_store::MemberPreferences;

use super::{
    form::FormData,
    locale::{Language, Locale},
    operations,
    reply::{PageFailure, PageReply},
    request::PageRequest,
    route::{PageRoute, SeenBy, page},
};
use crate::{
    api::preferences::{LANGUAGES, THEMES, choice},
    currency::DisplayCurrency,
    dispatch::ApiCall,
    identity::cookies::cookie,
};

const LANGUAGE: &str = "tollgate_language";
const THEME: &str = "tollgate_theme";
const TOAST: &str = "tollgate_toast";
const YEAR_S: u32 = 31_536_000;
const TOAST_S: u32 = 60;

pub(super) static ROUTES: &[PageRoute] = &[PageRoute::post("/preferences", SeenBy::Anyone, page!(change))];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    Light,
    Dark,
    System,
}

impl Theme {
    /// The value of `data-theme`; empty for the system's.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
            Self::System => "",
        }
    }

    fn read(text: &str) -> Self {
        match text {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }
}

/// A message about the completed action, shown on the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toast {
    SignedOut,
    PasswordChanged,
    CodesOff,
    SessionEnded,
    SessionsEnded,
    Saved,
    Removed,
    Posted,
    KeyOff,
    KeyOn,
    KeyRevoked,
    ChannelOff,
    ChannelOn,
    AccountOff,
    AccountOn,
    MemberOff,
    MemberOn,
    ChannelsOff,
    ChannelsOn,
    NothingChosen,
    CoolingEnded,
    KeysOff,
    KeysOn,
    KeysRevoked,
    NoKeyChosen,
    ContentsRemoved,
    PasskeyAdded,
    PasskeyRemoved,
    PasskeysRemoved,
    LoginUnlinked,
}

impl Toast {
    const ALL: [Self; 30] = [
        Self::SignedOut,
        Self::PasswordChanged,
        Self::CodesOff,
        Self::SessionEnded,
        Self::SessionsEnded,
        Self::Saved,
        Self::Removed,
        Self::Posted,
        Self::KeyOff,
        Self::KeyOn,
        Self::KeyRevoked,
        Self::ChannelOff,
        Self::ChannelOn,
        Self::AccountOff,
        Self::AccountOn,
        Self::MemberOff,
        Self::MemberOn,
        Self::ChannelsOff,
        Self::ChannelsOn,
        Self::NothingChosen,
        Self::CoolingEnded,
        Self::KeysOff,
        Self::KeysOn,
        Self::KeysRevoked,
        Self::NoKeyChosen,
        Self::ContentsRemoved,
        Self::PasskeyAdded,
        Self::PasskeyRemoved,
        Self::PasskeysRemoved,
        Self::LoginUnlinked,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::SignedOut => "signed-out",
            Self::PasswordChanged => "password-changed",
            Self::CodesOff => "codes-off",
            Self::SessionEnded => "session-ended",
            Self::SessionsEnded => "sessions-ended",
            Self::Saved => "saved",
            Self::Removed => "removed",
            Self::Posted => "posted",
            Self::KeyOff => "key-off",
            Self::KeyOn => "key-on",
            Self::KeyRevoked => "key-revoked",
            Self::ChannelOff => "channel-off",
            Self::ChannelOn => "channel-on",
            Self::AccountOff => "account-off",
            Self::AccountOn => "account-on",
            Self::MemberOff => "member-off",
            Self::MemberOn => "member-on",
            Self::ChannelsOff => "channels-off",
            Self::ChannelsOn => "channels-on",
            Self::NothingChosen => "nothing-chosen",
            Self::CoolingEnded => "cooling-ended",
            Self::KeysOff => "keys-off",
            Self::KeysOn => "keys-on",
            Self::KeysRevoked => "keys-revoked",
            Self::NoKeyChosen => "no-key-chosen",
            Self::ContentsRemoved => "contents-removed",
            Self::PasskeyAdded => "passkey-added",
            Self::PasskeyRemoved => "passkey-removed",
            Self::PasskeysRemoved => "passkeys-removed",
            Self::LoginUnlinked => "login-unlinked",
        }
    }

    pub(crate) fn say(self, t: Locale) -> &'static str {
        match self {
            Self::SignedOut => t.say("toast.signed_out"),
            Self::PasswordChanged => t.say("toast.password_changed"),
            Self::CodesOff => t.say("toast.codes_off"),
            Self::SessionEnded => t.say("toast.session_ended"),
            Self::SessionsEnded => t.say("toast.sessions_ended"),
            Self::Saved => t.say("toast.saved"),
            Self::Removed => t.say("toast.removed"),
            Self::Posted => t.say("toast.posted"),
            Self::KeyOff => t.say("toast.key_off"),
            Self::KeyOn => t.say("toast.key_on"),
            Self::KeyRevoked => t.say("toast.key_revoked"),
            Self::ChannelOff => t.say("toast.channel_off"),
            Self::ChannelOn => t.say("toast.channel_on"),
            Self::AccountOff => t.say("toast.account_off"),
            Self::AccountOn => t.say("toast.account_on"),
            Self::MemberOff => t.say("toast.member_off"),
            Self::MemberOn => t.say("toast.member_on"),
            Self::ChannelsOff => t.say("toast.channels_off"),
            Self::ChannelsOn => t.say("toast.channels_on"),
            Self::NothingChosen => t.say("toast.nothing_chosen"),
            Self::CoolingEnded => t.say("toast.cooling_ended"),
            Self::KeysOff => t.say("toast.keys_off"),
            Self::KeysOn => t.say("toast.keys_on"),
            Self::KeysRevoked => t.say("toast.keys_revoked"),
            Self::NoKeyChosen => t.say("toast.no_key_chosen"),
            Self::ContentsRemoved => t.say("contents.removed"),
            Self::PasskeyAdded => t.say("toast.passkey_added"),
            Self::PasskeyRemoved => t.say("toast.passkey_removed"),
            Self::PasskeysRemoved => t.say("toast.passkeys_removed"),
            Self::LoginUnlinked => t.say("toast.login_unlinked"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preferences {
    pub(crate) locale: Locale,
    pub(crate) theme: Theme,
    pub(crate) toast: Option<Toast>,
}

impl Preferences {
    /// The preferences of the signed-in member come first, then those of the browser. `usual`: the default language
    /// from the settings; `None`: that of the browser.
    pub(crate) fn of(
        headers: &HeaderMap,
        member: Option<&MemberPreferences>,
        currency: DisplayCurrency,
        usual: Option<Language>,
    ) -> Self {
        let of_browser = Self::of_browser(headers, currency, usual);
        let language = member.and_then(|member| member.language.as_deref()).and_then(Language::of_tag);
        let theme = member.and_then(|member| member.theme.as_deref()).map(Theme::read);
        Self {
            locale: Locale { language: language.unwrap_or(of_browser.locale.language), currency },
            theme: theme.unwrap_or(of_browser.theme),
            toast: of_browser.toast,
        }
    }

    fn of_browser(headers: &HeaderMap, currency: DisplayCurrency, usual: Option<Language>) -> Self {
        let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let chosen = cookie(headers, LANGUAGE).and_then(Language::of_tag);
        let toast = cookie(headers, TOAST).and_then(|word| Toast::ALL.into_iter().find(|toast| toast.as_str() == word));
        Self {
            locale: Locale { language: chosen.or(usual).unwrap_or_else(|| Language::accepted(accepted)), currency },
            theme: cookie(headers, THEME).map_or(Theme::System, Theme::read),
            toast,
        }
    }
}

/// `Set-Cookie` for the message of the next page; `None` removes it.
pub(crate) fn set_toast(toast: Option<Toast>) -> String {
    let (word, age) = toast.map_or(("", 0), |toast| (toast.as_str(), TOAST_S));
    format!("{TOAST}={word}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}")
}

/// Scripts of the page set the theme, too.
fn set(name: &str, value: &str) -> String {
    format!("{name}={value}; Path=/; SameSite=Lax; Max-Age={YEAR_S}")
}

async fn change(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    if request.signed_in.is_some() {
        let mut body = Map::new();
        if form.has("language") {
            body.insert("language".to_owned(), choice(LANGUAGES, form.value("language")));
        }
        if form.has("theme") {
            body.insert("theme".to_owned(), choice(THEMES, form.value("theme")));
        }
        request.call(operations::CHANGE_PREFERENCES, ApiCall { body, ..ApiCall::default() }).await?;
    }
    Ok(keep(PageReply::redirect(&request.url(request.local_path(form.value("back")).unwrap_or("/"))), form))
}

/// Stores the choice of a form in the browser, for the pages before the sign-in.
pub(crate) fn keep(mut reply: PageReply, form: &FormData) -> PageReply {
    if let Some(language) = Language::of_tag(form.value("language")) {
        reply = reply.header("set-cookie", &set(LANGUAGE, language.tag()));
    } else if form.has("language") {
        reply = reply.header("set-cookie", &format!("{LANGUAGE}=; Path=/; SameSite=Lax; Max-Age=0"));
    }
    if form.has("theme") {
        reply = reply.header("set-cookie", &set(THEME, Theme::read(form.value("theme")).as_str()));
    }
    reply
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn member_preferences_take_precedence_over_cookies() {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static("tollgate_language=en; tollgate_theme=dark"));
        let member = MemberPreferences { language: Some("zh-CN".to_owned()), ..MemberPreferences::default() };
        let found = Preferences::of(&headers, Some(&member), DisplayCurrency::USD, Some(Language::En));
        assert_eq!((found.locale, found.theme), (Locale::ZH_CN, Theme::Dark));
        assert_eq!(LANGUAGES, Language::ALL.map(Language::tag));
        assert_eq!(THEMES, [Theme::Light, Theme::Dark].map(Theme::as_str));
    }

    #[test]
    fn chosen_language_takes_precedence_over_the_browsers_languages() {
        let of = |cookies: &str, languages: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, HeaderValue::from_str(cookies).unwrap());
            headers.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_str(languages).unwrap());
            Preferences::of_browser(&headers, DisplayCurrency::USD, None)
        };
        let chinese = |headers: &HeaderMap| Preferences::of_browser(headers, DisplayCurrency::USD, Some(Language::ZhCn)).locale;
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_static("en"));
        assert_eq!(chinese(&headers), Locale::ZH_CN);
        headers.insert(header::COOKIE, HeaderValue::from_static("tollgate_language=en"));
        assert_eq!(chinese(&headers), Locale::EN);
        assert_eq!(of("a=b", "zh-CN,zh;q=0.9,en;q=0.8").locale, Locale::ZH_CN);
        assert_eq!(of("tollgate_language=en", "zh-CN").locale, Locale::EN);
        assert_eq!(of("tollgate_language=tlh", "zh-CN").locale, Locale::ZH_CN);
        assert_eq!(of("tollgate_theme=dark", "").theme, Theme::Dark);
        assert_eq!(of("tollgate_theme=\"><script>", "").theme, Theme::System);
        assert_eq!(of("tollgate_toast=saved", "").toast, Some(Toast::Saved));
        assert_eq!(of("tollgate_toast=<b>free text</b>", "").toast, None);
    }
}
