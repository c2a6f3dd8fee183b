//! Table of all settings: name, kind, default, description, and which can be changed while the gateway runs. The example file,
//! environment variables, `tollgate check` and the admin API are derived from it.

use tollgate_console::{
    Appearance, CURRENCIES, Registration,
    SettingKind::{
        self, Address, Flag, HttpUrl, Image, Line, Networks, Number, OneOf, Origins, Pattern, Percents, Rate, Share, Text,
        TimeZone, Usd,
    },
};

pub(crate) struct SettingSpec {
    /// Section and name, such as `server.listen`.
    pub(crate) path: &'static str,
    /// Type and bounds.
    pub(crate) kind: SettingKind,
    /// Default as TOML text.
    pub(crate) default: Option<&'static str>,
    /// Description for operators.
    pub(crate) doc: &'static str,
    /// Another environment variable with the same meaning.
    pub(crate) alias: Option<&'static str>,
    /// Shown as `***` wherever the effective settings are printed.
    pub(crate) secret: bool,
    /// Whether a running gateway applies a change without a restart, so that the value may be stored in the database.
    pub(crate) at_run_time: bool,
}

impl SettingSpec {
    /// Unit of a number or an amount, by the end of its name; `None` for counts and other kinds of values.
    pub(crate) fn unit(&self) -> Option<&'static str> {
        const UNITS: [(&str, &str); 8] = [
            ("_ms", "ms"),
            ("bytes_per_s", "bytes/s"),
            ("_bytes", "bytes"),
            ("_s", "s"),
            ("_days", "days"),
            ("_minute", "per minute"),
            ("_hour", "per hour"),
            ("_percent", "%"),
        ];
        match self.kind {
            Number(..) => UNITS.iter().find(|(end, _)| self.path.ends_with(end)).map(|(_, unit)| *unit),
            Usd => Some("USD"),
            Percents => Some("%"),
            Text | Line(_) | HttpUrl | Image | TimeZone | Pattern | Address | Flag | Networks | OneOf(_) | Origins | Rate
            | Share => None,
        }
    }
}

/// Builds [`SETTINGS`] out of rows `"path": kind, default => "description";`, with further fields after the default.
macro_rules! settings {
    ($($path:literal: $kind:expr, $default:expr $(, $field:ident: $value:expr)* => $doc:literal;)*) => {
        /// The settings, in the order of the example file.
        pub(crate) const SETTINGS: &[SettingSpec] = &[$(SettingSpec {
            $($field: $value,)*
            ..SettingSpec { path: $path, kind: $kind, default: $default, doc: $doc, alias: None, secret: false, at_run_time: false }
        }),*];
    };
}

const DAY_MS: u64 = 86_400_000;
const GIB: u64 = 1 << 30;

