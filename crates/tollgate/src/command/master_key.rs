//! `master-key`: rotates the key that seals the secrets in the database, while gateways serve.

use std::time::Duration;

use serde_json::json;
use tollgate_store::{KeyHolder, MasterKeyRotation, RandomSource, RotationStage, new_master_key};

use crate::{
    cli::{Common, MasterKey},
    compose,
    failure::Failure,
    output,
};

/// Time within which a running gateway must answer. It checks for a rotation every second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Runs a subcommand.
pub(crate) fn run(common: &Common, subcommand: &MasterKey) -> Result<(), Failure> {
    match subcommand {
        MasterKey::New => {
            output::line(new_master_key(&RandomSource::system()).expose());
            Ok(())
        }
        MasterKey::Rotate { wait } => compose::block_on(rotate(common, Duration::from_secs(*wait))),
    }
}

async fn rotate(common: &Common, wait: Duration) -> Result<(), Failure> {
    let store = compose::open(common).await?;
    let rotation = store.rotate_master_key().await?;
    let tell = |text: &str| {
        if !common.quiet && !common.json {
            output::remark(text);
        }
    };
    match (&rotation.stage, &rotation.extended) {
        (RotationStage::Distribute, Some(path)) => {
            tell(&format!("a new key was appended to {}; gateways with a file of their own need the same line", path.display()));
        }
        (RotationStage::Distribute, None) => tell(&format!("rotating to the key with the fingerprint {}", rotation.target())),
        (RotationStage::Reseal | RotationStage::CleanUp, _) => tell("a rotation that was interrupted is resumed"),
    }
    let mut sealed = 0;
    if rotation.stage != RotationStage::CleanUp {
        wait_for_holders(&rotation, wait, &tell).await?;
        sealed = rotation.reseal(&compose::actor(), compose::now()).await?;
    }
    let retired = rotation.clean_up()?;
    store.close().await;
    if common.json {
        let retired = retired.map(|path| path.display().to_string());
        output::json(&json!({"master_key": rotation.target(), "resealed": sealed, "retired_in": retired}));
        return Ok(());
    }
    output::line(&format!("{sealed} secrets were resealed under the master key with the fingerprint {}", rotation.target()));
    match retired {
        Some(path) => output::line(&format!(
            "the old key is in {}: backups made before need it; on nodes with a key file of their own remove its line there",
            path.display()
        )),
        None => output::line("remove the old line from the master key of every node, and keep it with the backups made before"),
    }
    Ok(())
}

/// Waits until every running gateway holds the new key. A gateway that does not answer counts as stopped.
async fn wait_for_holders(rotation: &MasterKeyRotation, wait: Duration, tell: &dyn Fn(&str)) -> Result<(), Failure> {
    let deadline = compose::instant() + wait;
    let mut shown = String::new();
    loop {
        let (holders, silent) = ask(rotation).await?;
        if !silent.is_empty() {
            tell(&format!("assumed to be stopped, because they do not answer: {}", names(&silent)));
            rotation.delete_holders(&silent).await?;
        }
        let lacking: Vec<KeyHolder> = holders.into_iter().filter(|holder| !holder.has_key).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let text = names(&lacking);
        if compose::instant() >= deadline {
            return Err(Failure::Machine(format!(
                "these gateways do not hold the new master key yet: {text}; append its line to their master key (it is read without a \
                 restart if it is a file), then run this again; nothing was sealed with it"
            )));
        }
        if text != shown {
            tell(&format!("waiting for these gateways to hold the new key: {text}"));
            shown = text;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Asks every gateway; returns those that answered and those that did not.
async fn ask(rotation: &MasterKeyRotation) -> Result<(Vec<KeyHolder>, Vec<KeyHolder>), Failure> {
    let request = rotation.ask().await?;
    let until = compose::instant() + ANSWER_TIMEOUT;
    loop {
        let holders = rotation.holders(request).await?;
        if holders.iter().all(|holder| holder.has_answered) || compose::instant() >= until {
            return Ok(holders.into_iter().partition(|holder| holder.has_answered));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn names(holders: &[KeyHolder]) -> String {
    holders.iter().map(|holder| holder.name.as_str()).collect::<Vec<_>>().join(", ")
}
