//! `audit`: who changed what, newest first.

use crate::{
    admin::{Admin, ApiPath, FolderPolicy},
    cli::{Audit, Common},
    command::resource,
    compose,
    failure::Failure,
};

/// Lists lines of the audit log.
pub(crate) fn run(common: &Common, asked: &Audit) -> Result<(), Failure> {
    compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::MustExist).await?;
        let target = ApiPath::of(&["audit"]).with("limit", &asked.limit.to_string());
        let target = target.maybe("kind", asked.kind.as_deref()).maybe("id", asked.id.as_deref());
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
