//! The control plane: the admin API, the pages of the console, and how members sign in.
//!
//! The router, authorisation and the OpenAPI document are derived from one route table ([`api`]). The crate does not depend
//! on the gateway: it reaches the running process through [`GatewayHandle`]. Requests enter through [`Console::answer`],
//! from the gateway's listeners or from the command line.

mod api;
mod api_error;
mod appearance;
mod auth;
mod caller;
mod catalog_lists;
mod console;
mod currency;
mod dispatch;
pub mod export_days;
mod gateway_handle;
mod identity;
mod jobs;
mod json;
mod kept_answers;
mod oidc;
mod pages;
mod price_import;
mod principal;
mod registration;
mod response;
mod shares;
mod square;
mod state;
mod time;
mod usage_columns;
mod usage_export;
mod usage_files;
mod usage_format;
mod usage_parquet;

pub use api::{parse_field_args, parse_outcomes, parse_status, parse_tags, preferences::is_time_zone, route_fields};
pub use appearance::{Announcement, Appearance, is_image};
pub use axum::body::Body;
pub use caller::is_caller_path;
pub use console::Console;
pub use currency::{CURRENCIES, DisplayCurrency};
pub use dispatch::NotOfConsole;
pub use gateway_handle::{
    AccountTestResult, CapacityUse, ChannelTest, ChannelTestError, ChannelTestEvent, CheckedSetting, EffectiveSetting,
    ExplainRequest, GatewayHandle, JournalUse, KeyRefusal, OnTestEvent, ProxyTestResult, SessionTimes, SettingKind, SettingRefusal,
    TestStep, TestedModel,
};
pub use identity::{
    IdentitySettings,
    links::{SetUpLink, is_set_up_path, make_set_up_link},
};
pub use jobs::{
    ExportRequest, JobError, JobFailure, JobKind, JobOutput, JobRequest, JobRunner, Jobs, RecordSelection, ReplayRequest,
    ScheduledBackups, ScheduledEnd,
};
pub use oidc::OidcSettings;
pub use pages::{
    notices::{NoticeMail, notice_mail},
    setting_sections::section_of_setting,
    setting_texts::{described_settings, labelled_settings},
};
pub use price_import::{ImportFailure, ImportRequest};
pub use registration::{Registration, RegistrationMode};
pub use response::InternalFailure;
pub use state::RequestMeta;
pub use time::{day_text, parse_day, rfc3339};
pub use usage_columns::ExportView;
pub use usage_export::{ExportFormat, export_usage};
pub use usage_files::{UsageFile, UsageFiles};
pub use usage_format::{json as usage_json, write_csv_lines as write_usage_csv, write_json_line as write_usage_json};
