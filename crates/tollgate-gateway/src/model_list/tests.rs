//! Lists contain the models a key can use, in the format of the request's protocol.

use http_body_util::BodyExt as _;
use tollgate_core::{
    Catalog, Channel, ChannelSpec, Group, GroupId, Model, ModelMapping, ModelSpec, Provider, Revision, Secret, Timestamp,
};

use tollgate_protocol::{Protocol, lists::PageQuery};

use super::*;
use crate::{
    settings::Settings,
    testing::{SECRET, channel, head, shared},
};

/// `alpha`, `beta` and `gamma` from the echo channel, which answers callers of every protocol; `secret` outside the group.
fn catalog() -> Catalog {
    let serves = |model: &str| ModelMapping {
        model: model.to_owned(),
        upstream: model.to_owned(),
        cost: None,
        profile: tollgate_protocol::Profile::default(),
    };
    let open = channel("");
    let serves_all = ["gamma", "alpha", "beta"].map(serves).to_vec();
    let open = Channel { spec: ChannelSpec { provider: Provider::Echo, serves: serves_all, ..open.spec.clone() }, ..open };
    let closed = channel("http://127.0.0.1:9");
    let closed = Channel {
        id: tollgate_core::ChannelId::from_parts(Timestamp(2), [2; 10]),
        spec: ChannelSpec { name: "closed".to_owned(), serves: vec![serves("secret")], ..closed.spec.clone() },
        ..closed
    };
    let group = Group::new(GroupId::from_parts(Timestamp(1), [1; 10]), "default", vec![open.id]);
    let row =
        Model { spec: ModelSpec { name: "alpha".to_owned(), context: Some(8_192), ..ModelSpec::default() }, ..Model::default() };
    Catalog::from_parts(Revision(1), vec![open, closed], vec![group], vec![row])
}

async fn ask(path: &str, key: Option<&str>, request: ListRequest) -> (u16, serde_json::Value) {
    let shared = shared(Settings::default(), catalog());
    let mut head = head(path);
    head.http_method = http::Method::GET;
    head.presented_key = key.map(|key| Secret::new(key.to_owned()));
    let response = list(&shared, &head, &request).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn all(size: Option<&str>, token: Option<&str>) -> ListRequest {
    ListRequest::All(PageQuery { size: size.map(str::to_owned), after: token.map(str::to_owned), before: None })
}

fn names(list: &serde_json::Value, members: &str, name: &str) -> Vec<String> {
    list[members].as_array().unwrap().iter().map(|model| model[name].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn both_protocols_list_what_the_key_may_use() {
    let (status, list) = ask("/v1/models", Some(SECRET), all(None, None)).await;
    assert_eq!((status, list["object"].as_str()), (200, Some("list")));
    assert_eq!(names(&list, "data", "id"), ["alpha", "beta", "gamma"]);
    let (status, list) = ask("/v1beta/models", Some(SECRET), all(None, None)).await;
    assert_eq!(status, 200);
    assert_eq!(names(&list, "models", "name"), ["models/alpha", "models/beta", "models/gamma"]);
    assert!(list.get("nextPageToken").is_none());
}

#[tokio::test]
async fn native_lists_are_paged() {
    let (_, first) = ask("/v1beta/models", Some(SECRET), all(Some("2"), None)).await;
    assert_eq!(names(&first, "models", "name"), ["models/alpha", "models/beta"]);
    let token = first["nextPageToken"].as_str().unwrap();
    let (_, last) = ask("/v1beta/models", Some(SECRET), all(Some("2"), Some(token))).await;
    assert_eq!(names(&last, "models", "name"), ["models/gamma"]);
    assert!(last.get("nextPageToken").is_none());
    for (size, token) in [(Some("many"), None), (None, Some("!"))] {
        let (status, problem) = ask("/v1beta/models", Some(SECRET), all(size, token)).await;
        assert_eq!((status, problem["error"]["status"].as_str()), (400, Some("INVALID_ARGUMENT")));
    }
}

#[tokio::test]
async fn messages_clients_get_the_list_in_anthropics_format() {
    let shared = shared(Settings::default(), catalog());
    let mut head = head("/v1/models");
    head.from = Protocol::Anthropic;
    head.presented_key = Some(Secret::new(SECRET.to_owned()));
    let response = list(&shared, &head, &all(Some("2"), None)).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let list: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(names(&list, "data", "id"), ["alpha", "beta"]);
    assert_eq!(
        (&list["has_more"], &list["last_id"], &list["data"][0]["max_input_tokens"]),
        (&true.into(), &"beta".into(), &8_192.into())
    );
}

#[tokio::test]
async fn messages_clients_are_not_offered_embedding_models() {
    let catalog = catalog();
    let channels = catalog.channels.values().map(|row| {
        let mut row = Channel::clone(row);
        row.spec.provider = Provider::OpenAi;
        row
    });
    let embeds =
        Model { spec: ModelSpec { name: "beta".to_owned(), embeddings: true, ..ModelSpec::default() }, ..Model::default() };
    let groups = catalog.groups.values().map(|row| Group::clone(row)).collect();
    let shared = shared(Settings::default(), Catalog::from_parts(Revision(2), channels.collect(), groups, vec![embeds]));
    for (from, listed) in [(Protocol::Anthropic, vec!["alpha", "gamma"]), (Protocol::OpenAi, vec!["alpha", "beta", "gamma"])] {
        let mut head = head("/v1/models");
        head.from = from;
        head.presented_key = Some(Secret::new(SECRET.to_owned()));
        let body = list(&shared, &head, &all(None, None)).await.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(names(&serde_json::from_slice(&body).unwrap(), "data", "id"), listed, "{from:?}");
    }
}

#[tokio::test]
async fn single_model_is_returned_and_missing_or_hidden_models_are_not_found() {
    let one = |name: &str| ListRequest::One(name.to_owned());
    let (status, model) = ask("/v1/models/alpha", Some(SECRET), one("alpha")).await;
    assert_eq!((status, model["id"].as_str()), (200, Some("alpha")));
    let (status, model) = ask("/v1beta/models/alpha", Some(SECRET), one("alpha")).await;
    assert_eq!((status, model["name"].as_str(), model["inputTokenLimit"].as_u64()), (200, Some("models/alpha"), Some(8_192)));
    let (status, missing) = ask("/v1/models/zeta", Some(SECRET), one("zeta")).await;
    assert_eq!((status, missing["error"]["code"].as_str()), (404, Some("model_not_found")));
    let (_, hidden) = ask("/v1/models/secret", Some(SECRET), one("secret")).await;
    assert_eq!(
        hidden.to_string(),
        missing.to_string().replace("zeta", "secret"),
        "a hidden model is indistinguishable from a missing one"
    );
}

#[tokio::test]
async fn lists_need_a_key() {
    for (key, expected) in [(None, "missing_api_key"), (Some("an-unknown-service-key-0"), "invalid_api_key")] {
        for request in [all(None, None), ListRequest::One("alpha".to_owned())] {
            let (status, problem) = ask("/v1/models", key, request).await;
            assert_eq!((status, problem["error"]["code"].as_str()), (401, Some(expected)));
        }
    }
}
