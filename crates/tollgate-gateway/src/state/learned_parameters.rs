//! Request fields that upstreams recently refused, by channel and upstream model, shared by all cores. While there are
//! none, reads take no lock.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tollgate_core::{Channel, ChannelId, PlannedAttempt, Requester, Timestamp, UnsupportedFields};
use tollgate_protocol::{FieldPath, Protocol};

use crate::state::shares::Bound;

const MAX_MODELS: usize = 10_000;

/// Unsupported fields by channel and upstream model.
#[derive(Debug, Default)]
pub(crate) struct LearnedParameters {
    models: Mutex<HashMap<ChannelId, HashMap<String, UnsupportedFields>>>,
    /// Number of channels in `models`, so that an empty map is detected without a lock.
    count: AtomicUsize,
}

impl LearnedParameters {
    /// Records that an upstream refused a request of `by` with `fields` and named `names` as unsupported.
    pub(crate) fn refused(
        &self,
        planned: &PlannedAttempt,
        names: &[String],
        from: Protocol,
        fields: &[FieldPath],
        by: Requester,
        now: Timestamp,
    ) {
        if names.is_empty() || !planned.channel.spec.learn_unsupported {
            return;
        }
        let (upstream, first) = (&planned.mapping().upstream, Bound::RefusedFields.share().concerned(by));
        self.change(|models| {
            let count = models.values().map(HashMap::len).sum::<usize>();
            let channel = models.entry(planned.channel.id).or_default();
            if count < MAX_MODELS || channel.contains_key(upstream) {
                channel.entry(upstream.clone()).or_default().record_refusal(names, from, fields, by, first, now);
            }
            evict_expired(models, now);
        });
    }

    /// Records that an upstream accepted a request with `fields`.
    pub(crate) fn answered(&self, planned: &PlannedAttempt, from: Protocol, fields: &[FieldPath], now: impl FnOnce() -> Timestamp) {
        if self.is_empty() {
            return;
        }
        let now = now();
        self.change(|models| {
            let upstream = &planned.mapping().upstream;
            if let Some(learned) = models.get_mut(&planned.channel.id).and_then(|channel| channel.get_mut(upstream)) {
                learned.record_success(from, fields);
                evict_expired(models, now);
            }
        });
    }

    /// The fields of a request of `by` that a channel's model is known to refuse.
    pub(crate) fn of(
        &self,
        channel: &Channel,
        upstream_model: &str,
        from: Protocol,
        fields: &[FieldPath],
        by: Requester,
        now: Timestamp,
    ) -> Vec<FieldPath> {
        if self.is_empty() || !channel.spec.learn_unsupported {
            return Vec::new();
        }
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let learned = models.get(&channel.id).and_then(|channel| channel.get(upstream_model));
        learned.map(|learned| learned.unsupported_in(from, fields, by, now)).unwrap_or_default()
    }

    /// All unsupported fields, of at most `max` models.
    pub(crate) fn all(&self, max: usize, now: Timestamp) -> BTreeMap<(ChannelId, String), UnsupportedFields> {
        if self.is_empty() {
            return BTreeMap::new();
        }
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let all = models.iter().flat_map(|(channel, models)| models.iter().map(|(model, it)| (*channel, model, it)));
        let kept = all.filter(|(_, _, it)| !it.is_empty(now)).take(max);
        kept.map(|(channel, model, it)| ((channel, model.clone()), it.clone())).collect()
    }

    /// Whether nothing is remembered. Takes no lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<ChannelId, HashMap<String, UnsupportedFields>>)) {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut models);
        self.count.store(models.len(), Ordering::Release);
    }
}

fn evict_expired(models: &mut HashMap<ChannelId, HashMap<String, UnsupportedFields>>, now: Timestamp) {
    for channel in models.values_mut() {
        channel.retain(|_, learned| !learned.is_empty(now));
    }
    models.retain(|_, channel| !channel.is_empty());
}
