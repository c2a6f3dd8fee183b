//! Requests to S3-compatible storage: signed in the query (AWS Signature Version 4), sent over the gateway's guarded connections.
//!
//! A PUT is atomic, so an interrupted try can be repeated and leaves no partial object.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response};
use rusty_s3::{
    S3Action as _,
    actions::{DeleteObject, PutObject},
};
use tokio_util::task::TaskTracker;
use tollgate_gateway::upstream::client::{Trust, send_document};
use tollgate_store::WorkControl;
use url::Url;

use super::ExportTarget;
use crate::{compose, config::Config, gateway_settings};

/// Longest time of one try.
const TRY_TIMEOUT: Duration = Duration::from_mins(2);
const MAX_TRIES: u32 = 5;
/// Pause before the second try; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Validity of a signature: long enough for one try, with a clock that is a few minutes off.
const SIGNATURE_LIFE: Duration = Duration::from_mins(15);
const MAX_REGION: usize = 50;
/// Maximum number of characters of the storage's message that are shown.
const MAX_MESSAGE: usize = 300;

/// Why an object was not written or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StorageFault {
    Cancelled,
    /// There was no answer.
    Unreachable(String),
    Refused(Refused),
}

/// An answer that does not report success. Its texts are the storage's, shortened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    status: u16,
    code: String,
    message: String,
    /// The region of the bucket, if the answer names one.
    region: String,
}

impl Refused {
    fn of(answer: &Response<Vec<u8>>) -> Self {
        let text = String::from_utf8_lossy(answer.body());
        let header = answer.headers().get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        let header = header.filter(|region| region.len() <= MAX_REGION);
        Self {
            status: answer.status().as_u16(),
            code: element(&text, "Code"),
            message: element(&text, "Message"),
            region: header.map_or_else(|| element(&text, "Region"), str::to_owned),
        }
    }

    /// Whether the same request may succeed a little later.
    fn may_pass(&self) -> bool {
        self.status >= 500 || self.status == 429 || self.status == 408 || self.code == "RequestTimeout"
    }

    /// Advice for the operator.
    fn remedy(&self) -> Option<String> {
        let says = |text: &str| self.message.to_ascii_lowercase().contains(text);
        Some(match self.code.as_str() {
            "RequestTimeTooSkewed" => "set the clock of this machine, by NTP for instance".to_owned(),
            "AccessDenied" if says("expired") => "set the clock of this machine, by NTP for instance".to_owned(),
            "InvalidAccessKeyId" => "export.access_key_id is not a key of this storage".to_owned(),
            "SignatureDoesNotMatch" => "export.secret_access_key does not belong to export.access_key_id".to_owned(),
            "NoSuchBucket" => "make the bucket, or correct export.bucket or export.url_style".to_owned(),
            "PermanentRedirect" | "AuthorizationHeaderMalformed" | "AuthorizationQueryParametersError" | "TemporaryRedirect"
                if !self.region.is_empty() =>
            {
                format!("the bucket is in the region {}: set export.region, and the region in export.endpoint", self.region)
            }
            "PermanentRedirect"
            | "AuthorizationHeaderMalformed"
            | "AuthorizationQueryParametersError"
            | "IllegalLocationConstraintException" => "check export.region, and the region in export.endpoint".to_owned(),
            "AccessDenied" | "AllAccessDisabled" | "" if self.status == 403 => {
                "the access key needs s3:PutObject and s3:DeleteObject on the objects below export.prefix".to_owned()
            }
            "" if self.status == 404 => "check export.endpoint, export.bucket and export.url_style".to_owned(),
            _ if (300..400).contains(&self.status) => {
                "check export.endpoint and export.region: redirects are not followed".to_owned()
            }
            _ => return None,
        })
    }
}

impl fmt::Display for StorageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::Unreachable(fault) => write!(f, "the storage cannot be reached: {fault}"),
            Self::Refused(refused) => {
                write!(f, "the storage answered {}", refused.status)?;
                if !refused.code.is_empty() {
                    write!(f, " {}", refused.code)?;
                }
                if !refused.message.is_empty() {
                    write!(f, ": {}", refused.message.trim_end_matches('.'))?;
                }
                refused.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
            }
        }
    }
}

/// The text of the first element with this name in an error document, shortened to one line. All S3 implementations write them
/// without nesting.
fn element(document: &str, name: &str) -> String {
    let found = document.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once(&format!("</{name}>")));
    let text = found.map_or("", |(text, _)| text);
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain));
    plain.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(MAX_MESSAGE).collect()
}

/// Writes and removes objects.
pub(crate) struct Storage<'a> {
    pub(crate) target: &'a ExportTarget,
    control: &'a WorkControl,
    trust: Trust,
    tasks: TaskTracker,
    max_tries: u32,
}

impl<'a> Storage<'a> {
    /// Connects to the addresses that the settings permit.
    pub(crate) fn new(target: &'a ExportTarget, config: &Config, control: &'a WorkControl) -> Self {
        let trust = Trust::within(gateway_settings::addresses(config));
        Self { target, control, trust, tasks: TaskTracker::new(), max_tries: MAX_TRIES }
    }

    /// Tries every operation only once.
    pub(crate) fn once(self) -> Self {
        Self { max_tries: 1, ..self }
    }

    pub(crate) async fn put_file(&self, day: i64, file: u64, bytes: Bytes) -> Result<(), StorageFault> {
        self.put(&self.target.file_of_day(day, file), bytes).await
    }

