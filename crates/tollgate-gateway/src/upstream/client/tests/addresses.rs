//! The addresses that may be connected to: private networks, the lists of the settings, and names that are resolved again.

use tollgate_core::{AddressLists, UnlistedAddress};

use super::*;

#[tokio::test]
async fn connections_to_addresses_removed_from_dns_are_dropped() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let (client, call) = (client(), call(&upstream.url.replace("127.0.0.1", "localhost")));
    let whole = async || read(ask(&client, &call).await.unwrap().body).await.unwrap();
    whole().await;
    whole().await;
    let host = client.host(&call.channel).unwrap().0;
    assert_eq!((upstream.accepted(), host.idle_count()), (1, 1));
    host.renamed(vec!["127.0.0.1".parse().unwrap()]);
    assert_eq!(host.idle_count(), 1, "the name still has this address");
    let elsewhere = vec!["192.0.2.1".parse().unwrap()];
    host.renamed(elsewhere.clone());
    assert_eq!(host.idle_count(), 0);
    let under_way = ask(&client, &call).await.unwrap();
    host.renamed(elsewhere);
    assert_eq!(read(under_way.body).await.unwrap(), "{}", "a request in progress completes");
    assert_eq!((upstream.accepted(), host.idle_count()), (2, 0));
}

#[tokio::test]
async fn sweep_resolves_names_of_kept_connections_again() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let (client, call) = (client(), call(&upstream.url.replace("127.0.0.1", "localhost")));
    read(ask(&client, &call).await.unwrap().body).await.unwrap();
    let host = client.host(&call.channel).unwrap().0;
    // Clears the known addresses; the new resolution contains this one.
    host.renamed(Vec::new());
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(13)).await;
    tokio::time::resume();
    host.follow_name().await;
    assert_eq!(host.idle_count(), 1, "localhost still has this address");
}

#[tokio::test]
async fn loopback_is_denied_without_the_flag() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]", "169.254.169.254", "10.0.0.1", "2130706433", "0x7f.1"] {
        let port = upstream.url.trim_end_matches("/v1").rsplit_once(':').unwrap().1;
        let mut call = call(&format!("http://{host}:{port}/v1"));
        let mut row = (*call.channel).clone();
        row.spec.private_network = false;
        call.channel = row.into();
        assert_eq!(ask(&client(), &call).await.unwrap_err(), UpstreamError::NotSent(ConnectFault::Denied), "{host}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn removing_private_network_drops_the_connections() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let (client, mut call) = (client(), call(&upstream.url));
    read(ask(&client, &call).await.unwrap().body).await.unwrap();
    let mut row = (*call.channel).clone();
    row.spec.weight = 7;
    call.channel = Arc::new(row.clone());
    read(ask(&client, &call).await.unwrap().body).await.unwrap();
    assert_eq!(upstream.accepted(), 1, "a new weight does not change the destination");
    row.spec.private_network = false;
    call.channel = row.into();
    assert_eq!(ask(&client, &call).await.unwrap_err(), UpstreamError::NotSent(ConnectFault::Denied));
}

fn denied(networks: &[&str]) -> AddressLists {
    AddressLists::new(Vec::new(), networks.iter().map(|network| network.parse().unwrap()).collect())
}

#[tokio::test]
async fn kept_connection_to_an_address_that_is_denied_meanwhile_is_not_used_again() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let trust = Arc::new(Trust::default());
    let client = Client::new(Arc::clone(&trust), Arc::new(crate::clock::SystemClock));
    for base_url in [upstream.url.clone(), upstream.url.replace("127.0.0.1", "localhost")] {
        let mut call = call(&base_url);
        let mut row = (*call.channel).clone();
        row.id = tollgate_core::ChannelId::from_parts(tollgate_core::Timestamp(0), [u8::try_from(base_url.len()).unwrap(); 10]);
        call.channel = row.into();
        let whole = async || read(ask(&client, &call).await.unwrap().body).await.unwrap();
        let before = upstream.accepted();
        whole().await;
        trust.replace_addresses(denied(&["192.0.2.0/24"]));
        whole().await;
        assert_eq!((upstream.accepted(), client.idle_count(&call.channel)), (before + 1, 1), "lists that permit it keep it");
        let under_way = ask(&client, &call).await.unwrap();
        trust.replace_addresses(denied(&["127.0.0.0/8", "::1/128"]));
        assert_eq!(read(under_way.body).await.unwrap(), "{}", "a request in progress completes");
        let refused = ask(&client, &call).await.unwrap_err();
        assert_eq!(refused, UpstreamError::NotSent(ConnectFault::Unlisted(UnlistedAddress::Denied)), "{base_url}");
        assert_eq!((upstream.accepted(), client.idle_count(&call.channel)), (before + 1, 0));
        trust.replace_addresses(AddressLists::default());
        whole().await;
        assert_eq!(upstream.accepted(), before + 2, "on a new connection");
        trust.replace_addresses(denied(&["127.0.0.0/8", "::1/128"]));
        let host = client.host(&call.channel).unwrap().0;
        assert!(!host.sweep(trust.addresses()) && host.idle_count() == 0, "closed without a request");
        trust.replace_addresses(AddressLists::default());
    }
}

#[tokio::test]
async fn kept_connection_through_a_proxy_follows_the_address_of_the_proxy_and_of_the_destination() {
    // Accepts CONNECT, then answers each request itself.
    let proxy = RawUpstream::start(|mut socket, _| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        while read_request(&mut socket).await.is_some() {
            socket.write_all(ok("{}").as_bytes()).await.unwrap();
        }
    })
    .await;
    let trust = Arc::new(Trust::default());
    let client = Client::new(Arc::clone(&trust), Arc::new(crate::clock::SystemClock));
    let mut call = call("http://8.8.8.8/v1");
    let mut row = (*call.channel).clone();
    row.proxy = Some(tollgate_core::Secret::new(proxy.url.trim_end_matches("/v1").to_owned()));
    call.channel = row.into();
    let mut accepted = 0;
    for network in ["8.8.8.0/24", "127.0.0.0/8"] {
        for _ in 0..2 {
            read(ask(&client, &call).await.unwrap().body).await.unwrap();
        }
        accepted += 1;
        assert_eq!(proxy.accepted(), accepted);
        trust.replace_addresses(denied(&[network]));
        let refused = ask(&client, &call).await.unwrap_err();
        assert_eq!(refused, UpstreamError::NotSent(ConnectFault::Unlisted(UnlistedAddress::Denied)), "{network}");
        trust.replace_addresses(AddressLists::default());
    }
}
