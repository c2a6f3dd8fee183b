//! The console and admin API on a separate address.

use std::{net::SocketAddr, path::PathBuf, process::Command, time::Duration};

use tollgate_testkit::{ClientResponse, Request, TestGateway, wait_for};

use super::{make_key, refusal, refused_whole};
use crate::support;

fn send(to: SocketAddr, request: &Request) -> ClientResponse {
    request.send(to).and_then(tollgate_testkit::PendingResponse::read).unwrap()
}

fn metrics() -> Request {
    Request::get("/metrics")
}

#[test]
fn separate_admin_address_removes_admin_routes_from_the_model_address() {
    let gateway = TestGateway::builder(support::PROGRAM).env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0").spawn();
    let console: SocketAddr = gateway.startup()["console"].as_str().unwrap().parse().unwrap();
    let key = make_key(&gateway, "root", "admin");
    let me = Request::get("/admin/v1/me").bearer(&key);
    assert_eq!(send(console, &me).status, 200);
    let answer = send(console, &me);
    assert!(answer.header("x-request-id").is_some_and(|id| id.starts_with("req_")), "{answer:?}");
    assert_eq!(refusal(&send(console, &Request::get("/admin/v1/me"))), refused_whole(401, "missing_api_key"));
    assert_eq!(refusal(&gateway.send(&me)), refused_whole(404, "unknown_url"), "not served on the model address");
    assert_eq!(gateway.send(&metrics()).status, 404);
    assert_eq!(send(console, &metrics()).status, 200);
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(gateway.key());
    assert_eq!(refusal(&send(console, &chat)), refused_whole(404, "unknown_url"), "models are not served on the console's address");
    let made = Request::post("/admin/v1/keys", &serde_json::json!({"name": "k"})).bearer(&key);
    assert_eq!(send(console, &made).status, 201);
    let two_hosts = Request::get("/admin/v1/me").header("host", "a").header("host", "b").bearer(&key);
    assert_eq!(send(console, &two_hosts).status, 400, "two hosts are not to be guessed about");
}

#[test]
fn busy_admin_address_fails_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let out = TestGateway::builder(support::PROGRAM)
        .env("TOLLGATE_CONSOLE__LISTEN", &taken.local_addr().unwrap().to_string())
        .run_to_exit();
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && stderr.contains("console.listen"), "{stderr}");
}

#[test]
fn public_admin_address_requires_an_admin_key() {
    let gateway = TestGateway::builder(support::PROGRAM).listen("0.0.0.0:0").spawn();
    let near = SocketAddr::from(([127, 0, 0, 1], gateway.address().port()));
    let me = Request::get("/admin/v1/me");
    assert_eq!(refusal(&send(near, &me)), refused_whole(404, "unknown_url"));
    let key = make_key(&gateway, "root", "operator");
    wait_for("it opens", Duration::from_secs(1), || send(near, &me).status != 404);
    assert_eq!(send(near, &me.bearer(&key)).status, 200);
}

fn kept(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tollgate-gateway/tests/fixtures").join(name)
}

/// Exit code and error output of a command over TLS that trusts this certificate.
fn over_tls(console: SocketAddr, key: &str, trusted: &str) -> (Option<i32>, String) {
    let output = Command::new(support::PROGRAM)
        .env_clear()
        .env("SSL_CERT_FILE", kept(trusted))
        .env("TOLLGATE_URL", format!("https://localhost:{}", console.port()))
        .env("TOLLGATE_ADMIN_KEY", key)
        .args(["group", "list"])
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn admin_address_speaks_tls_and_reloads_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let put = |name: &str| {
        std::fs::copy(kept(&format!("{name}.cert.pem")), &cert).unwrap();
        std::fs::copy(kept(&format!("{name}.key.pem")), &key).unwrap();
    };
    put("localhost");
    let gateway = TestGateway::builder(support::PROGRAM)
        .env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0")
        .env("TOLLGATE_CONSOLE__TLS_CERT", cert.to_str().unwrap())
        .env("TOLLGATE_CONSOLE__TLS_KEY", key.to_str().unwrap())
        .spawn();
    let console: SocketAddr = gateway.startup()["console"].as_str().unwrap().parse().unwrap();
    assert_eq!(gateway.startup()["admin_url"], format!("https://{console}"));
    assert!(gateway.startup()["url"].as_str().unwrap().starts_with("http://"), "the model address has no certificate");
    let admin = make_key(&gateway, "root", "admin");
    let (code, stderr) = over_tls(console, &admin, "localhost.cert.pem");
    assert!(code == Some(0) && stderr.contains("default"), "{stderr}");
    let (code, stderr) = over_tls(console, &admin, "localhost.key.pem");
    assert!(code == Some(4) && stderr.contains("SSL_CERT_FILE"), "an untrusted certificate: {stderr}");
    let plain = Request::get("/admin/v1/me").bearer(&admin).send(console).and_then(tollgate_testkit::PendingResponse::read);
    assert!(plain.is_err(), "plain HTTP is refused: {plain:?}");
    put("renewed");
    let renewed = || over_tls(console, &admin, "localhost.cert.pem").0 != Some(0);
    wait_for("the new certificate is shown", Duration::from_secs(5), renewed);
}

#[test]
fn admin_address_uses_the_server_certificate_unless_tls_is_off() {
    let spawn = |tls: &str| {
        TestGateway::builder(support::PROGRAM)
            .env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0")
            .env("TOLLGATE_CONSOLE__TLS", tls)
            .env("TOLLGATE_SERVER__TLS_CERT", kept("localhost.cert.pem").to_str().unwrap())
            .env("TOLLGATE_SERVER__TLS_KEY", kept("localhost.key.pem").to_str().unwrap())
            .spawn()
    };
    for (tls, scheme) in [("auto", "https://"), ("off", "http://")] {
        let gateway = spawn(tls);
        assert!(gateway.startup()["url"].as_str().unwrap().starts_with("https://"));
        assert!(gateway.startup()["admin_url"].as_str().unwrap().starts_with(scheme), "{}", gateway.startup());
        let console: SocketAddr = gateway.startup()["console"].as_str().unwrap().parse().unwrap();
        let key = make_key(&gateway, "root", "operator");
        if tls == "auto" {
            assert_eq!(over_tls(console, &key, "localhost.cert.pem").0, Some(0));
        } else {
            assert_eq!(send(console, &Request::get("/admin/v1/me").bearer(&key)).status, 200);
        }
    }
}

#[test]
fn contradictory_tls_settings_fail_the_start() {
    let at = ("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0");
    let (cert, key) = (kept("localhost.cert.pem").display().to_string(), kept("localhost.key.pem").display().to_string());
    let (cert, key) = (("TOLLGATE_CONSOLE__TLS_CERT", cert.as_str()), ("TOLLGATE_CONSOLE__TLS_KEY", key.as_str()));
    for (settings, words) in [
        (vec![at, cert], "console.tls_cert and console.tls_key belong together"),
        (vec![cert, key], "set console.listen too"),
        (vec![at, cert, key, ("TOLLGATE_CONSOLE__TLS", "off")], "remove one of them"),
        (vec![at, cert, ("TOLLGATE_CONSOLE__TLS_KEY", "/nonexistent/key.pem")], "/nonexistent/key.pem"),
    ] {
        let gateway =
            settings.into_iter().fold(TestGateway::builder(support::PROGRAM), |gateway, (name, value)| gateway.env(name, value));
        let out = gateway.run_to_exit();
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(3) && stderr.contains(words), "{stderr}");
    }
}
