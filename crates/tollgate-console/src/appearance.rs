//! Settings of operators about pages: the name of the gateway, an announcement, a text for members, and the language and time zone of
//! readers who have not chosen.

use crate::pages::inline::{self, Linked};

/// How pages look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appearance {
    /// Beside the mark and in titles.
    pub name: String,
    /// The image in the place of the mark, as a `data:` URL.
    pub logo: Option<String>,
    pub announcement: Option<Announcement>,
    /// On the home page of members.
    pub home_text: Option<String>,
    /// Language of readers who have not chosen one, as browsers name it; `None`: that of their browser.
    pub language: Option<String>,
    /// Zone of times for members who have not chosen one; `None`: that of their browser.
    pub time_zone: Option<String>,
}

impl Appearance {
    /// The name of the program, for a gateway without one.
    pub const NAME: &'static str = "tollgate";
    /// The language setting that leaves the choice to browsers.
    pub const LANGUAGE_OF_BROWSER: &'static str = "auto";
    /// How urgent an announcement is.
    pub const LEVELS: &'static [&'static str] = &["info", "warning"];

    /// The appearance of these settings; empty texts are unset.
    #[must_use]
    pub fn of(
        (name, logo): (&str, &str),
        (announcement, level): (&str, &str),
        home_text: &str,
        language: &str,
        time_zone: &str,
    ) -> Self {
        let filled = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Self {
            name: filled(name).unwrap_or_else(|| Self::NAME.to_owned()),
            logo: filled(logo).filter(|logo| is_image(logo)),
            announcement: filled(announcement).map(|text| Announcement { text, is_warning: level == "warning" }),
            home_text: filled(home_text),
            language: filled(language).filter(|language| language != Self::LANGUAGE_OF_BROWSER),
            time_zone: filled(time_zone),
        }
    }
}

/// Longest `data:` URL of an image, in bytes: of an image of about 7 KB.
pub(crate) const MAX_IMAGE: u64 = 10_000;
/// Kinds of images that browsers show, and in which they run no scripts.
const IMAGES: [&str; 5] = ["png", "jpeg", "webp", "gif", "svg+xml"];

/// Whether a text is a small image as a `data:` URL.
#[must_use]
pub fn is_image(text: &str) -> bool {
    let parts = text.strip_prefix("data:image/").and_then(|rest| rest.split_once(";base64,"));
    let is_base64 = |data: &str| {
        let body = data.trim_end_matches('=');
        !body.is_empty()
            && data.len() - body.len() <= 2
            && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
    };
    text.len() as u64 <= MAX_IMAGE && parts.is_some_and(|(kind, data)| IMAGES.contains(&kind) && is_base64(data))
}

/// The operator's announcement to callers and visitors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    pub text: String,
    pub is_warning: bool,
}

impl Announcement {
    /// The text in pieces, with its addresses apart.
    pub(crate) fn pieces(&self) -> Vec<Linked<'_>> {
        inline::linked(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_a_data_url_of_a_known_kind() {
        assert!(is_image("data:image/svg+xml;base64,PHN2Zz4="));
        let long = format!("data:image/png;base64,{}", "A".repeat(10_000));
        for wrong in [
            "",
            "https://example.com/logo.png",
            "data:text/html;base64,AAAA",
            "data:image/png;base64,",
            "data:image/png,AAAA",
            "data:image/png;base64,AA\"><script>",
            "data:image/png;base64,A===",
            &long,
        ] {
            assert!(!is_image(wrong), "{wrong}");
        }
    }

    #[test]
    fn empty_appearance_settings_are_unset() {
        let plain = Appearance::of((" ", ""), ("", "info"), " ", "auto", "");
        assert_eq!((plain.name.as_str(), plain.announcement, plain.language, plain.time_zone), ("tollgate", None, None, None));
        let set = Appearance::of(
            ("Acme", "data:image/png;base64,AAAA"),
            (" Away on Sunday. ", "warning"),
            "Help.",
            "zh-CN",
            "Asia/Shanghai",
        );
        assert_eq!((plain.home_text, set.home_text.as_deref()), (None, Some("Help.")));
        assert_eq!(set.announcement, Some(Announcement { text: "Away on Sunday.".to_owned(), is_warning: true }));
        assert_eq!(set.logo.as_deref(), Some("data:image/png;base64,AAAA"));
        assert_eq!((set.language.as_deref(), set.time_zone.as_deref()), (Some("zh-CN"), Some("Asia/Shanghai")));
    }
}
