//! Environment variables that begin with `TOLLGATE_` and are not settings. Misspelt settings are errors; others are named in
//! a warning at the start and are errors in `check`, because otherwise nothing would show that they have no effect.

use tollgate_store::fields::nearest;

use super::table::{self, SETTINGS};

/// Variables that are not settings.
const OTHERS: [&str; 5] =
    ["TOLLGATE_CONFIG", "TOLLGATE_URL", "TOLLGATE_ADMIN_KEY", "TOLLGATE_ADMIN_PASSWORD", "TOLLGATE_MASTER_KEY_FILE"];
/// Variables for the developers' tests, which have no effect on the program.
const TESTS: &str = "TOLLGATE_TEST_";
/// Names of a setting in other programs.
const SYNONYMS: [(&str, &str); 14] = [
    ("addr", "server.listen"),
    ("address", "server.listen"),
    ("bind", "server.listen"),
    ("host", "server.listen"),
    ("listenaddr", "server.listen"),
    ("port", "server.listen"),
    ("serverhost", "server.listen"),
    ("serverport", "server.listen"),
    ("db", "database.url"),
    ("dburl", "database.url"),
    ("postgres", "database.url"),
    ("postgresurl", "database.url"),
    ("datadir", "server.data"),
    ("datafolder", "server.data"),
];

/// Names that no setting has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UnknownNames {
    /// Misspelt settings, one sentence each.
    pub(super) faults: Vec<String>,
    /// Unused names that resemble no setting.
    pub(super) unread: Vec<String>,
}

/// Finds unknown names in the environment. `catalog` is the text of the catalog file: names that it refers to as `env:NAME`
/// are known. Names with `__` are checked together with the settings.
pub(super) fn unknown_names(names: &[String], value: &dyn Fn(&str) -> Option<String>, catalog: &str) -> UnknownNames {
    let is_ours = |name: &&String| name.starts_with("TOLLGATE_") && !name.contains("__");
    let is_read = |name: &str| {
        let aliases = SETTINGS.iter().filter_map(|setting| setting.alias);
        aliases.chain(OTHERS).any(|known| known == name)
            || name.starts_with(TESTS)
            || is_service_link(name, value(name).as_deref().unwrap_or_default())
            || refers_to(catalog, name)
    };
    let mut found = UnknownNames::default();
    for name in names.iter().filter(is_ours).filter(|name| !is_read(name)) {
        match meant(name) {
            Some(variable) => found.faults.push(format!(
                "unknown environment variable {name}; did you mean '{variable}'? Rename it if it is not for tollgate's settings"
            )),
            None => found.unread.push(name.clone()),
        }
    }
    found.unread.sort();
    found
}

/// Whether Kubernetes or Docker set this variable for a service called `tollgate`. They do not set `TOLLGATE_PORT=8080`, so that is
/// reported as a mistake.
fn is_service_link(name: &str, value: &str) -> bool {
    match name.strip_prefix("TOLLGATE_").unwrap_or_default() {
        "PORT" => value.contains("://"),
        "NAME" => value.starts_with('/'),
        rest => {
            let numbered = rest.strip_prefix("PORT_").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            numbered || rest == "SERVICE_HOST" || rest == "SERVICE_PORT" || rest.starts_with("SERVICE_PORT_")
        }
    }
}

fn refers_to(catalog: &str, name: &str) -> bool {
    let is_part = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    catalog.match_indices("env:").any(|(at, prefix)| {
        catalog.get(at + prefix.len()..).and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| !is_part(rest))
    })
}

/// The variable that was probably meant: `TOLLGATE_LISTEN` is `TOLLGATE_SERVER__LISTEN` without its section,
/// `TOLLGATE_SERVER_LISTEN` has one underscore too few.
fn meant(name: &str) -> Option<String> {
    let squeezed = |text: &str| text.to_lowercase().replace(['_', '.'], "");
    let wrong = squeezed(name.strip_prefix("TOLLGATE_")?);
    if let Some((_, path)) = SYNONYMS.iter().find(|(synonym, _)| *synonym == wrong) {
        return Some(table::variable(path));
    }
    let last = |path: &str| squeezed(path.split('.').next_back().unwrap_or_default());
    let section = |path: &str| squeezed(path.split('.').next().unwrap_or_default());
    let forms: [&dyn Fn(&str) -> String; 3] = [&squeezed, &last, &section];
    for form in forms {
        if let Some(setting) = SETTINGS.iter().find(|setting| form(setting.path) == wrong) {
            return Some(table::variable(setting.path));
        }
    }
    // Common words of four letters resemble the last part of a setting by chance (`NODE`, `ROLE`), but rarely a section.
    for (form, shortest) in forms.into_iter().zip([5, 5, 4]) {
        let known: Vec<String> = SETTINGS.iter().map(|setting| form(setting.path)).collect();
        let near = nearest(&wrong, known.iter().map(String::as_str)).filter(|_| wrong.len() >= shortest);
        if let Some(setting) = near.and_then(|near| SETTINGS.iter().find(|setting| form(setting.path) == near)) {
            return Some(table::variable(setting.path));
        }
    }
    let aliases = SETTINGS.iter().filter_map(|setting| setting.alias).chain(OTHERS);
    nearest(name, aliases.filter(|alias| alias.starts_with("TOLLGATE_")))
        .filter(|alias| near_enough(name, alias))
        .map(str::to_owned)
}

