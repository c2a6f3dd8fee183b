//! `demo-history FOLDER PROVIDER`: writes the history of the demonstration into the database of a data folder that is new, ending
//! now. PROVIDER is the address of the scripted provider. Prints how many records it wrote.

use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, bail};
use tollgate_core::Timestamp;
use tollgate_demo::write_history;
use tollgate_store::{AccessMode, MasterKeySource, OpenOptions, RandomSource, StoreUrl, open};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, provider] = arguments.as_slice() else { bail!("usage: demo-history FOLDER PROVIDER") };
    let now = now();
    let data = PathBuf::from(folder);
    let options = OpenOptions {
        url: StoreUrl::Sqlite(data.join("tollgate.db")),
        data: data.clone(),
        master: MasterKeySource::DataFolder,
        access: AccessMode::Serve,
        random: RandomSource::system(),
        now: now.plus_ms(tollgate_demo::HISTORY_MS.saturating_neg()),
        without_database: None,
    };
    let store = open(options).await?;
    if !store.first_start {
        bail!("{folder} has a catalog already; name a new folder");
    }
    let summary = write_history(&store, &data, provider, now).await?;
    store.close().await;
    #[expect(clippy::print_stdout, reason = "the program reports what it wrote")]
    {
        println!("{} records, {} changes, {} USD charged", summary.records, summary.changes, summary.sale.to_usd_string());
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the history ends now")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
