//! Sign-in of members: passwords, sessions, one-time codes, passkeys, invites and links, and the objects that each role sees.

mod attacks;
mod codes;
mod commands;
mod keys;
mod objects;
mod oidc;
mod passkeys;
mod registration;
mod sessions;
mod set_up;
mod walk;

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request};

pub(crate) use codes::{code as one_time_code, enable as enable_codes};
pub(crate) use objects::{Owner, owner};
pub(crate) use passkeys::{Authenticator, add as add_passkey, try_passkey};
pub(crate) use walk::walk;

use crate::admin::{Admin, ok};

pub(crate) const PASSWORD: &str = "correct horse battery";

/// A browser with a session.
#[derive(Clone, Debug)]
pub(crate) struct Browser {
    pub(crate) cookie: String,
    pub(crate) csrf_token: String,
}

impl Browser {
    /// The session that an answer opens.
    pub(crate) fn of(answer: &ClientResponse) -> Self {
        let body = ok(answer);
        assert_eq!(body["next"], "nothing", "{body}");
        Self { cookie: cookie(answer), csrf_token: body["csrf_token"].as_str().unwrap().to_owned() }
    }

    /// The request as the console's own pages send it.
    pub(crate) fn request(&self, admin: &Admin, method: &str, path: &str, body: Option<&Value>) -> Request {
        let request = body.map_or_else(|| Request::get(path), |body| Request::post(path, body)).method(method);
        let request = request.header("cookie", &self.cookie);
        if method == "GET" {
            return request;
        }
        request.header("origin", &format!("http://{}", admin.gateway.address())).header("x-csrf-token", &self.csrf_token)
    }

    pub(crate) fn send(&self, admin: &Admin, method: &str, path: &str, body: Option<&Value>) -> ClientResponse {
        admin.send(method, path, &self.request(admin, method, path, body))
    }

    pub(crate) fn get(&self, admin: &Admin, path: &str) -> Value {
        ok(&self.send(admin, "GET", path, None))
    }

    /// Whether the session is still valid.
    pub(crate) fn is_in(&self, admin: &Admin) -> bool {
        self.send(admin, "GET", "/admin/v1/me", None).status == 200
    }
}

/// The cookie that an answer sets, as a browser sends it back.
pub(crate) fn cookie(answer: &ClientResponse) -> String {
    let set = answer.header("set-cookie").expect("it sets a cookie");
    set.split(';').next().unwrap().to_owned()
}

/// Makes a member with a password.
pub(crate) fn make_member(admin: &Admin, name: &str, role: &str) {
    admin.post("/admin/v1/members", &json!({"name": name, "role": role}));
    let path = format!("/admin/v1/members/{name}/password");
    ok(&admin.call("PUT", &path, Some(&json!({"new_password": PASSWORD}))));
}

pub(crate) fn try_sign_in(admin: &Admin, login: &str, password: &str) -> ClientResponse {
    let body = json!({"login": login, "password": password});
    admin.send("POST", "/admin/v1/session", &Request::post("/admin/v1/session", &body))
}

pub(crate) fn sign_in(admin: &Admin, name: &str) -> Browser {
    Browser::of(&try_sign_in(admin, name, PASSWORD))
}
