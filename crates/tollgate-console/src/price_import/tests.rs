//! Imports as jobs, on a store in memory.

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use tollgate_store::{
    AccessMode, ChangeOrigin, KeyScope, MasterKeySource, OpenOptions, RandomSource, StoreUrl,
    catalog_file::{self, ApplyMode},
};

use super::*;

const CATALOG: &str = "
[[channel]]
name = \"main\"
provider = \"openai\"
[[channel.account]]
name = \"a\"
credential = \"secret\"
[[channel.serves]]
model = \"fast\"
upstream = \"gpt-5-mini\"
[[channel.serves]]
model = \"slow\"
upstream = \"gpt-5\"
[[model]]
name = \"slow\"
price = { input = \"7\", output = \"9\" }
[[group]]
name = \"default\"
channels = [\"main\"]
";
const LIST: &str = "model,provider,input,output\ngpt-5-mini,openai,0.25,2\ngpt-5,openai,1.25,10\nunserved,openai,1,1\n";

fn now() -> Timestamp {
    Timestamp(1_795_000_000_000_000)
}

fn actor() -> Actor {
    Actor::local(ChangeOrigin::Api, "root (adm_1)")
}

async fn store() -> Store {
    let options = OpenOptions {
        url: StoreUrl::Memory,
        data: std::path::PathBuf::new(),
        master: MasterKeySource::DataFolder,
        access: AccessMode::Command,
        random: RandomSource::system(),
        now: now(),
        without_database: None,
    };
    let store = tollgate_store::open(options).await.unwrap();
    let file = catalog_file::parse(CATALOG, &|_| None, &|_| Err(std::io::Error::other("no file is named"))).unwrap();
    let current = store.catalog.live_rows(&KeyScope::All).await.unwrap();
    let plan = catalog_file::plan(&file, &current, ApplyMode::Apply { prune: false }).unwrap();
    store.catalog.apply(&plan.changes, &actor(), now()).await.unwrap();
    store
}

fn request(sent: &Value) -> ImportRequest {
    let body = InputFields::of(sent);
    ImportRequest {
        list: ListInput::of(&body).unwrap(),
        selection: ImportSelection::of(&body),
        dry_run: body.flag("dry_run"),
        confirmed: body.flag("confirm"),
        actor: actor(),
    }
}

/// A control that notes the steps, and cancels the work at one of them.
fn control(cancel_at: Option<&'static str>) -> (WorkControl, Arc<Mutex<Vec<String>>>) {
    let (cancel, steps) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
    let (token, noted) = (cancel.clone(), Arc::clone(&steps));
    let control = WorkControl::new(cancel, move |progress| {
        noted.lock().unwrap().push(progress.step.to_owned());
        if Some(progress.step) == cancel_at {
            token.cancel();
        }
    });
    (control, steps)
}

fn prices(catalog: &Catalog) -> Vec<(String, bool)> {
    catalog.models.values().map(|model| (model.spec.name.clone(), model.spec.price.is_some())).collect()
}

#[tokio::test]
async fn prices_that_were_set_by_hand_are_kept() {
    let store = store().await;
    let sent = json!({"file": LIST, "source": "a list", "to": "both"});
    let dry = request(&json!({"file": LIST, "source": "a list", "to": "both", "dry_run": true}));
    let before = store.catalog.revision().await.unwrap();
    let shown = dry.run(&store, now, &WorkControl::unattended()).await.unwrap();
    assert_eq!((&shown["written"], &shown["dry_run"]), (&json!(0), &json!(true)));
    assert_eq!(shown["counts"], json!({"new": 3, "changed": 0, "same": 0, "kept": 1, "skipped": 0}));
    assert_eq!(store.catalog.revision().await.unwrap(), before, "a dry run writes nothing");
    let (control, steps) = control(None);
    let done = request(&sent).run(&store, now, &control).await.unwrap();
    assert_eq!((&done["written"], &done["counts"]), (&json!(3), &shown["counts"]));
    assert_eq!((&done["not_served"], &done["not_served_count"]), (&json!(["openai/unserved"]), &json!(1)));
    assert_eq!(done["revision"], json!(store.catalog.revision().await.unwrap()));
    let kept: Vec<&Value> = done["rows"].as_array().unwrap().iter().filter(|row| row["state"] == "kept").collect();
    assert_eq!((kept.len(), &kept[0]["id"], &kept[0]["reason"]), (1, &json!("sale:slow"), &json!("set by hand")));
    let steps = steps.lock().unwrap().clone();
    assert_eq!(steps, ["list", "list", "difference", "difference", "effects", "write", "write"]);
    let latest = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&latest);
    let control = WorkControl::new(CancellationToken::new(), move |progress| *noted.lock().unwrap() = Some(progress));
    let again = request(&sent).run(&store, now, &control).await.unwrap();
    assert_eq!((&again["written"], &again["counts"]["same"]), (&json!(0), &json!(3)), "repeated, it finds everything the same");
    let end = latest.lock().unwrap().unwrap();
    assert_eq!((end.step, end.done, end.total), ("difference", 4, Some(4)));
    let over = json!({"file": LIST, "source": "a list", "overwrite": ["slow"]});
    let over = request(&over).run(&store, now, &WorkControl::unattended()).await.unwrap();
    assert_eq!((&over["written"], &over["counts"]["changed"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn cancelled_import_writes_nothing() {
    for step in ["list", "difference", "effects"] {
        let store = store().await;
        let (revision, before) = (store.catalog.revision().await.unwrap(), prices(&store.catalog.load().await.unwrap()));
        let (control, _) = control(Some(step));
        let failed = request(&json!({"file": LIST, "source": "a list", "to": "both"})).run(&store, now, &control).await;
        assert!(matches!(failed, Err(ImportFailure::Store(StoreError::Cancelled))), "{step}: {failed:?}");
        assert_eq!(store.catalog.revision().await.unwrap(), revision, "{step}");
        assert_eq!(prices(&store.catalog.load().await.unwrap()), before, "{step}");
    }
}

#[tokio::test]
async fn errors_of_the_list_have_positions() {
    let store = store().await;
    let failed =
        request(&json!({"file": "model,input\na,cheap\n", "source": "s"})).run(&store, now, &WorkControl::unattended()).await;
    let Err(ImportFailure::List { message, faults }) = failed else { panic!("{failed:?}") };
    assert_eq!((faults[0].line, faults[0].column), (2, 2));
    assert!(message.starts_with("line 2, column 2: input: "), "{message}");
    let failed = request(&json!({"file": "model,input\na,1\n"})).run(&store, now, &WorkControl::unattended()).await;
    let Err(ImportFailure::List { message, faults }) = failed else { panic!("{failed:?}") };
    assert!(faults.is_empty() && message.contains("'source'"), "{message}");
}

#[test]
fn lists_in_a_result_are_truncated_by_size() {
    let values = || (0..10).map(|_| json!("12345678"));
    assert_eq!(within(1_000, values()), (values().collect(), false));
    // Ten bytes with quotes and one for the comma.
    let (kept, cut) = within(33, values());
    assert_eq!((kept.len(), cut), (3, true));
    assert_eq!(within(0, values()), (Vec::new(), true));
    assert_eq!(within(0, std::iter::empty()), (Vec::new(), false));
    let most = ROW_BYTES + NAME_BYTES + SKIPPED_BYTES + EFFECT_BYTES + ABOUT_BYTES;
    assert!(most + (64 << 10) <= crate::jobs::MAX_RESULT_BYTES, "the result of every import is kept");
}
