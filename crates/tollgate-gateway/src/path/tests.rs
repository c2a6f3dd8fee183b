//! Tests of the request path in one process, with a scripted upstream, a real journal and paused time.

mod account_limits;
mod bounded_usage;
mod changes_while_waiting;
mod channel_health;
mod channel_limits;
mod failover;
mod first_content;
mod golden;
mod hedging;
mod hostile;
mod learning;
mod long_beginnings;
mod loopback;
mod media;
mod money;
mod native_streams;
mod parameter_edits;
mod records;
mod settlement;
mod shares;
mod stream_memory;
mod streams;
mod translation;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tempfile::TempDir;
use tollgate_core::{
    Budget, Catalog, Channel, Group, GroupId, Key, KeyId, Limits, MemberId, Model, ModelSpec, Price, PriceSchedule, Provider,
    Revision, Secret, Timestamp, TranslationPolicy, UsageRecord,
};
use tollgate_protocol::{Framing, Method, Protocol};
use tollgate_store::{Journal, JournalOptions};

use super::*;
use crate::{
    background::usage_writer::UsageWriter,
    clock::{Clock, CoreRng},
    request::RequestBody,
    settings::Settings,
    state::{health_registry::HealthRegistry, usage_recorder::UsageRecorder},
    testing::{
        PausedClock, SECRET, account, channel, head, key,
        memory_store::MemoryStore,
        scripted::{Piece, Script},
        shared_with,
    },
};

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hello there"}]}"#;
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hello there"}]}"#;
const REPLY: &str = r#"{"id":"x","object":"chat.completion","created":1,"model":"up-m","choices":[{"index":0,"message":{"role":"assistant","content":"hi","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#;

/// Changes a channel to the vendor of this protocol.
fn speaks(channel: &mut Channel, upstream: Protocol) {
    channel.spec.protocol = upstream;
    channel.spec.provider = match upstream {
        Protocol::OpenAi | Protocol::Responses => Provider::OpenAi,
        Protocol::Gemini => Provider::Gemini,
        Protocol::Anthropic => Provider::Anthropic,
    };
}

/// One core with its dependencies.
pub(super) struct Rig {
    core: Worker,
    script: Arc<Script>,
    usage_writer: UsageWriter,
    store: Arc<MemoryStore>,
    journal: Arc<Journal>,
    registry: Arc<HealthRegistry>,
    clock: Arc<PausedClock>,
    dice: CoreRng,
    _dir: TempDir,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Got {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: String,
    /// Whether the body was aborted at its end.
    pub aborted: bool,
}

impl Rig {
    /// `accounts` accounts on one channel that sells `m` at 1 and 2 USD per million and buys at half of that.
    pub(super) fn new(script: Script, accounts: u8) -> Self {
        Self::with(script, accounts, |_| {})
    }

    pub(super) fn with(script: Script, accounts: u8, change: impl FnOnce(&mut Channel)) -> Self {
        Self::build(script, accounts, |dir| JournalOptions::new(dir.to_owned(), uuid::Uuid::nil()), change)
    }

    /// A rig whose group is changed.
    pub(super) fn grouped(script: Script, accounts: u8, change: impl FnOnce(&mut Group)) -> Self {
        let rig = Self::new(script, accounts);
        let catalog = rig.core.shared.catalog.load();
        let mut group = Group::clone(&catalog.groups[0]);
        change(&mut group);
        let channels = catalog.channels.values().map(|row| Channel::clone(row)).collect();
        let models = catalog.models.values().map(|row| Model::clone(row)).collect();
        rig.core.shared.catalog.store(Arc::new(Catalog::from_parts(catalog.revision, channels, vec![group], models)));
        rig
    }

    pub(super) fn build(
        script: Script,
        accounts: u8,
        journal: impl FnOnce(&std::path::Path) -> JournalOptions,
        change: impl FnOnce(&mut Channel),
    ) -> Self {
        Self::build_for(script, accounts, journal, change, key(), &[])
    }

    /// A rig with one account and a changed key.
    pub(super) fn keyed(script: Script, change: impl FnOnce(&mut Key)) -> Self {
        let mut key = key();
        change(&mut key);
        Self::build_for(script, 1, |dir| JournalOptions::new(dir.to_owned(), uuid::Uuid::nil()), |_| {}, key, &[])
    }

