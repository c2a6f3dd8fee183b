//! Types that several stages of the path share. Stages import these, never each other.

pub(crate) mod attempt;
pub(crate) mod context;
pub(crate) mod dropped;
pub(crate) mod failure;
pub(crate) mod offered;
pub(crate) mod request_bodies;
pub(crate) mod reserve;
pub(crate) mod stream_memory;
pub(crate) mod stream_progress;
pub(crate) mod trace;
pub(crate) mod usage_guard;
pub(crate) mod worker;