settings! {
    "server.data": Text, Some("\"./tollgate-data\""), alias: Some("TOLLGATE_DATA") =>
        "Data folder: database, journal and master key. Created if missing; used by one process at a time.";
    "server.listen": Address, Some("\"127.0.0.1:8080\"") =>
        "Address that serves callers.";
    "server.cores": Number(0, 256), Some("0") =>
        "Cores for the model path, one runtime each; 0: all cores of the machine.";
    "server.tls_cert": Text, None =>
        "PEM file with the certificate chain. With `tls_key` it enables TLS (HTTP/1.1 and HTTP/2).";
    "server.tls_key": Text, None =>
        "PEM file with the private key of `tls_cert`.";
    "server.max_connections": Number(1, 1_000_000), Some("20000"), at_run_time: true =>
        "Concurrent connections. Near the limit those without a request are closed; further ones are closed at once.";
    "server.max_connections_per_address": Number(0, 1_000_000), Some("0"), at_run_time: true =>
        "Concurrent connections from one address (IPv6: one /64); 0: no limit. Use 0 behind a proxy.";
    "server.trusted_proxies": Networks, None, at_run_time: true =>
        "Proxies whose X-Forwarded-For header is trusted, such as \"10.0.0.0/8, 192.0.2.7\".";
    "server.cors_origins": Origins, None, at_run_time: true =>
        "Origins of web pages that may call the model API from a browser, such as \"https://app.example.com\", or \"*\" for all; absent: none.";
    "server.header_bytes": Number(1_024, 1 << 20), Some("65536"), at_run_time: true =>
        "Largest request head in bytes.";
    "server.header_count": Number(8, 1_000), Some("100"), at_run_time: true =>
        "Maximum number of header fields in a request.";
    "server.target_bytes": Number(256, 1 << 16), Some("8192"), at_run_time: true =>
        "Longest request target (path and query) in bytes.";
    "server.header_timeout_ms": Number(1, DAY_MS), Some("10000"), at_run_time: true =>
        "Longest time to receive a request head.";
    "server.body_timeout_ms": Number(1, DAY_MS), Some("30000"), at_run_time: true =>
        "Longest pause while receiving a request body.";
    "server.body_total_timeout_ms": Number(1, DAY_MS), Some("600000"), at_run_time: true =>
        "Longest time to receive a whole request body.";
    "server.min_bytes_per_s": Number(0, 1 << 30), Some("8192"), at_run_time: true =>
        "Minimum average rate at which a caller sends a body and reads a complete answer; it may be behind by the permitted pause. 0: no minimum.";
    "server.idle_timeout_ms": Number(1, DAY_MS), Some("60000"), at_run_time: true =>
        "Idle connections are closed after this time.";
    "server.drain_timeout_ms": Number(0, DAY_MS), Some("600000"), at_run_time: true =>
        "Longest time for running requests to finish after SIGTERM.";
    "limits.body_bytes": Number(1_024, GIB), Some("33554432"), at_run_time: true =>
        "Largest request body in bytes, after decompression.";
    "limits.body_memory_bytes": Number(1 << 20, 1 << 50), Some("1073741824"), at_run_time: true =>
        "Memory for request bodies and answers in bytes, over all requests; beyond it requests get 503 (E63).";
    "limits.in_flight": Number(1, 1_000_000), Some("16384"), at_run_time: true =>
        "Concurrent requests; further ones get 503 (E63).";
    "limits.revoked_streams": OneOf(&["end", "finish"]), Some("\"end\""), at_run_time: true =>
        "Streams that run when their key is revoked or disabled or its member suspended. end: they end with an error event (E4, E6) \
         within seconds. finish: they continue.";
    "limits.wrong_keys_per_minute": Number(1, 1_000_000), Some("600"), at_run_time: true =>
        "Requests with a wrong key per address and minute; further ones get 429.";
    "upstream.total_timeout_ms": Number(1, DAY_MS), Some("600000"), at_run_time: true =>
        "Longest time for a request without streaming, over all attempts, and for a probe or test of an account.";
    "upstream.keep_alive_ms": Number(100, DAY_MS), Some("10000"), at_run_time: true =>
        "Interval of keep-alives in a stream while the upstream is silent.";
    "upstream.answer_after_ms": Number(0, DAY_MS), Some("30000"), at_run_time: true =>
        "After this time of hidden thinking a stream is answered with 200 and keep-alives, and no longer fails over. 0: never.";
    "upstream.stall_timeout_ms": Number(1, DAY_MS), Some("1800000"), at_run_time: true =>
        "Longest time in which a stream, once answered, delivers only signs of life, such as comments, pings and empty deltas.";
    "upstream.allowed_addresses": Networks, None, at_run_time: true =>
        "Networks to which outgoing connections may go, such as \"192.0.2.0/24, 2001:db8::/32\"; absent: all. Private ones need `private_network` too.";
    "upstream.denied_addresses": Networks, None, at_run_time: true =>
        "Networks to which outgoing connections are refused, even if they are in `allowed_addresses`.";
    "budget.day": Usd, None, at_run_time: true =>
        "Budget of all callers together per UTC day in USD, such as 250 or 0.50; absent: no limit.";
    "budget.month": Usd, None, at_run_time: true =>
        "Budget of all callers together per UTC month in USD; absent: no limit.";
    "budget.total": Usd, None, at_run_time: true =>
        "Budget of all callers together in USD, without a period; absent: no limit.";
    "budget.action": OneOf(&["block", "alert"]), Some("\"block\""), at_run_time: true =>
        "When one of these budgets is spent. block: refuse requests (E32). alert: serve them, and raise an alert.";
    "database.url": Text, None, alias: Some("DATABASE_URL"), secret: true =>
        "sqlite:PATH or postgres://…; absent: `tollgate.db` in the data folder.";
    "database.master_key": Text, None, alias: Some("TOLLGATE_MASTER_KEY"), secret: true =>
        "Master key (`tgm1:…`), as env:NAME or file:PATH; absent: `master.key` in the data folder, created on first start.";
    "redis.url": Text, None, alias: Some("REDIS_URL"), secret: true =>
        "redis://… or rediss://… (Redis or Valkey): shared counters for several nodes on one PostgreSQL database.";
    "redis.ca": Text, None =>
        "PEM file with the CA of the Redis certificate, for rediss://; absent: public CAs.";
    "redis.nodes": Number(1, 1_000), Some("3") =>
        "Number of nodes assumed by a node that starts while Redis is unreachable: it uses that share of every limit.";
    "degraded.max_age_s": Number(0, 31_536_000), Some("86400") =>
        "How long known keys are served while PostgreSQL is unreachable, from memory and `cache.sealed`; 0: not at all.";
    "degraded.write_every_ms": Number(1_000, DAY_MS), Some("30000"), at_run_time: true =>
        "Shortest interval between writes of `cache.sealed`.";
    "catalog.file": Text, None =>
        "Catalog file to serve. The admin API and commands cannot change its rows. It is reloaded when it changes and on SIGHUP.";
    "journal.sync": OneOf(&["background", "group"]), Some("\"background\"") =>
        "background: fsync every 5 ms, without waiting. group: the last bytes of a response wait for a group fsync.";
    "journal.max_bytes": Number(1 << 20, 1 << 50), Some("4294967296"), at_run_time: true =>
        "Largest size in bytes of journal entries that are not in the database yet.";
    "journal.reserve_bytes": Number(0, 1 << 40), Some("67108864"), at_run_time: true =>
        "Disk space kept in reserve in the data folder. It is freed when the disk is full, so that records can be booked; 0: none.";
    "alerts.webhook": Text, None, secret: true =>
        "http:// or https:// URL that receives alerts of every rule as JSON objects. Destinations that can be changed while the gateway runs: `tollgate alert destination`.";
    "alerts.secret": Text, None, secret: true =>
        "Secret that signs webhook requests (HMAC-SHA-256 in x-tollgate-signature): env:NAME, file:PATH or literal text.";
    "alerts.private_network": Flag, Some("false") =>
        "Allow a webhook at a loopback or private address.";
    "alerts.budget_percent": Percents, Some("\"50,80,100\""), at_run_time: true =>
        "Percentages of a budget that raise an alert; empty: none.";
    "alerts.balance_usd": Usd, Some("\"1\""), at_run_time: true =>
        "Balance of a prepaid member below which an alert is raised; empty: none.";
    "alerts.member_mail": Line(100), None, at_run_time: true =>
        "Alert destination of kind `email`, by name, through whose server members get mails about their own budgets and balances, if they enable them; absent: none are sent.";
    "alerts.channel_down_s": Number(0, 86_400), Some("60"), at_run_time: true =>
        "Time without a usable account after which a channel raises an alert; 0: none.";
    "alerts.error_percent": Number(0, 100), Some("50"), at_run_time: true =>
        "Share of failed requests of a channel in the last five to ten minutes that raises an alert; 0: none.";
    "alerts.error_requests": Number(1, 1_000_000), Some("20"), at_run_time: true =>
        "Minimum number of requests for `error_percent`.";
    "alerts.negative_margin": Flag, Some("true"), at_run_time: true =>
        "Whether prices below cost raise an alert.";
    "alerts.unpriced_model": Flag, Some("true"), at_run_time: true =>
        "Whether a served model without a price raises an alert, while others have one.";
    "alerts.journal_bytes": Number(0, 1 << 50), Some("268435456"), at_run_time: true =>
        "Size of the journal in bytes that raises an alert; 0: none.";
    "alerts.expiry_days": Number(0, 36_500), Some("14"), at_run_time: true =>
        "Days before the end of a certificate or key when an alert is raised; 0: none.";
    "usage.retention_days": Number(0, 36_500), Some("0"), at_run_time: true =>
        "Days to keep usage records; 0: forever. Ledger, balances and roll-ups are always kept.";
    "export.endpoint": Text, None =>
        "Address of S3-compatible storage that every finished day of usage records is written to, such as \"https://s3.eu-central-1.amazonaws.com\"; absent: none are exported.";
    "export.url_style": OneOf(&["path", "host"]), Some("\"path\"") =>
        "Position of the bucket's name in requests. path: in the path. host: before the host of the endpoint.";
    "export.region": Text, Some("\"us-east-1\"") =>
        "Region of the bucket, for which requests are signed.";
    "export.bucket": Text, None =>
        "Name of the bucket.";
    "export.prefix": Text, Some("\"usage\"") =>
        "Prefix of the names of objects, without a slash at either end; empty: none.";
    "export.access_key_id": Text, None =>
        "Access key id: env:NAME, file:PATH or literal text.";
    "export.secret_access_key": Text, None, secret: true =>
        "Secret access key: env:NAME, file:PATH or literal text.";
    "export.private_network": Flag, Some("false") =>
        "Allow storage at a loopback or private address, and over http:.";
    "export.delay_minutes": Number(0, 1_440), Some("60") =>
        "Minutes after the end of a UTC day when it is exported. Records that are booked later are added by exporting the day again.";
    "backup.interval_hours": Number(0, 8_760), Some("0"), at_run_time: true =>
        "Hours between two scheduled backups of an SQLite database; 0: none. PostgreSQL is backed up with its own tools.";
    "backup.keep": Number(1, 1_000), Some("7"), at_run_time: true =>
        "Scheduled backups to keep; older ones are removed once a new one is made. Backups made on request are kept.";
    "backup.folder": Text, None =>
        "Folder for the backups of a running gateway, not shared with another one, such as \"/mnt/backups/tollgate\"; absent: `backups` in the data folder.";
    "contents.store": Flag, Some("false"), at_run_time: true =>
        "Whether bodies and answers are stored for the groups and keys with `log_contents`.";
    "contents.retention_days": Number(1, 3_650), Some("7"), at_run_time: true =>
        "Days to keep stored contents.";
    "contents.max_bytes": Number(1_024, 16 << 20), Some("262144"), at_run_time: true =>
        "Maximum stored bytes of a body, and of an answer; of base64 the first 1,024 characters count.";
    "contents.total_bytes": Number(1 << 20, 1 << 50), Some("1073741824"), at_run_time: true =>
        "Maximum compressed bytes of stored contents; beyond, the oldest contents of the keys with the most are removed.";
    "contents.redact": Pattern, None, at_run_time: true =>
        "Regular expression of texts that are replaced by `[redacted]` before contents are stored, such as \"sk-[A-Za-z0-9]+\"; absent: none.";
    "health.history_days": Number(1, 3_650), Some("90"), at_run_time: true =>
        "Days to keep the history of the health of accounts and channels.";
    "square.public": Flag, Some("true"), at_run_time: true =>
        "true: visitors without a key see the models and prices of public groups at /models.json and /models.atom. false: a key is needed.";
    "square.requests_per_minute": Number(1, 1_000_000), Some("120"), at_run_time: true =>
        "Requests for /models.json and /models.atom per address and minute; further ones get 429.";
    "log.level": OneOf(&["error", "warn", "info", "debug", "trace"]), Some("\"info\""), at_run_time: true =>
        "Log level; the log goes to stderr.";
    "log.format": OneOf(&["auto", "text", "json"]), Some("\"auto\"") =>
        "auto: text on a terminal, JSON lines otherwise.";
    "log.requests": OneOf(&["problems", "all", "none"]), Some("\"problems\""), at_run_time: true =>
        "Requests that are logged. problems: refused ones, those with a failed upstream, and slow ones.";
    "log.slow_ms": Number(0, DAY_MS), Some("30000"), at_run_time: true =>
        "Time to the first content from which a request counts as slow; 0: never.";
    "console.listen": Address, None =>
        "Separate address for the admin API and /metrics; absent: server.listen. A non-loopback address opens once an admin key exists, or an admin can sign in.";
    "console.tls": OneOf(&["auto", "off"]), Some("\"auto\"") =>
        "auto: TLS if console.tls_cert or server.tls_cert is set. off: plain HTTP.";
    "console.tls_cert": Text, None =>
        "PEM file with the certificate chain for console.listen; absent: server.tls_cert.";
    "console.tls_key": Text, None =>
        "PEM file with the private key of `tls_cert`.";
    "console.url": Text, None =>
        "Address of the console as browsers see it, such as \"https://gateway.example.com\": for links, cookies and the check where writes come from.";
    "console.api_url": HttpUrl, None, at_run_time: true =>
        "Address of model requests as callers reach it, such as \"https://api.example.com\": for the lines to copy that pages and commands show. Absent: that of console.url, or where the gateway listens.";
    "console.display_name": Line(60), Some("\"tollgate\""), at_run_time: true =>
        "Name of this gateway in the head and the title of pages.";
    "console.logo": Image, None, at_run_time: true =>
        "Image in the place of tollgate's mark, as a data: URL of at most 10,000 characters (about 7 KB): PNG, JPEG, WebP, GIF or SVG.";
    "console.announcement": Line(500), None, at_run_time: true =>
        "Text above the pages of callers and visitors, the model square and the sign-in among them; addresses in it are links. Absent: none.";
    "console.announcement_level": OneOf(Appearance::LEVELS), Some("\"info\""), at_run_time: true =>
        "Appearance of the announcement.";
    "console.home_text": Line(1_000), None, at_run_time: true =>
        "Text on the home page of members, such as where they find help; addresses in it are links. Absent: none.";
    "console.language": OneOf(&["auto", "en", "zh-CN"]), Some("\"auto\""), at_run_time: true =>
        "Language of pages for readers who have not chosen one; auto: the browser's.";
    "console.time_zone": TimeZone, None, at_run_time: true =>
        "Zone of times on pages for members and visitors who have not chosen one, such as \"Europe/Berlin\"; absent: that of their browser.";
    "console.session_idle_minutes": Number(1, 525_600), Some("720"), at_run_time: true =>
        "Minutes without a request after which a session ends, unless its member is remembered.";
    "console.session_max_hours": Number(1, 8_760), Some("720"), at_run_time: true =>
        "Hours after which a session ends at the latest.";
    "console.remember_me": Flag, Some("true"), at_run_time: true =>
        "Whether members can choose at the sign-in to be remembered: the browser keeps such a session when it is closed, and it stays valid without requests until session_max_hours.";
    "console.currency": OneOf(CURRENCIES), Some("\"USD\""), at_run_time: true =>
        "Currency in which pages show amounts, at the rate of `currency_per_usd`. Prices, budgets, balances, exports and APIs are in USD.";
    "console.currency_per_usd": Rate, None, at_run_time: true =>
        "Units of `currency` for one USD, such as \"7.1\"; absent: pages show amounts in USD.";
    "access.registration": OneOf(Registration::MODES), Some("\"invite\""), at_run_time: true =>
        "How people become members. off: admins create them; invites can be neither created nor accepted. invite: also with the link of an \
         invite. open: visitors can register, too.";
    "access.registration_group": Line(100), None, at_run_time: true =>
        "Group of members who register, for their keys that name no group; it is granted to them if it is private. Absent: the group `default`.";
    "access.registration_billing": OneOf(Registration::BILLING), Some("\"prepaid\""), at_run_time: true =>
        "Billing of members who register. prepaid: their balance, 0 at first, must cover each request. postpaid: it may go below zero, so everyone \
         who registers has credit.";
    "access.registrations_per_hour": Number(1, 10_000), Some("60"), at_run_time: true =>
        "Registrations in an hour on a node, refused ones included; at most 5 of one address. Further ones get 429.";
    "oidc.issuer": Text, None =>
        "Address of an OpenID provider at which members sign in, such as \"https://id.example.com\"; its callback is console.url with /admin/v1/oidc/callback.";
    "oidc.client_id": Text, None =>
        "Client id at the provider.";
    "oidc.client_secret": Text, None, secret: true =>
        "Client secret: env:NAME, file:PATH or literal text; absent: a public client.";
    "oidc.display_name": Text, Some("\"OpenID\"") =>
        "Name of the provider, as members see it.";
    "oidc.scopes": Text, Some("\"openid profile email\"") =>
        "Scopes to request, separated by blanks.";
    "oidc.role_claim": Text, None =>
        "Claim that decides the role at each sign-in, such as \"groups\" or \"realm_access.roles\"; absent: roles are kept here.";
    "oidc.admins": Text, None =>
        "Values of role_claim that make an admin, separated by commas.";
    "oidc.operators": Text, None =>
        "Values of role_claim that make an operator.";
    "oidc.members": Text, None =>
        "Values of role_claim that make a member; absent: every account that is admitted.";
    "oidc.group_claim": Text, None =>
        "Claim that determines private groups at each sign-in.";
    "oidc.groups": Text, None =>
        "Values of group_claim and the groups they grant, such as \"team-a=alpha, team-b=beta\". Other groups of a member stay.";
    "oidc.domains": Text, None =>
        "Domains of verified e-mail addresses that are admitted, separated by commas; absent: all.";
    "oidc.create_members": Flag, Some("false") =>
        "Whether an admitted account without a member becomes one; false: only members that an admin created for its e-mail address.";
    "oidc.private_network": Flag, Some("false") =>
        "Allow a provider at a loopback or private address.";
    "metrics.public": Flag, Some("false"), at_run_time: true =>
        "true: serve /metrics to everyone. false: to loopback peers only.";
    "telemetry.otlp_endpoint": Text, None, alias: Some("OTEL_EXPORTER_OTLP_ENDPOINT") =>
        "Base URL of an OpenTelemetry collector that takes OTLP over HTTP, such as \"http://127.0.0.1:4318\"; absent: no traces and metrics are exported.";
    "telemetry.headers": Text, None, alias: Some("OTEL_EXPORTER_OTLP_HEADERS"), secret: true =>
        "Headers of every export, such as \"authorization=Bearer TOKEN, x-team=a\": env:NAME, file:PATH or literal text.";
    "telemetry.service_name": Text, Some("\"tollgate\""), alias: Some("OTEL_SERVICE_NAME") =>
        "Name of this service in traces and metrics.";
    "telemetry.sampling": OneOf(&["ratio", "parent"]), Some("\"ratio\"") =>
        "Requests that are traced. ratio: sample_ratio of all. parent, for callers who are trusted: those whose callers record a trace (`traceparent`), and of the others sample_ratio.";
    "telemetry.sample_ratio": Share, Some("1") =>
        "Share of the requests that is traced, from 0 to 1.";
    "telemetry.metrics_interval_ms": Number(0, DAY_MS), Some("60000") =>
        "Time between two exports of metrics; 0: metrics are not exported.";
    "telemetry.private_network": Flag, Some("true") =>
        "Allow a collector at a loopback or private address.";
}

