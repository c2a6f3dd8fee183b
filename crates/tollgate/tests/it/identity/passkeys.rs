//! Passkeys, with an authenticator in software: adding them, signing in with them, and answers that must not sign in.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tollgate_testkit::{ClientResponse, Postgres, Redis, Request, TestGateway};

use super::{Browser, PASSWORD, make_member, sign_in};
use crate::{
    admin::{Admin, ok, refusal, refused, refused_whole, text},
    nodes::MASTER_KEY,
    support,
};

const USER_PRESENT: u8 = 0x01;
const VERIFIED: u8 = 0x05;
const NEW_CREDENTIAL: u8 = 0x40;

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &Value) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text.as_str().unwrap()).unwrap()
}

/// Origin at which browsers offer passkeys of a gateway without `console.url`.
pub(super) fn origin(admin: &Admin) -> String {
    format!("http://localhost:{}", admin.gateway.address().port())
}

/// An authenticator with one passkey, and its browser. Tests make them send wrong values.
#[derive(Debug)]
pub(crate) struct Authenticator {
    key: EcdsaKeyPair,
    credential: Vec<u8>,
    handle: Vec<u8>,
    origin: String,
    relying_party: String,
    flags: u8,
    count: u32,
}

impl Authenticator {
    pub(crate) fn new(admin: &Admin) -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_ASN1_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self {
            key: EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap(),
            credential: Sha256::digest(pkcs8.as_ref()).to_vec(),
            handle: Vec::new(),
            origin: origin(admin),
            relying_party: "localhost".to_owned(),
            flags: VERIFIED,
            count: 1,
        }
    }

    /// The browser is now at another address of the same host.
    pub(crate) fn go_to(&mut self, admin: &Admin) {
        self.origin = origin(admin);
    }

    /// The authenticator is a copy of its state before the last sign-in.
    pub(crate) const fn go_back(&mut self) {
        self.count -= 1;
    }

    fn client_data(&self, kind: &str, challenge: &Value) -> Vec<u8> {
        let data = json!({"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": false});
        data.to_string().into_bytes()
    }

    fn data(&self, further: u8) -> Vec<u8> {
        let mut data = Sha256::digest(&self.relying_party).to_vec();
        data.push(self.flags | further);
        data.extend(self.count.to_be_bytes());
        data
    }

    /// The body of `add_passkey`. The CBOR is written out: a map with three entries, and a `COSE_Key` with its two coordinates.
    fn create(&mut self, asked: &Value, name: &str) -> Value {
        self.handle = decode(&asked["user_id"]);
        let mut data = self.data(NEW_CREDENTIAL);
        data.extend([0; 16]);
        data.extend([0, 32]);
        data.extend(&self.credential);
        let point = self.key.public_key().as_ref();
        data.extend([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 32]);
        data.extend(&point[1..33]);
        data.extend([0x22, 0x58, 32]);
        data.extend(&point[33..]);
        let mut object = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58".to_vec();
        object.push(u8::try_from(data.len()).unwrap());
        object.extend(data);
        json!({
            "state": asked["state"], "name": name, "client_data": encode(&self.client_data("webauthn.create", &asked["challenge"])),
            "attestation_object": encode(&object),
        })
    }

    /// The body of `sign_in_with_passkey`.
    fn get(&mut self, challenge: &Value) -> Value {
        self.count += 1;
        let (client_data, data) = (self.client_data("webauthn.get", challenge), self.data(0));
        let signed = [data.as_slice(), Sha256::digest(&client_data).as_slice()].concat();
        let signature = self.key.sign(&SystemRandom::new(), &signed).unwrap();
        json!({
            "credential": encode(&self.credential), "client_data": encode(&client_data), "authenticator_data": encode(&data),
            "signature": encode(signature.as_ref()), "user_handle": encode(&self.handle),
        })
    }
}

fn begin(admin: &Admin, browser: &Browser) -> Value {
    ok(&browser.send(admin, "POST", "/admin/v1/passkeys/challenge", Some(&json!({"password": PASSWORD}))))
}

