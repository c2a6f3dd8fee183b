//! Signing in at an OpenID provider, the account that is linked then, and the test of the provider.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, TestGateway};

use super::{Browser, cookie, make_member};
use crate::{admin::Admin, pages::signed_in, support};

const CLIENT: &str = "tollgate";

/// A provider on loopback, at which one person is signed in already.
struct Provider {
    issuer: String,
    /// The nonce of the sign-in in progress.
    nonce: Arc<Mutex<String>>,
}

impl Provider {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let nonce = Arc::new(Mutex::new(String::new()));
        let (address, shared) = (issuer.clone(), Arc::clone(&nonce));
        thread::spawn(move || {
            let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
            for stream in listener.incoming().flatten() {
                let nonce = shared.lock().unwrap().clone();
                answer(stream, &address, &nonce, &key);
            }
        });
        Self { issuer, nonce }
    }

    fn gateway(&self) -> Admin {
        let builder = TestGateway::builder(support::PROGRAM)
            .env("TOLLGATE_CONSOLE__URL", "http://gateway.example.com")
            .env("TOLLGATE_OIDC__ISSUER", &self.issuer)
            .env("TOLLGATE_OIDC__CLIENT_ID", CLIENT)
            .env("TOLLGATE_OIDC__CLIENT_SECRET", "secret")
            .env("TOLLGATE_OIDC__CREATE_MEMBERS", "true")
            .env("TOLLGATE_OIDC__DOMAINS", "example.com")
            .env("TOLLGATE_OIDC__PRIVATE_NETWORK", "true");
        Admin::of(builder.spawn())
    }

    /// Signs the person in, and returns the answer that opens the session.
    fn sign_in(&self, admin: &Admin) -> ClientResponse {
        let started = admin.gateway.send(&Request::get("/admin/v1/oidc/start?to=/console"));
        let location = started.header("location").unwrap().to_owned();
        let of =
            |name: &str| location.split(['?', '&']).find_map(|pair| pair.strip_prefix(&format!("{name}="))).unwrap().to_owned();
        *self.nonce.lock().unwrap() = of("nonce");
        let back = format!("/admin/v1/oidc/callback?code=right&state={}", of("state"));
        admin.gateway.send(&Request::get(&back).header("cookie", &cookie(&started)))
    }
}

fn answer(stream: TcpStream, issuer: &str, nonce: &str, key: &Ed25519KeyPair) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    if reader.read_line(&mut first).is_err() {
        return;
    }
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).is_err() || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let body = String::from_utf8(body).unwrap();
    let target = first.split(' ').nth(1).unwrap_or_default();
    let (status, more, document) = document(target, &body, issuer, nonce, key);
    let text = document.to_string();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n", text.len());
    let mut stream = stream;
    let _ = stream.write_all(format!("{head}{more}\r\n{text}").as_bytes());
}

/// Status, further lines of the head, and the document.
fn document(target: &str, body: &str, issuer: &str, nonce: &str, key: &Ed25519KeyPair) -> (&'static str, String, Value) {
    let plain = |value: Value| ("200 OK", String::new(), value);
    match target.split('?').next().unwrap_or_default() {
        "/.well-known/openid-configuration" => plain(json!({
            "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"), "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
        })),
        "/keys" => {
            let x = URL_SAFE_NO_PAD.encode(key.public_key().as_ref());
            plain(json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "use": "sig", "x": x}]}))
        }
        "/authorize" if target.contains("prompt=none") => {
            let back = target.split(['?', '&']).find_map(|pair| pair.strip_prefix("redirect_uri=")).unwrap();
            let back = back.replace("%3A", ":").replace("%2F", "/");
            ("302 Found", format!("location: {back}?error=login_required\r\n"), json!({}))
        }
        "/token" if !body.contains("code=right") => ("400 Bad Request", String::new(), json!({"error": "invalid_grant"})),
        "/token" => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let claims = json!({
                "iss": issuer, "aud": CLIENT, "sub": "person-1", "nonce": nonce, "iat": now, "exp": now + 300,
                "preferred_username": "ann", "email": "ann@example.com", "email_verified": true,
            });
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let message = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": "one"})), part(&claims));
            let signature = URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes()).as_ref());
            plain(json!({"id_token": format!("{message}.{signature}"), "access_token": "a", "token_type": "Bearer"}))
        }
        _ => ("404 Not Found", String::new(), json!({})),
    }
}