    /// A rig with one account and budgets of the whole gateway.
    pub(super) fn budgeted(script: Script, budgets: &[Budget]) -> Self {
        Self::build_for(script, 1, |dir| JournalOptions::new(dir.to_owned(), uuid::Uuid::nil()), |_| {}, key(), budgets)
    }

    fn build_for(
        script: Script,
        accounts: u8,
        journal: impl FnOnce(&std::path::Path) -> JournalOptions,
        change: impl FnOnce(&mut Channel),
        mut key: Key,
        budgets: &[Budget],
    ) -> Self {
        let mut channel = channel("http://127.0.0.1:1/v1");
        channel.accounts = (1..=accounts).map(|number| Arc::new(account(number))).collect();
        channel.spec.serves[0].cost = Some(price(500_000_000, 1_000_000_000));
        change(&mut channel);
        let group = group(&channel);
        key.groups = vec![group.id];
        let model = Model {
            spec: ModelSpec { name: "m".to_owned(), price: Some(price(1_000_000_000, 2_000_000_000)), ..ModelSpec::default() },
            ..Model::default()
        };
        let catalog = Catalog::from_parts(Revision(7), vec![channel], vec![group], vec![model]);
        let dir = TempDir::new().unwrap();
        let (journal, recovery) = Journal::open(journal(dir.path())).unwrap();
        drop(recovery);
        let (journal, script, registry) = (Arc::new(journal), Arc::new(script), Arc::new(HealthRegistry::default()));
        script.watch(&journal);
        let clock = Arc::new(PausedClock::start());
        let store = MemoryStore::new(key);
        let settings = Settings { budgets: budgets.iter().copied().collect(), ..Settings::default() };
        let shared = shared_with(store.clone(), settings, catalog, clock.clone());
        let (queue, usage_writer) =
            UsageWriter::new(store.clone(), store.clone(), Arc::clone(&journal), Arc::clone(&registry), Arc::clone(&shared));
        let recorder = UsageRecorder::open(shared, &journal, 0, queue, Arc::clone(&registry)).unwrap();
        let core = Worker::new(recorder, script.clone()).unwrap();
        Self { core, script, usage_writer, store, journal, registry, clock, dice: CoreRng::seeded(1), _dir: dir }
    }

    /// A request as the ingress passes it to the path.
    pub(super) fn incoming(&self, body: &str) -> Incoming {
        let mut head = head("/v1/chat/completions");
        head.settings = self.core.shared.settings.load().of_request();
        head.request_id = self.dice.request_id(self.clock.now());
        head.arrived = self.clock.now();
        head.started = self.clock.instant();
        head.presented_key = Some(Secret::new(SECRET.to_owned()));
        let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
        Incoming { head: Box::new(head), target, body: RequestBody::from(Bytes::copy_from_slice(body.as_bytes())) }
    }

    /// Sends a request with key `number` of member `member` that counts against their shares.
    pub(super) async fn ask_as(&self, (number, member): (u8, u8), body: &str) -> Got {
        self.store.change_key(|key| {
            key.id = KeyId::from_parts(Timestamp(0), [number; 10]);
            key.member.id = MemberId::from_parts(Timestamp(0), [member; 10]);
        });
        let request = self.core.shared.serving.enter(1_000, 1_000_000);
        let mut incoming = self.incoming(body);
        incoming.head.presented_key = Some(Secret::new(format!("{SECRET}{number}")));
        incoming.body = incoming.body.within(Arc::clone(&request));
        read(serve(&self.core, incoming).await).await
    }

    /// A native request for the same model.
    pub(super) fn native(&self, method: Method, body: &str) -> Incoming {
        let mut incoming = self.incoming(body);
        incoming.head.from = tollgate_protocol::Protocol::Gemini;
        incoming.head.path = "/v1beta/models/m".to_owned();
        incoming.target = Target { method, model: Some("m".to_owned()), framing: Framing::Sse };
        incoming
    }

    /// A request of the Messages API for the same model.
    pub(super) fn messages(&self, body: &str) -> Incoming {
        let mut incoming = self.incoming(body);
        incoming.head.from = tollgate_protocol::Protocol::Anthropic;
        incoming.head.path = "/v1/messages".to_owned();
        incoming
    }

