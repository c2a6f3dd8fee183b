//! What every backend must do: one file a trait, each check run on memory and SQLite always, and on PostgreSQL when
//! `TOLLGATE_TEST_POSTGRES` holds the address of a database where schemas may be made.

mod catalog;
mod health;
mod keys;
mod ledger;
mod listing;
mod usage;

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{Connection as _, Executor as _};
use tempfile::TempDir;
use tollgate_core::{Budget, BudgetAction, ModelMapping, NanoUsd, Provider, Secret, Window};

use crate::{
    AccessMode, AccountSpec, Actor, Change, ChangeOrigin, ChannelSpec, ErrorClass, GroupSpec, KeySpec, MasterKeySource,
    OpenOptions, RandomSource, Store, StoreError, StoreUrl, open, samples::NOON,
};

/// Options that open a database in a folder.
pub(crate) fn options(url: StoreUrl, dir: &TempDir) -> OpenOptions {
    OpenOptions {
        url,
        data: dir.path().to_owned(),
        master: MasterKeySource::DataFolder,
        access: AccessMode::Command,
        random: RandomSource::system(),
        now: NOON,
        without_database: None,
    }
}

/// The file in a folder.
pub(crate) fn sqlite(dir: &TempDir) -> StoreUrl {
    StoreUrl::Sqlite(dir.path().join("tollgate.db"))
}

pub(crate) fn actor(door: ChangeOrigin) -> Actor {
    Actor { door, name: "tester".to_owned() }
}

pub(crate) fn channel(name: &str) -> ChannelSpec {
    ChannelSpec {
        name: name.to_owned(),
        provider: Provider::Compatible,
        base_url: "http://127.0.0.1:4010/v1".to_owned(),
        serves: vec![ModelMapping { model: "fast".to_owned(), upstream: "fast-1".to_owned(), ..ModelMapping::default() }],
        budgets: vec![Budget { amount: NanoUsd(5_000_000_000), window: Window::Day, action: BudgetAction::Block }],
        ..ChannelSpec::default()
    }
}

pub(crate) fn put_channel(name: &str) -> Change {
    Change::PutChannel(Box::new(channel(name)))
}

pub(crate) fn put_account(channel: &str, name: &str, credential: Option<&str>) -> Change {
    let account = AccountSpec { name: name.to_owned(), concurrency: 4, ..AccountSpec::default() };
    Change::PutAccount { channel: channel.to_owned(), account, credential: credential.map(|text| Secret::new(text.to_owned())) }
}

pub(crate) fn put_group(name: &str, channels: &[&str]) -> Change {
    let channels = channels.iter().map(|name| (*name).to_owned()).collect();
    Change::PutGroup(Box::new(GroupSpec { name: name.to_owned(), channels, ..GroupSpec::default() }))
}

pub(crate) fn put_key(store: &Store, name: &str, groups: &[&str], secret: Option<&str>) -> Change {
    let groups = groups.iter().map(|name| (*name).to_owned()).collect();
    let key = Box::new(KeySpec { name: name.to_owned(), groups, ..KeySpec::default() });
    Change::PutKey { key, secret: secret.map(|text| store.hasher.import(&Secret::new(text.to_owned())).unwrap()) }
}

/// The address of an empty schema of its own on PostgreSQL; `None`, said aloud, when there is none to test on.
pub(crate) async fn postgres(check: &str) -> Option<Schema> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    #[expect(clippy::disallowed_methods, reason = "the address of a test database comes from whoever runs the tests")]
    let Ok(url) = std::env::var("TOLLGATE_TEST_POSTGRES") else {
        tollgate_testkit::skipped(&format!("{check} on PostgreSQL (TOLLGATE_TEST_POSTGRES is not set)"));
        return None;
    };
    let schema = format!("tollgate_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    connection.execute(sqlx::AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await.unwrap();
    let join = if url.contains('?') { '&' } else { '?' };
    let address = StoreUrl::parse(&format!("{url}{join}options=-csearch_path%3D{schema}")).unwrap();
    Some(Schema { address, name: schema, connection })
}

/// A schema for one check; a check that fails leaves it behind to be looked at.
pub(crate) struct Schema {
    pub(crate) address: StoreUrl,
    name: String,
    connection: sqlx::PgConnection,
}

