//! State that handlers of the admin API share, and the facts of a request before it is parsed.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicBool},
};

use tokio::sync::Semaphore;
use tollgate_core::{MemberId, RequestId};
use tollgate_store::{Actor, Store};

use crate::{
    caller::CallerShares,
    catalog_lists::CatalogLists,
    gateway_handle::GatewayHandle,
    identity::Identity,
    jobs::Jobs,
    kept_answers::KeptAnswers,
    shares::{FilePermits, HeavyPermits, RequestShares, Shares},
    square::Square,
};

#[derive(Debug)]
pub(crate) struct ConsoleState {
    pub(crate) store: Store,
    pub(crate) gateway: Arc<dyn GatewayHandle>,
    /// Path of the served catalog file, for messages.
    pub(crate) catalog_file: Option<String>,
    pub(crate) identity: Identity,
    /// `None` in commands without a gateway.
    pub(crate) jobs: Option<Jobs>,
    /// Requests of unauthenticated clients and members in progress.
    pub(crate) request_shares: RequestShares,
    pub(crate) heavy_permits: HeavyPermits,
    /// Requests of callers about themselves.
    pub(crate) caller_shares: CallerShares,
    /// Permits for their queries.
    pub(crate) caller_permits: Semaphore,
    /// Sums that pages of several people share for a moment.
    pub(crate) kept_answers: KeptAnswers,
    pub(crate) catalog_lists: CatalogLists,
    /// Whether the usage log was found to have a record.
    pub(crate) has_requests: AtomicBool,
    /// The data of the model square.
    pub(crate) square: Square,
    pub(crate) file_permits: FilePermits,
    /// Permits for clients that follow the usage log.
    pub(crate) follower_permits: Arc<Semaphore>,
    /// Those of members.
    pub(crate) follower_shares: Shares<MemberId>,
}

/// Facts about a request that its connection states.
#[derive(Clone, Copy, Debug)]
pub struct RequestMeta {
    pub id: RequestId,
    /// Address of the caller; `None` if a trusted proxy names none.
    pub address: Option<IpAddr>,
    /// Whether it comes from this machine, and not from a web page whose host name resolves to loopback.
    pub is_local: bool,
}

/// Request extension that marks a call from the program's own command line, which has direct access to the data folder
/// and needs no admin key. Only [`crate::console::Console::handle_local`] sets it; nothing a connection sends can.
#[derive(Clone, Debug)]
pub(crate) struct LocalOperator(pub(crate) Actor);
