//! Shared parts of all pages: head, navigation by role, theme, language, and the message after an action.

use tollgate_store::AdminScope;

use super::{
    assets, format,
    locale::{Language, Locale},
    preferences::Theme,
    request::PageRequest,
    route::SeenBy,
    undo,
};
use crate::{appearance::Announcement, identity::csrf};

#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) t: Locale,
    pub(crate) title: String,
    /// Name of the gateway.
    pub(crate) name: String,
    pub(crate) logo: Option<String>,
    /// The operator's announcement, on pages for callers and visitors.
    pub(crate) announcement: Option<Announcement>,
    base: String,
    pub(crate) theme: &'static str,
    /// Zone of times; empty for the browser's.
    pub(crate) time_zone: String,
    /// Sidebar for those who have signed in; else the bar of the public pages.
    pub(crate) member: Option<LayoutMember>,
    pub(crate) sections: Vec<NavSection>,
    pub(crate) toast: Option<&'static str>,
    /// Target of a form that undoes the action of the message.
    pub(crate) undo: Option<String>,
    /// The page to which the forms for language and theme return.
    pub(crate) back: String,
    pub(crate) scripts: Vec<Script>,
    pub(crate) is_public_shell: bool,
    /// Tables take all the width.
    pub(crate) is_wide: bool,
    /// Paths and titles of the pages above, the highest first.
    pub(crate) above: Vec<(String, String)>,
    pub(crate) is_menu: bool,
    /// Whether it is the answer to a form.
    is_of_form: bool,
}

/// The signed-in member.
#[derive(Debug)]
pub(crate) struct LayoutMember {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) initial: String,
    pub(crate) role: &'static str,
    /// What the search finds.
    pub(crate) search_hint: &'static str,
    /// The token with a mask that is new for each answer.
    pub(crate) csrf_token: String,
}

/// Scripts that not every page needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Htmx,
    Log,
    /// Parts that are loaded again while the page is open.
    Refresh,
    /// A list whose items come one by one.
    Stages,
    /// Files that fill a field, and jobs that are followed.
    Operators,
    Playground,
    Home,
    Download,
    /// The test of a key.
    KeyTest,
    /// A table whose columns and density can be chosen.
    Tables,
    /// Rows that are chosen.
    Choose,
    /// Rows that are opened beside their list.
    Drawer,
    /// Choices that are put in order.
    Order,
    /// The preview of what a group offers.
    Offers,
    /// A stored conversation that is continued in the playground.
    Contents,
    /// Forms that a browser answers with a passkey.
    Passkey,
    /// A new password.
    Password,
}

/// Entries of the navigation below one heading.
#[derive(Debug)]
pub(crate) struct NavSection {
    /// Empty for the first.
    pub(crate) title: &'static str,
    pub(crate) entries: Vec<NavEntry>,
}

#[derive(Clone, Debug)]
pub(crate) struct NavEntry {
    pub(crate) path: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) label: &'static str,
    /// The letter after `g` that goes there.
    pub(crate) letter: &'static str,
    pub(crate) is_current: bool,
    /// Number of things that need attention there, and the same in words.
    pub(crate) count: Option<(String, String)>,
    /// Whether visitors see it, too.
    pub(crate) is_public: bool,
}

/// An entry of the navigation: path, icon, letter, and who sees it.
type Entry = (&'static str, &'static str, &'static str, SeenBy);

const MEMBER: SeenBy = SeenBy::Role(AdminScope::Member);
const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);
const ADMIN: SeenBy = SeenBy::Role(AdminScope::Admin);

/// The navigation. An entry whose path has no page is left out.
const SECTIONS: &[(Section, &[Entry])] = &[
    (
        Section::Use,
        &[
            ("/overview", "overview", "o", OPERATOR),
            ("/console", "home", "h", MEMBER),
            ("/models", "models", "m", SeenBy::Anyone),
            ("/playground", "play", "p", MEMBER),
            ("/keys", "key", "k", MEMBER),
            ("/log", "log", "l", MEMBER),
            ("/status", "bolt", "s", SeenBy::Anyone),
            ("/docs", "doc", "d", SeenBy::Anyone),
            ("/key", "search", "q", SeenBy::Anyone),
        ],
    ),
    (
        Section::Operate,
        &[
            ("/channels", "channel", "c", OPERATOR),
            ("/proxies", "globe", "x", OPERATOR),
            ("/groups", "group", "g", OPERATOR),
            ("/pricing", "price", "r", OPERATOR),
            ("/members", "members", "e", OPERATOR),
        ],
    ),
    (
        Section::System,
        &[
            ("/alerts", "bell", "a", OPERATOR),
            ("/ledger", "table", "b", ADMIN),
            ("/audit", "audit", "u", ADMIN),
            ("/settings", "gear", "t", ADMIN),
            ("/system", "system", "y", OPERATOR),
        ],
    ),
    (Section::Own, &[("/profile", "user", "i", MEMBER)]),
];

#[derive(Clone, Copy, Debug)]
enum Section {
    /// Without a title.
    Use,
    Operate,
    System,
    Own,
}

