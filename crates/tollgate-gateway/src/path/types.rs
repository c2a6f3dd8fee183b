//! Types that several stages of the path share. Stages import these, never each other.

pub(crate) mod dropped;
pub(crate) mod request_bodies;
pub(crate) mod trace;
pub(crate) mod usage_guard;
