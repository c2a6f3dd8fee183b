//! Models: sale prices and facts. A model exists when a channel serves it, with or without a row here.

use serde_json::{Map, Value, json};
use tollgate_core::ParameterRule;
use tollgate_store::{AdminScope, Change, ModelSpec, RowKind};

use super::{
    named_resource::{self, NamedResource, named_routes},
    request_context::InputFields,
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route},
    schema::{COUNT, CREATED_AT, MODEL_NAME, OWNER, ObjectSchema, REVISION, ValueSchema, WriteMode, both, fixed, read},
    shared_fields::{self, SCHEDULE},
};
use crate::api_error::ApiError;

const PARAMETERS: ValueSchema = ValueSchema::List { of: &MODEL_NAME, most: 1_000 };

static MODEL: ObjectSchema = ObjectSchema {
    name: "Model",
    fields: &[
        read("id", ValueSchema::Id("mdl_"), "Id."),
        fixed("name", MODEL_NAME, "What callers say."),
        both("price", SCHEDULE, "What callers pay, per million tokens, before the group's multiplier; null: not priced.").or_null(),
        both("context", COUNT, "Context length in tokens.").or_null(),
        both("max_output", COUNT, "Most output tokens.").or_null(),
        both("supported_parameters", PARAMETERS, "Only these optional fields are taken.").or_null(),
        both("unsupported_parameters", PARAMETERS, "All but these are taken.").or_null(),
        both("on_unsupported", ValueSchema::Enum(&["refuse", "drop"]), "What happens with one that is not taken."),
        both("visible", ValueSchema::Boolean, "false: left out of lists; who knows the name can use it."),
        both("description", ValueSchema::String { least: 0, most: 1_000 }, "One line about it.").or_null(),
        both("embeddings", ValueSchema::Boolean, "It makes vectors, not text."),
        OWNER,
        CREATED_AT,
        REVISION,
    ],
};

pub(super) static ROUTES: &[Route] = &named_routes!(
    ModelResource,
    &MODEL,
    "models",
    "models",
    ["list_models", "make_model", "get_model", "change_model", "remove_model"],
    AdminScope::Operator,
    "model"
);

/// The resource.
struct ModelResource;

impl NamedResource for ModelResource {
    type Spec = ModelSpec;
    const KIND: RowKind = RowKind::Model;

    fn name(spec: &ModelSpec) -> &str {
        &spec.name
    }

    fn show(spec: &ModelSpec) -> Map<String, Value> {
        let ModelSpec { name, price, context, max_output, parameters, on_unsupported, hidden, description, embeddings } = spec;
        let (supported, unsupported) = match parameters {
            ParameterRule::All => (None, None),
            ParameterRule::Only(names) => (Some(names), None),
            ParameterRule::Except(names) => (None, Some(names)),
        };
        shared_fields::members(json!({
            "name": name,
            "price": shared_fields::show_schedule(price.as_ref()),
            "context": context,
            "max_output": max_output,
            "supported_parameters": supported,
            "unsupported_parameters": unsupported,
            "on_unsupported": on_unsupported,
            "visible": !hidden,
            "description": description,
            "embeddings": embeddings,
        }))
    }

    fn take(sent: &InputFields, spec: &mut ModelSpec) -> Result<(), ApiError> {
        sent.set_text("name", &mut spec.name);
        shared_fields::set_schedule(sent, "price", &mut spec.price)?;
        sent.set_number_or_null("context", &mut spec.context);
        sent.set_number_or_null("max_output", &mut spec.max_output);
        parameters(sent, &mut spec.parameters)?;
        sent.set_word("on_unsupported", &mut spec.on_unsupported);
        let mut visible = !spec.hidden;
        sent.set_flag("visible", &mut visible);
        spec.hidden = !visible;
        sent.set_or_null("description", &mut spec.description);
        sent.set_flag("embeddings", &mut spec.embeddings);
        Ok(())
    }

    fn put(spec: ModelSpec) -> Change {
        Change::PutModel(Box::new(spec))
    }

    fn remove(model: String) -> Change {
        Change::RemoveModel { model }
    }
}

/// One of the two lists, or none: what is sent last decides, and both at once contradict each other.
fn parameters(sent: &InputFields, rule: &mut ParameterRule) -> Result<(), ApiError> {
    let names =
        |name: &str| sent.list(name).map(|items| items.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>());
    match (names("supported_parameters"), names("unsupported_parameters")) {
        (Some(_), Some(_)) => {
            return Err(ApiError::value("supported_parameters", "send supported_parameters or unsupported_parameters, not both"));
        }
        (Some(only), None) => *rule = ParameterRule::Only(only),
        (None, Some(except)) => *rule = ParameterRule::Except(except),
        (None, None) => {
            let gone = match rule {
                ParameterRule::All => false,
                ParameterRule::Only(_) => sent.has("supported_parameters"),
                ParameterRule::Except(_) => sent.has("unsupported_parameters"),
            };
            if gone {
                *rule = ParameterRule::All;
            }
        }
    }
    Ok(())
}