pub(crate) fn add(admin: &Admin, browser: &Browser, authenticator: &mut Authenticator) -> Value {
    let body = authenticator.create(&begin(admin, browser), "laptop");
    let answer = browser.send(admin, "POST", "/admin/v1/passkeys", Some(&body));
    assert_eq!(answer.status, 201, "{}", text(&answer));
    ok(&answer)
}

/// Adds a passkey of its own authenticator. Returns its id.
pub(super) fn add_one(admin: &Admin, browser: &Browser) -> String {
    add(admin, browser, &mut Authenticator::new(admin))["id"].as_str().unwrap().to_owned()
}

/// A challenge for a sign-in, and the cookie that belongs to it.
fn challenge(admin: &Admin) -> (Value, String) {
    let path = "/admin/v1/session/passkey/challenge";
    let answer = admin.send("POST", path, &Request::post_bytes(path, Vec::new()));
    let cookie = super::cookie(&answer);
    let set = answer.header("set-cookie").unwrap();
    assert!(set.contains("HttpOnly") && set.contains("Max-Age=300"), "{set}");
    let asked = ok(&answer);
    assert_eq!((&asked["rp_id"], &asked["origin"]), (&json!("localhost"), &json!(origin(admin))));
    (asked["challenge"].clone(), cookie)
}

fn answer(admin: &Admin, body: &Value, cookie: &str) -> ClientResponse {
    let path = "/admin/v1/session/passkey";
    let request = Request::post(path, body);
    admin.send("POST", path, &if cookie.is_empty() { request } else { request.header("cookie", cookie) })
}

/// Signs in with a passkey and asks to be remembered.
pub(super) fn remembered(admin: &Admin, authenticator: &mut Authenticator) -> ClientResponse {
    let (challenge, cookie) = challenge(admin);
    let mut body = authenticator.get(&challenge);
    body["remember"] = json!(true);
    answer(admin, &body, &cookie)
}

pub(crate) fn try_passkey(admin: &Admin, authenticator: &mut Authenticator) -> ClientResponse {
    let (challenge, cookie) = challenge(admin);
    answer(admin, &authenticator.get(&challenge), &cookie)
}

const WRONG: (u16, &str) = (401, "wrong_passkey");

#[track_caller]
fn assert_wrong(answer: &ClientResponse) {
    assert_eq!(refusal(answer), refused_whole(WRONG.0, WRONG.1));
    assert!(answer.header("set-cookie").is_none());
}

/// Calls every route of passkeys once.
pub(super) fn walk(admin: &Admin, member: &str) {
    let browser = sign_in(admin, member);
    let mut authenticator = Authenticator::new(admin);
    let added = add(admin, &browser, &mut authenticator);
    let all = format!("/admin/v1/members/{member}/passkeys");
    let one = format!("{all}/{}", added["id"].as_str().unwrap());
    assert_eq!(admin.get(&all)["items"], json!([added]));
    ok(&browser.send(admin, "PATCH", &one, Some(&json!({"name": "phone"}))));
    assert_eq!(Browser::of(&try_passkey(admin, &mut authenticator)).get(admin, "/admin/v1/me")["name"], member);
    assert_eq!(browser.send(admin, "DELETE", &one, None).status, 204);
    add(admin, &browser, &mut Authenticator::new(admin));
    admin.delete(&all);
}

