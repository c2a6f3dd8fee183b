//! A start that a full disk prevents because there is no reserve to free. The gateway listens, refuses every request (E68) and
//! begins to serve as soon as there is space.

use std::{sync::Arc, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_gateway::{
    fallback::NotFound,
    server::{Drained, Listening, RefusingPath, RunError, listen, run},
    state::shared::Shared,
};
use tollgate_store::DiskReserve;

use crate::{
    command::serve::{cannot_run, end_on_signal},
    compose,
    config::Config,
    failure::Failure,
    upgrade::sockets::cannot_listen,
};

/// Interval of attempts to start.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a start may have failed because the disk is full.
pub(crate) fn prevents(reserve: &DiskReserve, failure: &Failure) -> bool {
    matches!(failure, Failure::Machine(_)) && reserve.may_prevent_start()
}

/// Waits until `build` succeeds, refusing requests meanwhile. Returns its result and the sockets; `None` if the gateway is stopped
/// first.
pub(crate) async fn wait<C>(
    config: &Config,
    reserve: &DiskReserve,
    failure: Failure,
    build: impl AsyncFn() -> Result<C, Failure>,
) -> Result<Option<(C, Listening)>, Failure> {
    let data = config.data.display();
    tracing::error!(%data, "the disk of the data folder is full: nothing is served until there is space: {failure}");
    let shared = compose::closed(config).await?;
    let listening = listen(&shared.settings.load()).map_err(|error| cannot_listen(&error))?;
    let sockets = listening.try_clone().map_err(|error| cannot_listen(&error))?;
    let (stop, over, tasks) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
    tasks.spawn(end_on_signal(stop.clone(), Arc::clone(&shared), over.clone()));
    let (refused, built) = tokio::join!(refuse(shared, sockets, &over), async {
        let built = until_built(reserve, build, &stop, &over).await;
        over.cancel();
        built
    });
    tasks.close();
    tasks.wait().await;
    refused.map_err(|error| cannot_run(&error))?;
    let built = built?;
    if built.is_some() {
        tracing::info!(%data, "the disk of the data folder has space again; requests are served");
    }
    Ok(built.map(|components| (components, listening)))
}

/// Refuses requests until `over` is cancelled.
async fn refuse(shared: Arc<Shared>, sockets: Listening, over: &CancellationToken) -> Result<Drained, RunError> {
    let path = {
        let shared = Arc::clone(&shared);
        move |_| Ok(RefusingPath::without_database(Arc::clone(&shared)))
    };
    let ended = run(shared, sockets, path, Arc::new(NotFound), over.clone()).await;
    over.cancel();
    ended
}

async fn until_built<C>(
    reserve: &DiskReserve,
    build: impl AsyncFn() -> Result<C, Failure>,
    stop: &CancellationToken,
    over: &CancellationToken,
) -> Result<Option<C>, Failure> {
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = over.cancelled() => return Ok(None),
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
        }
        if reserve.is_full() {
            continue;
        }
        match build().await {
            Err(failure) if prevents(reserve, &failure) => tracing::debug!("there is still too little space: {failure}"),
            built => return built.map(Some),
        }
    }
}
