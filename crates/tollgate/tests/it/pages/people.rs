//! First run, invites, signing in with and without codes, and the profile.

use serde_json::json;
use tollgate_testkit::{Postgres, TestGateway};

use super::{Person, form, location, reloads_from, signed_in};
use crate::{
    admin::Admin,
    identity::{PASSWORD, make_member},
    support::PROGRAM,
};

fn path_of(link: &str) -> &str {
    let rest = link.split_once("://").map_or(link, |(_, rest)| rest);
    &rest[rest.find('/').unwrap()..]
}

#[test]
fn set_up_link_leads_to_the_console() {
    let admin = Admin::echo();
    let link = admin.gateway.startup()["setup_link"].as_str().unwrap().to_owned();
    let token = link.split_once("token=").unwrap().1.to_owned();
    let mut person = Person::default();
    let page = person.page(&admin.gateway, path_of(&link));
    assert!(
        page.contains("Set up tollgate")
            && page.contains("name=\"name\" type=\"text\" value=\"owner\"")
            && page.contains("First key"),
        "{page}"
    );
    let fields = |password: &'static str, again: &'static str| {
        [
            ("token", token.clone()),
            ("name", "ada".to_owned()),
            ("new_password", password.to_owned()),
            ("new_password_again", again.to_owned()),
        ]
    };
    for (password, again, text) in [
        ("short", "short", "10 to 128 characters"),
        (PASSWORD, "correct horse cattery", "The two passwords differ"),
        ("password123", "password123", "tried first"),
    ] {
        let sent = fields(password, again);
        let sent: Vec<_> = sent.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = person.post(&admin.gateway, path_of(&link), &sent);
        assert_eq!(answer.status, 422, "{text}");
        let page = answer.text();
        assert_eq!(reloads_from(&page), path_of(&link), "a reload keeps the link");
        let echoed = format!("value=\"{password}\"");
        assert!(page.contains("name=\"name\" type=\"text\" value=\"ada\""), "{page}");
        assert!(page.contains(text) && page.contains("aria-invalid") && !page.contains(&echoed), "{page}");
    }
    let sent = fields(PASSWORD, PASSWORD);
    let sent: Vec<_> = sent.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(location(&person.post(&admin.gateway, path_of(&link), &sent)), "/setup/gateway");
    assert!(person.page(&admin.gateway, "/setup/gateway").contains("This gateway"));
    assert_eq!(location(&person.post(&admin.gateway, "/setup/gateway", &[("registration", "off")])), "/setup/channel");
    assert_eq!(admin.get("/admin/v1/settings/square.public")["value"], "false");
    assert_eq!(admin.get("/admin/v1/settings/access.registration")["value"], "off");
    let page = person.page(&admin.gateway, "/console");
    assert!(page.contains("Your base URL") && page.contains("Saved") && page.contains("ada"), "{page}");
    assert!(!person.page(&admin.gateway, "/console").contains("class=\"toast\""), "a message is shown once");
    let again = Person::default().get(&admin.gateway, path_of(&link));
    assert!(again.status == 400 && again.text().contains("The link is not valid"), "{}", again.text());
    assert!(!admin.gateway.log().contains(&token), "the log holds the link");
}

#[test]
fn member_signs_in_and_is_redirected_to_the_requested_page() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let mut person = Person::default();
    assert_eq!(location(&person.get(&admin.gateway, "/profile?a=1&b=2")), "/sign-in?to=%2Fprofile%3Fa%3D1%26b%3D2");
    let lost = "/sign-in?to=%2Fprofile&lost=form";
    assert!(person.page(&admin.gateway, lost).contains("action=\"/sign-in?to=%2Fprofile&#38;lost=form\""));
    let wrong = person.post(&admin.gateway, lost, &[("login", "ann"), ("password", "wrong"), ("to", "/profile")]);
    let page = wrong.text();
    assert!(reloads_from(&page) == lost && page.contains("You were signed out"), "{page}");
    assert!(wrong.status == 422 && page.contains("value=\"ann\"") && page.contains("value=\"/profile\""), "{page}");
    assert!(!person.has_session() && !page.contains("\"wrong\""));
    let right = [("login", "ann"), ("password", PASSWORD), ("to", "/profile")];
    assert_eq!(location(&person.post(&admin.gateway, "/sign-in", &right)), "/profile");
    assert!(person.page(&admin.gateway, "/profile").contains("ann"));
    assert_eq!(location(&person.get(&admin.gateway, "/sign-in?to=/models")), "/models", "one who is in is sent on");
    assert_eq!(location(&person.post(&admin.gateway, "/sign-out", &[])), "/sign-in");
    assert!(!person.has_session() && person.page(&admin.gateway, "/sign-in").contains("You are signed out."));
}

