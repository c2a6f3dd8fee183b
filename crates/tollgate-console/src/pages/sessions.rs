//! Sessions of a member, as a table on the member's own profile and on the page that admins see.

use serde::Deserialize;

use super::{
    format::{self, TimeText},
    operations,
    request::{ApiPage, PageRequest, get, path_of},
};
use crate::{api_error::ApiError, dispatch::ApiCall};

/// Maximum number of listed sessions; no member has as many.
const MAX_SESSIONS: &str = "100";

#[derive(Debug, Deserialize)]
struct SessionView {
    id: String,
    current: bool,
    method: String,
    remembered: bool,
    address: String,
    agent: String,
    created_at: String,
    seen_at: String,
}

#[derive(Debug)]
pub(super) struct SessionEntry {
    pub(super) is_current: bool,
    pub(super) is_remembered: bool,
    pub(super) method: &'static str,
    pub(super) address: String,
    /// Name of the browser and of the system, out of `agent`.
    pub(super) browser: String,
    pub(super) agent: String,
    pub(super) created_at: Option<TimeText>,
    pub(super) seen: String,
    /// Where the form that ends it is sent.
    pub(super) end: String,
}

impl SessionEntry {
    /// The sessions of a member, given by name or id, the newest first. `page` is the path of the page whose forms end them.
    pub(super) async fn of_member(request: &PageRequest, member: &str, page: &str) -> Result<Vec<Self>, ApiError> {
        let sessions: ApiPage<SessionView> = request.read(operations::LIST_SESSIONS, of_member(member)).await?;
        Ok(sessions.items.into_iter().rev().map(|session| Self::of(request, session, page)).collect())
    }

    fn of(request: &PageRequest, session: SessionView, page: &str) -> Self {
        let t = request.t();
        Self {
            is_current: session.current,
            is_remembered: session.remembered,
            method: match session.method.as_str() {
                "oidc" => t.say("profile.method.oidc"),
                "link" => t.say("profile.method.link"),
                "passkey" => t.say("profile.method.passkey"),
                _ => t.say("profile.method.password"),
            },
            created_at: format::time(t, &session.created_at),
            seen: format::ago(t, &session.seen_at, request.state.gateway.now()),
            end: request.url(&format!("{page}/sessions/{}/end", session.id)),
            address: session.address,
            browser: browser(&session.agent),
            agent: session.agent,
        }
    }
}

/// Ends the sessions of the signed-in member except that of the request.
pub(super) async fn end_others(request: &PageRequest, member: &str) -> Result<(), ApiError> {
    let sessions: ApiPage<SessionView> = request.read(operations::LIST_SESSIONS, of_member(member)).await?;
    for session in sessions.items.iter().filter(|session| !session.current) {
        let call = ApiCall { path: path_of(&[("session", &session.id)]), ..ApiCall::default() };
        match request.call(operations::END_SESSION, call).await {
            Ok(_) => {}
            // It has ended meanwhile.
            Err(error) if error.status == http::StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn of_member(member: &str) -> ApiCall {
    get(&[("limit", MAX_SESSIONS), ("member", member)])
}

/// Browser and system of a `User-Agent` in a few words; the whole text if it is not a browser's.
fn browser(agent: &str) -> String {
    // Other browsers name Chrome and Safari too, so the most specific names come first.
    let known = [("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Version/", "Safari")];
    let systems = [
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Mac OS X", "macOS"),
        ("Windows", "Windows"),
        ("Linux", "Linux"),
    ];
    let version = |mark: &str| {
        let (_, rest) = agent.split_once(mark)?;
        rest.split(|c: char| !c.is_ascii_digit()).next().filter(|digits| !digits.is_empty())
    };
    let browser = known.iter().find_map(|(mark, name)| Some(format!("{name} {}", version(mark)?)));
    let system = systems.iter().find(|(mark, _)| agent.contains(mark)).map(|(_, name)| *name);
    match (browser, system) {
        (Some(browser), Some(system)) => format!("{browser} · {system}"),
        (Some(browser), None) => browser,
        (None, _) => agent.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browser_and_platform_are_read_from_the_user_agent() {
        for (agent, expected) in [
            (
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0.0.0 Safari/537.36",
                "Chrome 148 · Linux",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0",
                "Edge 140 · Windows",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile/15E148 Safari/604.1",
                "Safari 18 · iPhone",
            ),
            ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox 140 · macOS"),
            ("curl/8.14.1", "curl/8.14.1"),
            ("", ""),
        ] {
            assert_eq!(browser(agent), expected, "{agent}");
        }
    }
}
