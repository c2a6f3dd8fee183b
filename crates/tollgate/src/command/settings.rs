//! `settings`: the effective settings of this machine or of a running gateway.

use crate::{
    admin::{Admin, ApiPath, FolderPolicy},
    cli::Common,
    command::resource,
    compose,
    failure::Failure,
};

/// Lists settings.
pub(crate) fn run(common: &Common, source: Option<&str>) -> Result<(), Failure> {
    compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::MustExist).await?;
        let (items, _) = admin.page(&ApiPath::of(&["settings"]).maybe("source", source)).await?;
        let columns = [("setting", "name"), ("value", "value"), ("from", "source"), ("variable", "variable")];
        resource::print_list(common, &columns, &items);
        Ok(())
    })
}
