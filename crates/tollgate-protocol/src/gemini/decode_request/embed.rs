//! Decodes `:embedContent` and `:batchEmbedContents`.

use super::FROM;
use crate::{
    Malformed,
    neutral::{EmbedRequest, Located, Operation, Request},
    object::Fields,
};

/// Why texts with settings of their own are refused.
const UNEVEN: &str = "its settings differ from those of the first request, and other protocols have one setting for all texts";

struct EmbedContent {
    text: String,
    task: Option<Located<String>>,
    title: Option<Located<String>>,
    dimensions: Option<Located<u32>>,
}

pub(super) fn one(mut fields: Fields<'_, '_>, model: String) -> Result<Request, Malformed> {
    let mut refused = Vec::new();
    let EmbedContent { text, task, title, dimensions } = read(&mut fields, &mut refused)?;
    let embed = EmbedRequest { inputs: vec![text], list: false, dimensions, task, title, base64: false, user: None };
    Ok(finished(model, embed, refused))
}

/// Decodes `:batchEmbedContents`. All texts must have equal settings: other protocols have one setting per request.
pub(super) fn batch(mut fields: Fields<'_, '_>, model: String) -> Result<Request, Malformed> {
    let Some((items, path)) = fields.list("requests")? else { return Err(Malformed::missing(FROM, "requests")) };
    let (mut refused, mut uneven) = (Vec::new(), Vec::new());
    let (mut inputs, mut first) = (Vec::with_capacity(items.len()), None::<EmbedContent>);
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut one = read(&mut Fields::new(item, &path, FROM)?, &mut refused)?;
        inputs.push(std::mem::take(&mut one.text));
        match &first {
            None => first = Some(one),
            Some(known)
                if same(known.task.as_ref(), one.task.as_ref())
                    && same(known.title.as_ref(), one.title.as_ref())
                    && same(known.dimensions.as_ref(), one.dimensions.as_ref()) => {}
            Some(_) => uneven.push(path),
        }
    }
    let Some(EmbedContent { task, title, dimensions, .. }) = first else {
        return Err(Malformed::invalid(FROM, &path, "must not be empty"));
    };
    fields.ignore(&["model"]);
    refused.extend(fields.rest());
    let embed = EmbedRequest { inputs, list: true, dimensions, task, title, base64: false, user: None };
    let mut request = finished(model, embed, refused);
    for path in uneven {
        request.refuse_because(path, UNEVEN);
    }
    Ok(request)
}

fn same<T: PartialEq>(left: Option<&Located<T>>, right: Option<&Located<T>>) -> bool {
    left.map(|given| &given.value) == right.map(|given| &given.value)
}

fn finished(model: String, embed: EmbedRequest, refused: Vec<String>) -> Request {
    let mut request = Request::new(model, FROM, Operation::Embed(Box::new(embed)));
    request.refuse_all(refused);
    request
}

fn read(fields: &mut Fields<'_, '_>, refused: &mut Vec<String>) -> Result<EmbedContent, Malformed> {
    let path = fields.path().to_owned();
    let missing = if path.is_empty() { "content".to_owned() } else { format!("{path}.content") };
    let mut content = fields.object("content")?.ok_or_else(|| Malformed::missing(FROM, &missing))?;
    let mut texts = Vec::new();
    for (item, path) in content.elements("parts")? {
        match Fields::new(item, &path, FROM)?.text("text")? {
            Some(text) => texts.push(text.value),
            None => refused.push(path),
        }
    }
    let mut one = settings(fields)?;
    if let Some(mut config) = fields.object("embedContentConfig")? {
        let newer = settings(&mut config)?;
        one = EmbedContent {
            text: String::new(),
            task: newer.task.or(one.task),
            title: newer.title.or(one.title),
            dimensions: newer.dimensions.or(one.dimensions),
        };
        for name in ["autoTruncate", "documentOcr", "audioTrackExtraction"] {
            if let Some(enabled) = config.bool(name)?.filter(|enabled| enabled.value) {
                refused.push(enabled.path);
            }
        }
        refused.extend(config.rest());
    }
    fields.ignore(&["model"]);
    refused.extend(fields.rest());
    Ok(EmbedContent { text: texts.join("\n"), ..one })
}

fn settings(fields: &mut Fields<'_, '_>) -> Result<EmbedContent, Malformed> {
    let task = fields.text("taskType")?.map(|task| Located::new(task.value.to_ascii_uppercase(), task.path));
    Ok(EmbedContent {
        text: String::new(),
        task: task.filter(|task| task.value != "TASK_TYPE_UNSPECIFIED"),
        title: fields.text("title")?,
        dimensions: fields.count("outputDimensionality", 1)?,
    })
}