#[test]
fn too_many_attempts_show_when_to_try_again() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let mut person = Person::default();
    let mut attempt = || person.post(&admin.gateway, "/sign-in", &[("login", "ann"), ("password", "wrong password")]);
    let last = (0..11).map(|_| attempt()).last().unwrap();
    assert!(last.status == 429 && last.text().contains("Too many attempts. Try again in"), "{}", last.text());
}

#[test]
fn invite_is_accepted_on_its_page() {
    let admin = Admin::echo();
    make_member(&admin, "taken", "member");
    let made = admin.post("/admin/v1/invites", &json!({"role": "operator"}));
    let (link, token) = (made["link"].as_str().unwrap(), made["token"].as_str().unwrap());
    let mut person = Person::default();
    assert!(person.page(&admin.gateway, path_of(link)).contains("Operator"));
    let mut accept = |name: &str, email: &str| {
        let fields =
            [("token", token), ("name", name), ("email", email), ("new_password", PASSWORD), ("new_password_again", PASSWORD)];
        person.post(&admin.gateway, path_of(link), &fields)
    };
    let taken = accept("taken", "");
    let page = taken.text();
    assert_eq!(reloads_from(&page), path_of(link), "a reload keeps the link");
    assert!(taken.status == 422 && page.contains("Another member has this name") && page.contains("value=\"taken\""), "{page}");
    assert!(accept("ben", "no address").text().contains("such as ann@example.com"));
    assert_eq!(location(&accept("ben", "")), "/console");
    assert!(person.page(&admin.gateway, "/console").contains("ben"));
}

#[test]
fn visitor_registers_on_the_page_that_the_sign_in_leads_to() {
    let admin = Admin::echo();
    make_member(&admin, "taken", "member");
    let mut person = Person::default();
    let closed = person.get(&admin.gateway, "/register");
    assert!(closed.status == 403 && closed.text().contains("Ask an admin for an invite"), "{}", closed.text());
    assert!(!person.page(&admin.gateway, "/sign-in").contains("/register"));
    let open = json!({"value": "open"});
    crate::admin::ok(&admin.call("PUT", "/admin/v1/settings/access.registration", Some(&open)));
    assert!(person.page(&admin.gateway, "/sign-in").contains("href=\"/register\""));
    assert!(person.page(&admin.gateway, "/register").contains("data-strength=\"new_password\""));
    let mut send = |name: &str, email: &str, again: &str| {
        let fields = [("name", name), ("email", email), ("new_password", PASSWORD), ("new_password_again", again)];
        person.post(&admin.gateway, "/register", &fields)
    };
    for (name, email, again, text) in [
        ("taken", "", PASSWORD, "This name or e-mail address cannot be used"),
        ("ben", "no address", PASSWORD, "such as ann@example.com"),
        ("ben", "", "another good one", "The two passwords differ"),
        ("", "", PASSWORD, "aria-invalid"),
    ] {
        let answer = send(name, email, again);
        let page = answer.text();
        assert!(answer.status == 422 && page.contains(text) && !page.contains(PASSWORD), "{name} {email}: {page}");
    }
    assert_eq!(location(&send("ben", "ben@example.com", PASSWORD)), "/console");
    let page = person.page(&admin.gateway, "/console");
    assert!(page.contains("ben") && !page.contains("href=\"/settings\""), "{page}");
    assert_eq!(location(&person.get(&admin.gateway, "/register")), "/console", "one who is in is sent on");
}

