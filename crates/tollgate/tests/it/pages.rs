//! The console's pages: the first run, signing in, the profile, the model square, and attacks that must fail.

mod admin_keys;
mod attacks;
mod callers;
mod channel_models;
mod channel_selection;
mod channels;
mod display;
mod exports;
mod groups;
mod key_use;
mod keys;
mod log;
mod members;
mod operators;
mod people;
mod pricing;
mod proxies;
mod public;
mod routes;
mod stale_forms;
mod system;
mod weight;

pub(crate) use attacks::signed_in;
use tollgate_testkit::{ClientResponse, Request, TestGateway};
use url::form_urlencoded::Serializer;

/// A person with a browser: cookies are kept, forms are sent as browsers send them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Person {
    cookies: Vec<(String, String)>,
    language: Option<&'static str>,
}

impl Person {
    pub(crate) fn get(&mut self, gateway: &TestGateway, path: &str) -> ClientResponse {
        let answer = gateway.send(&self.with_cookies(Request::get(path).header("accept", "text/html")));
        self.keep(&answer);
        answer
    }

    /// The page with this path; it must be there.
    pub(crate) fn page(&mut self, gateway: &TestGateway, path: &str) -> String {
        let answer = self.get(gateway, path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    /// Sends a form with the token of the session.
    pub(crate) fn post(&mut self, gateway: &TestGateway, path: &str, fields: &[(&str, &str)]) -> ClientResponse {
        let token = self.csrf_token(gateway);
        let mut fields = fields.to_vec();
        fields.extend(token.as_deref().map(|token| ("csrf", token)));
        let origin = format!("http://{}", gateway.address());
        let answer = gateway.send(&self.with_cookies(form(path, &fields).header("origin", &origin)));
        self.keep(&answer);
        answer
    }

    /// Sends the form of the page with this path as [`Self::post`] does, with the revision of the row that the page has.
    pub(crate) fn save(&mut self, gateway: &TestGateway, path: &str, fields: &[(&str, &str)]) -> ClientResponse {
        let revision = hidden(&self.page(gateway, path), path, "revision");
        self.post(gateway, path, &[fields, &[("revision", revision.as_str())]].concat())
    }

    pub(crate) fn with_cookies(&self, request: Request) -> Request {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = if cookies.is_empty() { request } else { request.header("cookie", &cookies.join("; ")) };
        match self.language {
            Some(language) => request.header("accept-language", language),
            None => request,
        }
    }

    /// The token of the session, read from a page.
    pub(crate) fn csrf_token(&self, gateway: &TestGateway) -> Option<String> {
        if !self.has_session() {
            return None;
        }
        let page = gateway.send(&self.with_cookies(Request::get("/profile"))).text();
        let (_, rest) = page.split_once("name=\"csrf\" value=\"")?;
        rest.split('"').next().map(str::to_owned)
    }

    pub(crate) fn has_session(&self) -> bool {
        self.cookies.iter().any(|(name, value)| name.ends_with("tollgate_session") && !value.is_empty())
    }

    fn keep(&mut self, answer: &ClientResponse) {
        for (name, value) in answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
            assert!(name.eq_ignore_ascii_case("set-cookie"));
            let (name, value) = value.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            if !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
    }
}

/// The value of a hidden field of the form that is sent there.
fn hidden(page: &str, action: &str, name: &str) -> String {
    let (_, form) = page.split_once(&format!("action=\"{action}\"")).unwrap_or_else(|| panic!("no form for {action} in {page}"));
    let (_, rest) = form.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("no {name} in {page}"));
    rest.split('"').next().unwrap().to_owned()
}

/// The address from which browsers load the answer to a form again.
fn reloads_from(page: &str) -> String {
    let (_, rest) = page.split_once("data-reloads-from=\"").unwrap_or_else(|| panic!("no answer to a form: {page}"));
    rest.split('"').next().unwrap().replace("&#38;", "&")
}

/// A form as browsers send it.
pub(crate) fn form(path: &str, fields: &[(&str, &str)]) -> Request {
    let body = Serializer::new(String::new()).extend_pairs(fields).finish();
    Request::post_bytes(path, body.into_bytes()).replace_header("content-type", "application/x-www-form-urlencoded")
}

/// Target of a redirect.
pub(crate) fn location(answer: &ClientResponse) -> &str {
    assert_eq!(answer.status, 303, "{}", answer.text());
    answer.header("location").unwrap()
}
