//! Preferences of members: how pages look, saved views, and when they are notified about their budgets and balance.

use serde::{Deserialize, Serialize};
use tollgate_core::{MemberId, NanoUsd};

/// Maximum number of a member's saved views for one page.
pub const MAX_SAVED_VIEWS: usize = 20;
/// Maximum number of members whose shared views are read.
pub const MAX_SHARING_MEMBERS: usize = 200;
/// Maximum number of members who are notified by mail.
pub const MAX_MAILED_MEMBERS: usize = 10_000;
/// Part of the JSON of every login with a shared view.
pub(crate) const SHARED_VIEW: &str = "\"shared\":true";
/// Part of the JSON of every login whose member is notified by mail.
pub(crate) const NOTICE_MAIL: &str = "\"notice_mail\":true";

/// A member's choices about pages and notices; `None`: the browser's or the system's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberPreferences {
    /// Language as browsers name it, such as `zh-CN`.
    pub language: Option<String>,
    /// `light` or `dark`.
    pub theme: Option<String>,
    /// IANA name of the time zone, such as `Europe/Berlin`.
    pub time_zone: Option<String>,
    /// At most [`MAX_SAVED_VIEWS`] of each page.
    pub views: Vec<SavedView>,
    /// Percentages of the member's budgets at which the member is notified, ascending; `None`:
    /// [`Self::NOTICE_PERCENTS`].
    pub notice_percents: Option<Vec<u32>>,
    /// Prepaid balance in USD below which the member is notified, as decimal text; 0: never; `None`: [`Self::NOTICE_BALANCE`].
    pub notice_balance: Option<String>,
    /// Whether the member is notified by mail, too.
    pub notice_mail: bool,
}

impl MemberPreferences {
    /// Percentages for members who have not chosen any.
    pub const NOTICE_PERCENTS: &'static [u32] = &[80, 100];
    /// Balance for members who have not chosen one: 1 USD.
    pub const NOTICE_BALANCE: NanoUsd = NanoUsd(1_000_000_000);

    /// Percentages of a budget at which the member is notified.
    pub fn effective_percents(&self) -> &[u32] {
        self.notice_percents.as_deref().unwrap_or(Self::NOTICE_PERCENTS)
    }

    /// The balance below which the member is notified.
    pub fn effective_balance(&self) -> NanoUsd {
        self.notice_balance.as_deref().and_then(|text| NanoUsd::parse(text).ok()).unwrap_or(Self::NOTICE_BALANCE)
    }
}

/// A member who is notified about their budgets and balance by mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailedMember {
    pub member: MemberId,
    pub email: String,
    pub preferences: MemberPreferences,
    /// Subjects of the alerts that the member was notified of and that still hold.
    pub notified: Vec<String>,
}

/// A page whose filter can be saved as a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ViewPage {
    /// The usage log.
    #[default]
    Log,
    Keys,
    Members,
    Channels,
}

impl ViewPage {
    pub const ALL: [Self; 4] = [Self::Log, Self::Keys, Self::Members, Self::Channels];
    /// The words of [`Self::ALL`], in the same order.
    pub const WORDS: [&'static str; 4] = ["log", "keys", "members", "channels"];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Keys => "keys",
            Self::Members => "members",
            Self::Channels => "channels",
        }
    }

    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|page| page.as_str() == word)
    }
}

/// The filter of a page with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedView {
    /// Views stored by earlier versions are views of the usage log.
    #[serde(default)]
    pub page: ViewPage,
    pub name: String,
    /// The query of the page's address.
    pub query: String,
    /// Whether other members see it.
    #[serde(rename = "shared")]
    pub is_shared: bool,
}