#[test]
fn page_of_an_invite_shows_that_registration_is_off() {
    let admin = Admin::echo();
    let made = admin.post("/admin/v1/invites", &json!({}));
    crate::admin::ok(&admin.call("PUT", "/admin/v1/settings/access.registration", Some(&json!({"value": "off"}))));
    let page = Person::default().get(&admin.gateway, path_of(made["link"].as_str().unwrap()));
    assert!(page.status == 403 && page.text().contains("Registration is off"), "{}", page.text());
    make_member(&admin, "ann", "admin");
    let mut person = Person::default();
    person.post(&admin.gateway, "/sign-in", &[("login", "ann"), ("password", PASSWORD)]);
    let page = person.page(&admin.gateway, "/members/invites");
    assert!(page.contains("href=\"/settings/access.registration\"") && !page.contains("name=\"note\""), "{page}");
}

#[test]
fn profile_changes_the_password_and_ends_sessions() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let sign_in = |password: &str| {
        let mut person = Person::default();
        person.post(&admin.gateway, "/sign-in", &[("login", "ann"), ("password", password)]);
        person
    };
    let (mut person, mut other) = (sign_in(PASSWORD), sign_in(PASSWORD));
    let change = |person: &mut Person, old: &str, new: &str| {
        let fields = [("password", old), ("new_password", new), ("new_password_again", new)];
        person.post(&admin.gateway, "/profile/password", &fields)
    };
    let wrong = change(&mut person, "wrong", "another good one");
    assert!(wrong.status == 422 && wrong.text().contains("That is not your current password."), "{}", wrong.text());
    assert_eq!(location(&change(&mut person, PASSWORD, "another good one")), "/profile");
    assert!(person.page(&admin.gateway, "/profile").contains("The password is changed."));
    assert_eq!(other.get(&admin.gateway, "/profile").status, 303, "other sessions end");
    let lost = other.post(&admin.gateway, "/profile/time-zone", &[("time_zone", "Europe/Berlin")]);
    assert_eq!(location(&lost), "/sign-in?to=%2Fprofile&lost=form");
    let page = other.page(&admin.gateway, "/sign-in?to=%2Fprofile&lost=form");
    assert!(page.contains("You were signed out") && page.contains("value=\"/profile\""), "{page}");
    // With a script, the tab keeps what was typed.
    assert!(page.contains("data-form-lost=\"") && !page.contains("data-member="), "{page}");
    assert!(person.page(&admin.gateway, "/profile").contains("data-member=\"mbr_"));
    let mut other = sign_in("another good one");
    let page = person.page(&admin.gateway, "/profile");
    let rows = page.split("<tr>").filter_map(|row| Some((row.contains("this one"), row.split_once("/profile/sessions/")?.1)));
    let mut ids: Vec<(bool, &str)> = rows.map(|(is_own, rest)| (is_own, rest.split('/').next().unwrap())).collect();
    // The own one last.
    ids.sort_unstable();
    assert_eq!(ids.iter().map(|(is_own, _)| *is_own).collect::<Vec<_>>(), [false, true], "{page}");
    for (_, id) in ids {
        person.post(&admin.gateway, &format!("/profile/sessions/{id}/end"), &[]);
    }
    assert!(other.get(&admin.gateway, "/profile").status == 303 && person.get(&admin.gateway, "/profile").status == 303);
}

#[test]
fn profile_lists_the_newest_session_first_and_ends_all_others() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "bob", "member");
    let sign_in = |name: &str| {
        let mut person = Person::default();
        person.post(&admin.gateway, "/sign-in", &[("login", name), ("password", PASSWORD)]);
        person
    };
    let (mut first, mut second, mut last, mut bob) = (sign_in("ann"), sign_in("ann"), sign_in("ann"), sign_in("bob"));
    let own = |page: &str| -> Vec<bool> {
        page.split("<tr>").filter(|row| row.contains("/profile/sessions/")).map(|row| row.contains("this one")).collect()
    };
    assert_eq!(own(&first.page(&admin.gateway, "/profile")), [false, false, true]);
    assert_eq!(own(&last.page(&admin.gateway, "/profile")), [true, false, false]);
    assert_eq!(location(&second.post(&admin.gateway, "/profile/other-sessions/end", &[])), "/profile");
    let page = second.page(&admin.gateway, "/profile");
    assert!(page.contains("The other sessions have ended.") && own(&page) == [true], "{page}");
    assert!(!page.contains("End all other sessions"), "{page}");
    let statuses = [&mut first, &mut last, &mut bob].map(|person| person.get(&admin.gateway, "/profile").status);
    assert_eq!(statuses, [303, 303, 200]);
}

