//! The destination of a channel's requests, parsed once from its catalog row. Pooled connections are reused only while it
//! is unchanged.

use std::net::IpAddr;

use http::{HeaderValue, Uri, uri::PathAndQuery};
use tollgate_core::{Channel, Secret};
use url::{Host, Url};

use super::guard::AddressPolicy;
use crate::upstream::call::ConnectFault;

/// A parsed base URL and everything else that determines how connections are established.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamTarget {
    pub tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// The address, if the host is one.
    pub address: Option<IpAddr>,
    pub port: u16,
    /// `host` header, with the port if it is not the scheme's default.
    pub authority: HeaderValue,
    /// Path of the base URL, without trailing slash.
    pub base_path: String,
    /// Query of the base URL, appended to every path.
    pub query: Option<String>,
    /// Addresses that may be connected to.
    pub reach: AddressPolicy,
    /// PEM file with additional roots.
    pub ca_file: Option<String>,
    /// How the gateway identifies itself.
    pub client_auth: Option<ClientAuth>,
    /// Proxy URL, with credentials.
    pub proxy: Option<Url>,
}

/// PEM texts of a client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientAuth {
    pub chain: String,
    pub key: Secret,
}

impl UpstreamTarget {
    pub(crate) fn of(channel: &Channel) -> Result<Self, ConnectFault> {
        let url = Url::parse(&channel.spec.base_url).map_err(|_| ConnectFault::BadUrl)?;
        let proxy = channel.proxy.as_ref().map(|proxy| Url::parse(proxy.expose())).transpose().map_err(|_| ConnectFault::Proxy)?;
        let base_path = url.path().trim_end_matches('/').to_owned();
        let destination = Self::of_url(&url, AddressPolicy::of(channel))?;
        let client_auth = channel.spec.client_certificate.clone().zip(channel.client_key.clone());
        Ok(Self {
            base_path,
            query: url.query().map(str::to_owned),
            ca_file: channel.spec.ca_file.clone(),
            client_auth: client_auth.map(|(chain, key)| ClientAuth { chain, key }),
            proxy,
            ..destination
        })
    }

    /// The destination of a URL without a proxy; path and query are ignored.
    pub(crate) fn of_url(url: &Url, reach: AddressPolicy) -> Result<Self, ConnectFault> {
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(ConnectFault::BadUrl),
        };
        let (host, address) = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => (name.to_owned(), None),
            Some(Host::Ipv4(v4)) => (v4.to_string(), Some(IpAddr::V4(v4))),
            Some(Host::Ipv6(v6)) => (v6.to_string(), Some(IpAddr::V6(v6))),
            Some(Host::Domain(_)) | None => return Err(ConnectFault::BadUrl),
        };
        let port = url.port_or_known_default().ok_or(ConnectFault::BadUrl)?;
        let shown = url.host_str().unwrap_or(&host);
        let authority = url.port().map_or_else(|| shown.to_owned(), |port| format!("{shown}:{port}"));
        Ok(Self {
            tls,
            host,
            address,
            port,
            authority: HeaderValue::try_from(authority).map_err(|_| ConnectFault::BadUrl)?,
            base_path: String::new(),
            query: None,
            reach,
            ca_file: None,
            client_auth: None,
            proxy: None,
        })
    }

    /// The target of a request (RFC 9112, section 3.2).
    pub(crate) fn target(&self, path: &str, form: TargetForm) -> Result<Uri, ConnectFault> {
        let mut full = String::with_capacity(self.base_path.len() + path.len() + self.query.as_ref().map_or(0, |q| q.len() + 1));
        full.push_str(&self.base_path);
        full.push_str(path);
        if let Some(query) = &self.query {
            full.push(if path.contains('?') { '&' } else { '?' });
            full.push_str(query);
        }
        let path = PathAndQuery::try_from(full).map_err(|_| ConnectFault::BadUrl)?;
        match form {
            TargetForm::Origin => Ok(Uri::from(path)),
            TargetForm::Absolute => Uri::builder()
                .scheme(if self.tls { "https" } else { "http" })
                .authority(self.authority.as_bytes())
                .path_and_query(path)
                .build()
                .map_err(|_| ConnectFault::BadUrl),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetForm {
    /// Path and query (HTTP/1.1).
    Origin,
    /// With scheme and authority (HTTP/2).
    Absolute,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::channel;

    fn of(base: &str) -> Result<UpstreamTarget, ConnectFault> {
        let mut row = channel(base);
        row.spec.private_network = false;
        UpstreamTarget::of(&row)
    }

    #[test]
    fn base_url_is_parsed() {
        let plain = of("http://127.0.0.1:4010/v1").unwrap();
        assert_eq!((plain.tls, plain.port, plain.authority.to_str().unwrap()), (false, 4010, "127.0.0.1:4010"));
        assert_eq!(plain.target("/chat/completions", TargetForm::Origin).unwrap(), "/v1/chat/completions");
        let tls = of("https://api.example.com/v1beta/").unwrap();
        assert_eq!((tls.tls, tls.port, tls.authority.to_str().unwrap()), (true, 443, "api.example.com"));
        let whole = tls.target("/models/m:streamGenerateContent?alt=sse", TargetForm::Absolute).unwrap();
        assert_eq!(whole, "https://api.example.com/v1beta/models/m:streamGenerateContent?alt=sse");
        let v6 = of("http://[::1]:80/").unwrap();
        assert_eq!((v6.host.as_str(), v6.authority.to_str().unwrap(), v6.base_path.as_str()), ("::1", "[::1]", ""));
    }

    #[test]
    fn query_of_the_base_url_is_appended_to_every_path() {
        let azure = of("https://x.example.com/openai?api-version=1").unwrap();
        assert_eq!(azure.target("/chat", TargetForm::Origin).unwrap(), "/openai/chat?api-version=1");
        assert_eq!(azure.target("/m?alt=sse", TargetForm::Origin).unwrap(), "/openai/m?alt=sse&api-version=1");
    }

    #[test]
    fn invalid_urls_are_refused() {
        for bad in ["", "ftp://x/", "file:///etc/passwd", "http://", "127.0.0.1:80", "unix:/x"] {
            assert_eq!(of(bad).unwrap_err(), ConnectFault::BadUrl, "{bad}");
        }
    }

    #[test]
    fn weight_is_not_part_of_the_destination() {
        let mut row = channel("http://127.0.0.1:1/v1");
        let before = UpstreamTarget::of(&row).unwrap();
        row.spec.weight = 9;
        assert_eq!(UpstreamTarget::of(&row).unwrap(), before);
        row.spec.private_network = false;
        assert_ne!(UpstreamTarget::of(&row).unwrap(), before);
    }
}
