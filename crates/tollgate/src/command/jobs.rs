//! `job`: the jobs of a running gateway.

use http::Method;
use serde_json::Value;

use crate::{
    admin::{self, AdminRequest, ApiPath},
    cli::{Common, Job},
    command::resource::{self, print_list},
    failure::Failure,
    output,
};

pub(crate) fn run(common: &Common, subcommand: &Job) -> Result<(), Failure> {
    match subcommand {
        Job::List { limit } => list(common, *limit),
        Job::Show { id } => show(common, id),
        Job::Cancel { id } => cancel(common, id),
    }
}

fn list(common: &Common, limit: u32) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let (mut items, more) = admin.page(&ApiPath::of(&["jobs"]).with("limit", &limit.to_string())).await?;
        if !common.json {
            for item in &mut items {
                item["progress"] = progress(&item["progress"]).into();
            }
        }
        let columns = [
            ("requested", "created_at"),
            ("kind", "kind"),
            ("state", "state"),
            ("progress", "progress"),
            ("by", "by"),
            ("id", "id"),
        ];
        print_list(common, &columns, &items);
        if more.is_some() && !common.json && !common.quiet {
            output::remark("there are older ones; --limit shows more");
        }
        Ok(())
    })
}

/// The latest progress in short, such as `entries 5/9`.
fn progress(progress: &Value) -> Option<String> {
    let (step, done) = (progress["step"].as_str()?, &progress["done"]);
    Some(progress["total"].as_u64().map_or_else(|| format!("{step} {done}"), |total| format!("{step} {done}/{total}")))
}

fn show(common: &Common, id: &str) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let job = admin.get(&ApiPath::of(&["jobs", id])).await?;
        print(common, &job);
        Ok(())
    })
}

fn cancel(common: &Common, id: &str) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let target = ApiPath::of(&["jobs", id, "cancel"]);
        let job = admin.send(AdminRequest::of(Method::POST, &target, &Value::Null)).await?.body;
        output::result(common, &job, &format!("job {id} is {}", resource::cell(&job["state"])));
        Ok(())
    })
}

fn print(common: &Common, job: &Value) {
    if common.json {
        output::json(job);
        return;
    }
    let shown = job.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let rows: Vec<Vec<String>> = shown
        .map(|(name, value)| {
            let text = if name == "progress" { progress(value) } else { None };
            vec![name.clone(), text.unwrap_or_else(|| resource::cell(value))]
        })
        .collect();
    output::table(&[], &rows);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn job_progress_has_a_short_form() {
        assert_eq!(progress(&json!({"step": "entries", "done": 5, "total": 9})).as_deref(), Some("entries 5/9"));
        assert_eq!(progress(&json!({"step": "effects", "done": 0, "total": null})).as_deref(), Some("effects 0"));
        assert_eq!(progress(&Value::Null), None);
    }
}