pub(crate) fn find(path: &str) -> Option<&'static SettingSpec> {
    SETTINGS.iter().find(|setting| setting.path == path)
}

/// `server.listen` → `TOLLGATE_SERVER__LISTEN`.
pub(crate) fn variable(path: &str) -> String {
    format!("TOLLGATE_{}", path.replace('.', "__").to_uppercase())
}

/// The example file: every setting, commented out, with its description and default.
#[expect(clippy::format_push_string, reason = "a small text, built once")]
pub(crate) fn example() -> String {
    let mut text = String::from(
        "# Every setting of tollgate with its default. All settings are optional; the file is too.\n\
         #\n\
         # Read from --config FILE, $TOLLGATE_CONFIG, ./tollgate.toml, /etc/tollgate/tollgate.toml.\n\
         # A flag overrides an environment variable, which overrides this file. TOLLGATE_SERVER__LISTEN sets server.listen, and so on.\n\
         # What can be changed at run time can also be stored in the database (`tollgate settings set NAME VALUE`); this file overrides it.\n\
         # The catalog (channels, models, prices, groups, keys) is a separate file; see catalog.file.\n",
    );
    let mut section = "";
    for setting in SETTINGS {
        let (current, name) = setting.path.split_once('.').expect("each path has a section");
        if current != section {
            section = current;
            text += &format!("\n[{current}]\n");
        }
        text += &format!("# {}\n", setting.doc);
        if let SettingKind::OneOf(words) = setting.kind {
            text += &format!("# One of: {}.\n", words.join(", "));
        }
        if let Some(alias) = setting.alias {
            text += &format!("# Also read from the environment as {alias}.\n");
        }
        if setting.at_run_time {
            text += "# Can be changed at run time.\n";
        }
        text += &format!("# {name} = {}\n", setting.default.unwrap_or("\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_setting_has_a_label_a_text_and_a_section_in_the_console() {
        let names: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.path).collect();
        assert_eq!(tollgate_console::described_settings().collect::<BTreeSet<_>>(), names);
        assert_eq!(tollgate_console::labelled_settings().collect::<BTreeSet<_>>(), names);
        let lost: Vec<_> = names.into_iter().filter(|name| tollgate_console::section_of_setting(name).is_none()).collect();
        assert!(lost.is_empty(), "without a section: {lost:?}");
    }
}
