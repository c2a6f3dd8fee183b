//! The commands. Those that query or change a gateway use [`crate::admin`].

pub(crate) mod about;
pub(crate) mod admin_key;
pub(crate) mod backup;
pub(crate) mod catalog;
pub(crate) mod channel;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod effects;
pub(crate) mod explain;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod ledger;
pub(crate) mod lists;
pub(crate) mod master_key;
pub(crate) mod migrate;
pub(crate) mod model;
pub(crate) mod ready;
pub(crate) mod replay;
pub(crate) mod resource;
pub(crate) mod secrets;
pub(crate) mod serve;
pub(crate) mod time_flag;
pub(crate) mod upgrade;
pub(crate) mod usage;
pub(crate) mod usage_show;
pub(crate) mod verify;
