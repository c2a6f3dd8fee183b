//! The contract of every backend, one file per trait. Each check runs on memory and SQLite, and on PostgreSQL if
//! `TOLLGATE_TEST_POSTGRES` is the address of a database in which schemas may be created.

mod alerts;
mod catalog;
mod contents;
mod exports;
mod health;
mod identity;
mod keys;
mod last_requests;
mod ledger;
mod listing;
mod passkeys;
mod prices;
mod settings;
mod square;
mod usage;
mod usage_dimensions;

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{Connection as _, Executor as _};
use tempfile::TempDir;
use tollgate_core::{AccountSpec, Budget, BudgetAction, ChannelSpec, ModelMapping, NanoUsd, Provider, Revision, Secret, Window};

use crate::{
    AccessMode, Actor, Change, ChangeOrigin, ChangeRefusal, ErrorClass, GroupSpec, KeySpec, MasterKeySource, OpenOptions,
    RandomSource, Store, StoreError, StoreUrl, open, samples::MIDNIGHT,
};

/// Options that use `dir` as the data folder.
pub(crate) fn options(url: StoreUrl, dir: &TempDir) -> OpenOptions {
    OpenOptions {
        url,
        data: dir.path().to_owned(),
        master: MasterKeySource::DataFolder,
        access: AccessMode::Command,
        random: RandomSource::system(),
        now: MIDNIGHT,
        without_database: None,
    }
}

/// The address of an SQLite file in `dir`.
pub(crate) fn sqlite(dir: &TempDir) -> StoreUrl {
    StoreUrl::Sqlite(dir.path().join("tollgate.db"))
}