impl Section {
    fn title(self, t: Locale) -> &'static str {
        match self {
            Self::Use => "",
            Self::Operate => t.say("nav.operate"),
            Self::System => t.say("nav.system_section"),
            Self::Own => t.say("nav.account"),
        }
    }
}

fn label(t: Locale, path: &str) -> &'static str {
    match path {
        "/overview" => t.say("nav.overview"),
        "/console" => t.say("nav.home"),
        "/models" => t.say("nav.models"),
        "/playground" => t.say("nav.playground"),
        "/keys" => t.say("nav.keys"),
        "/log" => t.say("nav.log"),
        "/status" => t.say("nav.status"),
        "/docs" => t.say("nav.docs"),
        "/key" => t.say("nav.key_check"),
        "/channels" => t.say("nav.channels"),
        "/proxies" => t.say("nav.proxies"),
        "/groups" => t.say("nav.groups"),
        "/pricing" => t.say("nav.pricing"),
        "/members" => t.say("nav.members"),
        "/alerts" => t.say("nav.alerts"),
        "/ledger" => t.say("nav.ledger"),
        "/audit" => t.say("nav.audit"),
        "/settings" => t.say("nav.settings"),
        "/system" => t.say("nav.system"),
        _ => t.say("nav.profile"),
    }
}

/// Whether a page is one that callers use; operators read announcements there, too.
fn is_of_callers(path: &str) -> bool {
    let used = SECTIONS.iter().filter(|(section, _)| matches!(section, Section::Use)).flat_map(|(_, entries)| *entries);
    let of_callers = used.filter(|(.., seen_by)| *seen_by != OPERATOR).map(|(entry, ..)| *entry);
    of_callers.chain(["/menu"]).any(|entry| path == entry || path.strip_prefix(entry).is_some_and(|rest| rest.starts_with('/')))
}

/// Pages at the bottom of a phone, the first of them that the reader sees; the menu has the rest.
const ON_PHONES: [&str; 6] = ["/overview", "/console", "/models", "/keys", "/log", "/status"];
const MOST_ON_PHONES: usize = 4;

pub(crate) fn role(t: Locale, scope: AdminScope) -> &'static str {
    match scope {
        AdminScope::Member => t.say("role.member"),
        AdminScope::Operator => t.say("role.operator"),
        AdminScope::Admin => t.say("role.admin"),
    }
}

