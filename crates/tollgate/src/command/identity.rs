//! Commands about sign-in: `setup-link`, `invite`, `session`, and the subcommands of `member` about its login.

use std::io::Read as _;

use http::Method;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::{
    admin::{Admin, AdminRequest, ApiPath, FolderPolicy, run as run_admin},
    cli::{self, Common},
    command::{
        resource::{self, MEMBERS},
        time_flag,
    },
    compose,
    failure::Failure,
    output,
};

/// Longest password that is read, in bytes.
const MAX_PASSWORD: u64 = 4_096;

pub(crate) fn setup_link(common: &Common) -> Result<(), Failure> {
    compose::block_on(async {
        // A link may be made before the first start.
        let admin = Admin::open(common, FolderPolicy::CreateIfMissing).await?;
        show_link(common, &make(&admin, &["setup-link"]).await?);
        Ok(())
    })
}

pub(crate) fn member(common: &Common, subcommand: cli::Member) -> Result<(), Failure> {
    match subcommand {
        cli::Member::Row(subcommand) => resource::named(common, MEMBERS, subcommand),
        cli::Member::ResetPassword { member, stdin: false } => run_admin(common, async |admin: &Admin| {
            show_link(common, &make(admin, &["members", &member.name, "password-link"]).await?);
            Ok(())
        }),
        cli::Member::ResetPassword { member, stdin: true } => {
            let password = password_from_stdin()?;
            run_admin(common, async |admin: &Admin| {
                set_password(admin, &member.name, &password).await?;
                let done = json!({"member": member.name, "password": "set"});
                output::result(common, &done, &format!("the password of {} is set, and its sessions have ended", member.name));
                Ok(())
            })
        }
        cli::Member::Login { member, email, unlink } => run_admin(common, async |admin: &Admin| {
            let target = ApiPath::of(&["members", &member.name, "login"]);
            let mut body = serde_json::Map::new();
            if let Some(email) = &email {
                body.insert("email".to_owned(), if email.is_empty() { Value::Null } else { email.as_str().into() });
            }
            if unlink {
                body.insert("oidc".to_owned(), false.into());
            }
            let login = if body.is_empty() {
                admin.get(&target).await?
            } else {
                admin.send(AdminRequest::of(Method::PATCH, &target, &body.into())).await?.body
            };
            show_login(common, &login);
            Ok(())
        }),
        cli::Member::DisableTotp(member) => run_admin(common, async |admin: &Admin| {
            let target = ApiPath::of(&["members", &member.name, "totp"]);
            show_login(common, &admin.send(AdminRequest::delete(&target)).await?.body);
            Ok(())
        }),
        cli::Member::Passkeys(member) => run_admin(common, async |admin: &Admin| {
            let (passkeys, _) = admin.page(&ApiPath::of(&["members", &member.name, "passkeys"])).await?;
            let columns = ["id", "name", "created_at", "used_at"];
            list(common, &passkeys, &["id", "name", "added", "last sign-in"], &columns);
            Ok(())
        }),
        cli::Member::RemovePasskey { member, passkey, .. } => run_admin(common, async |admin: &Admin| {
            let all = ["members", member.name.as_str(), "passkeys"];
            let path: Vec<&str> = all.into_iter().chain(passkey.as_deref()).collect();
            admin.send(AdminRequest::delete(&ApiPath::of(&path))).await?;
            let done = json!({"member": member.name, "passkey": passkey, "status": "removed"});
            let text = match &passkey {
                Some(passkey) => format!("removed {passkey}"),
                None => format!("removed all passkeys of {}, and its sessions have ended", member.name),
            };
            output::result(common, &done, &text);
            Ok(())
        }),
    }
}

/// POSTs an empty object.
async fn make(admin: &Admin, path: &[&str]) -> Result<Value, Failure> {
    let target = ApiPath::of(path);
    Ok(admin.send(AdminRequest { body: None, ..AdminRequest::of(Method::POST, &target, &Value::Null) }).await?.body)
}

pub(super) async fn set_password(admin: &Admin, member: &str, password: &str) -> Result<(), Failure> {
    let target = ApiPath::of(&["members", member, "password"]);
    admin.send(AdminRequest::of(Method::PUT, &target, &json!({"new_password": password}))).await?;
    Ok(())
}

