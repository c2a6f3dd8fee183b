//! The fields of a model as a channel serves it.

use serde_json::Value;
use tollgate_core::{ModelMapping, PriceSchedule};
use tollgate_protocol::Profile;

use super::{
    Access, FieldValue, Kind, Row as _,
    base_url::is_dots,
    field,
    price::{objects, times_rise},
    table,
    value::MODEL_NAME,
};
use crate::FieldProblem;

table!(
    ModelMapping,
    "ServedModel",
    ModelMapping::default(),
    &[
        field!("model", model: String, "Model name used by callers.").kind(MODEL_NAME).access(Access::Fixed),
        field!("upstream", upstream: String, "Model name used by the provider.")
            .kind(MODEL_NAME)
            .default_text("as `model`")
            .rule(no_dot_segments),
        field!("cost", cost: Option<PriceSchedule>, "What the provider charges: a price, or a list of prices over time.")
            .default_text("not known")
            .rule(times_rise),
        field!("profile", profile: Profile, "Facts about the upstream model that translation needs."),
    ],
    problems |mapping: &ModelMapping| {
        let as_model = if mapping.upstream.is_empty() { as_upstream(&mapping.model) } else { Ok(()) };
        as_model.err().map(|message| FieldProblem { field: "model", message }).into_iter().collect()
    }
);

impl FieldValue for ModelMapping {
    const KIND: Kind = Kind::Object(Self::OBJECT);

    fn show(&self) -> Value {
        super::whole(self).into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        let mut mapping: Self = super::price::read_object(value)?;
        if mapping.upstream.is_empty() {
            as_upstream(&mapping.model)?;
            mapping.upstream.clone_from(&mapping.model);
        }
        Ok(mapping)
    }
}

impl FieldValue for Vec<ModelMapping> {
    const KIND: Kind = Kind::List { of: &Kind::Object(ModelMapping::OBJECT), max: 10_000 };

    fn show(&self) -> Value {
        self.iter().map(FieldValue::show).collect()
    }

    fn read(value: &Value) -> Result<Self, String> {
        value.as_array().into_iter().flatten().map(FieldValue::read).collect()
    }
}

objects!(Profile);

/// The name becomes part of a path at some providers.
fn no_dot_segments(value: &Value) -> Result<(), String> {
    let name = value.as_str().unwrap_or_default();
    if name.split(['/', '\\']).any(|segment| segment.is_empty() || is_dots(segment)) {
        return Err("must not have empty segments or the segments . and .., such as in models/../x".to_owned());
    }
    Ok(())
}

/// Checks a model name that is also the upstream's name.
fn as_upstream(model: &str) -> Result<(), String> {
    no_dot_segments(&model.into()).map_err(|fault| format!("upstream, which is as `model`, {fault}"))
}

pub(super) fn mappings_differ(value: &Value) -> Result<(), String> {
    let mut seen = std::collections::HashSet::new();
    let mut models = value.as_array().into_iter().flatten().filter_map(|mapping| mapping["model"].as_str());
    models.find(|model| !seen.insert(*model)).map_or(Ok(()), |model| Err(format!("model '{model}' is served twice")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_name_has_no_dot_segments() {
        for good in ["gpt-5-mini", "models/gemini-2.5-pro", "openai/gpt-4o:free", "a..b", "accounts/x/models/y"] {
            assert_eq!(no_dot_segments(&good.into()), Ok(()), "{good}");
        }
        for bad in ["../../../x", "models/../x", "a/./b", "..", "/x", "a//b", "a\\..\\b", "x/", "a/%2e%2E/b", "%2e", ".%2e"] {
            assert!(no_dot_segments(&bad.into()).is_err(), "{bad}");
        }
    }
}