#[test]
fn passkey_is_added_signs_in_without_code_and_is_removed() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let enabled = super::codes::enable(&admin, &sign_in(&admin, "ann"));
    let browser = enabled.browser;
    let wrong = json!({"password": "not my password"});
    let wrong = browser.send(&admin, "POST", "/admin/v1/passkeys/challenge", Some(&wrong));
    assert_eq!(refusal(&wrong), refused(400, "invalid_value", "password"));
    let asked = begin(&admin, &browser);
    assert_eq!((&asked["algorithms"], &asked["exclude"]), (&json!([-7, -8, -257]), &json!([])));
    let mut authenticator = Authenticator::new(&admin);
    let body = authenticator.create(&asked, "  laptop ");
    let added = ok(&browser.send(&admin, "POST", "/admin/v1/passkeys", Some(&body)));
    assert_eq!((&added["name"], &added["used_at"], &added["backed_up"]), (&json!("laptop"), &Value::Null, &json!(false)));
    assert_eq!(begin(&admin, &browser)["exclude"], json!([encode(&authenticator.credential)]));
    let again = browser.send(&admin, "POST", "/admin/v1/passkeys", Some(&body));
    assert_eq!(refusal(&again), refused_whole(401, "challenge_ended"), "its challenge was answered");

    let opened = try_passkey(&admin, &mut authenticator);
    let cleared = opened.headers.iter().filter(|(name, _)| name == "set-cookie").count();
    assert_eq!(cleared, 2, "the session's cookie, and that of the challenge");
    let signed_in = Browser::of(&opened);
    assert_eq!(signed_in.get(&admin, "/admin/v1/me")["name"], "ann", "no code was asked for");
    let sessions = browser.get(&admin, "/admin/v1/sessions");
    assert!(sessions["items"].as_array().unwrap().iter().any(|session| session["method"] == "passkey"), "{sessions}");
    let listed = browser.get(&admin, "/admin/v1/members/ann/passkeys");
    assert!(listed["items"][0]["used_at"].is_string(), "{listed}");
    assert_eq!(admin.get("/admin/v1/members/ann/login")["passkeys"], 1);

    let one = format!("/admin/v1/members/ann/passkeys/{}", added["id"].as_str().unwrap());
    let renamed = ok(&browser.send(&admin, "PATCH", &one, Some(&json!({"name": "phone"}))));
    assert_eq!(renamed["name"], "phone");
    for bad in ["", " ", "a\u{7}"] {
        assert_eq!(browser.send(&admin, "PATCH", &one, Some(&json!({"name": bad}))).status, 400, "{bad:?}");
    }
    assert_eq!(browser.send(&admin, "DELETE", &one, None).status, 204);
    assert_eq!(browser.send(&admin, "DELETE", &one, None).status, 404);
    assert!(signed_in.is_in(&admin), "sessions go on");
    assert_wrong(&try_passkey(&admin, &mut authenticator));
    let audit = admin.get("/admin/v1/audit?kind=login").to_string();
    for action in ["add_passkey", "rename_passkey", "remove_passkey"] {
        assert!(audit.contains(action), "{action}: {audit}");
    }
    assert!(admin.get("/admin/v1/audit?kind=session").to_string().contains("passkey"));
}

#[test]
fn invalid_passkey_assertions_are_refused() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let browser = sign_in(&admin, "ann");
    let mut authenticator = Authenticator::new(&admin);
    add(&admin, &browser, &mut authenticator);

    assert_wrong(&try_passkey(&admin, &mut Authenticator { handle: authenticator.handle.clone(), ..Authenticator::new(&admin) }));
    let unknown = Authenticator::new(&admin);
    let mut forged =
        Authenticator { credential: authenticator.credential.clone(), handle: authenticator.handle.clone(), ..unknown };
    assert_wrong(&try_passkey(&admin, &mut forged));

    let (asked, cookie) = challenge(&admin);
    let body = authenticator.get(&asked);
    let no_cookie = answer(&admin, &body, "");
    assert_eq!(refusal(&no_cookie), refused_whole(401, "challenge_ended"), "another browser began");
    let (_, other) = challenge(&admin);
    assert_eq!(refusal(&answer(&admin, &body, &other)), refused_whole(401, "challenge_ended"), "the challenge is another one");
    let forged = cookie.replace('.', "0.");
    assert_eq!(refusal(&answer(&admin, &body, &forged)), refused_whole(401, "challenge_ended"));
    assert_eq!(refusal(&answer(&admin, &body, &format!("{cookie}; {cookie}"))), refused_whole(401, "challenge_ended"));
    assert!(Browser::of(&answer(&admin, &body, &cookie)).is_in(&admin));
    let replayed = answer(&admin, &body, &cookie);
    assert_eq!(refusal(&replayed), refused_whole(401, "challenge_ended"), "it was answered");

    let own = authenticator.origin.clone();
    for origin in ["http://127.0.0.1:1", "http://localhost", "https://localhost.evil.example.com"] {
        origin.clone_into(&mut authenticator.origin);
        assert_wrong(&try_passkey(&admin, &mut authenticator));
    }
    authenticator.origin = own;
    "evil.example.com".clone_into(&mut authenticator.relying_party);
    assert_wrong(&try_passkey(&admin, &mut authenticator));
    "localhost".clone_into(&mut authenticator.relying_party);
    for flags in [0, USER_PRESENT, VERIFIED & !USER_PRESENT, VERIFIED | 0x08, VERIFIED | 0x10] {
        authenticator.flags = flags;
        assert_wrong(&try_passkey(&admin, &mut authenticator));
    }
    authenticator.flags = VERIFIED;
    let handle = std::mem::replace(&mut authenticator.handle, b"mbr_0".to_vec());
    assert_wrong(&try_passkey(&admin, &mut authenticator));
    authenticator.handle = handle;

    let (asked, cookie) = challenge(&admin);
    let good = authenticator.get(&asked);
    for field in ["credential", "client_data", "authenticator_data", "signature", "user_handle"] {
        for value in ["", "*", "a=", "\u{0}"] {
            let mut changed = good.clone();
            changed[field] = value.into();
            assert_eq!(refusal(&answer(&admin, &changed, &cookie)).0, 400, "{field} {value:?}");
        }
        let mut changed = good.clone();
        changed[field] = encode(&[0xff; 2_000]).into();
        let answered = answer(&admin, &changed, &cookie);
        assert!(answered.status == 401 || answered.status == 400, "{field}: {}", text(&answered));
    }
    assert_eq!(answer(&admin, &json!({"credential": "AA"}), &cookie).status, 400);
}