impl Layout {
    pub(crate) fn of(request: &PageRequest, title: String) -> Self {
        let (t, preferences) = (request.t(), request.preferences);
        let scope = request.signed_in.as_ref().map(|signed_in| AdminScope::from(signed_in.member.role));
        let here = request.address.split('?').next().unwrap_or_default();
        let is_seen = |seen_by: SeenBy| match seen_by {
            SeenBy::Anyone => true,
            SeenBy::Role(least) => scope.is_some_and(|scope| scope >= least),
        };
        let is_current = |path: &str| here.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let entries = |entries: &'static [Entry]| {
            let seen = entries.iter().filter(|(path, _, _, seen_by)| is_seen(*seen_by) && super::has_page(path));
            let entry = |(path, icon, letter, seen_by): &Entry| NavEntry {
                path,
                icon,
                label: label(t, path),
                letter,
                is_current: is_current(path),
                count: request
                    .open_alerts
                    .filter(|open| *path == "/alerts" && *open > 0)
                    .map(|open| (format::integer(open), t.say_count("nav.open_alert", "nav.open_alerts", open))),
                is_public: *seen_by == SeenBy::Anyone,
            };
            seen.map(entry).collect::<Vec<_>>()
        };
        let sections = SECTIONS.iter().map(|(section, found)| NavSection { title: section.title(t), entries: entries(found) });
        let member = request.signed_in.as_ref().map(|signed_in| LayoutMember {
            id: signed_in.member.id.to_string(),
            initial: signed_in.member.name.chars().next().map(|first| first.to_uppercase().to_string()).unwrap_or_default(),
            name: signed_in.member.name.clone(),
            role: role(t, signed_in.member.role.into()),
            search_hint: if is_seen(SeenBy::Role(AdminScope::Operator)) { t.say("search.hint") } else { t.say("search.hint_own") },
            csrf_token: csrf::masked(&signed_in.csrf_token, &request.state.identity.random),
        });
        Self {
            t,
            title,
            name: request.appearance.name.clone(),
            logo: request.appearance.logo.clone(),
            announcement: request.appearance.announcement.clone().filter(|_| member.is_none() || is_of_callers(here)),
            base: request.state.identity.settings.base().to_owned(),
            theme: preferences.theme.as_str(),
            time_zone: request
                .kept_preferences()
                .and_then(|kept| kept.time_zone.clone())
                .or_else(|| request.appearance.time_zone.clone())
                .unwrap_or_default(),
            is_public_shell: member.is_none(),
            member,
            sections: sections.filter(|section| !section.entries.is_empty()).collect(),
            toast: preferences.toast.map(|toast| toast.say(t)),
            undo: preferences.toast.and_then(|toast| undo::path(toast, &request.headers)),
            back: request.page_of_form.clone().unwrap_or_else(|| request.address.clone()),
            is_of_form: request.page_of_form.is_some(),
            scripts: Vec::new(),
            is_wide: false,
            above: Vec::new(),
            is_menu: here == "/menu",
        }
    }

    pub(crate) fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    /// The page to which the forms for language and theme return, if it is not the address of the request.
    pub(crate) fn returns_to(self, path: &str) -> Self {
        Self { back: path.to_owned(), ..self }
    }

    /// Adds a page to the path of parent pages beside the title, after the existing ones.
    pub(crate) fn below(mut self, path: impl Into<String>, title: impl Into<String>) -> Self {
        self.above.push((path.into(), title.into()));
        self
    }

    /// The entries at the bottom of a phone's screen. For operators the overview replaces the home page.
    pub(crate) fn dock(&self) -> impl Iterator<Item = &NavEntry> {
        let has_overview = self.entries().any(|entry| entry.path == "/overview");
        let is_home = |entry: &NavEntry| entry.path == "/console";
        let shown = self.entries().filter(move |entry| ON_PHONES.contains(&entry.path) && !(has_overview && is_home(entry)));
        shown.take(MOST_ON_PHONES)
    }

    /// The entries in the bar of the public pages.
    pub(crate) fn public_entries(&self) -> impl Iterator<Item = &NavEntry> {
        self.entries().filter(|entry| entry.is_public)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &NavEntry> {
        self.sections.iter().flat_map(|section| &section.entries)
    }

    pub(crate) fn with(mut self, script: Script) -> Self {
        self.scripts.push(script);
        self
    }

    /// Uses the bar of the public pages even for signed-in members, as the set-up does.
    pub(crate) fn public_shell(self) -> Self {
        Self { is_public_shell: true, ..self }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) fn asset(&self, name: &str) -> String {
        format!("{}{}", self.base, assets::path(name))
    }

    /// The reference for an SVG `<use>` element.
    pub(crate) fn icon(&self, name: &str) -> String {
        format!("{}{}#i-{name}", self.base, assets::path("icons.svg"))
    }

    /// The address to reload from if the page is the answer to a form. Reloading the answer itself would send the form again.
    pub(crate) fn reloads_from(&self) -> Option<String> {
        self.is_of_form.then(|| self.here())
    }

    /// The address of this page.
    pub(crate) fn here(&self) -> String {
        self.url(&self.back)
    }

    /// Whether the navigation has an entry for a path.
    pub(crate) fn shows(&self, path: &str) -> bool {
        self.entries().any(|entry| entry.path == path)
    }

    pub(crate) fn has(&self, script: Script) -> bool {
        self.scripts.contains(&script)
    }

    pub(crate) fn uses_htmx(&self) -> bool {
        self.has(Script::Htmx)
    }

    pub(crate) fn follows_log(&self) -> bool {
        self.has(Script::Log)
    }

    pub(crate) fn shows_stages(&self) -> bool {
        self.has(Script::Stages)
    }

    /// The address of the icons, for parts that have no layout.
    pub(crate) fn icons(&self) -> String {
        self.asset("icons.svg")
    }

    pub(crate) fn refreshes(&self) -> bool {
        self.has(Script::Refresh)
    }

    pub(crate) fn has_tables(&self) -> bool {
        self.has(Script::Tables)
    }

    pub(crate) fn is_for_operators(&self) -> bool {
        self.has(Script::Operators)
    }

    pub(crate) fn has_downloads(&self) -> bool {
        self.has(Script::Download)
    }

    pub(crate) fn has_key_test(&self) -> bool {
        self.has(Script::KeyTest)
    }

    pub(crate) fn has_choices(&self) -> bool {
        self.has(Script::Choose)
    }

    pub(crate) fn has_drawer(&self) -> bool {
        self.has(Script::Drawer)
    }

    pub(crate) fn has_orders(&self) -> bool {
        self.has(Script::Order)
    }

    pub(crate) fn previews_offers(&self) -> bool {
        self.has(Script::Offers)
    }

    pub(crate) fn has_contents(&self) -> bool {
        self.has(Script::Contents)
    }

    pub(crate) fn has_passkeys(&self) -> bool {
        self.has(Script::Passkey)
    }

    pub(crate) fn has_new_password(&self) -> bool {
        self.has(Script::Password)
    }

    pub(crate) fn is_home(&self) -> bool {
        self.has(Script::Home)
    }

    pub(crate) fn is_playground(&self) -> bool {
        self.has(Script::Playground)
    }

    /// The token of forms; empty before a sign-in.
    pub(crate) fn csrf(&self) -> &str {
        self.member.as_ref().map_or("", |member| &member.csrf_token)
    }

    /// The languages, and whether each is the page's.
    pub(crate) fn languages(&self) -> [(Language, bool); 2] {
        Language::ALL.map(|language| (language, language == self.t.language))
    }

    pub(crate) fn themes(&self) -> [(&'static str, &'static str, &'static str); 3] {
        let t = self.t;
        [
            (Theme::Light.as_str(), "sun", t.say("theme.light")),
            (Theme::System.as_str(), "system", t.say("theme.system")),
            (Theme::Dark.as_str(), "moon", t.say("theme.dark")),
        ]
    }
}
