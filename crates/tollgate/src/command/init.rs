//! `init`: writes a commented settings file, creates the data folder with its master key and database, and makes an admin who can
//! sign in.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::Path,
};

use http::Method;
use serde_json::json;
use zeroize::Zeroizing;

use super::identity::{password_from_stdin, set_password};
use crate::{
    admin::{self, Admin, AdminRequest, ApiPath, FolderPolicy},
    cli::{self, Common},
    compose,
    config::{self, ConfigOverrides},
    failure::Failure,
    output,
};

const OWNER: &str = "owner";

pub(crate) fn run(common: &Common, arguments: &cli::Init) -> Result<(), Failure> {
    admin::require_local(common, "tollgate init")?;
    let file = &arguments.file;
    if file.exists() {
        let message = format!("{} exists already: edit it, or name another file with --file; nothing was written", file.display());
        return Err(Failure::Machine(message));
    }
    let settings = settings(common, arguments);
    check(&settings)?;
    // Ask before anything is written.
    let password = password(arguments)?;
    write(file, &with_settings(&config::example(), &settings))?;
    let common = Common { config: Some(file.clone()), ..common.clone() };
    compose::block_on(async {
        let admin = Admin::open(&common, FolderPolicy::CreateIfMissing).await?;
        if let Some(password) = &password {
            make_admin(&admin, arguments.admin.as_deref().unwrap_or(OWNER), password).await?;
        }
        Ok(())
    })?;
    report(&common, arguments, password.is_some());
    Ok(())
}

/// The settings that were given: section and name, and value.
fn settings(common: &Common, arguments: &cli::Init) -> Vec<(&'static str, String)> {
    let data = common.data.as_ref().map(|data| data.display().to_string());
    let given =
        [("server.data", data), ("server.listen", arguments.listen.clone()), ("console.url", arguments.console_url.clone())];
    given.into_iter().filter_map(|(path, value)| Some((path, value?))).collect()
}

/// Refuses settings with which the gateway would not start.
fn check(settings: &[(&'static str, String)]) -> Result<(), Failure> {
    config::load(&ConfigOverrides { file: None, flags: settings.to_vec() }).map(drop).map_err(Failure::Invalid)
}

/// The example file with these settings in force.
fn with_settings(example: &str, settings: &[(&'static str, String)]) -> String {
    let (mut section, mut lines) = (String::new(), Vec::new());
    for line in example.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        }
        let name = line.strip_prefix("# ").and_then(|line| line.split_once(" = ")).map(|(name, _)| format!("{section}.{name}"));
        let given = settings.iter().find(|(path, _)| Some(*path) == name.as_deref());
        lines.push(match given {
            Some((path, value)) => {
                let name = path.split_once('.').map_or(*path, |(_, name)| name);
                format!("{name} = {}", toml::Value::String(value.clone()))
            }
            None => line.to_owned(),
        });
    }
    lines.join("\n") + "\n"
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let written = std::fs::File::create_new(file).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::Machine(format!("cannot write {}: {error}", file.display())))
}

/// The admin's password: from standard input, from the environment, or asked for on a terminal. `None` for no admin.
fn password(arguments: &cli::Init) -> Result<Option<Zeroizing<String>>, Failure> {
    if arguments.no_admin {
        return Ok(None);
    }
    if arguments.password_stdin {
        return password_from_stdin().map(Some);
    }
    if let Some(password) = config::variable("TOLLGATE_ADMIN_PASSWORD").filter(|password| !password.is_empty()) {
        return Ok(Some(Zeroizing::new(password)));
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "no password for the admin: pipe it in with --password-stdin, set TOLLGATE_ADMIN_PASSWORD, or use --no-admin"
                .to_owned(),
        ));
    }
    output::remark("password of the first admin (10 to 128 characters, shown as you type; empty for a set-up link later):");
    let mut line = Zeroizing::new(String::new());
    io::stdin().lock().read_line(&mut line).map_err(|error| Failure::Usage(format!("nothing can be read: {error}")))?;
    let password = line.trim_end_matches(['\n', '\r']);
    Ok((!password.is_empty()).then(|| Zeroizing::new(password.to_owned())))
}

async fn make_admin(admin: &Admin, name: &str, password: &str) -> Result<(), Failure> {
    if name != OWNER {
        let body = json!({"name": name, "role": "admin"});
        admin.send(AdminRequest::of(Method::POST, &ApiPath::of(&["members"]), &body)).await?;
    }
    set_password(admin, name, password).await
}

fn report(common: &Common, arguments: &cli::Init, has_admin: bool) {
    let file = arguments.file.display().to_string();
    let name = arguments.admin.as_deref().unwrap_or(OWNER);
    if common.json {
        output::json(&json!({"file": file, "admin": has_admin.then_some(name)}));
        return;
    }
    output::line(&format!("wrote {file}, the data folder and its master key; back the key up"));
    output::line(&if has_admin {
        format!("the admin {name} can sign in; start with `tollgate serve`")
    } else {
        "start with `tollgate serve`; `tollgate setup-link` makes the link with which the first admin sets a password".to_owned()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_settings_are_set_and_all_others_are_commented_out() {
        let given = [("server.listen", "127.0.0.1:9".to_owned()), ("console.url", "https://a.example.com".to_owned())];
        let text = with_settings(&config::example(), &given);
        let read: toml::Table = text.parse().unwrap();
        assert_eq!(read["server"]["listen"].as_str(), Some("127.0.0.1:9"));
        assert_eq!(read["console"]["url"].as_str(), Some("https://a.example.com"));
        assert_eq!(read["server"].as_table().unwrap().len(), 1);
        assert_eq!(text.lines().count(), config::example().lines().count());
    }
}
