//! `usage contents`: the stored body and answer of a request.

use serde_json::Value;

use crate::{
    admin::{Admin, AdminRequest, ApiPath},
    cli::Common,
    failure::Failure,
    output,
};

/// Prints body and answer as they were sent, or removes them.
pub(super) async fn contents(common: &Common, admin: &Admin, id: &str, is_removal: bool) -> Result<(), Failure> {
    let target = ApiPath::of(&["usage", id, "contents"]);
    if is_removal {
        admin.send(AdminRequest::delete(&target)).await?;
        output::result(common, &serde_json::json!({"removed": id}), &format!("removed the contents of {id}"));
        return Ok(());
    }
    let contents = admin.get(&target).await?;
    if common.json {
        output::json(&contents);
        return Ok(());
    }
    for (title, text) in [("body", &contents["request"]), ("answer", &contents["answer"])] {
        output::line(&heading(title, text));
        output::line(text["text"].as_str().unwrap_or_default());
    }
    Ok(())
}

/// Such as `answer, 5,000 bytes, the end is not stored:`.
fn heading(title: &str, text: &Value) -> String {
    let length = output::counted(text["bytes"].as_u64().unwrap_or_default(), "byte", "bytes");
    let cut = if text["is_cut"] == true { ", the end is not stored" } else { "" };
    format!("{title}, {length}{cut}:")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn heading_states_that_the_end_is_not_stored() {
        assert_eq!(heading("body", &json!({"bytes": 1, "is_cut": false})), "body, 1 byte:");
        assert!(heading("answer", &json!({"bytes": 7000, "is_cut": true})).ends_with("bytes, the end is not stored:"));
    }
}