#[test]
fn hostile_new_passkeys_are_refused() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "member");
    let (ann, eve) = (sign_in(&admin, "ann"), sign_in(&admin, "eve"));
    let send = |browser: &Browser, body: &Value| browser.send(&admin, "POST", "/admin/v1/passkeys", Some(body));
    let mut authenticator = Authenticator::new(&admin);
    let of_eve = authenticator.create(&begin(&admin, &eve), "x");
    assert_eq!(refusal(&send(&ann, &of_eve)), refused_whole(401, "challenge_ended"), "another member began");
    let mut mixed = authenticator.create(&begin(&admin, &ann), "x");
    mixed["state"] = begin(&admin, &ann)["state"].clone();
    assert_eq!(refusal(&send(&ann, &mixed)), refused_whole(401, "challenge_ended"), "the challenge is another one");
    let faults: [fn(&mut Authenticator); 5] = [
        |it| "http://evil.example.com".clone_into(&mut it.origin),
        |it| "evil.example.com".clone_into(&mut it.relying_party),
        |it| it.flags = USER_PRESENT,
        |it| it.flags = VERIFIED & !USER_PRESENT,
        |it| it.flags = VERIFIED | 0x10,
    ];
    for (n, change) in faults.into_iter().enumerate() {
        let mut changed = Authenticator::new(&admin);
        change(&mut changed);
        let body = changed.create(&begin(&admin, &ann), "x");
        assert_eq!(refusal(&send(&ann, &body)), refused(400, "invalid_value", "attestation_object"), "fault {n}");
    }
    let asked = begin(&admin, &ann);
    for bytes in
        [vec![], vec![0xa0], vec![0xbf; 3_000], vec![0x9f; 3_000], b"\xa1\x68authData\x5b\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()]
    {
        let mut body = authenticator.create(&asked, "x");
        body["attestation_object"] = encode(&bytes).into();
        assert_eq!(refusal(&send(&ann, &body)).0, 400, "{}", bytes.len());
    }
    add(&admin, &eve, &mut authenticator);
    let taken = authenticator.create(&begin(&admin, &ann), "x");
    assert_eq!(refusal(&send(&ann, &taken)), refused_whole(409, "already_exists"), "it is eve's");
    // An admin key has no session; neither has a visitor.
    let path = "/admin/v1/passkeys/challenge";
    let by_key = admin.call("POST", path, Some(&json!({"password": PASSWORD})));
    assert_eq!(refusal(&by_key), refused_whole(409, "needs_session"));
    assert_eq!(admin.gateway.send(&Request::post(path, &json!({"password": PASSWORD}))).status, 401);
    assert_eq!(admin.get("/admin/v1/members/ann/passkeys")["items"], json!([]));
}