    /// A request of the Responses API for the same model.
    pub(super) fn responses(&self, body: &str) -> Incoming {
        let mut incoming = self.incoming(body);
        incoming.head.from = tollgate_protocol::Protocol::Responses;
        incoming.head.path = "/v1/responses".to_owned();
        incoming
    }

    /// A second channel beside the first, with an account of its own.
    pub(super) fn add_channel(&self, change: impl FnOnce(&mut Channel)) {
        self.change(|channels, groups, _| {
            let mut second = channels[0].clone();
            second.id = tollgate_core::ChannelId::from_parts(Timestamp(2), [2; 10]);
            second.spec.name = "two".to_owned();
            second.accounts = vec![Arc::new(account(99))];
            change(&mut second);
            groups[0].channels.push(second.id);
            channels.push(second);
        });
    }

    pub(super) fn change_group(&self, change: impl FnOnce(&mut Group)) {
        self.change(|_, groups, _| change(&mut groups[0]));
    }

    pub(super) fn change_model(&self, change: impl FnOnce(&mut Model)) {
        self.change(|_, _, models| change(&mut models[0]));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Channel>, &mut Vec<Group>, &mut Vec<Model>)) {
        let catalog = self.core.shared.catalog.load_full();
        let mut channels = catalog.channels.values().map(|row| (**row).clone()).collect();
        let mut groups = catalog.groups.values().map(|row| (**row).clone()).collect();
        let mut models = catalog.models.values().map(|row| (**row).clone()).collect();
        change(&mut channels, &mut groups, &mut models);
        self.core.shared.catalog.store(Arc::new(Catalog::from_parts(Revision(8), channels, groups, models)));
    }

    /// Sends a request, and reads the answer to its end.
    pub(super) async fn ask(&self, body: &str) -> Got {
        read(serve(&self.core, self.incoming(body)).await).await
    }

    /// All records: those that reached the usage writer. Each also has its end entry in the journal.
    pub(super) fn records(&mut self) -> Vec<UsageRecord> {
        let records = self.usage_writer.waiting();
        let mut journalled: Vec<_> = self.journal.backlog().unwrap().map(|record| record.unwrap().id).collect();
        let mut queued: Vec<_> = records.iter().map(|record| record.id).collect();
        journalled.sort();
        queued.sort();
        assert_eq!(journalled, queued, "journal and queue hold the same records, each once");
        assert_eq!(self.journal.unbooked(), records.len(), "every begin has an end");
        assert_eq!(self.core.shared.counters.open_reservations(), 0, "all reservations are released");
        records
    }

    /// The one record of the one request.
    pub(super) fn record(&mut self) -> UsageRecord {
        let mut records = self.records();
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }
}

pub(super) async fn read(response: Response<AnswerBody>) -> Got {
    let (head, mut body) = response.into_parts();
    let mut text = Vec::new();
    let mut aborted = false;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            aborted = true;
            break;
        };
        text.extend_from_slice(frame.data_ref().unwrap());
    }
    let body = String::from_utf8(text).unwrap();
    Got { status: head.status.as_u16(), headers: head.headers, body, aborted }
}

impl Got {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// `error.code` of a chat error.
    pub(super) fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

fn price(input: i64, output: i64) -> PriceSchedule {
    let price = Price { input: Some(input), output: Some(output), ..Price::default() };
    PriceSchedule::constant(price)
}

fn group(channel: &Channel) -> Group {
    Group {
        limits: Limits { concurrency: 100_000, ..Limits::default() },
        ..Group::new(GroupId::from_parts(Timestamp(1), [1; 10]), "default", vec![channel.id])
    }
}

/// A chunk of an event stream with this content.
pub(super) fn chunk(content: &str) -> Piece {
    format!(
        "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up-m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},\"finish_reason\":null}}]}}\n\n"
    )
    .as_str()
    .into()
}

/// The first chunk, which has the role and empty content.
pub(super) fn role() -> Piece {
    "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up-m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n".into()
}

/// Finish, usage and end mark.
pub(super) fn tail() -> Piece {
    concat!(
        "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up-m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n",
        "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up-m\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\n\n",
        "data: [DONE]\n\n"
    )
    .into()
}

pub(super) const SECOND: Duration = Duration::from_secs(1);