#[test]
fn language_and_theme_belong_to_the_member() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let sign_in = || {
        let mut person = Person::default();
        person.post(&admin.gateway, "/sign-in", &[("login", "ann"), ("password", PASSWORD)]);
        person
    };
    let mut person = sign_in();
    assert!(person.page(&admin.gateway, "/console").contains("<html lang=\"en\" data-copied"));
    person.post(&admin.gateway, "/preferences", &[("language", "zh-CN"), ("back", "/console")]);
    person.post(&admin.gateway, "/preferences", &[("theme", "dark"), ("back", "/console")]);
    let page = sign_in().page(&admin.gateway, "/console");
    assert!(page.contains("<html lang=\"zh-CN\" data-theme=\"dark\""), "another browser has them, too: {page}");
    person.post(&admin.gateway, "/preferences", &[("language", "tlh"), ("theme", ""), ("back", "/console")]);
    assert!(sign_in().page(&admin.gateway, "/console").contains("<html lang=\"en\" data-copied"));
}

#[test]
fn secret_of_one_time_codes_is_shown_as_a_qr_code() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let mut person = Person::default();
    person.post(&admin.gateway, "/sign-in", &[("login", "ann"), ("password", PASSWORD)]);
    let page = person.page(&admin.gateway, "/profile/codes");
    assert!(page.contains("<svg class=\"qr\"") && page.contains("Scan this code") && page.contains("otpauth://totp/"), "{page}");
}

#[test]
fn sessions_of_others_are_not_found() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "member");
    let sign_in = |name: &str| {
        let mut person = Person::default();
        person.post(&admin.gateway, "/sign-in", &[("login", name), ("password", PASSWORD)]);
        person
    };
    let (mut ann, mut eve) = (sign_in("ann"), sign_in("eve"));
    let page = ann.page(&admin.gateway, "/profile");
    let id = page.split_once("/profile/sessions/").unwrap().1.split('/').next().unwrap().to_owned();
    assert_eq!(eve.post(&admin.gateway, &format!("/profile/sessions/{id}/end"), &[]).status, 404);
    assert_eq!(ann.get(&admin.gateway, "/profile").status, 200);
    assert_eq!(eve.get(&admin.gateway, "/setup/gateway").status, 404);
}

#[test]
fn form_that_is_sent_while_the_database_is_away_leads_back_to_its_page() {
    let Some(mut postgres) = Postgres::start("form_that_is_sent_while_the_database_is_away_leads_back_to_its_page") else { return };
    let admin = Admin::of(TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).without_record_check().spawn());
    make_member(&admin, "op", "operator");
    let op = signed_in(&admin, "op");
    let token = op.csrf_token(&admin.gateway).unwrap();
    postgres.stop();
    let origin = format!("http://{}", admin.gateway.address());
    let fields = [("name", "typed-name"), ("csrf", token.as_str())];
    let answer = admin.gateway.send(&op.with_cookies(form("/groups/new", &fields).header("origin", &origin)));
    let page = answer.text();
    assert_eq!(answer.status, 503, "{page}");
    // With a script, the tab keeps what was typed; the page itself does not contain it.
    assert!(page.contains("data-form-lost=\"") && page.contains("href=\"/groups/new\"") && !page.contains("typed-name"), "{page}");
    assert!(page.contains("<noscript><p>Reload this page to send what you typed again.</p></noscript>"), "{page}");
    postgres.restart();
}
