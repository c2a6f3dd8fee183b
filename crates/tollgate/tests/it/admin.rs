//! The admin API of the real binary. [`Admin`] validates every response against the OpenAPI document that the same gateway
//! serves.

mod access;
mod all_routes;
mod catalog;
mod changes;
mod keys;
mod listener;
mod money;
mod prices;
mod remote;
mod several;
mod usage;
mod validation;

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, TestGateway, wait_for};

use crate::support;
pub(crate) use usage::{follow, parquet_rows};

/// A gateway with a key of scope `admin` and one of scope `operator`.
pub(crate) struct Admin {
    pub(crate) gateway: TestGateway,
    pub(crate) key: String,
    pub(crate) operator: String,
    document: Value,
    /// Routes that answered with success: method and path template.
    answered: Mutex<BTreeSet<(String, String)>>,
}

/// Makes an admin key with the command line.
pub(crate) fn make_key(gateway: &TestGateway, name: &str, scope: &str) -> String {
    let out = gateway.run(&["admin-key", "create", name, "--scope", scope, "--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    said["key"].as_str().unwrap().to_owned()
}

impl Admin {
    /// A gateway with the echo channel only.
    pub(crate) fn echo() -> Self {
        Self::of(support::echo())
    }

    pub(crate) fn of(gateway: TestGateway) -> Self {
        Self::with_keys(gateway, "root", "ops")
    }

    /// A gateway whose database holds the keys of [`Self::of`] already.
    pub(crate) fn of_restored(gateway: TestGateway) -> Self {
        Self::with_keys(gateway, "root again", "ops again")
    }

    /// One of several gateways with one database.
    pub(crate) fn named(gateway: TestGateway, name: &str) -> Self {
        Self::with_keys(gateway, &format!("root of {name}"), &format!("ops of {name}"))
    }

    fn with_keys(gateway: TestGateway, root: &str, ops: &str) -> Self {
        let key = make_key(&gateway, root, "admin");
        let operator = make_key(&gateway, ops, "operator");
        let answer = gateway.send(&Request::get("/admin/openapi.json").bearer(&key));
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        let document = serde_json::from_slice(&answer.body).unwrap();
        Self { gateway, key, operator, document, answered: Mutex::default() }
    }

    pub(crate) fn document(&self) -> &Value {
        &self.document
    }

    pub(crate) fn answered(&self) -> BTreeSet<(String, String)> {
        self.answered.lock().unwrap().clone()
    }

    /// Sends a request and validates the response.
    pub(crate) fn send(&self, method: &str, path: &str, request: &Request) -> ClientResponse {
        let answer = self.gateway.send(&request.clone().method(method));
        self.compare(method, path, &answer);
        answer
    }

    fn request(path: &str, body: Option<&Value>) -> Request {
        body.map_or_else(|| Request::get(path), |body| Request::post(path, body))
    }

    /// Sends a request with the admin key.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&Value>) -> ClientResponse {
        self.send(method, path, &Self::request(path, body).bearer(&self.key))
    }

    /// Sends a request with the operator's key.
    pub(crate) fn as_operator(&self, method: &str, path: &str, body: Option<&Value>) -> ClientResponse {
        self.send(method, path, &Self::request(path, body).bearer(&self.operator))
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        ok(&self.call("GET", path, None))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        ok(&self.call("POST", path, Some(body)))
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> Value {
        ok(&self.call("PATCH", path, Some(body)))
    }

    pub(crate) fn delete(&self, path: &str) {
        let answer = self.call("DELETE", path, None);
        assert!(answer.status == 200 || answer.status == 204, "{}", text(&answer));
    }

    /// A POST with an idempotency key.
    pub(crate) fn once(&self, path: &str, key: &str, body: &Value) -> ClientResponse {
        self.send("POST", path, &Request::post(path, body).bearer(&self.key).header("idempotency-key", key))
    }

    /// A PATCH for a revision.
    pub(crate) fn if_match(&self, path: &str, revision: &Value, body: &Value) -> ClientResponse {
        self.send("PATCH", path, &Request::post(path, body).bearer(&self.key).header("if-match", &format!("\"{revision}\"")))
    }

    fn compare(&self, method: &str, path: &str, answer: &ClientResponse) {
        let Some((template, operation)) = self.operation(method, path) else { return };
        let responses = &operation["responses"];
        let exact = &responses[answer.status.to_string()];
        assert!(exact.is_object() || answer.status >= 400, "{method} {template}: {} is not described", answer.status);
        let described = if exact.is_object() { exact } else { &responses["default"] };
        if answer.status < 400 {
            self.answered.lock().unwrap().insert((method.to_owned(), template.to_owned()));
        }
        let schema = &described["content"]["application/json"]["schema"];
        if schema.is_null() {
            assert!(answer.status != 204 || answer.body.is_empty(), "{method} {template}: 204 with a body");
            return;
        }
        assert_eq!(answer.header("content-type"), Some("application/json; charset=utf-8"), "{method} {template}");
        let body: Value =
            serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{method} {path}: {error}: {}", text(answer)));
        let whole = json!({"allOf": [schema], "components": self.document["components"]});
        let validator = jsonschema::validator_for(&whole).expect("the document's schemas can be used");
        let faults: Vec<String> = validator.iter_errors(&body).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
        assert!(faults.is_empty(), "{method} {template} answered {body:#}\nbut {}", faults.join("\n"));
    }

    /// The path template and operation that a path matches.
    fn operation(&self, method: &str, path: &str) -> Option<(&str, &Value)> {
        let parts: Vec<&str> = path.split('?').next().unwrap_or_default().split('/').collect();
        let fits = |template: &str| {
            let wanted: Vec<&str> = template.split('/').collect();
            wanted.len() == parts.len() && wanted.iter().zip(&parts).all(|(wanted, part)| wanted == part || wanted.starts_with('{'))
        };
        let paths = self.document["paths"].as_object().unwrap();
        let mut found: Vec<_> = paths.iter().filter(|(template, _)| fits(template)).collect();
        // A path without parameters takes precedence.
        found.sort_by_key(|(template, _)| template.matches('{').count());
        let (template, operations) = found.first()?;
        let operation = &operations[method.to_lowercase()];
        operation.is_object().then_some((template.as_str(), operation))
    }
}

/// The body of a successful response.
pub(crate) fn ok(answer: &ClientResponse) -> Value {
    assert!(answer.status < 300, "{}: {}", answer.status, text(answer));
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

pub(crate) fn text(answer: &ClientResponse) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Status, code and field of a refusal.
pub(crate) fn refusal(answer: &ClientResponse) -> (u16, String, Option<String>) {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{}", text(answer));
    (answer.status, error["code"].as_str().unwrap_or_default().to_owned(), error["param"].as_str().map(str::to_owned))
}

/// A refusal of a field.
pub(crate) fn refused(status: u16, code: &str, param: &str) -> (u16, String, Option<String>) {
    (status, code.to_owned(), Some(param.to_owned()))
}

/// A refusal of no field.
pub(crate) fn refused_whole(status: u16, code: &str) -> (u16, String, Option<String>) {
    (status, code.to_owned(), None)
}

/// Polls until the condition holds; the documented time is one second.
pub(crate) fn within_a_second(what: &str, is_so: impl FnMut() -> bool) {
    wait_for(what, Duration::from_secs(1), is_so);
}
