//! The OpenAPI document, made from the route table.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tollgate_store::{
    AdminScope,
    fields::{Access, FieldShape, Kind, MAX_DECIMAL, MAX_NETWORK, MAX_TEXT_NAME, MAX_TEXT_VALUE, MAX_TIME, Object, WriteMode},
};

use super::{
    channels::several::MAX_CHANNELS,
    route::{self, Idempotency, Needs, RequestSchema, ResponseSchema, Route},
};
use crate::api_error::MAX_FAULTS;

/// The OpenAPI 3.1 document of these routes.
pub(crate) fn document(routes: impl Iterator<Item = &'static Route>, version: &str) -> Value {
    let mut schemas = Schemas::default();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let method = format!("{:?}", route.method).to_lowercase();
        let operation = operation(route, &mut schemas);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[method] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tollgate admin API",
            "version": version,
            "description": "Amounts are decimal strings in USD; a request may send numbers, which are read through their shortest decimal form. \
                Lists come in pages: `next` is the `after` of the next one. `If-Match` takes the `revision` of a row. \
                `Idempotency-Key` makes a request happen once within a day.",
        },
        "servers": [{"url": "/"}],
        "security": [{"admin_key": []}, {"session": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "admin_key": {"type": "http", "scheme": "bearer", "description": "An admin key (`tga-…`)."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "tollgate_session",
                    "description": "A session, over HTTPS as `__Host-tollgate_session`. Other methods than GET also need the header \
                        `x-csrf-token`.",
                },
            },
            "schemas": schemas.with_error(),
        },
    })
}

/// The schema of errors.
fn error() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The member or parameter at fault."},
                "code": {"type": "string"},
                "faults": {
                    "type": "array",
                    "maxItems": MAX_FAULTS,
                    "description": "For a catalog file: its faults, by position in the file.",
                    "items": {
                        "type": "object",
                        "required": ["line", "column", "message"],
                        "properties": {
                            "line": {"type": "integer"}, "column": {"type": "integer"}, "message": {"type": "string"},
                        },
                        "additionalProperties": false,
                    },
                },
                "rows": {
                    "type": "array",
                    "maxItems": MAX_CHANNELS,
                    "description": "For a change of several rows: the fault of each row. No row was changed.",
                    "items": {
                        "type": "object",
                        "required": ["name", "message", "param", "code"],
                        "properties": {
                            "name": {"type": "string"}, "message": {"type": "string"}, "param": {"type": ["string", "null"]},
                            "code": {"type": "string"},
                        },
                        "additionalProperties": false,
                    },
                },
            },
            "additionalProperties": false,
        }},
        "additionalProperties": false,
    })
}

/// A server-sent event.
fn event() -> Value {
    json!({
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "event": {"type": "string"},
            "data": {"type": "string", "contentMediaType": "application/json"},
            "id": {"type": "string"},
        },
        "additionalProperties": false,
    })
}

/// Schemas by name.
#[derive(Default)]
pub(crate) struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    /// A reference to the schema of an answer.
    pub(crate) fn answer(&mut self, object: &'static Object) -> Value {
        self.object(object, SchemaDirection::Response)
    }

    /// A parameter in the query.
    pub(crate) fn query(&mut self, field: &FieldShape) -> Value {
        let schema = self.kind(&field.kind, SchemaDirection::Request(WriteMode::Create));
        let required = field.access.is_needed(WriteMode::Create);
        json!({"name": field.name, "in": "query", "required": required, "description": field.doc, "schema": schema})
    }

    /// The section `schemas` of a document, with that of errors.
    pub(crate) fn with_error(mut self) -> Value {
        self.0.insert("Error".to_owned(), error());
        Value::Object(self.0.into_iter().collect())
    }
}