/// The first line of standard input.
pub(super) fn password_from_stdin() -> Result<Zeroizing<String>, Failure> {
    let mut text = Zeroizing::new(String::new());
    let read = std::io::stdin().lock().take(MAX_PASSWORD).read_to_string(&mut text);
    read.map_err(|error| Failure::Usage(format!("the password cannot be read from standard input: {error}")))?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(Failure::Usage("standard input holds no password: pipe it in, or leave --stdin out for a link".to_owned()));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

fn show_link(common: &Common, link: &Value) {
    if common.json {
        output::json(link);
        return;
    }
    output::line(link["link"].as_str().unwrap_or_default());
    if !common.quiet {
        let (member, end) = (link["member"].as_str().unwrap_or_default(), link["expires_at"].as_str().unwrap_or_default());
        output::remark(&format!("it sets the password of the member {member}, once, until {end}: send it to that member only"));
    }
}

fn show_login(common: &Common, login: &Value) {
    let yes = |name: &str| if login[name] == true { "yes" } else { "no" }.to_owned();
    let text = |name: &str| login[name].as_str().unwrap_or("–").to_owned();
    if common.json {
        output::json(login);
        return;
    }
    let row = vec![
        text("member"),
        text("email"),
        yes("password"),
        yes("totp"),
        login["passkeys"].to_string(),
        yes("oidc"),
        text("signed_in_at"),
    ];
    output::table(&["member", "e-mail", "password", "one-time codes", "passkeys", "OpenID", "last sign-in"], &[row]);
}

pub(crate) fn invite(common: &Common, subcommand: &cli::Invite) -> Result<(), Failure> {
    run_admin(common, async |admin: &Admin| match subcommand {
        cli::Invite::Create { role, groups, note, expires } => {
            let mut body = json!({"role": cli::word(role), "groups": groups, "note": note});
            if let Some(text) = expires {
                let at = time_flag::parse_expiry("--expires", text, compose::now())?;
                body["expires_at"] = tollgate_console::rfc3339(at).into();
            }
            let target = ApiPath::of(&["invites"]);
            let made = admin.send(AdminRequest::of(Method::POST, &target, &body)).await?.body;
            output::result(common, &made, made["link"].as_str().unwrap_or_default());
            if !common.json && !common.quiet {
                let (id, end) = (made["id"].as_str().unwrap_or_default(), made["expires_at"].as_str().unwrap_or_default());
                output::remark(&format!("this link is shown once and valid until {end}; `tollgate invite revoke {id}` ends it"));
            }
            Ok(())
        }
        cli::Invite::List => {
            let invites = admin.all(&ApiPath::of(&["invites"])).await?;
            let columns = ["id", "state", "role", "note", "member", "expires_at", "created_by"];
            list(common, &invites, &["id", "state", "role", "for", "member", "expires", "made by"], &columns);
            Ok(())
        }
        cli::Invite::Revoke { invite } => {
            let target = ApiPath::of(&["invites", invite]);
            let revoked = admin.send(AdminRequest::delete(&target)).await?.body;
            output::result(common, &revoked, &format!("revoked {invite}"));
            Ok(())
        }
    })
}

pub(crate) fn session(common: &Common, subcommand: &cli::Session) -> Result<(), Failure> {
    run_admin(common, async |admin: &Admin| match subcommand {
        cli::Session::List { member } => {
            let all = ApiPath::of(&["sessions"]);
            let sessions = admin.all(&member.iter().fold(all, |target, member| target.with("member", member))).await?;
            let columns = ["id", "member", "method", "remembered", "address", "seen_at", "ends_at", "agent"];
            list(common, &sessions, &["id", "member", "by", "remembered", "address", "last seen", "ends", "browser"], &columns);
            Ok(())
        }
        cli::Session::Revoke { session } => {
            admin.send(AdminRequest::delete(&ApiPath::of(&["sessions", session]))).await?;
            output::result(common, &json!({"id": session, "status": "revoked"}), &format!("revoked {session}"));
            Ok(())
        }
    })
}

fn list(common: &Common, items: &[Value], headings: &[&str], columns: &[&str]) {
    let row = |item: &Value| columns.iter().map(|column| item[column].as_str().unwrap_or("–").to_owned()).collect();
    output::list(common, items, headings, &items.iter().map(row).collect::<Vec<_>>());
}
