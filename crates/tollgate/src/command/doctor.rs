//! `doctor`: is everything there that serving needs, and what to do where it is not.

use serde_json::{Value, json};
use tollgate_store::Access;

use crate::{
    cli::{Common, Doctor},
    compose,
    failure::Failure,
    say,
};

/// One look.
struct Finding {
    what: &'static str,
    good: bool,
    text: String,
}

/// Looks at everything; exit code 1 when something is wrong.
pub(crate) fn run(common: &Common, arguments: &Doctor) -> Result<(), Failure> {
    let config = compose::settings(common, &[])?;
    let mut findings = vec![Finding { what: "settings", good: true, text: "all values are valid".to_owned() }];
    let journal = compose::journal_folder(&config.data);
    if arguments.repair && journal.exists() {
        let repaired = tollgate_store::repair_journal(&journal).map_err(|error| compose::journal_failure(&error))?;
        for repair in &repaired {
            let text = format!(
                "moved to {}; {} requests kept, {} stretches lost",
                repair.moved_to.display(),
                repair.kept.len(),
                repair.lost.len()
            );
            findings.push(Finding { what: "repair", good: true, text });
        }
        if repaired.is_empty() {
            findings.push(Finding { what: "repair", good: true, text: "no segment is damaged".to_owned() });
        }
    }
    let folder = std::fs::metadata(&config.data);
    findings.push(match &folder {
        Ok(metadata) if metadata.is_dir() => Finding { what: "data folder", good: true, text: config.data.display().to_string() },
        Ok(_) => Finding { what: "data folder", good: false, text: format!("{} is not a folder", config.data.display()) },
        Err(_) => {
            Finding { what: "data folder", good: true, text: format!("{} is made at the first start", config.data.display()) }
        }
    });
    if folder.is_ok() {
        findings.push(database(&config));
        findings.push(waiting(common));
    }
    if config.redis_url.is_some() {
        findings.push(redis(&config));
    }
    let wrong = findings.iter().filter(|finding| !finding.good).count();
    if common.json {
        let items: Vec<Value> =
            findings.iter().map(|finding| json!({"what": finding.what, "ok": finding.good, "text": finding.text})).collect();
        say::json(&json!({"items": items}));
    } else {
        for finding in &findings {
            say::line(&format!("{:<5} {:<12} {}", if finding.good { "ok" } else { "FAIL" }, finding.what, finding.text));
        }
    }
    if wrong == 0 { Ok(()) } else { Err(Failure::Machine(format!("{wrong} finding(s) need attention"))) }
}

fn database(config: &crate::config::Config) -> Finding {
    let opened = compose::block_on(async {
        let store = compose::open_as(config, Access::Command).await?;
        let catalog = store.catalog.load().await?;
        Ok(format!("{}, catalog revision {}, {} channels", store.place, catalog.revision.0, catalog.channels.len()))
    });
    match opened {
        Ok(text) => Finding { what: "database", good: true, text },
        Err(failure) => Finding { what: "database", good: false, text: failure.to_string() },
    }
}

fn redis(config: &crate::config::Config) -> Finding {
    let asked = compose::redis_place(config).and_then(|place| {
        compose::block_on(async {
            if let Some(place) = &place {
                tollgate_store::check_redis(place).await?;
            }
            Ok(())
        })
    });
    match asked {
        Ok(()) => Finding { what: "redis", good: true, text: "it answers".to_owned() },
        Err(failure) => Finding { what: "redis", good: false, text: failure.to_string() },
    }
}

fn waiting(common: &Common) -> Finding {
    match compose::unbooked(common) {
        Ok(records) => Finding { what: "journal", good: true, text: format!("readable, {} ended requests in it", records.len()) },
        Err(failure) => Finding { what: "journal", good: false, text: failure.to_string() },
    }
}