pub(crate) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    for part in route.path.split('/') {
        if let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            let parameter = route::path_parameter(name);
            let schema = schemas.kind(&parameter.kind, SchemaDirection::Request(WriteMode::Create));
            parameters.push(json!({"name": name, "in": "path", "required": true, "description": parameter.doc, "schema": schema}));
        }
    }
    parameters.extend(route.query.iter().map(|field| schemas.query(field)));
    let header = |name: &str, required: bool, doc: &str, pattern: &str| {
        let schema = json!({"type": "string", "pattern": pattern});
        json!({"name": name, "in": "header", "required": required, "description": doc, "schema": schema})
    };
    if route.idempotency != Idempotency::Ignored {
        let doc = "Makes it happen once within a day.";
        parameters.push(header("Idempotency-Key", route.idempotency == Idempotency::Required, doc, "^[ -~]{1,200}$"));
    }
    if route.takes_revision {
        let doc = "The revision the change is made for; another one is 409.";
        parameters.push(header("If-Match", false, doc, r#"^(\*|(W/)?"?[0-9]{1,20}"?)$"#));
    }
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.doc,
        "tags": [route.resource],
        "description": description(route.needs),
        "x-needs": route.needs.words(),
        "parameters": parameters,
        "responses": responses(route, schemas),
    });
    if route.needs == Needs::Nothing {
        operation["security"] = json!([]);
    }
    let body = match route.request {
        RequestSchema::Empty => None,
        RequestSchema::Body(object, how) => Some((object, how, true)),
        RequestSchema::Optional(object) => Some((object, WriteMode::Create, false)),
    };
    if let Some((object, how, required)) = body {
        let schema = schemas.object(object, SchemaDirection::Request(how));
        operation["requestBody"] = json!({"required": required, "content": {"application/json": {"schema": schema}}});
    }
    operation
}

fn description(needs: Needs) -> String {
    match needs {
        Needs::Nothing => "Needs no admin key and no session.".to_owned(),
        Needs::Own { all } => {
            format!("Below the scope `{}` only what belongs to the member of the session or admin key.", all.as_str())
        }
        Needs::Scope(AdminScope::Member) => "Needs a session, or an admin key of any scope.".to_owned(),
        Needs::Scope(scope) => {
            let wider = if scope == AdminScope::Operator { " or `admin`" } else { "" };
            format!("Needs a session or an admin key of the scope `{}`{wider}.", scope.as_str())
        }
    }
}

/// A page of these objects, with the further members of the route's pages.
fn page_schema(route: &Route, items: &Value) -> Value {
    let mut page = json!({
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": items},
            "next": {"type": ["string", "null"], "description": "The `after` of the next page."},
        },
        "additionalProperties": false,
    });
    if matches!(route.response, ResponseSchema::SearchPage(_)) {
        let about = "Set on a page that ends early because it has read many records: the time up to which it searched. `next` continues there.";
        page["required"] = json!(["items", "next", "searched_until"]);
        page["properties"]["searched_until"] = json!({"type": ["string", "null"], "format": "date-time", "description": about});
    }
    if matches!(route.response, ResponseSchema::SumsPage(_)) {
        let about = "Groups with requests, whatever `rows` allows.";
        page["required"] = json!(["items", "next", "groups"]);
        page["properties"]["groups"] = json!({"type": "integer", "minimum": 0, "maximum": 10_000, "description": about});
    }
    page
}