#[test]
fn passkeys_of_others_are_not_found_and_admins_can_remove_them() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "operator");
    let (ann, eve) = (sign_in(&admin, "ann"), sign_in(&admin, "eve"));
    let mut authenticator = Authenticator::new(&admin);
    let id = add(&admin, &ann, &mut authenticator)["id"].as_str().unwrap().to_owned();
    for of in ["ann", "eve"] {
        let one = format!("/admin/v1/members/{of}/passkeys/{id}");
        assert_eq!(eve.send(&admin, "PATCH", &one, Some(&json!({"name": "x"}))).status, 404, "{of}");
        assert_eq!(eve.send(&admin, "DELETE", &one, None).status, 404, "{of}");
    }
    assert_eq!(eve.send(&admin, "GET", "/admin/v1/members/ann/passkeys", None).status, 404);
    assert_eq!(eve.send(&admin, "DELETE", "/admin/v1/members/ann/passkeys", None).status, 403);
    assert_eq!(ann.send(&admin, "DELETE", "/admin/v1/members/ann/passkeys", None).status, 403, "it ends sessions");
    for wrong in ["pky_1", "x", "pky_00000000000000000000000000"] {
        assert_eq!(admin.call("DELETE", &format!("/admin/v1/members/ann/passkeys/{wrong}"), None).status, 404, "{wrong}");
    }
    assert!(Browser::of(&try_passkey(&admin, &mut authenticator)).is_in(&admin));

    let listed = admin.gateway.run(&["member", "passkeys", "ann"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains(&id) && listed.contains("laptop"), "{listed}");
    assert_eq!(admin.gateway.run(&["member", "remove-passkey", "ann"]).status.code(), Some(2), "which one?");
    assert!(admin.gateway.run(&["member", "remove-passkey", "ann", &id]).status.success());
    assert_wrong(&try_passkey(&admin, &mut authenticator));
    assert!(ann.is_in(&admin));
    let mut other = Authenticator::new(&admin);
    add(&admin, &ann, &mut other);
    let removed = admin.gateway.run(&["member", "remove-passkey", "ann", "--all"]);
    assert!(removed.status.success() && String::from_utf8_lossy(&removed.stdout).contains("sessions have ended"));
    assert!(!ann.is_in(&admin));
    assert_wrong(&try_passkey(&admin, &mut other));
}

#[test]
fn passkey_of_a_suspended_member_is_refused_like_an_unknown_one() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let mut authenticator = Authenticator::new(&admin);
    add(&admin, &sign_in(&admin, "ann"), &mut authenticator);
    admin.patch("/admin/v1/members/ann", &json!({"status": "suspended"}));
    let suspended = try_passkey(&admin, &mut authenticator);
    assert_wrong(&suspended);
    let mut other = Authenticator { handle: authenticator.handle.clone(), ..Authenticator::new(&admin) };
    let unknown = try_passkey(&admin, &mut other);
    assert_eq!(suspended.json(), unknown.json(), "the answers do not differ");
    admin.patch("/admin/v1/members/ann", &json!({"status": "active"}));
    assert!(Browser::of(&try_passkey(&admin, &mut authenticator)).is_in(&admin));
}

#[test]
fn decreased_passkey_counter_is_refused_and_audited() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let mut authenticator = Authenticator::new(&admin);
    authenticator.count = 100;
    add(&admin, &sign_in(&admin, "ann"), &mut authenticator);
    for count in [98, 99, 0] {
        authenticator.count = count;
        assert_wrong(&try_passkey(&admin, &mut authenticator));
    }
    let audit = admin.get("/admin/v1/audit?kind=login");
    let entries = audit["items"].as_array().unwrap();
    let refused = entries.iter().filter(|entry| entry["action"] == "refuse_passkey").count();
    assert_eq!(refused, 3, "{audit}");
    assert!(admin.gateway.log().contains("the signature counter of a passkey has not advanced"));
    authenticator.count = 100;
    assert!(Browser::of(&try_passkey(&admin, &mut authenticator)).is_in(&admin));
}

