//! Every setting there is: name, kind, default, words. The example file, the environment overlay, `tollgate check`
//! and the documentation are all made from this one table.

/// One setting.
pub(crate) struct SettingSpec {
    /// Section and name, such as `server.listen`.
    pub(crate) path: &'static str,
    /// What it takes.
    pub(crate) kind: SettingKind,
    /// Default, as TOML text; `None`: not set.
    pub(crate) default: Option<&'static str>,
    /// Sentences for the operator.
    pub(crate) doc: &'static str,
    /// Another environment variable with the same meaning.
    pub(crate) alias: Option<&'static str>,
    /// Shown as `***` wherever the effective settings are printed.
    pub(crate) secret: bool,
}

/// What a setting takes.
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
    /// Networks such as `10.0.0.0/8`, or single addresses, with commas between.
    Networks,
    /// One of these words.
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
            "Folder of the database, the journal and the master key. Created when missing; one process at a time.",
        )
    },
    setting("server.listen", SettingKind::Address, Some("\"127.0.0.1:8080\""), "Address of the one port that serves callers."),
    setting(
        "server.cores",
        SettingKind::Number(0, 256),
        Some("0"),
        "Cores for the model path, one runtime each; 0 takes all there are.",
    ),
    setting(
        "server.tls_cert",
        SettingKind::Text,
        None,
        "PEM file with the certificate chain. With `tls_key` set the port speaks TLS (HTTP/1.1 and HTTP/2).",
    ),
    setting("server.tls_key", SettingKind::Text, None, "PEM file with the private key of `tls_cert`."),
    setting(
        "server.max_connections",
        SettingKind::Number(1, 1_000_000),
        Some("20000"),
        "Connections at once; more are closed at the door.",
    ),
    setting(
        "server.max_connections_per_address",
        SettingKind::Number(0, 1_000_000),
        Some("0"),
        "Connections at once from one address (IPv6: one /64); 0 sets no bound, as behind a proxy.",
    ),
    setting(
        "server.trusted_proxies",
        SettingKind::Networks,
        None,
        "Proxies in front of the gateway, such as \"10.0.0.0/8, 192.0.2.7\": what they say in X-Forwarded-For is who called. Nobody else is believed.",
    ),
    setting("server.header_bytes", SettingKind::Number(1_024, 1 << 20), Some("65536"), "Largest head of a request."),
    setting("server.header_count", SettingKind::Number(8, 1_000), Some("100"), "Most header fields of a request."),
    setting(
        "server.target_bytes",
        SettingKind::Number(256, 1 << 16),
        Some("8192"),
        "Longest target (path and query) of a request.",
    ),
    setting(
        "server.header_timeout_ms",
        SettingKind::Number(1, DAY_MS),
        Some("10000"),
        "A request's head has to be complete within this time.",
    ),
    setting(
        "server.body_timeout_ms",
        SettingKind::Number(1, DAY_MS),
        Some("30000"),
        "Longest pause between two pieces of a request's body.",
    ),
    setting(
        "server.idle_timeout_ms",
        SettingKind::Number(1, DAY_MS),
        Some("60000"),
        "A connection without a request is closed after this time.",
    ),
    setting(
        "server.drain_timeout_ms",
        SettingKind::Number(0, DAY_MS),
        Some("600000"),
        "After SIGTERM running requests may go on this long.",
    ),
    setting("limits.body_bytes", SettingKind::Number(1_024, GIB), Some("33554432"), "Largest request body, after decompression."),
    setting(
        "limits.body_memory_bytes",
        SettingKind::Number(1 << 20, 1 << 50),
        Some("1073741824"),
        "Request bodies held at once, over all requests; more are answered 503 (E63).",
    ),
    setting(
        "limits.in_flight",
        SettingKind::Number(1, 1_000_000),
        Some("16384"),
        "Requests in progress at once; more are answered 503 (E63).",
    ),
    setting(
        "limits.wrong_keys_per_minute",
        SettingKind::Number(1, 1_000_000),
        Some("600"),
        "Wrong keys accepted from one address in a minute before they get 429.",
    ),
    setting(
        "upstream.total_timeout_ms",
        SettingKind::Number(1, DAY_MS),
        Some("600000"),
        "Longest time for a request that is not streamed, over all attempts.",
    ),
    setting(
        "upstream.keep_alive_ms",
        SettingKind::Number(100, DAY_MS),
        Some("15000"),
        "A silent stream gets a keep-alive this often.",
    ),
    setting(
        "budget.day",
        SettingKind::Text,
        None,
        "USD that all callers together may spend on a UTC day, such as 250 or 0.50; absent: no bound.",
    ),
    setting("budget.month", SettingKind::Text, None, "The same for a UTC month."),
    setting("budget.total", SettingKind::Text, None, "The same for ever."),
    setting(
        "budget.action",
        SettingKind::OneOf(&["block", "alert"]),
        Some("\"block\""),
        "What happens when one of them is spent. block: requests are refused (E32). alert: it is logged and told to `alerts.webhook`.",
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
            "redis://… or rediss://… (Valkey too): several nodes on one PostgreSQL database share what they count there.",
        )
    },
    setting(
        "redis.ca",
        SettingKind::Text,
        None,
        "PEM file with who signs Redis' certificate, for rediss://; absent: those that browsers trust.",
    ),
    setting(
        "redis.nodes",
        SettingKind::Number(1, 1_000),
        Some("3"),
        "How many nodes a node takes for granted that was started while Redis was away; its share of every bound.",
    ),
    setting(
        "degraded.max_age_s",
        SettingKind::Number(0, 31_536_000),
        Some("86400"),
        "How long known keys are served while a PostgreSQL database is away, from memory and `cache.sealed`; 0: not at all.",
    ),
    setting(
        "degraded.write_every_ms",
        SettingKind::Number(1_000, DAY_MS),
        Some("30000"),
        "`cache.sealed` is rewritten at most this often.",
    ),
    setting(
        "catalog.file",
        SettingKind::Text,
        None,
        "Catalog file to serve. What it names is owned by the file: read-only for the command line, re-read on SIGHUP and when it changes.",
    ),
    setting(
        "journal.sync",
        SettingKind::OneOf(&["background", "group"]),
        Some("\"background\""),
        "background: fsync every 5 ms, nobody waits. group: the last bytes of an answer wait for the group's fsync.",
    ),
    setting(
        "journal.max_bytes",
        SettingKind::Number(1 << 20, 1 << 50),
        Some("4294967296"),
        "Most bytes of entries waiting for the database.",
    ),
    setting(
        "alerts.webhook",
        SettingKind::Text,
        None,
        "http:// or https:// address that is sent a JSON object when a budget that alerts is spent.",
    ),
    SettingSpec {
        secret: true,
        ..setting(
            "alerts.secret",
            SettingKind::Text,
            None,
            "Signs what is sent (HMAC-SHA-256 in x-tollgate-signature), as env:NAME, file:PATH or the text itself.",
        )
    },
    setting("alerts.private_network", SettingKind::Flag, Some("false"), "The webhook may stand at a loopback or private address."),
    setting(
        "usage.retention_days",
        SettingKind::Number(0, 36_500),
        Some("0"),
        "Usage records are removed after so many days, in small slices; ledger, balances and roll-ups stay. 0 keeps them.",
    ),
    setting(
        "log.level",
        SettingKind::OneOf(&["error", "warn", "info", "debug", "trace"]),
        Some("\"info\""),
        "What is logged, to stderr.",
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
        "Address of its own for the admin API and /metrics; absent: they are on server.listen. Away from loopback it opens once there is an admin key.",
    ),
    setting(
        "console.tls",
        SettingKind::OneOf(&["auto", "off"]),
        Some("\"auto\""),
        "What that address speaks. auto: TLS where console.tls_cert or server.tls_cert is set. off: plain HTTP.",
    ),
    setting(
        "console.tls_cert",
        SettingKind::Text,
        None,
        "PEM file with the certificate chain of that address; absent: the one of server.tls_cert.",
    ),
    setting("console.tls_key", SettingKind::Text, None, "PEM file with the private key of `tls_cert`."),
    setting("metrics.public", SettingKind::Flag, Some("false"), "Serve /metrics to everyone; false: to loopback peers only."),
];

