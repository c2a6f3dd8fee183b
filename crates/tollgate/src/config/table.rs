//! Table of all settings: name, kind, default, description. The example file, environment variables and `tollgate check` are
//! derived from it.

/// One setting.
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
}

/// Type and bounds of a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SettingKind {
    /// Any text.
    Text,
    /// A socket address.
    Address,
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Number(u64, u64),
    /// Networks such as `10.0.0.0/8`, or addresses, separated by commas.
    Networks,
    /// One of these values.
    OneOf(&'static [&'static str]),
}

const fn setting(path: &'static str, kind: SettingKind, default: Option<&'static str>, doc: &'static str) -> SettingSpec {
    SettingSpec { path, kind, default, doc, alias: None, secret: false }
}

const DAY_MS: u64 = 86_400_000;
const GIB: u64 = 1 << 30;

/// The settings, in the order of the example file.
pub(crate) const SETTINGS: &[SettingSpec] = &[
    SettingSpec {
        alias: Some("TOLLGATE_DATA"),
        ..setting(
            "server.data",
            SettingKind::Text,
            Some("\"./tollgate-data\""),
            "Data folder: database, journal and master key. Created if missing; used by one process at a time.",
        )
    },
    setting("server.listen", SettingKind::Address, Some("\"127.0.0.1:8080\""), "Address that serves callers."),
    setting(
        "server.cores",
        SettingKind::Number(0, 256),
        Some("0"),
        "Cores for the model path, one runtime each; 0: all cores of the machine.",
    ),
    setting(
        "server.tls_cert",
        SettingKind::Text,
        None,
        "PEM file with the certificate chain. With `tls_key` it enables TLS (HTTP/1.1 and HTTP/2).",
    ),
    setting("server.tls_key", SettingKind::Text, None, "PEM file with the private key of `tls_cert`."),
    setting(
        "server.max_connections",
        SettingKind::Number(1, 1_000_000),
        Some("20000"),
        "Concurrent connections; further ones are closed at once.",
    ),
    setting(
        "server.max_connections_per_address",
        SettingKind::Number(0, 1_000_000),
        Some("0"),
        "Concurrent connections from one address (IPv6: one /64); 0: no limit. Use 0 behind a proxy.",
    ),
    setting(
        "server.trusted_proxies",
        SettingKind::Networks,
        None,
        "Proxies whose X-Forwarded-For header is trusted, such as \"10.0.0.0/8, 192.0.2.7\".",
    ),
    setting("server.header_bytes", SettingKind::Number(1_024, 1 << 20), Some("65536"), "Largest request head in bytes."),
    setting("server.header_count", SettingKind::Number(8, 1_000), Some("100"), "Maximum number of header fields in a request."),
    setting(
        "server.target_bytes",
        SettingKind::Number(256, 1 << 16),
        Some("8192"),
        "Longest request target (path and query) in bytes.",
    ),
    setting("server.header_timeout_ms", SettingKind::Number(1, DAY_MS), Some("10000"), "Longest time to receive a request head."),
    setting(
        "server.body_timeout_ms",
        SettingKind::Number(1, DAY_MS),
        Some("30000"),
        "Longest pause while receiving a request body.",
    ),
    setting(
        "server.body_total_timeout_ms",
        SettingKind::Number(1, DAY_MS),
        Some("600000"),
        "Longest time to receive a whole request body.",
    ),
    setting(
        "server.least_bytes_per_s",
        SettingKind::Number(0, 1 << 30),
        Some("8192"),
        "Least average rate at which a caller sends a body and reads a complete answer; it may be behind by the pause allowed. 0: none.",
    ),
    setting(
        "server.idle_timeout_ms",
        SettingKind::Number(1, DAY_MS),
        Some("60000"),
        "Idle connections are closed after this time.",
    ),
    setting(
        "server.drain_timeout_ms",
        SettingKind::Number(0, DAY_MS),
        Some("600000"),
        "Longest time for running requests to finish after SIGTERM.",
    ),
    setting(
        "limits.body_bytes",
        SettingKind::Number(1_024, GIB),
        Some("33554432"),
        "Largest request body in bytes, after decompression.",
    ),
    setting(
        "limits.body_memory_bytes",
        SettingKind::Number(1 << 20, 1 << 50),
        Some("1073741824"),
        "Memory for request bodies and complete answers in bytes, over all requests; beyond it requests get 503 (E63).",
    ),
    setting(
        "limits.in_flight",
        SettingKind::Number(1, 1_000_000),
        Some("16384"),
        "Concurrent requests; further ones get 503 (E63).",
    ),
    setting(
        "limits.wrong_keys_per_minute",
        SettingKind::Number(1, 1_000_000),
        Some("600"),
        "Requests with a wrong key per address and minute; further ones get 429.",
    ),
    setting(
        "upstream.total_timeout_ms",
        SettingKind::Number(1, DAY_MS),
        Some("600000"),
        "Longest time for a request without streaming, over all attempts.",
    ),
    setting(
        "upstream.keep_alive_ms",
        SettingKind::Number(100, DAY_MS),
        Some("15000"),
        "Interval of keep-alives in a stream while the upstream is silent.",
    ),
    setting(
        "budget.day",
        SettingKind::Text,
        None,
        "Budget of all callers together per UTC day in USD, such as 250 or 0.50; absent: no limit.",
    ),
    setting("budget.month", SettingKind::Text, None, "The same per UTC month."),
    setting("budget.total", SettingKind::Text, None, "The same without a period."),
    setting(
        "budget.action",
        SettingKind::OneOf(&["block", "alert"]),
        Some("\"block\""),
        "When one of these budgets is spent. block: refuse requests (E32). alert: log it and notify `alerts.webhook`.",
    ),
    SettingSpec {
        alias: Some("DATABASE_URL"),
        secret: true,
        ..setting("database.url", SettingKind::Text, None, "sqlite:PATH or postgres://…; absent: `tollgate.db` in the data folder.")
    },
    SettingSpec {
        alias: Some("TOLLGATE_MASTER_KEY"),
        secret: true,
        ..setting(
            "database.master_key",
            SettingKind::Text,
            None,
            "Master key (`tgm1:…`), as env:NAME or file:PATH; absent: `master.key` in the data folder, created on first start.",
        )
    },
    SettingSpec {
        alias: Some("REDIS_URL"),
        secret: true,
        ..setting(
            "redis.url",
            SettingKind::Text,
            None,
            "redis://… or rediss://… (Redis or Valkey): shared counters for several nodes on one PostgreSQL database.",
        )
    },
    setting(
        "redis.ca",
        SettingKind::Text,
        None,
        "PEM file with the CA of the Redis certificate, for rediss://; absent: public CAs.",
    ),
    setting(
        "redis.nodes",
        SettingKind::Number(1, 1_000),
        Some("3"),
        "Number of nodes assumed by a node that starts while Redis is unreachable: it uses that share of every limit.",
    ),
    setting(
        "degraded.max_age_s",
        SettingKind::Number(0, 31_536_000),
        Some("86400"),
        "How long known keys are served while PostgreSQL is unreachable, from memory and `cache.sealed`; 0: not at all.",
    ),
    setting(
        "degraded.write_every_ms",
        SettingKind::Number(1_000, DAY_MS),
        Some("30000"),
        "Shortest interval between writes of `cache.sealed`.",
    ),
    setting(
        "catalog.file",
        SettingKind::Text,
        None,
        "Catalog file to serve. Its rows are read-only elsewhere. It is reloaded when it changes and on SIGHUP.",
    ),
    setting(
        "journal.sync",
        SettingKind::OneOf(&["background", "group"]),
        Some("\"background\""),
        "background: fsync every 5 ms, without waiting. group: the last bytes of a response wait for a group fsync.",
    ),
    setting(
        "journal.max_bytes",
        SettingKind::Number(1 << 20, 1 << 50),
        Some("4294967296"),
        "Largest size in bytes of journal entries that are not in the database yet.",
    ),
    setting(
        "alerts.webhook",
        SettingKind::Text,
        None,
        "http:// or https:// URL that receives a JSON object when a budget with an alert is spent.",
    ),
    SettingSpec {
        secret: true,
        ..setting(
            "alerts.secret",
            SettingKind::Text,
            None,
            "Secret that signs webhook requests (HMAC-SHA-256 in x-tollgate-signature): env:NAME, file:PATH or literal text.",
        )
    },
    setting("alerts.private_network", SettingKind::Flag, Some("false"), "Allow a webhook at a loopback or private address."),
    setting(
        "usage.retention_days",
        SettingKind::Number(0, 36_500),
        Some("0"),
        "Days to keep usage records; 0: forever. Ledger, balances and roll-ups are always kept.",
    ),
    setting(
        "log.level",
        SettingKind::OneOf(&["error", "warn", "info", "debug", "trace"]),
        Some("\"info\""),
        "Log level; the log goes to stderr.",
    ),
    setting(
        "log.format",
        SettingKind::OneOf(&["auto", "text", "json"]),
        Some("\"auto\""),
        "auto: text on a terminal, JSON lines otherwise.",
    ),
    setting(
        "console.listen",
        SettingKind::Address,
        None,
        "Separate address for the admin API and /metrics; absent: server.listen. A non-loopback address opens once an admin key exists.",
    ),
    setting(
        "console.tls",
        SettingKind::OneOf(&["auto", "off"]),
        Some("\"auto\""),
        "auto: TLS if console.tls_cert or server.tls_cert is set. off: plain HTTP.",
    ),
    setting(
        "console.tls_cert",
        SettingKind::Text,
        None,
        "PEM file with the certificate chain for console.listen; absent: server.tls_cert.",
    ),
    setting("console.tls_key", SettingKind::Text, None, "PEM file with the private key of `tls_cert`."),
    setting("metrics.public", SettingKind::Flag, Some("false"), "true: serve /metrics to everyone. false: to loopback peers only."),
];

/// Finds a setting by path.
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
        text += &format!("# {name} = {}\n", setting.default.unwrap_or("\"\""));
    }
    text
}