fn responses(route: &Route, schemas: &mut Schemas) -> Value {
    let content = |schema: Value| json!({"description": "Done.", "content": {"application/json": {"schema": schema}}});
    let mut responses = Map::new();
    match route.response {
        ResponseSchema::Object(object) => {
            responses.insert("200".to_owned(), content(schemas.object(object, SchemaDirection::Response)));
        }
        ResponseSchema::Created(object) => {
            let schema = schemas.object(object, SchemaDirection::Response);
            responses.insert("200".to_owned(), content(schema.clone()));
            responses.insert("201".to_owned(), content(schema));
        }
        ResponseSchema::Page(object)
        | ResponseSchema::SearchPage(object)
        | ResponseSchema::SumsPage(object)
        | ResponseSchema::Progress(object) => {
            let page = page_schema(route, &schemas.object(object, SchemaDirection::Response));
            responses.insert("200".to_owned(), content(page));
            if matches!(route.response, ResponseSchema::Progress(_)) {
                responses["200"]["content"]["application/jsonl"] = json!({"schema": {"type": "string"}});
            }
        }
        ResponseSchema::Empty => {
            responses.insert("204".to_owned(), json!({"description": "Done."}));
        }
        ResponseSchema::Redirect => {
            responses.insert("303".to_owned(), json!({"description": "The browser is redirected to `Location`."}));
        }
        ResponseSchema::TextLines => {
            let lines = json!({"schema": {"type": "string"}});
            let content = json!({"text/csv": lines, "application/jsonl": lines, "application/vnd.apache.parquet": {}});
            responses.insert("200".to_owned(), json!({"description": "The records.", "content": content}));
        }
        ResponseSchema::Document => {
            responses.insert("200".to_owned(), content(json!({"type": "object"})));
        }
        ResponseSchema::Events => {
            let content = json!({"text/event-stream": {"schema": event()}});
            responses.insert("200".to_owned(), json!({"description": "Events, each with these fields.", "content": content}));
        }
        ResponseSchema::File(media_type) => {
            let mut content = Map::new();
            content.insert(media_type.to_owned(), json!({}));
            responses.insert("200".to_owned(), json!({"description": "The file.", "content": content}));
        }
    }
    let failed = json!({"description": "Refused.", "content": {"application/json": {"schema": reference("Error")}}});
    responses.insert("default".to_owned(), failed);
    Value::Object(responses)
}

/// Whether a schema describes a request or a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaDirection {
    Request(WriteMode),
    Response,
}

impl Schemas {
    /// A reference to an object's schema, which is added on its first use.
    fn object(&mut self, object: &'static Object, side: SchemaDirection) -> Value {
        let name = match side {
            SchemaDirection::Response => object.name.to_owned(),
            SchemaDirection::Request(WriteMode::Create | WriteMode::File) => format!("New{}", object.name),
            SchemaDirection::Request(WriteMode::Update) => format!("{}Change", object.name),
        };
        if !self.0.contains_key(&name) {
            self.0.insert(name.clone(), Value::Null);
            let schema = self.members(object, side);
            self.0.insert(name.clone(), schema);
        }
        reference(&name)
    }