pub(crate) fn actor(origin: ChangeOrigin) -> Actor {
    Actor { origin, name: "tester".to_owned(), address: Some("203.0.113.9".parse().unwrap()) }
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

/// Applies changes from the command line.
pub(crate) async fn apply(store: &Store, changes: &[Change]) -> Result<Revision, StoreError> {
    store.catalog.apply(changes, &actor(ChangeOrigin::Cli), MIDNIGHT).await
}

/// The reason of a refused change.
fn refusal(error: StoreError) -> ChangeRefusal {
    let StoreError::Refused(refused) = error else { panic!("{error}") };
    refused.reason
}

/// Creates an empty schema on PostgreSQL. Prints that the check is skipped and returns `None` if there is no database.
pub(crate) async fn postgres(check: &str) -> Option<Schema> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    #[expect(clippy::disallowed_methods, reason = "the environment gives the address of the test database")]
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

/// A schema for one check; a failed check leaves it behind for inspection.
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
async fn second_server_on_a_postgres_database_is_refused() {
    let Some(schema) = postgres("a_second_server").await else { return };
    let url = &schema.address;
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let serve = |dir| OpenOptions { access: AccessMode::Serve, ..options(url.clone(), dir) };
    let first = open(serve(&one)).await.unwrap();
    std::fs::copy(one.path().join("master.key"), two.path().join("master.key")).unwrap();
    let refused = open(serve(&two)).await.unwrap_err();
    assert!(matches!(refused, StoreError::SecondNode { .. }) && refused.class() == ErrorClass::Operator, "{refused}");
    open(options(url.clone(), &two)).await.unwrap().close().await;
    first.close().await;
    open(serve(&two)).await.unwrap().close().await;
    schema.drop().await;
}

#[tokio::test]
async fn postgres_notifies_waiters_before_the_next_poll() {
    let Some(schema) = postgres("a_notification").await else { return };
    let dir = TempDir::new().unwrap();
    let store = open(options(schema.address.clone(), &dir)).await.unwrap();
    let five_changes = async {
        for name in ["a", "b", "c", "d", "e"] {
            let known = store.catalog.revision().await.unwrap();
            let batch = [put_channel(name)];
            let (seen, made) = tokio::join!(store.catalog.wait_for_change(known), apply(&store, &batch));
            assert_eq!(seen.unwrap(), made.unwrap());
        }
    };
    let in_time = tokio::time::timeout(std::time::Duration::from_secs(4), five_changes).await;
    assert!(in_time.is_ok(), "polling would take a second per change");
    store.close().await;
    schema.drop().await;
}

/// Defines a test for each check on each backend.
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
        catalog_loads_as_written,
        batch_is_atomic,
        batch_without_effect_makes_no_revision,
        removing_a_channel_removes_its_accounts_and_frees_its_name,
        file_owned_rows_are_changed_by_the_file_only,
        channel_is_added_to_a_group_and_removed_from_it,
        change_for_another_revision_is_refused,
        audit_log_has_every_change_without_secrets,
        proxy_password_is_sealed_like_a_credential,
        header_values_are_sealed_like_a_credential,
        keys_with_a_price_limit_are_selected_up_to_a_bound,
        last_admin_cannot_be_removed,
        concurrent_batches_are_serialised,
        waiting_for_a_change_returns_the_new_revision;
    keys:
        key_is_found_by_hash_with_its_member,
        rotated_key_has_two_secrets_for_a_while,
        secret_of_a_revoked_key_can_be_imported_again,
        secret_belongs_to_one_key,
        concurrent_changes_do_not_exceed_the_maximum_keys_of_a_member,
        key_of_a_removed_group_does_not_use_the_default_group,
        removing_a_member_revokes_its_keys,
        key_without_a_member_belongs_to_the_owner;
    usage:
        record_is_stored_exactly_once,
        batches_of_any_size_store_records_unchanged,
        cache_writes_kept_for_an_hour_are_stored,
        concurrent_appends_of_the_same_records_store_each_once,
        pages_have_no_gap_or_overlap,
        pages_continue_across_days,
        filters_apply_to_pages_and_sums,
        records_are_stored_with_every_field,
        attempt_that_adds_nothing_is_stored_in_the_row_of_its_record,
        trace_with_details_and_long_traces_are_stored,
        records_keep_their_former_names_and_sums_group_by_id,
        arrival_time_of_a_record_is_taken_from_its_id,
        summaries_have_percentiles,
        known_returns_stored_ids,
        sums_from_rollups_and_records_are_equal,
        sums_of_any_range_equal_those_of_its_records,
        pruned_records_do_not_come_back,
        log_time_is_set_only_from_the_expected_value;
    contents:
        contents_are_stored_once_and_removed,
        contents_of_the_key_that_stores_the_most_are_removed_first;
    exports:
        export_is_claimed_by_one_holder_and_exported_days_and_failures_are_stored;
    usage_dimensions:
        sums_by_every_pair_of_dimensions_equal_those_of_the_records,
        attempt_sums_include_failed_attempts_of_answered_requests,
        pages_contain_the_records_that_meet_every_condition,
        tag_values_beyond_the_limit_are_summed_as_one,
        key_usage_matches_the_records,
        largest_groups_and_member_filters_match_the_full_summary,
        records_are_followed_in_booking_order,
        booking_order_of_old_batches_is_discarded;
    last_requests:
        keys_that_were_used_last_are_found_first;
    ledger:
        each_request_is_settled_once,
        duplicate_record_in_a_batch_is_settled_once,
        posting_is_idempotent_by_its_key,
        invalid_postings_are_refused,
        entries_are_ordered_and_filtered,
        balances_list_every_member,
        postings_are_found_after_a_position,
        spending_is_summed_by_subject_and_period,
        hedge_costs_of_today_are_summed_by_group,
    spending_changes_lead_to_current_spending,
        ledger_is_consistent_after_concurrent_writes;
    listing:
        rows_are_listed_in_pages_with_their_revisions,
        key_entries_match_their_rows,
        size_of_the_database_is_known,
        members_and_keys_are_counted_by_group,
        only_names_of_visible_rows_are_returned,
        members_are_found_by_a_part_of_name_or_email_address,
        row_preconditions_are_checked,
        idempotent_batch_is_applied_once,
        admin_key_is_found_by_hash_until_revoked_or_expired;
    identity:
        login_is_found_by_name_email_and_subject,
        session_ends_with_role_password_status_and_time,
        sessions_are_listed_by_member_and_bounded,
        remembered_session_has_its_own_idle_timeout,
        one_time_code_is_used_once,
        preferences_are_kept_with_the_login,
        members_are_notified_by_mail_once_they_ask_for_it,
        invite_makes_one_member,
        registration_makes_a_plain_member,
        link_of_the_set_up_makes_an_admin_of_another_name,
        link_sets_a_password_once,
        admins_are_listed_with_their_logins,
        admin_key_of_a_member_is_narrowed_and_ends_with_the_member,
        rows_of_others_are_out_of_scope;
    passkeys:
        passkey_is_found_by_its_credential_and_kept_up_to_date,
        challenge_is_answered_once,
        counter_that_does_not_advance_is_refused,
        passkeys_of_a_member_are_bounded_and_end_with_the_member;
    prices:
        every_change_of_a_price_is_in_its_history,
        price_set_by_hand_has_no_import_source,
        history_of_a_price_has_pages,
        cost_of_a_model_that_is_not_served_is_refused;
    settings:
        stored_settings_are_loaded_with_the_catalog,
        audit_has_the_old_and_the_new_value_of_a_setting;
    alerts:
        destination_keeps_its_secrets_sealed,
        alert_is_raised_once_until_it_is_over,
        message_is_claimed_by_one_node_at_a_time,
        one_node_evaluates_until_it_stops_claiming,
        keys_that_expire_are_found;
    health:
        health_is_stored_for_existing_accounts,
        transitions_are_found_by_time_and_subject,
        old_transitions_are_removed,
        runs_of_a_node_end_with_a_pause_of_three_minutes,
        last_test_of_an_account_replaces_the_one_before;
    square:
        traffic_of_offers_matches_the_records,
        traffic_counts_faults_of_upstream_and_gateway_only,
        every_change_of_an_offer_is_in_its_history,
        model_factors_are_in_the_history_of_offers,
        latest_sale_prices_include_every_model;
}
