//! The export of finished days of usage records to S3-compatible storage, from the settings of the section `export`. The work is in
//! `work::export`, which a command or a job of the gateway runs.

pub(crate) mod schedule;
pub(crate) mod storage;

use rusty_s3::{Bucket, Credentials, UrlStyle};
use tollgate_console::day_text;

use crate::{
    config::{self, Config},
    failure::Failure,
};

/// Destination of exports, and the access key.
pub(crate) struct ExportTarget {
    bucket: Bucket,
    credentials: Credentials,
    prefix: String,
    private_network: bool,
}

impl ExportTarget {
    /// The target of the settings, if there is one. The access key is read each time, as its file may have been replaced.
    pub(crate) fn of(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(endpoint) = config.export_endpoint.clone() else { return Ok(None) };
        let secret = |path: &str| {
            let text = config::reference(config.text(path)).map_err(|fault| Failure::invalid(format!("{path}: {fault}")))?;
            Some(text).filter(|text| !text.is_empty()).ok_or_else(|| Failure::invalid(format!("{path} is empty")))
        };
        let style = if config.text("export.url_style") == "host" { UrlStyle::VirtualHost } else { UrlStyle::Path };
        let (name, region) = (config.text("export.bucket").to_owned(), config.text("export.region").to_owned());
        let bucket = Bucket::new(endpoint, style, name, region);
        Ok(Some(Self {
            bucket: bucket.map_err(|error| Failure::invalid(format!("export.endpoint and export.bucket: {error}")))?,
            credentials: Credentials::new(secret("export.access_key_id")?, secret("export.secret_access_key")?),
            prefix: config.text("export.prefix").to_owned(),
            private_network: config.flag("export.private_network"),
        }))
    }

    /// The target of the settings, which must name one.
    pub(crate) fn required(config: &Config) -> Result<Self, Failure> {
        let missing = "nothing is exported: set export.endpoint and the other settings of the section [export]";
        Self::of(config)?.ok_or_else(|| Failure::invalid(missing))
    }

    /// Bucket and prefix, such as `s3://records/usage`.
    pub(crate) fn shown(&self) -> String {
        format!("s3://{}/{}", self.bucket.name(), self.prefix).trim_end_matches('/').to_owned()
    }

    /// Name of a file of a day, such as `usage/date=2026-11-30/part-00000.parquet`.
    fn file_of_day(&self, day: i64, file: u64) -> String {
        self.object(&format!("date={}/part-{file:05}.parquet", day_text(day)))
    }

    fn object(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn objects_are_named_by_their_day() {
        let target = |prefix: &str| ExportTarget {
            bucket: Bucket::new(Url::parse("https://s3.example.com").unwrap(), UrlStyle::Path, "records", "r").unwrap(),
            credentials: Credentials::new("a", "b"),
            prefix: prefix.to_owned(),
            private_network: false,
        };
        assert_eq!(target("a/b").file_of_day(20_787, 12), "a/b/date=2026-11-30/part-00012.parquet");
        assert_eq!(target("").file_of_day(20_787, 0), "date=2026-11-30/part-00000.parquet");
        assert_eq!((target("a/b").shown(), target("").shown()), ("s3://records/a/b".to_owned(), "s3://records".to_owned()));
    }
}