    fn members(&mut self, object: &'static Object, side: SchemaDirection) -> Value {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for field in object.fields {
            let (there, must) = match side {
                SchemaDirection::Response => {
                    let there = field.access.is_shown();
                    (there, there && field.access != Access::ShownOnce && !(object.sparse && field.nullable))
                }
                SchemaDirection::Request(mode) => (field.access.is_written(mode), field.access.is_needed(mode)),
            };
            if there {
                properties.insert(field.name.to_owned(), self.field(field, side));
            }
            if must {
                required.push(field.name);
            }
        }
        json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
    }

    fn field(&mut self, field: &FieldShape, side: SchemaDirection) -> Value {
        // Objects within a changed row are sent whole.
        let below =
            if side == SchemaDirection::Response { SchemaDirection::Response } else { SchemaDirection::Request(WriteMode::Create) };
        let schema = self.kind(&field.kind, below);
        let mut schema = if field.nullable { json!({"anyOf": [schema, {"type": "null"}]}) } else { schema };
        if let Some(members) = schema.as_object_mut() {
            let admins = if field.admin_only && side != SchemaDirection::Response { " Admins only." } else { "" };
            members.insert("description".to_owned(), format!("{}{admins}", field.doc).into());
        }
        schema
    }

    fn kind(&mut self, kind: &Kind, side: SchemaDirection) -> Value {
        match kind {
            Kind::Id(prefix) => json!({"type": "string", "pattern": format!("^{prefix}[0-9a-z]{{26}}$")}),
            Kind::Text { min: 0, .. } if side == SchemaDirection::Response => json!({"type": "string"}),
            Kind::Text { min, max } => {
                // Only long texts have lines.
                let control = if *max > 500 { CONTROL_BUT_LINES } else { CONTROL };
                json!({"type": "string", "minLength": min, "maxLength": max, "pattern": format!("^[^{control}]*$")})
            }
            // Bytes are bounded; no text of so many bytes has more characters.
            Kind::Name { max } => json!({
                "type": "string",
                "minLength": 1,
                "maxLength": max,
                "pattern": format!(r"^[^\s{CONTROL}]([^{CONTROL}]*[^\s{CONTROL}])?$"),
            }),
            Kind::Network => json!({
                "type": "string",
                "description": "An IP address, or a network such as 10.0.0.0/8.",
                "maxLength": MAX_NETWORK,
                "pattern": "^([0-9]{1,3}(\\.[0-9]{1,3}){3}(/[0-9]{1,2})?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(/[0-9]{1,3})?)$",
            }),
            Kind::Time => json!({"type": "string", "format": "date-time", "maxLength": MAX_TIME}),
            Kind::Flag => json!({"type": "boolean"}),
            Kind::Integer { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
            Kind::ZeroOr { min, max } => {
                json!({"type": "integer", "anyOf": [{"const": 0}, {"minimum": min, "maximum": max}]})
            }
            Kind::Usd { min, max } => decimal(9, (*min, *max), side),
            Kind::Factor { max } => decimal(6, (0, *max), side),
            Kind::Number { max } => json!({"type": "number", "minimum": 0, "maximum": max}),
            Kind::NumberOrNull { max } => json!({"type": ["number", "null"], "minimum": 0, "maximum": max}),
            Kind::Word(words) => json!({"type": "string", "enum": words}),
            Kind::List { of, max } => {
                let items = self.kind(of, side);
                json!({"type": "array", "items": items, "maxItems": max})
            }
            Kind::OneOrMore { of, min, max } => {
                let object = self.object(of, side);
                json!({"anyOf": [object, {"type": "array", "items": object, "minItems": min, "maxItems": max}]})
            }
            Kind::TextMap { max } => {
                json!({
                    "type": "object",
                    "propertyNames": {"maxLength": MAX_TEXT_NAME, "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"},
                    "additionalProperties": {"type": "string", "maxLength": MAX_TEXT_VALUE, "pattern": r"^[\t -~]*$"},
                    "maxProperties": max,
                })
            }
            Kind::FactorMap { max } => {
                let factor = self.kind(&Kind::Factor { max: i64::MAX }, side);
                json!({
                    "type": "object",
                    "propertyNames": self.kind(&Kind::Name { max: MAX_TEXT_NAME }, side),
                    "additionalProperties": factor,
                    "maxProperties": max,
                })
            }
            Kind::Object(object) => self.object(object, side),
            Kind::Form { schema, .. } => schema(),
            Kind::Any => json!({"type": "object"}),
        }
    }
}

/// Control characters, for a class of a pattern.
const CONTROL: &str = r"\u0000-\u001f\u007f-\u009f";
/// The same without tab and line ends.
const CONTROL_BUT_LINES: &str = r"\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f";

/// A decimal string with up to `places` decimals; requests may have a number instead. The bounds are in units of the last decimal.
fn decimal(places: u32, (min, max): (i64, i64), side: SchemaDirection) -> Value {
    let sign = if min < 0 { "-?" } else { "" };
    let pattern = format!("^{sign}[0-9]+(\\.[0-9]{{1,{places}}})?$");
    let text = json!({"type": "string", "maxLength": MAX_DECIMAL, "pattern": pattern});
    if side == SchemaDirection::Response {
        return text;
    }
    let unit = 10_i64.pow(places);
    let mut number = json!({"type": "number", "maximum": max / unit});
    number["minimum"] = (min / unit).into();
    json!({"anyOf": [text, number]})
}
