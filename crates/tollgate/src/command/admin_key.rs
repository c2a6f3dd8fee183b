//! `admin-key create|list|revoke`: keys of the admin API.

use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::{Admin, AdminRequest, ApiPath, FolderPolicy},
    cli::{self, Common},
    command::time_flag,
    compose,
    failure::Failure,
    output,
};

pub(crate) fn run(common: &Common, subcommand: cli::AdminKey) -> Result<(), Failure> {
    compose::block_on(async {
        match subcommand {
            cli::AdminKey::Create { name, scope, member, expires_at } => {
                if let Some(text) = &expires_at {
                    time_flag::parse("--expires-at", text)?;
                }
                // The first admin key may be created before the first start.
                let admin = Admin::open(common, FolderPolicy::CreateIfMissing).await?;
                let body = json!({"name": name, "scope": cli::word(&scope), "member": member, "expires_at": expires_at});
                create(common, &admin, &body).await
            }
            cli::AdminKey::List => list(common, &Admin::open(common, FolderPolicy::MustExist).await?).await,
            cli::AdminKey::Revoke { key } => revoke(common, &Admin::open(common, FolderPolicy::MustExist).await?, &key).await,
        }
    })
}

async fn create(common: &Common, admin: &Admin, body: &Value) -> Result<(), Failure> {
    let target = ApiPath::of(&["admin-keys"]);
    let created = admin.send(AdminRequest::of(Method::POST, &target, body)).await?.body;
    if common.json {
        output::json(&json!({"id": created["id"], "name": created["name"], "scope": created["scope"], "key": created["key"]}));
    } else {
        output::line(created["key"].as_str().unwrap_or_default());
        if !common.quiet {
            output::remark("this admin key is shown once; send it as 'Authorization: Bearer' to /admin/v1");
        }
    }
    Ok(())
}

async fn all(admin: &Admin) -> Result<Vec<Value>, Failure> {
    Ok(admin.all(&ApiPath::of(&["admin-keys"]).with("revoked", "true")).await?)
}

async fn list(common: &Common, admin: &Admin) -> Result<(), Failure> {
    let keys = all(admin).await?;
    let row = |key: &Value| {
        let text = |member: &str| key[member].as_str().unwrap_or_default().to_owned();
        vec![
            text("name"),
            format!("{}…{}", text("prefix"), text("suffix")),
            text("scope"),
            key["expires_at"].as_str().unwrap_or("never").to_owned(),
            key["revoked_at"].as_str().unwrap_or("–").to_owned(),
            text("id"),
        ]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    output::list(common, &keys, &["name", "key", "scope", "expires", "revoked", "id"], &rows);
    Ok(())
}

async fn revoke(common: &Common, admin: &Admin, name: &str) -> Result<(), Failure> {
    let keys = all(admin).await?;
    let found = keys.iter().find(|key| key["id"] == name || (key["revoked_at"].is_null() && key["name"] == name));
    let Some(id) = found.and_then(|key| key["id"].as_str()) else {
        return Err(Failure::Machine(format!("there is no admin key '{name}'; `tollgate admin-key list` shows them")));
    };
    let target = ApiPath::of(&["admin-keys", id]);
    admin.send(AdminRequest::delete(&target)).await?;
    output::result(common, &json!({"id": id, "status": "revoked"}), &format!("revoked {id}"));
    Ok(())
}
