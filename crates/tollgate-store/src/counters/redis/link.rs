//! The way to Redis: its address, who signs its certificate, and connections.

use std::{fmt, time::Duration};

use redis::{AsyncConnectionConfig, Client, TlsCertificates, aio::MultiplexedConnection};
use tokio::time::timeout;

use super::{script::ask, worker::ANSWER};
use crate::StoreError;

const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";
const CONNECT: Duration = Duration::from_secs(1);

/// Where Redis is.
#[derive(Clone)]
pub struct RedisAddress {
    /// `redis://…` or `rediss://…`, its user and password included.
    pub url: String,
    /// Who signs its certificate, as PEM; `None`: one of those everybody trusts. For `rediss://` only.
    pub ca: Option<Vec<u8>>,
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisAddress").field(&shown(&self.url)).finish()
    }
}

/// Whether somebody answers at an address.
pub(super) async fn check(place: &RedisAddress) -> Result<(), StoreError> {
    let client = client(place)?;
    let away = |detail: String| StoreError::Unreachable { place: shown(&place.url), detail };
    let asked = async {
        let mut link = connect(&client).await?;
        ask::<String>(&mut link, &mut redis::cmd("PING")).await
    };
    match timeout(ANSWER, asked).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(away(error.to_string())),
        Err(_) => Err(away("it did not answer in time".to_owned())),
    }
}

pub(super) fn client(place: &RedisAddress) -> Result<Client, StoreError> {
    let unread = |detail: String| StoreError::BadRedisUrl { url: shown(&place.url), detail };
    let made = match &place.ca {
        None => Client::open(place.url.as_str()),
        Some(ca) if !ca.windows(CERTIFICATE.len()).any(|part| part == CERTIFICATE) => {
            return Err(unread("there is no certificate in the PEM file of who signs its own".to_owned()));
        }
        Some(ca) => {
            let certificates = TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) };
            Client::build_with_tls(place.url.as_str(), certificates)
        }
    };
    made.map_err(|error| unread(error.to_string()))
}

/// An address without what is secret in it.
pub(super) fn shown(url: &str) -> String {
    crate::open::without_password(url)
}

pub(super) async fn connect(client: &Client) -> redis::RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(Some(ANSWER));
    client.get_multiplexed_async_connection_with_config(&config).await
}
