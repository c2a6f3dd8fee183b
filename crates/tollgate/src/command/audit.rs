//! `audit`: the audit log, newest first.

use crate::{
    admin::{Admin, ApiPath, FolderPolicy},
    cli::{Audit, Common},
    command::{resource, time_flag},
    compose,
    failure::Failure,
};

/// Lists entries of the audit log.
pub(crate) fn run(common: &Common, arguments: &Audit) -> Result<(), Failure> {
    compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::MustExist).await?;
        let target = ApiPath::of(&["audit"]).with("limit", &arguments.limit.to_string());
        let time = |flag: &str, text: Option<&String>| {
            text.map(|text| time_flag::parse(flag, text).map(tollgate_console::rfc3339)).transpose()
        };
        let target = target
            .maybe("kind", arguments.kind.as_deref())
            .maybe("id", arguments.id.as_deref())
            .maybe("name", arguments.name.as_deref())
            .maybe("actor", arguments.actor.as_deref())
            .maybe("since", time("--since", arguments.since.as_ref())?.as_deref())
            .maybe("until", time("--until", arguments.until.as_ref())?.as_deref());
        let (items, _) = admin.page(&target).await?;
        let columns = [
            ("at", "at"),
            ("who", "actor"),
            ("through", "door"),
            ("action", "action"),
            ("kind", "kind"),
            ("name", "name"),
            ("id", "id"),
        ];
        resource::print_list(common, &columns, &items);
        Ok(())
    })
}
