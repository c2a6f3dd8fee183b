//! The control plane: the admin API.