#[test]
fn linked_account_of_a_member_is_listed_and_unlinked() {
    let provider = Provider::start();
    let admin = provider.gateway();
    let opened = provider.sign_in(&admin);
    assert_eq!((opened.status, opened.header("location")), (303, Some("/console")), "{}", opened.text());
    let members = admin.get("/admin/v1/members")["items"].as_array().unwrap().clone();
    let member = members.iter().find(|member| member["name"] == "ann").unwrap_or_else(|| panic!("{members:?}"));
    let login = admin.get("/admin/v1/members/ann/login");
    assert_eq!((&login["oidc"], &login["email"], &login["password"]), (&json!(true), &json!("ann@example.com"), &json!(false)));
    // The same person is signed in as the same member again.
    assert_eq!(provider.sign_in(&admin).status, 303);
    assert_eq!(admin.get("/admin/v1/members")["items"].as_array().unwrap().len(), members.len());

    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    let path = format!("/members/{}", member["id"].as_str().unwrap());
    let page = root.page(&admin.gateway, &path);
    assert!(page.contains(&format!("{path}/unlink")), "{page}");
    let mut cookies = opened.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let (_, session) = cookies.find(|(_, cookie)| cookie.contains("tollgate_session=")).unwrap();
    let session = session.split(';').next().unwrap().to_owned();
    let is_in = || admin.gateway.send(&Request::get("/admin/v1/me").header("cookie", &session)).status == 200;
    assert!(is_in());
    admin.patch("/admin/v1/members/ann/login", &json!({"oidc": false}));
    assert_eq!(admin.get("/admin/v1/members/ann/login")["oidc"], false);
    assert!(!is_in(), "sessions end with the account");
    assert!(!root.page(&admin.gateway, &path).contains(&format!("{path}/unlink")));
    let refused = admin.call("PATCH", "/admin/v1/members/ann/login", Some(&json!({"oidc": true})));
    assert_eq!(refused.status, 400, "accounts are linked by signing in");
}

#[test]
fn provider_is_tested_without_a_person() {
    let provider = Provider::start();
    let admin = provider.gateway();
    let tested = admin.post("/admin/v1/oidc/test", &json!({}));
    assert_eq!(tested["passed"], true, "{tested}");
    let names: Vec<&str> = tested["stages"].as_array().unwrap().iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
    assert_eq!(names, ["discovery", "issuer", "endpoints", "keys", "clock", "redirect", "client"]);
    assert!(tested["callback"].as_str().unwrap().ends_with("/admin/v1/oidc/callback"), "{tested}");
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    assert!(root.page(&admin.gateway, "/settings").contains("/settings/oidc.issuer/test"));
    let page = root.post(&admin.gateway, "/settings/oidc.issuer/test", &[]).text();
    assert!(page.contains("Redirect address to register") && page.contains("Clock"), "{page}");
    assert_eq!(admin.as_operator("POST", "/admin/v1/oidc/test", Some(&json!({}))).status, 403);

    // No server listens there.
    let gone = Provider { issuer: "http://127.0.0.1:9".to_owned(), nonce: Arc::default() };
    let tested = gone.gateway().post("/admin/v1/oidc/test", &json!({}));
    assert!(tested["passed"] == false && tested["stages"].as_array().unwrap().len() == 1, "{tested}");
    assert!(tested["stages"][0]["detail"].as_str().unwrap().starts_with("http://127.0.0.1:9/.well-known/"), "{tested}");
    let none = Admin::echo().call("POST", "/admin/v1/oidc/test", Some(&json!({})));
    assert_eq!(none.status, 409);
}

/// There is no password that could be asked for again.
#[test]
fn recent_sign_in_is_enough_for_an_admin_key_of_a_member_without_a_password() {
    let provider = Provider::start();
    let admin = provider.gateway();
    provider.sign_in(&admin);
    admin.patch("/admin/v1/members/ann", &json!({"role": "admin"}));
    let opened = provider.sign_in(&admin);
    let mut cookies = opened.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let (_, session) = cookies.find(|(_, cookie)| cookie.contains("tollgate_session=")).unwrap();
    let session = session.split(';').next().unwrap().to_owned();
    let page = admin.gateway.send(&Request::get("/members/admin-keys").header("cookie", &session).header("accept", "text/html"));
    assert!(page.status == 200 && !page.text().contains("name=\"password\""), "{}", page.text());
    let me = admin.gateway.send(&Request::get("/admin/v1/me").header("cookie", &session)).json();
    let browser = Browser { cookie: session, csrf_token: me["csrf_token"].as_str().unwrap().to_owned() };
    let body = json!({"name": "hers", "scope": "operator"});
    let made = browser.send(&admin, "POST", "/admin/v1/admin-keys", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
}