#[test]
fn passkeys_of_a_member_and_attempts_of_an_address_are_bounded() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let browser = sign_in(&admin, "ann");
    let mut last = begin(&admin, &browser);
    for _ in 0..10 {
        last = begin(&admin, &browser);
        add(&admin, &browser, &mut Authenticator::new(&admin));
    }
    let eleventh = browser.send(&admin, "POST", "/admin/v1/passkeys/challenge", Some(&json!({"password": PASSWORD})));
    assert_eq!(refusal(&eleventh), refused_whole(409, "too_many_passkeys"));
    let body = Authenticator::new(&admin).create(&last, "begun before");
    let late = browser.send(&admin, "POST", "/admin/v1/passkeys", Some(&body));
    assert_eq!(refusal(&late), refused_whole(409, "too_many_passkeys"));

    let (asked, cookie) = challenge(&admin);
    let body = Authenticator { handle: b"x".to_vec(), ..Authenticator::new(&admin) }.get(&asked);
    let statuses: Vec<u16> = (0..60).map(|_| answer(&admin, &body, &cookie).status).collect();
    assert!(statuses.starts_with(&[401; 40]) && statuses.ends_with(&[429; 9]), "{statuses:?}");
}

#[test]
fn passkeys_are_not_offered_without_a_secure_origin() {
    let builder = TestGateway::builder(support::PROGRAM).env("TOLLGATE_CONSOLE__URL", "http://gateway.example.com");
    let admin = Admin::of(builder.spawn());
    make_member(&admin, "ann", "member");
    let methods = ok(&admin.send("GET", "/admin/v1/session/methods", &Request::get("/admin/v1/session/methods")));
    assert_eq!(methods["passkey_origin"], Value::Null);
    let path = "/admin/v1/session/passkey/challenge";
    let refused = admin.send("POST", path, &Request::post_bytes(path, Vec::new()));
    assert_eq!(refusal(&refused), refused_whole(409, "no_passkeys"));
    let page = admin.gateway.send(&Request::get("/sign-in").header("accept", "text/html"));
    assert!(page.status == 200 && !page.text().contains("data-passkey="), "{}", page.text());
}

#[test]
fn passkeys_work_below_a_base_path() {
    let gateway = TestGateway::builder(support::PROGRAM).env("TOLLGATE_CONSOLE__URL", "https://gate.example.com/llm/").spawn();
    let page = gateway.send(&Request::get("/llm/sign-in")).text();
    for part in [
        "data-passkey=\"https://gate.example.com\"",
        "data-get=\"/llm/admin/v1/session/passkey/challenge\"",
        "action=\"/llm/sign-in/passkey\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let begun = gateway.send(&Request::post_bytes("/admin/v1/session/passkey/challenge", Vec::new()));
    assert_eq!(begun.json()["rp_id"], "gate.example.com");
}

#[test]
fn nodes_with_one_database_share_passkeys_and_challenges() {
    let test = "nodes_with_one_database_share_passkeys_and_challenges";
    let (Some(postgres), Some(redis)) = (Postgres::start(test), Redis::start(test)) else { return };
    let url = "https://gateway.example.com";
    let settings = [
        ("DATABASE_URL", postgres.url()),
        ("REDIS_URL", redis.url()),
        ("TOLLGATE_MASTER_KEY", MASTER_KEY.to_owned()),
        ("TOLLGATE_CONSOLE__URL", url.to_owned()),
    ];
    let spawn = || {
        let builder = TestGateway::builder(support::PROGRAM);
        settings.iter().fold(builder, |builder, (name, value)| builder.env(name, value)).spawn()
    };
    let one = Admin::of(spawn());
    let other = Admin::of_restored(spawn());
    make_member(&one, "ann", "member");
    let browser = sign_in(&one, "ann");
    let mut authenticator = Authenticator::new(&one);
    url.clone_into(&mut authenticator.origin);
    "gateway.example.com".clone_into(&mut authenticator.relying_party);
    add(&one, &browser, &mut authenticator);
    let path = "/admin/v1/session/passkey/challenge";
    let begun = one.send("POST", path, &Request::post_bytes(path, Vec::new()));
    let cookie = super::cookie(&begun);
    assert!(cookie.starts_with("__Host-"), "{cookie}");
    let body = authenticator.get(&ok(&begun)["challenge"]);
    assert!(Browser::of(&answer(&other, &body, &cookie)).is_in(&one), "the other node takes the answer");
    assert_eq!(refusal(&answer(&one, &body, &cookie)), refused_whole(401, "challenge_ended"), "and it is answered for both");
}