    pub(crate) async fn remove_file(&self, day: i64, file: u64) -> Result<(), StorageFault> {
        self.remove(&self.target.file_of_day(day, file)).await
    }

    /// Writes a small object and removes it.
    pub(crate) async fn check(&self) -> Result<(), StorageFault> {
        let name = self.target.object("tollgate-check.txt");
        self.put(&name, Bytes::from_static(b"written by `tollgate doctor`, which removes it\n")).await?;
        self.remove(&name).await
    }

    async fn put(&self, object: &str, bytes: Bytes) -> Result<(), StorageFault> {
        let (bucket, credentials) = (&self.target.bucket, &self.target.credentials);
        self.send(Method::PUT, bytes, |time| PutObject::new(bucket, Some(credentials), object).sign_with_time(SIGNATURE_LIFE, time))
            .await
    }

    /// Removes an object; a missing object counts as removed.
    async fn remove(&self, object: &str) -> Result<(), StorageFault> {
        let (bucket, credentials) = (&self.target.bucket, &self.target.credentials);
        let sign =
            |time: &jiff::Timestamp| DeleteObject::new(bucket, Some(credentials), object).sign_with_time(SIGNATURE_LIFE, time);
        self.send(Method::DELETE, Bytes::new(), sign).await
    }

    /// Sends a request until it succeeds or cannot.
    async fn send(&self, method: Method, body: Bytes, sign: impl Fn(&jiff::Timestamp) -> Url) -> Result<(), StorageFault> {
        let mut pause = FIRST_PAUSE;
        for tries in 1.. {
            let sent = tokio::select! {
                () = self.control.cancelled() => return Err(StorageFault::Cancelled),
                sent = self.send_once(&method, &body, &sign) => sent,
            };
            let is_final = match &sent {
                Ok(()) | Err(StorageFault::Cancelled) => true,
                Err(StorageFault::Unreachable(_)) => false,
                Err(StorageFault::Refused(refused)) => !refused.may_pass(),
            };
            if is_final || tries >= self.max_tries {
                return sent;
            }
            tokio::select! {
                () = self.control.cancelled() => return Err(StorageFault::Cancelled),
                () = tokio::time::sleep(pause) => pause *= 2,
            }
        }
        Err(StorageFault::Cancelled)
    }

    async fn send_once(&self, method: &Method, body: &Bytes, sign: &impl Fn(&jiff::Timestamp) -> Url) -> Result<(), StorageFault> {
        let unreachable = |fault: &str| StorageFault::Unreachable(fault.to_owned());
        let now = jiff::Timestamp::from_microsecond(compose::now().0).map_err(|_| unreachable("the clock is wrong"))?;
        let request = Request::builder().method(method).uri(sign(&now).as_str()).body(body.clone());
        let request = request.map_err(|_| unreachable("its address is too long"))?;
        let sent = send_document(request, TRY_TIMEOUT, self.target.private_network, &self.trust, &self.tasks).await;
        let answer = sent.map_err(StorageFault::Unreachable)?;
        if answer.status().is_success() { Ok(()) } else { Err(StorageFault::Refused(Refused::of(&answer))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> Refused {
        Refused::of(&Response::builder().status(status).body(body.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn storage_error_has_the_message_of_the_storage_and_a_remedy() {
        let xml = |code: &str, message: &str| {
            format!(
                "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message><Region>eu-west-1</Region></Error>"
            )
        };
        for (status, code, message, expected) in [
            (403, "AccessDenied", "Access Denied", "s3:PutObject and s3:DeleteObject"),
            (403, "AccessDenied", "Request has expired", "clock"),
            (403, "RequestTimeTooSkewed", "The difference is too large.", "clock"),
            (403, "InvalidAccessKeyId", "&lt;none&gt; &amp;amp;", "<none> &amp;; export.access_key_id"),
            (403, "SignatureDoesNotMatch", "x", "export.secret_access_key"),
            (404, "NoSuchBucket", "x", "make the bucket"),
            (301, "PermanentRedirect", "x", "in the region eu-west-1"),
            (400, "AuthorizationQueryParametersError", "x", "in the region eu-west-1"),
            (400, "EntityTooLarge", "too large", "the storage answered 400 EntityTooLarge: too large"),
        ] {
            let shown = StorageFault::Refused(refused(status, &xml(code, message))).to_string();
            assert!(shown.starts_with(&format!("the storage answered {status} {code}: ")) && shown.contains(expected), "{shown}");
        }
        let shown = StorageFault::Refused(refused(403, "")).to_string();
        assert!(shown.starts_with("the storage answered 403; the access key needs"), "{shown}");
        let shown = StorageFault::Refused(refused(502, "<html>bad gateway</html>")).to_string();
        assert_eq!(shown, "the storage answered 502");
        let long = refused(400, &xml("X", &"ü\n".repeat(5_000)));
        assert!(long.message.chars().count() == MAX_MESSAGE && !long.message.contains('\n'));
        assert_eq!(refused(400, "<Code>open").code, "");
    }

    #[test]
    fn transient_storage_errors_are_retried() {
        for (status, code, passes) in [
            (500, "InternalError", true),
            (503, "SlowDown", true),
            (429, "", true),
            (400, "RequestTimeout", true),
            (403, "", false),
            (404, "", false),
        ] {
            assert_eq!(refused(status, &format!("<Code>{code}</Code>")).may_pass(), passes, "{status} {code}");
        }
    }
}
