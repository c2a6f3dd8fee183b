//! What the tests of this crate share.

use std::net::{IpAddr, Ipv4Addr};

use http::HeaderMap;
use tollgate_core::{
    Billing, Glob, Key, KeyId, KeyStatus, Limits, Member, MemberId, MemberStatus, Owner, RequestId, Role, Timestamp,
};
use tollgate_protocol::Protocol;

use crate::Head;

/// A posted head without headers; native for native paths.
pub(crate) fn head(path: &str) -> Head {
    Head {
        from: if path.starts_with("/v1beta") { Protocol::Gemini } else { Protocol::OpenAi },
        request_id: RequestId::from_parts(Timestamp(1_795_000_000_000_000), [7; 10]),
        arrived: Timestamp(1_795_000_000_000_000),
        started: tokio::time::Instant::now(),
        peer: IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)),
        presented_key: None,
        http_method: http::Method::POST,
        path: path.to_owned(),
        headers: HeaderMap::new(),
        client_request_id: None,
    }
}

/// A key that may everything.
pub(crate) fn key() -> Key {
    let id = [1; 10];
    Key {
        id: KeyId::from_parts(Timestamp(0), id),
        name: "first".to_owned(),
        owner: Owner::Database,
        prefix: "tg-a-key-o".to_owned(),
        suffix: "6789".to_owned(),
        status: KeyStatus::Active,
        expires_at: None,
        groups: Vec::new(),
        models: vec![Glob("*".to_owned())],
        ip_allow: Vec::new(),
        limits: Limits::default(),
        budgets: Vec::new(),
        price_limit: None,
        created_at: Timestamp(0),
        member: Member {
            id: MemberId::from_parts(Timestamp(0), id),
            name: "owner".to_owned(),
            role: Role::Member,
            status: MemberStatus::Active,
            granted: Vec::new(),
            default_group: None,
            billing: Billing::Postpaid,
            limits: Limits::default(),
            budgets: Vec::new(),
        },
    }
}