impl Schema {
    pub(crate) async fn drop(mut self) {
        let sql = format!("DROP SCHEMA {} CASCADE", self.name);
        self.connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
        self.connection.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_second_server_on_one_postgres_database_is_turned_away() {
    let Some(schema) = postgres("a_second_server").await else { return };
    let url = &schema.address;
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let serve = |dir| OpenOptions { access: AccessMode::Serve, ..options(url.clone(), dir) };
    let first = open(serve(&one)).await.unwrap();
    std::fs::copy(one.path().join("master.key"), two.path().join("master.key")).unwrap();
    let refused = open(serve(&two)).await.unwrap_err();
    assert!(matches!(refused, StoreError::SecondNode { .. }) && refused.fault() == ErrorClass::Operator, "{refused}");
    open(options(url.clone(), &two)).await.unwrap().close().await;
    first.close().await;
    open(serve(&two)).await.unwrap().close().await;
    schema.drop().await;
}

#[tokio::test]
async fn postgres_tells_who_waits_ahead_of_the_next_look() {
    let Some(schema) = postgres("a_notification").await else { return };
    let dir = TempDir::new().unwrap();
    let store = open(options(schema.address.clone(), &dir)).await.unwrap();
    let five_changes = async {
        for name in ["a", "b", "c", "d", "e"] {
            let known = store.catalog.revision().await.unwrap();
            let batch = [put_channel(name)];
            let (seen, made) = tokio::join!(store.catalog.wait_for_change(known), catalog::apply(&store, &batch));
            assert_eq!(seen.unwrap(), made.unwrap());
        }
    };
    let in_time = tokio::time::timeout(std::time::Duration::from_secs(4), five_changes).await;
    assert!(in_time.is_ok(), "looking alone takes a second each time");
    store.close().await;
    schema.drop().await;
}

/// Runs every check of every file on every backend.
macro_rules! conformance {
    ($($file:ident: $($check:ident),+;)+) => {$($(
        mod $check {
            use super::*;

            #[tokio::test]
            async fn on_memory() {
                let dir = TempDir::new().unwrap();
                $file::$check(&open(options(StoreUrl::Memory, &dir)).await.unwrap()).await;
            }

            #[tokio::test]
            async fn on_sqlite() {
                let dir = TempDir::new().unwrap();
                $file::$check(&open(options(sqlite(&dir), &dir)).await.unwrap()).await;
            }

            #[tokio::test]
            async fn on_postgres() {
                if let Some(schema) = postgres(stringify!($check)).await {
                    let dir = TempDir::new().unwrap();
                    let store = open(options(schema.address.clone(), &dir)).await.unwrap();
                    $file::$check(&store).await;
                    store.close().await;
                    schema.drop().await;
                }
            }
        }
    )+)+};
}

conformance! {
    catalog:
        a_catalog_loads_as_it_was_put,
        a_batch_is_written_whole_or_not_at_all,
        what_differs_in_nothing_makes_no_revision,
        a_removed_channel_takes_its_accounts_and_its_name_is_free,
        rows_of_a_served_file_are_changed_by_the_file_only,
        a_change_for_another_revision_is_refused,
        every_change_is_in_the_audit_log_without_secrets,
        the_password_of_a_proxy_is_kept_as_credentials_are,
        keys_with_price_limits_of_their_own_are_found_up_to_a_bound,
        the_last_admin_stays,
        batches_at_the_same_time_follow_each_other,
        who_waits_for_a_change_learns_of_it;
    keys:
        a_key_is_found_by_its_hash_with_its_member,
        a_revoked_key_stays_revoked_and_its_secret_can_be_imported_again,
        a_secret_belongs_to_one_key,
        a_key_of_a_removed_group_does_not_fall_back_to_the_default_group,
        a_removed_member_takes_the_keys_along,
        keys_without_a_member_belong_to_the_owner;
    usage:
        a_record_is_booked_exactly_once,
        two_tills_with_the_same_records_book_each_once,
        pages_follow_each_other_without_gap_or_overlap,
        filters_narrow_pages_and_sums,
        records_survive_with_every_field,
        known_names_what_is_booked,
        sums_are_the_same_wherever_they_come_from,
        old_records_go_and_do_not_come_back,
        the_time_of_the_log_moves_from_what_is_known_only;
    ledger:
        what_requests_cost_is_entered_once,
        a_record_twice_in_a_batch_is_settled_once,
        a_posting_happens_once_for_its_key,
        postings_that_make_no_sense_are_refused,
        entries_come_newest_first_and_are_filtered,
        balances_name_every_member,
        what_is_posted_is_seen_behind_a_place,
        what_was_spent_is_summed_by_subject_and_period,
        what_second_attempts_cost_today_is_summed_by_group,
    what_changed_since_leads_to_what_is_spent_now,
        books_agree_when_everything_happens_at_once;
    listing:
        rows_are_listed_page_by_page_with_their_revisions,
        a_row_that_changed_meanwhile_is_not_written,
        what_was_asked_for_twice_happens_once,
        an_admin_key_is_known_by_its_hash_until_it_ends;
    health:
        health_is_kept_for_accounts_that_exist;
}
