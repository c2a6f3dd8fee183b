//! The model as this caller gets it: group, prices, channels, parameters. Stage 3 of the path decides here, and so do
//! the model lists: both ask [`offering`].

mod parameters;

use std::sync::Arc;

use tollgate_protocol::{FieldPath, Method, Outline, Protocol};

use crate::{Catalog, Group, Key, Model, Price, Revision, ServedBy, Timestamp};

/// Who asks, with the groups that count.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Key, with its member.
    pub key: Arc<Key>,
    /// Groups in effect, in the key's order.
    pub groups: Vec<Arc<Group>>,
}

impl Caller {
    /// The caller behind a key. Public groups and granted private ones count; a key that names none has its
    /// member's default group, a member without one the public group `default`.
    #[must_use]
    pub fn of(catalog: &Catalog, key: Arc<Key>) -> Self {
        let _ = catalog;
        Self { key, groups: Vec::new() }
    }
}

/// A model on a caller's list.
#[derive(Clone, Debug)]
pub struct VisibleModel {
    /// Its row; made up where the catalog has none.
    pub model: Arc<Model>,
    /// The group that serves it to this caller.
    pub group: Arc<Group>,
    /// What it is offered for, native methods.
    pub methods: Vec<Method>,
    /// Caller protocols that reach it without translation, in order.
    pub protocols: Vec<Protocol>,
}

/// A model as a caller gets it.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its row; made up where the catalog has none.
    pub model: Arc<Model>,
    /// The group that serves it: prices, limits and policies are its.
    pub group: Arc<Group>,
    /// Sale list valid now, before the group's multiplier; `None`: not priced.
    pub sale: Option<Price>,
    /// The channels that serve it to this group, as positions in the catalog of `revision`.
    pub candidates: Vec<ServedBy>,
    /// Fields to take out of the request, in the caller's spelling (`on_unsupported = "drop"`).
    pub drop_fields: Vec<FieldPath>,
    /// The snapshot it was resolved from, which is also the price version.
    pub revision: Revision,
}

/// Why a caller does not get a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOffered {
    /// No channel serves it (E13).
    Unknown,
    /// It exists, but not for this caller (E14).
    OutsideGroup,
    /// It is offered, but not for this method (E15).
    Method {
        /// What it is offered for: native verbs and chat paths.
        supports: Vec<&'static str>,
    },
    /// Fields it does not take (E17), in the caller's spelling.
    Unsupported {
        /// All of them, in the order of the request.
        fields: Vec<FieldPath>,
    },
}

/// Everything a caller may list, sorted by name.
#[must_use]
pub fn visible_models(catalog: &Catalog, caller: &Caller) -> Vec<VisibleModel> {
    let _ = (catalog, caller);
    unimplemented!()
}

/// One model of the list, hidden ones included: who knows the name may ask for it.
#[must_use]
pub fn visible_model(catalog: &Catalog, caller: &Caller, name: &str) -> Option<VisibleModel> {
    let _ = (catalog, caller, name);
    unimplemented!()
}

/// The offer for a request.
///
/// # Errors
/// When the caller does not get the model, not for this method, or not with these fields.
pub fn resolve(catalog: &Catalog, caller: &Caller, outline: &Outline, from: Protocol, now: Timestamp) -> Result<Offer, NotOffered> {
    let _ = (catalog, caller, outline, from, now);
    unimplemented!()
}