/// Finds a setting by path.
pub(crate) fn find(path: &str) -> Option<&'static SettingSpec> {
    SETTINGS.iter().find(|setting| setting.path == path)
}

/// `server.listen` → `TOLLGATE_SERVER__LISTEN`.
pub(crate) fn variable(path: &str) -> String {
    format!("TOLLGATE_{}", path.replace('.', "__").to_uppercase())
}

/// The example file: every setting, commented out, with its words and default.
#[expect(clippy::format_push_string, reason = "a small text, made once")]
pub(crate) fn example() -> String {
    let mut text = String::from(
        "# Every setting of tollgate with its default. Nothing here is needed: an empty file, or none, serves.\n\
         #\n\
         # Looked for as --config FILE, $TOLLGATE_CONFIG, ./tollgate.toml, /etc/tollgate/tollgate.toml.\n\
         # A flag beats an environment variable, which beats this file. TOLLGATE_SERVER__LISTEN is server.listen, and so on.\n\
         # The catalog (channels, models, prices, groups, keys) is a file of its own; see catalog.file.\n",
    );
    let mut section = "";
    for setting in SETTINGS {
        let (own, name) = setting.path.split_once('.').expect("each path has a section");
        if own != section {
            section = own;
            text += &format!("\n[{own}]\n");
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