/// The common prefix makes any two names similar, so only the rest is compared.
fn near_enough(name: &str, alias: &str) -> bool {
    let rest = |text: &str| text.trim_start_matches("TOLLGATE_").to_owned();
    nearest(&rest(name), [rest(alias).as_str()]).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(name: &str, catalog: &str) -> UnknownNames {
        judged_value(name, "x", catalog)
    }

    fn judged_value(name: &str, value: &str, catalog: &str) -> UnknownNames {
        unknown_names(&[name.to_owned(), "PATH".to_owned()], &|_| Some(value.to_owned()), catalog)
    }

    #[test]
    fn setting_without_its_section_is_an_error_with_the_right_name() {
        for (name, right) in [
            ("TOLLGATE_LISTEN", "TOLLGATE_SERVER__LISTEN"),
            ("TOLLGATE_LISTN", "TOLLGATE_SERVER__LISTEN"),
            ("TOLLGATE_SERVER_LISTEN", "TOLLGATE_SERVER__LISTEN"),
            ("TOLLGATE_DATABASE_URL", "TOLLGATE_DATABASE__URL"),
            ("TOLLGATE_LOG_LEVEL", "TOLLGATE_LOG__LEVEL"),
            ("TOLLGATE_LOG", "TOLLGATE_LOG__LEVEL"),
            ("TOLLGATE_LOGG", "TOLLGATE_LOG__LEVEL"),
            ("TOLLGATE_LOGS", "TOLLGATE_LOG__LEVEL"),
            ("TOLLGATE_REDS", "TOLLGATE_REDIS__URL"),
            ("TOLLGATE_DATABSE", "TOLLGATE_DATABASE__URL"),
            ("TOLLGATE_DATAA", "TOLLGATE_SERVER__DATA"),
            ("TOLLGATE_MASTERKEY", "TOLLGATE_DATABASE__MASTER_KEY"),
            ("TOLLGATE_ADMINKEY", "TOLLGATE_ADMIN_KEY"),
            ("TOLLGATE_HOST", "TOLLGATE_SERVER__LISTEN"),
            ("TOLLGATE_PORT", "TOLLGATE_SERVER__LISTEN"),
            ("TOLLGATE_DB_URL", "TOLLGATE_DATABASE__URL"),
            ("TOLLGATE_DATA_DIR", "TOLLGATE_SERVER__DATA"),
        ] {
            let found = judged(name, "");
            assert!(found.faults.len() == 1 && found.faults[0].contains(&format!("'{right}'")), "{name}: {found:?}");
        }
    }

    #[test]
    fn unrelated_variable_is_only_reported() {
        for name in ["CI_KEY", "BACKUP_BUCKET", "FOO", "NAME", "NODE", "ROLE", "STAGE", "CLUSTER", "SERVICE_FOO"]
            .map(|it| format!("TOLLGATE_{it}"))
        {
            let name = name.as_str();
            assert_eq!(judged(name, ""), UnknownNames { faults: Vec::new(), unread: vec![name.to_owned()] });
        }
    }

    #[test]
    fn variables_read_elsewhere_and_service_links_are_accepted() {
        for name in ["TOLLGATE_URL", "TOLLGATE_DATA", "TOLLGATE_CONFIG", "TOLLGATE_TEST_POSTGRES"] {
            assert_eq!(judged(name, ""), UnknownNames::default(), "{name}");
        }
        for (name, value) in [
            ("TOLLGATE_SERVICE_HOST", "10.0.0.1"),
            ("TOLLGATE_SERVICE_PORT_HTTP", "80"),
            ("TOLLGATE_PORT", "tcp://10.0.0.1:80"),
            ("TOLLGATE_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("TOLLGATE_NAME", "/web/tollgate"),
        ] {
            assert_eq!(judged_value(name, value, ""), UnknownNames::default(), "{name} is a service link");
        }
        let catalog = "[[key]]\nsecret = \"env:TOLLGATE_SECRET\"\n";
        assert_eq!(judged("TOLLGATE_SECRET", catalog), UnknownNames::default());
        assert_eq!(judged("TOLLGATE_SEC", catalog).unread.len(), 1, "a part of a name is another name");
    }
}
